//! Acknowledgements of a write by replicas and disks.

use std::fmt;
use std::time::Duration;

use crate::error::{ErrorKind, StoreError};
use leasehold_core::written;

/// The acknowledgements of one request under an acknowledgement policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Acknowledged {
    /// How many replicas acknowledged it: in memory, or on disk if the policy asks for disks.
    pub replicas: u32,
    /// How many replicas the policy asks for.
    pub wanted: u32,
    /// Whether it is on the disk of the server that answered; `None` if the policy does not ask
    /// for that.
    pub disk: Option<bool>,
    /// The time limit for the acknowledgements.
    pub within: Duration,
}

impl Acknowledged {
    /// Makes it of how many replicas have acknowledged of how many, what is known of the disk, and the
    /// time limit.
    #[must_use]
    pub const fn new(replicas: u32, wanted: u32, disk: Option<bool>, within: Duration) -> Self {
        Self {
            replicas,
            wanted,
            disk,
            within,
        }
    }

    /// Returns whether the policy is satisfied.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.replicas >= self.wanted && self.disk != Some(false)
    }

    /// Why the request does not count.
    pub(crate) fn error(&self) -> StoreError {
        let within = written(self.within);
        let message = format!("the write was not acknowledged within {within}: {self}");
        StoreError::new(ErrorKind::Unavailable, message)
            .with_hint("check that the replicas are running, connected and not behind")
    }
}

impl fmt::Display for Acknowledged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            replicas, wanted, ..
        } = self;
        let s = if *wanted == 1 { "" } else { "s" };
        let Some(disk) = self.disk else {
            return write!(f, "{replicas} of {wanted} replica{s} answered");
        };
        let not = if disk { "" } else { "not " };
        write!(f, "it is {not}on the disk of the server")?;
        if *wanted > 0 {
            write!(f, ", and on those of {replicas} of {wanted} replica{s}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_named() {
        let within = Duration::from_secs(1);
        let replicas = |replicas, wanted| Acknowledged {
            replicas,
            wanted,
            disk: None,
            within,
        };
        assert!(replicas(2, 2).is_enough() && replicas(3, 2).is_enough());
        let short = replicas(1, 2);
        assert!(!short.is_enough());
        assert_eq!(
            short.error().to_string(),
            "the write was not acknowledged within 1s: 1 of 2 replicas answered"
        );
        let disk = |disk, wanted| Acknowledged {
            disk: Some(disk),
            ..replicas(0, wanted)
        };
        assert!(disk(true, 0).is_enough());
        assert!(!disk(false, 0).is_enough() && !disk(true, 1).is_enough());
        assert_eq!(
            disk(true, 1).to_string(),
            "it is on the disk of the server, and on those of 0 of 1 replica"
        );
    }
}
