use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Invalid;

/// The capacity of a key: a lock, or a number of permits. Every kind of lock is a capacity and a
/// weight.
///
/// The capacity is fixed while the queue of the key is not empty: a key in use as a semaphore
/// cannot be used as a lock, and the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Capacity {
    /// A lock: [`Capacity::LOCK`] units.
    Lock,
    /// A semaphore with this number of permits, at least 1.
    Permits(u32),
}

impl Capacity {
    /// The units of a lock: the weight of a writer, and the maximum number of readers at once.
    pub const LOCK: u64 = 1 << 20;

    /// Returns the units.
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

/// The mode of a claim: the capacity that the key must have, and the weight that the claim takes
/// of it. Every kind of lock is such a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Mode {
    capacity: Capacity,
    weight: u64,
}

impl Mode {
    /// Exclusive: mutex, writer, leader.
    pub const EXCLUSIVE: Self = Self::new(Capacity::Lock, Capacity::LOCK);

    /// Shared with other readers.
    pub const SHARED: Self = Self::new(Capacity::Lock, 1);

    /// Makes a mode from a capacity and a weight.
    #[must_use]
    pub const fn new(capacity: Capacity, weight: u64) -> Self {
        Self { capacity, weight }
    }

    /// Makes the mode of a claim for `take` permits of a semaphore with `of` permits.
    #[must_use]
    pub fn permits(of: u32, take: u32) -> Self {
        Self::new(Capacity::Permits(of), take.into())
    }

    /// Returns the capacity that the key must have.
    #[must_use]
    pub const fn capacity(self) -> Capacity {
        self.capacity
    }

    /// Returns the weight that the claim takes.
    #[must_use]
    pub const fn weight(self) -> u64 {
        self.weight
    }

    /// Returns whether its holder is alone, so that its grants have fencing tokens.
    ///
    /// ```
    /// use leasehold_core::Mode;
    /// assert!(Mode::EXCLUSIVE.is_exclusive() && !Mode::SHARED.is_exclusive());
    /// assert_eq!(Mode::EXCLUSIVE.to_string(), "exclusive");
    /// assert_eq!(Mode::permits(3, 2).to_string(), "2 of 3 permits");
    /// ```
    #[must_use]
    pub fn is_exclusive(self) -> bool {
        self == Self::EXCLUSIVE
    }

    /// Checks that a claim of this mode can be granted.
    ///
    /// # Errors
    /// [`Invalid`] for zero permits, or more than the semaphore has.
    pub fn check(self) -> Result<(), Invalid> {
        let Self { capacity, weight } = self;
        match capacity {
            Capacity::Permits(0) => Err(Invalid::plain("a semaphore needs at least 1 permit")),
            _ if weight == 0 => Err(Invalid::plain("a claim must ask for at least 1 permit")),
            _ if weight > capacity.units() => Err(Invalid::plain(format!(
                "{weight} permits were asked for, and the semaphore has {}",
                capacity.units()
            ))),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.capacity {
            _ if self.is_exclusive() => f.write_str("exclusive"),
            _ if *self == Self::SHARED => f.write_str("shared"),
            Capacity::Permits(of) => write!(f, "{} of {of} permits", self.weight),
            Capacity::Lock => write!(f, "{} of {} units", self.weight, Capacity::LOCK),
        }
    }
}

/// A mode as it is written down: those that everybody knows by name, for people who read it.
#[derive(Serialize, Deserialize)]
enum Written {
    Exclusive,
    Shared,
    Permits {
        of: u32,
        take: u32,
    },
    #[serde(untagged)]
    Pair(Capacity, u64),
}

impl From<Written> for Mode {
    fn from(written: Written) -> Self {
        match written {
            Written::Exclusive => Self::EXCLUSIVE,
            Written::Shared => Self::SHARED,
            Written::Permits { of, take } => Self::permits(of, take),
            Written::Pair(capacity, weight) => Self::new(capacity, weight),
        }
    }
}

impl From<Mode> for Written {
    fn from(mode: Mode) -> Self {
        match (mode.capacity, u32::try_from(mode.weight)) {
            _ if mode == Mode::EXCLUSIVE => Self::Exclusive,
            _ if mode == Mode::SHARED => Self::Shared,
            (Capacity::Permits(of), Ok(take)) => Self::Permits { of, take },
            (capacity, _) => Self::Pair(capacity, mode.weight),
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
    fn a_mode_is_read_as_it_was_written() {
        let odd = Mode::new(Capacity::Lock, 2);
        for (mode, json) in [
            (Mode::EXCLUSIVE, r#""Exclusive""#),
            (Mode::SHARED, r#""Shared""#),
            (Mode::permits(3, 2), r#"{"Permits":{"of":3,"take":2}}"#),
            (odd, r#"["Lock",2]"#),
        ] {
            assert_eq!(serde_json::to_string(&mode).unwrap(), json);
            assert_eq!(serde_json::from_str::<Mode>(json).unwrap(), mode);
        }
    }

    #[test]
    fn a_semaphore_as_large_as_a_lock_is_no_lock() {
        let permits = u32::try_from(Capacity::LOCK).unwrap();
        assert_ne!(Capacity::Permits(permits), Capacity::Lock);
    }
}
