//! The acknowledgement policy: which replicas and disks must have a grant before it counts.

use std::time::Duration;

use leasehold_core::Invalid;
use leasehold_store::Acknowledges;

use super::params::{Params, Shown, check_bounds, unusual};

const EXAMPLE: &str = "write acknowledge=1, =majority, =disk, =disk:1 or =none";

/// Which replicas and disks must have a grant before it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
            timeout: Duration::from_secs(1),
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

    pub(crate) fn acknowledges(&self) -> Acknowledges {
        if self.renewals {
            Acknowledges::GrantsAndRenewals
        } else {
            Acknowledges::Grants
        }
    }

    /// The parameters of a URL.
    pub(crate) fn params(&self) -> [Shown; 3] {
        let usual = Self::by(self.by);
        let by = match self.by {
            AcknowledgedBy::Replicas(count) => count.to_string(),
            AcknowledgedBy::Majority => "majority".to_owned(),
            AcknowledgedBy::Disk { replicas: 0 } => "disk".to_owned(),
            AcknowledgedBy::Disk { replicas } => format!("disk:{replicas}"),
        };
        let renewals = (!self.renewals).then(|| "no".to_owned());
        [
            ("acknowledge", Some(by)),
            ("acknowledge_timeout", unusual(self.timeout, usual.timeout)),
            ("acknowledge_renewals", renewals),
        ]
    }

    /// Reads them.
    pub(crate) fn read(params: &mut Params) -> Result<Option<Self>, Invalid> {
        let by = params
            .take("acknowledge")
            .map(|by| parse_by(&by))
            .transpose()?;
        let timeout = params.duration("acknowledge_timeout")?;
        let renewals = params.yes_or_no("acknowledge_renewals")?;
        if by.is_none() && (timeout.is_some() || renewals.is_some()) {
            let why = "the URL has options for acknowledgements, and no `acknowledge`";
            return Err(Invalid::new(why, EXAMPLE));
        }
        Ok(by.flatten().map(Self::by).map(|usual| Self {
            timeout: timeout.unwrap_or(usual.timeout),
            renewals: renewals.unwrap_or(usual.renewals),
            ..usual
        }))
    }
}

fn parse_by(text: &str) -> Result<Option<AcknowledgedBy>, Invalid> {
    let count = |text: &str| text.parse().ok();
    let by = match text {
        "none" => return Ok(None),
        "majority" => Some(AcknowledgedBy::Majority),
        "disk" => Some(AcknowledgedBy::Disk { replicas: 0 }),
        _ => match text.strip_prefix("disk:") {
            Some(number) => count(number).map(|replicas| AcknowledgedBy::Disk { replicas }),
            None => count(text).map(AcknowledgedBy::Replicas),
        },
    };
    by.map(Some)
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
        for (said, named) in [
            ("acknowledge=0", "no replica"),
            ("acknowledge=many", "\"many\""),
            ("acknowledge=disk:x", "disk:x"),
            ("acknowledge=5000", "too many"),
            ("acknowledge_timeout=1s", "and no `acknowledge`"),
            (
                "acknowledge=1&acknowledge_timeout=2h",
                "acknowledge_timeout",
            ),
            ("acknowledge=1&acknowledge_renewals=maybe", "maybe"),
        ] {
            let invalid = RedisOptions::from_url(&format!("redis://h/?{said}")).unwrap_err();
            assert!(invalid.message.contains(named), "{said}: {invalid}");
        }
    }
}
