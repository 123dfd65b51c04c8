//! The restart policy: trust or quarantine a server that has restarted.

use std::time::Duration;

use leasehold_core::{Invalid, SetTerms, written};
use leasehold_store::params::check_bounds;
use leasehold_store::{ErrorKind, StoreError};

/// Also for a set of servers.
pub(crate) const USUAL_MAX_TTL: Duration = Duration::from_secs(60);

/// The restart policy: what to do with a server that has restarted, was flushed, or has replaced
/// another one.
///
/// ```
/// use std::time::Duration;
/// use leasehold::store::redis::{Quarantine, RedisOptions, Restart};
/// let options = RedisOptions::from_url("redis://localhost/?restart=quarantine&max_ttl=10s")?;
/// let chosen = Quarantine::new(Duration::from_secs(10));
/// assert_eq!(options.restart, Restart::Quarantine(chosen));
/// assert_eq!(chosen.lasts(), Duration::from_secs(20));
/// # Ok::<(), leasehold::core::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Restart {
    /// Trust it to have all its data. If it has not, two clients can hold at the same time.
    #[default]
    Trust,
    /// Quarantine: it may have lost its holders, so it grants nothing until all leases that it
    /// may have lost have expired.
    Quarantine(Quarantine),
}

/// How long a server that may have lost its holders grants nothing. All clients of a server (with
/// the same prefix) must use the same values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quarantine {
    /// The longest TTL that a claim may have: 100 ms to 24 h.
    pub max_ttl: Duration,
    /// How long the quarantine lasts; `None` for twice `max_ttl`, and never less.
    pub lasts: Option<Duration>,
}

impl Default for Quarantine {
    /// A maximum TTL of 60 s, and a quarantine of 120 s.
    fn default() -> Self {
        Self::new(USUAL_MAX_TTL)
    }
}

impl Quarantine {
    /// Makes a quarantine of twice `max_ttl`, for TTLs of at most `max_ttl`.
    #[must_use]
    pub const fn new(max_ttl: Duration) -> Self {
        let lasts = None;
        Self { max_ttl, lasts }
    }

    /// Sets how long the quarantine lasts: at least twice `max_ttl`.
    #[must_use]
    pub const fn lasting(mut self, lasts: Duration) -> Self {
        self.lasts = Some(lasts);
        self
    }

    /// Returns how long the quarantine lasts.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        self.lasts.unwrap_or_else(|| self.max_ttl.saturating_mul(2))
    }

    /// What all clients of the server must agree on.
    pub(crate) fn terms(&self) -> SetTerms {
        let set = format!("one server {}ms", self.max_ttl.as_millis());
        let quarantine = self.lasts();
        SetTerms { set, quarantine }
    }
}

/// Refuses a TTL that would outlive the quarantine of a `server` or a `set`.
pub(crate) fn check_ttl(ttl: Duration, max: Duration, whose: &str) -> Result<(), StoreError> {
    if ttl <= max {
        return Ok(());
    }
    let (ttl, max) = (written(ttl), written(max));
    let why = format!("a TTL of {ttl} is longer than max_ttl of the {whose}, {max}");
    let hint = format!("choose a shorter TTL, or raise max_ttl in all clients of the {whose}");
    Err(StoreError::new(ErrorKind::Invalid, why).with_hint(hint))
}

impl Restart {
    pub(crate) fn quarantine(&self) -> Option<&Quarantine> {
        match self {
            Self::Trust => None,
            Self::Quarantine(quarantine) => Some(quarantine),
        }
    }
}

/// Reads the policy: a quarantine has the usual times.
pub(super) fn parse(text: &str) -> Result<Restart, Invalid> {
    match text {
        "quarantine" => Ok(Restart::Quarantine(Quarantine::default())),
        "trust" => Ok(Restart::Trust),
        _ => Err(Invalid::new(
            format!("restart = {text:?} is not valid"),
            "write restart=quarantine or restart=trust",
        )),
    }
}

/// Refuses times with which exclusion would not hold.
pub(crate) fn check_times(max_ttl: Duration, quarantine: Duration) -> Result<(), Invalid> {
    let day = Duration::from_secs(24 * 3600);
    let bounds = Duration::from_millis(100)..=day;
    let choose = "choose between 100 ms and 24 h";
    check_bounds("a max_ttl", max_ttl, bounds, choose)?;
    let choose = "choose at least twice max_ttl: claims could outlive less, and tokens could fall \
     if clocks differ";
    check_bounds("a quarantine", quarantine, 2 * max_ttl..=366 * day, choose)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::RedisOptions;
    use crate::quorum::RedlockOptions;

    #[test]
    fn a_url_says_what_a_restart_means() {
        let seconds = Duration::from_secs;
        for (said, wanted) in [
            ("restart=trust", Restart::Trust),
            (
                "restart=quarantine",
                Restart::Quarantine(Quarantine::default()),
            ),
            (
                "max_ttl=10s&restart=quarantine",
                Restart::Quarantine(Quarantine::new(seconds(10))),
            ),
            (
                "restart=quarantine&quarantine=5m",
                Restart::Quarantine(Quarantine::default().lasting(seconds(300))),
            ),
        ] {
            for begin in ["redis://h/", "redis+unix:///s", "redis-sentinel://h/main"] {
                let options = RedisOptions::from_url(&format!("{begin}?{said}")).unwrap();
                assert_eq!(options.restart, wanted, "{said}");
                let again = RedisOptions::from_url(&options.redacted_url());
                assert_eq!(again, Ok(options), "{said}");
            }
        }
    }

    #[test]
    fn a_set_has_no_quarantine_of_one_server() {
        let several = RedlockOptions::from_url("redlock://a,b,c/?restart=quarantine");
        let refused = several.unwrap_err();
        assert!(
            refused.message.contains("always have a quarantine"),
            "{refused}"
        );
    }

    #[test]
    fn the_terms_name_all_that_clients_must_agree_on() {
        let usual = Quarantine::default().terms();
        assert_ne!(usual, Quarantine::new(Duration::from_secs(59)).terms());
        let longer = Quarantine::default().lasting(Duration::from_secs(121));
        assert_ne!(usual, longer.terms());
        let same = Quarantine::default().lasting(Duration::from_secs(120));
        assert_eq!(usual, same.terms());
    }
}
