//! The settings of a client, as plain data.

use std::time::Duration;

use leasehold_core::{Invalid, drift_allowance};
use leasehold_store::params::check_bounds;
use leasehold_store::setters;
use serde::{Deserialize, Serialize};

/// The defaults of a client's locks. Plain data that can be read from any configuration format.
///
/// Durations are written as `{ secs, nanos }` by most formats.
///
/// ```
/// use std::time::Duration;
/// let settings = leasehold::Settings::default().with_ttl(Duration::from_secs(60));
/// assert!(settings.check().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
#[must_use = "settings do nothing until a client connects with them"]
pub struct Settings {
    /// How long a lease lives without renewal. Default 30 s; 50 ms to 24 h.
    pub ttl: Duration,
    /// How long a waiting claim lives without renewal, which is how long a crashed waiter can
    /// delay the others. Default 10 s, or the lease TTL if that is shorter.
    pub waiter_ttl: Duration,
    /// The share of the TTL after which a lease is renewed. Default a third; 0.05 to 0.8.
    pub renew_at: f64,
    /// How long one request to the store may take, retries included, before it
    /// counts as unanswered. Default 5 s; at most 30 s.
    pub operation_timeout: Duration,
    /// The label that others see beside the host and process id.
    pub label: Option<String>,
    /// How often the watchdog replaces the claim id of a lease, so that a leaked id becomes
    /// useless. Default never. It is replaced with a renewal, so not more often than that.
    pub rotate_every: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30),
            waiter_ttl: Duration::from_secs(10),
            renew_at: 1.0 / 3.0,
            operation_timeout: Duration::from_secs(5),
            label: None,
            rotate_every: None,
        }
    }
}

/// The shortest TTL.
const MIN_TTL: Duration = Duration::from_millis(50);
/// The longest TTL.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(24 * 3600);
/// The longest operation time-out: released ids are remembered for longer.
const MAX_OPERATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Refuses a TTL out of bounds.
pub(crate) fn check_ttl(ttl: Duration) -> Result<(), Invalid> {
    check_ttl_of("a TTL", ttl, "30 s")
}

fn check_ttl_of(what: &str, ttl: Duration, usual: &str) -> Result<(), Invalid> {
    let hint = format!("choose between 50 ms and 24 h; {usual} suits most");
    check_bounds(what, ttl, MIN_TTL..=MAX_TTL, &hint)?;
    debug_assert!(drift_allowance(ttl) < ttl);
    Ok(())
}

/// Refuses a maximum hold that is shorter than any TTL.
pub(crate) fn check_max_hold(max_hold: Duration) -> Result<(), Invalid> {
    let hint = "choose 50 ms or more";
    check_bounds("a maximum hold", max_hold, MIN_TTL..=Duration::MAX, hint)
}

/// Refuses a minimum hold above a year: a longer one is most likely a mistake in the unit.
pub(crate) fn check_min_hold(min_hold: Duration) -> Result<(), Invalid> {
    const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
    let hint = "choose 366 days or less";
    check_bounds("a minimum hold", min_hold, Duration::ZERO..=LONGEST, hint)
}

/// Refuses a share of the TTL at which no lease can be renewed.
pub(crate) fn check_renewal(share: f64) -> Result<(), Invalid> {
    if (0.05..=0.8).contains(&share) {
        return Ok(());
    }
    Err(Invalid::new(
        format!("renewal at {share} of the TTL (renew_at) is out of bounds"),
        "choose a share of the TTL between 0.05 and 0.8",
    ))
}

setters! { Settings {
    /// With another [`ttl`](Self::ttl).
    with_ttl(ttl: impl Into<Duration>): ttl = ttl.into();
    /// With another [`waiter_ttl`](Self::waiter_ttl).
    with_waiter_ttl(waiter_ttl: impl Into<Duration>): waiter_ttl = waiter_ttl.into();
    /// With another [`renew_at`](Self::renew_at).
    with_renew_at(renew_at: impl Into<f64>): renew_at = renew_at.into();
    /// With another [`operation_timeout`](Self::operation_timeout).
    with_operation_timeout(operation_timeout: impl Into<Duration>): operation_timeout = operation_timeout.into();
    /// With another [`label`](Self::label).
    with_label(label: impl AsRef<str>): label = Some(label.as_ref().to_owned());
    /// With another [`rotate_every`](Self::rotate_every).
    with_rotate_every(rotate_every: impl Into<Option<Duration>>): rotate_every = rotate_every.into();
}}

impl Settings {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`Invalid`] with the setting and its bounds.
    pub fn check(&self) -> Result<(), Invalid> {
        check_ttl(self.ttl)?;
        check_ttl_of("a waiter TTL", self.waiter_ttl, "10 s")?;
        check_renewal(self.renew_at)?;
        let hint = "choose between 10 ms and 30 s";
        let timeout = self.operation_timeout;
        let bounds = Duration::from_millis(10)..=MAX_OPERATION_TIMEOUT;
        check_bounds("an operation time-out", timeout, bounds, hint)
    }
}
