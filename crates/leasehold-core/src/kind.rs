use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Invalid;

/// What a key can bear. Every kind of lock is a capacity and a weight.
///
/// While a queue is not empty its capacity is fixed: a key that is a semaphore
/// is not a lock, and the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Capacity {
    /// A lock: [`Capacity::LOCK`] units.
    Lock,
    /// A semaphore of so many permits, at least 1.
    Permits(u32),
}

impl Capacity {
    /// The units of a lock: what a writer takes, and the most readers at once.
    pub const LOCK: u64 = 1 << 20;

    /// The units.
    #[must_use]
    pub fn units(self) -> u64 {
        match self {
            Self::Lock => Self::LOCK,
            Self::Permits(n) => u64::from(n),
        }
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock => f.write_str("a lock"),
            Self::Permits(1) => f.write_str("a semaphore of 1 permit"),
            Self::Permits(n) => write!(f, "a semaphore of {n} permits"),
        }
    }
}

/// How a claim wants its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// Alone: mutex, writer, leader.
    Exclusive,
    /// Together with other readers.
    Shared,
    /// So many of a semaphore's permits.
    Permits {
        /// The permits there are.
        of: u32,
        /// The permits this claim takes.
        take: u32,
    },
}

impl Mode {
    /// What the key must be able to bear.
    #[must_use]
    pub fn capacity(self) -> Capacity {
        match self {
            Self::Exclusive | Self::Shared => Capacity::Lock,
            Self::Permits { of, .. } => Capacity::Permits(of),
        }
    }

    /// What the claim takes of it.
    #[must_use]
    pub fn weight(self) -> u64 {
        match self {
            Self::Exclusive => Capacity::LOCK,
            Self::Shared => 1,
            Self::Permits { take, .. } => u64::from(take),
        }
    }

    /// Refuses a claim that could never be granted.
    ///
    /// # Errors
    /// [`Invalid`] for no permits, or more than there are.
    pub fn check(self) -> Result<(), Invalid> {
        match self {
            Self::Permits { of: 0, .. } => Err(Invalid::plain("a semaphore has at least 1 permit")),
            Self::Permits { take: 0, .. } => Err(Invalid::plain("a claim takes at least 1 permit")),
            Self::Permits { of, take } if take > of => Err(Invalid::plain(format!(
                "{take} permits asked for, where there are {of}"
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_excludes_a_reader_and_readers_fit_together() {
        let units = Capacity::Lock.units();
        assert_eq!(Mode::EXCLUSIVE.weight(), units);
        assert!(Mode::EXCLUSIVE.weight() + Mode::SHARED.weight() > units);
        assert_eq!(Mode::SHARED.weight() * Capacity::LOCK, units);
        assert_eq!(Mode::EXCLUSIVE.capacity(), Mode::SHARED.capacity());
    }

    #[test]
    fn what_could_never_be_granted_is_refused() {
        let check = |of, take| Mode::permits(of, take).check();
        for (of, take) in [(0, 0), (0, 1), (1, 0), (1, 2), (5, u32::MAX)] {
            assert!(check(of, take).is_err(), "{take} of {of}");
        }
        for (of, take) in [(1, 1), (5, 5), (u32::MAX, u32::MAX)] {
            assert_eq!(check(of, take), Ok(()));
            let mode = Mode::permits(of, take);
            assert!(mode.weight() <= mode.capacity().units());
        }
        assert_eq!(Mode::EXCLUSIVE.check(), Ok(()));
        assert_eq!(Mode::SHARED.check(), Ok(()));
    }

    #[test]
    fn a_semaphore_as_large_as_a_lock_is_no_lock() {
        let permits = u32::try_from(Capacity::LOCK).unwrap();
        assert_ne!(Capacity::Permits(permits), Capacity::Lock);
    }
}
