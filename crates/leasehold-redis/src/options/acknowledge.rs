//! The acknowledgement policy: which replicas and disks must have a grant before it counts.

use std::fmt;
use std::time::Duration;

use leasehold_core::Invalid;
use leasehold_store::params::check_bounds;

pub(super) const USUAL_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) const EXAMPLE: &str = "write acknowledge=1, =majority, =disk, =disk:1 or =none";

/// Which replicas and disks must have a grant before it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcknowledgedBy {
    /// This number of replicas, in memory (`WAIT`). At least 1.
    Replicas(u32),
    /// More than half of the replicas that the primary had when the client connected to it; at
    /// least 1. The primary itself does not count.
    Majority,
    /// The disk of the primary, and those of this number of replicas (`WAITAOF`, Redis 7.2 or
    /// later).
    Disk {
        /// The number of replicas; zero for the primary's disk alone.
        replicas: u32,
    },
}

/// A policy of acknowledged writes.
///
/// ```
/// use leasehold::store::redis::{Acknowledge, RedisOptions};
/// let options = RedisOptions::from_url("redis://localhost/?acknowledge=2")?;
/// assert_eq!(options.acknowledge, Some(Acknowledge::replicas(2)));
/// # Ok::<(), leasehold::core::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Acknowledge {
    /// Who must have it.
    pub by: AcknowledgedBy,
    /// The time limit for the acknowledgements. Default 1 s; 1 ms to 60 s.
    pub timeout: Duration,
    /// Whether each renewal of a lease must be acknowledged too. Default `true`: then a lease
    /// ends with its TTL if too few acknowledge. If `false`, a replica may have a deadline that
    /// is up to a TTL too early.
    pub renewals: bool,
}

impl Acknowledge {
    /// Makes a policy with a time limit of 1 s, which includes renewals.
    #[must_use]
    pub const fn by(by: AcknowledgedBy) -> Self {
        Self {
            by,
            timeout: USUAL_TIMEOUT,
            renewals: true,
        }
    }

    /// Makes a policy: `count` replicas must have the grant in memory.
    #[must_use]
    pub const fn replicas(count: u32) -> Self {
        Self::by(AcknowledgedBy::Replicas(count))
    }

    /// Sets the time limit for the acknowledgements.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets whether renewals must be acknowledged too.
    #[must_use]
    pub const fn renewals(mut self, renewals: bool) -> Self {
        self.renewals = renewals;
        self
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let bounds = Duration::from_millis(1)..=Duration::from_secs(60);
        let choose = "choose between 1 ms and 60 s";
        check_bounds("an acknowledge_timeout", self.timeout, bounds, choose)?;
        match self.by {
            AcknowledgedBy::Replicas(0) => Err(Invalid::new(
                "acknowledge=0 asks no replica",
                "leave it out, or set how many replicas must answer",
            )),
            AcknowledgedBy::Replicas(n) | AcknowledgedBy::Disk { replicas: n } if n > 1_000 => {
                Err(Invalid::plain(format!("{n} replicas are too many")))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for AcknowledgedBy {
    /// As in a URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replicas(count) => count.fmt(f),
            Self::Majority => f.write_str("majority"),
            Self::Disk { replicas: 0 } => f.write_str("disk"),
            Self::Disk { replicas } => write!(f, "disk:{replicas}"),
        }
    }
}

/// Reads who must acknowledge; nobody with `none`.
pub(super) fn parse(text: &str) -> Result<Option<Acknowledge>, Invalid> {
    let disk = |replicas| AcknowledgedBy::Disk { replicas };
    let by = match (text, text.strip_prefix("disk:")) {
        ("none", _) => return Ok(None),
        ("majority", _) => Some(AcknowledgedBy::Majority),
        ("disk", _) => Some(disk(0)),
        (_, Some(count)) => count.parse().ok().map(disk),
        (count, None) => count.parse().ok().map(AcknowledgedBy::Replicas),
    };
    by.map(|by| Some(Acknowledge::by(by)))
        .ok_or_else(|| Invalid::new(format!("acknowledge = {text:?} is not valid"), EXAMPLE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::RedisOptions;

    #[test]
    fn a_url_says_who_must_acknowledge() {
        for (said, wanted) in [
            ("acknowledge=none", None),
            ("acknowledge=2", Some(Acknowledge::replicas(2))),
            (
                "acknowledge=majority&acknowledge_timeout=250ms",
                Some(Acknowledge::by(AcknowledgedBy::Majority).timeout(Duration::from_millis(250))),
            ),
            (
                "acknowledge=disk&acknowledge_renewals=no",
                Some(Acknowledge::by(AcknowledgedBy::Disk { replicas: 0 }).renewals(false)),
            ),
            (
                "acknowledge=disk:1",
                Some(Acknowledge::by(AcknowledgedBy::Disk { replicas: 1 })),
            ),
        ] {
            let options = RedisOptions::from_url(&format!("redis://h/?{said}")).unwrap();
            assert_eq!(options.acknowledge, wanted, "{said}");
            let again = RedisOptions::from_url(&options.redacted_url());
            assert_eq!(again, Ok(options), "{said}");
        }
    }
}
