use std::fmt;
use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Invalid, Token};

/// A duration in whole microseconds, as far as one fits.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

macro_rules! instant {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The time that passed since `earlier`; zero if it is later.
            #[must_use]
            pub fn since(self, earlier: Self) -> Duration {
                Duration::from_micros(self.0.saturating_sub(earlier.0))
            }

            /// So much earlier; never before the origin.
            #[must_use]
            pub fn before(self, by: Duration) -> Self {
                Self(self.0.saturating_sub(micros(by)))
            }
        }

        impl Add<Duration> for $name {
            type Output = Self;
            fn add(self, by: Duration) -> Self {
                Self(self.0.saturating_add(micros(by)))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}µs", self.0)
            }
        }
    };
}

instant! {
    /// The store's time, in microseconds since 1970. Deadlines use it.
    StoreTime
}

impl StoreTime {
    /// The deadline of a claim that does not expire.
    pub const NEVER: Self = Self(u64::MAX);
    /// The last time, in 2219, at which a queue takes a step: tokens and deadlines that
    /// are counted from it stay below 2^53, as far as a double counts one by one.
    pub const LATEST: Self = Self((1 << 53) - (1 << 50));
    /// The last time of a queue after its clock stepped back from a later time: what it has
    /// been since must fit as well.
    pub(crate) const FURTHEST: Self = Self((1 << 53) - (1 << 49));
    /// When something began of which the record does not say when.
    pub const UNKNOWN: Self = Self(0);
}

impl StoreTime {
    /// Refuses a clock from which tokens and deadlines cannot be counted.
    ///
    /// # Errors
    /// The clock is later than [`StoreTime::LATEST`].
    pub fn check(self) -> Result<(), Invalid> {
        self.check_until(Self::LATEST)
    }

    pub(crate) fn check_until(self, latest: Self) -> Result<(), Invalid> {
        const YEAR: u64 = 31_556_952_000_000;
        if self > latest {
            return Err(Invalid::plain(format!(
                "it shows the year {}, and locks can be kept until {}",
                1970 + self.0 / YEAR,
                1970 + Self::LATEST.0 / YEAR,
            )));
        }
        Ok(())
    }
}

instant! {
    /// The client's time, in microseconds since an arbitrary origin. Its clock never steps, and
    /// continues while the machine sleeps.
    Moment
}

/// The state of a store at a step: its clock, when it grants, and its last token.
///
/// A store that may have forgotten who holds is *closed* for a while: see
/// [`crate::Marker`]. A plain [`StoreTime`] is that of a store which is open, and in which each
/// key keeps a last token of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The clock, as it is read.
    pub clock: StoreTime,
    /// How long nothing is granted from now on; zero for a store that is open.
    pub closed: Duration,
    /// The highest token that the store has given to any key; all that it gives from now on are
    /// higher. With it the record of an idle key need not be kept: [`Queue::is_spent`]. None:
    /// each key keeps a last token of its own.
    ///
    /// [`Queue::is_spent`]: crate::Queue::is_spent
    pub last_token: Option<Token>,
    /// Whether the store has an audit log: then each step says what to note there.
    pub audited: bool,
}

impl From<StoreTime> for Now {
    fn from(clock: StoreTime) -> Self {
        Self {
            clock,
            closed: Duration::ZERO,
            last_token: None,
            audited: false,
        }
    }
}
