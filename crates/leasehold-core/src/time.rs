use std::fmt;
use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Invalid, Token};

/// A duration in whole microseconds, as far as one fits.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A duration as people write it, for messages: `250ms`, `1.333s`, `1h30m`, `2d`.
pub fn written(duration: Duration) -> String {
    let micros = duration.as_micros();
    let decimal = |value: u128, unit: &str| {
        let text = format!("{}.{:03}", value / 1000, value % 1000);
        format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    match micros {
        0 => return "0s".to_owned(),
        1..1_000_000 => return decimal(micros, "ms"),
        1_000_000..60_000_000 => return decimal(micros / 1_000, "s"),
        _ => {}
    }
    let mut left = (micros + 500_000) / 1_000_000;
    let mut text = String::new();
    for (seconds, unit) in [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")] {
        if left >= seconds {
            text += &format!("{}{unit}", left / seconds);
        }
        left %= seconds;
    }
    text
}

macro_rules! instant {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// Returns the time since `earlier`; zero if that is later.
            #[must_use]
            pub fn since(self, earlier: Self) -> Duration {
                Duration::from_micros(self.0.saturating_sub(earlier.0))
            }

            /// Returns the time `by` earlier, but not before the origin.
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
    /// The last time, in 2219, at which a queue takes a step. Tokens and deadlines counted from
    /// it stay below 2^53, which a double represents exactly.
    pub const LATEST: Self = Self((1 << 53) - (1 << 50));
    /// The last time of a queue after its clock stepped back from a later time: what it has
    /// been since must fit as well.
    pub(crate) const FURTHEST: Self = Self((1 << 53) - (1 << 49));
    /// An unknown time, for records that do not contain it.
    pub const UNKNOWN: Self = Self(0);

    /// Checks that tokens and deadlines can be counted from this clock.
    ///
    /// # Errors
    /// The clock is later than [`StoreTime::LATEST`].
    pub fn check(self) -> Result<(), Invalid> {
        self.check_until(Self::LATEST)
    }

    pub(crate) fn check_until(self, latest: Self) -> Result<(), Invalid> {
        const YEAR: u64 = 31_556_952_000_000;
        if self > latest {
            let (year, last) = (1970 + self.0 / YEAR, 1970 + Self::LATEST.0 / YEAR);
            let why = format!("it shows the year {year}, and locks can be kept until {last}");
            return Err(Invalid::plain(why));
        }
        Ok(())
    }
}

instant! {
    /// The client's time, in microseconds since an arbitrary origin. Its clock never steps, and
    /// continues while the machine sleeps.
    Moment
}

impl Moment {
    /// No deadline. An `Option` takes twice as much, and a client may have very many of them.
    pub(crate) const NEVER: Self = Self(u64::MAX);
}

/// The state of a store at a step: its clock, when it grants, and its last token.
///
/// A store that may have lost its holders is *closed* for a while: see [`crate::ServerMarker`]. A plain
/// [`StoreTime`] stands for a store that is open and keeps a last token per key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The store's clock.
    pub clock: StoreTime,
    /// How long nothing is granted; zero for an open store.
    pub closed: Duration,
    /// The highest token that the store has issued for any key; later tokens are higher. With it
    /// the record of an idle key need not be kept: [`Queue::is_spent`]. `None`: each key keeps
    /// its own last token.
    ///
    /// [`Queue::is_spent`]: crate::Queue::is_spent
    pub last_token: Option<Token>,
    /// Whether the store has an audit log: then each step returns audit entries.
    pub audited: bool,
    /// Whether the client that takes the step listens at its inbox. Then a push that nobody
    /// receives means that it is dead, or has lost its connection: see
    /// [`Queue::deliver`](crate::Queue::deliver).
    pub listens: bool,
}

impl From<StoreTime> for Now {
    fn from(clock: StoreTime) -> Self {
        Self {
            clock,
            closed: Duration::ZERO,
            last_token: None,
            audited: false,
            listens: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_people_write_them() {
        for (nanos, text) in [
            (0, "0s"),
            (250_000, "0.25ms"),
            (300_000_000, "300ms"),
            (1_333_333_333, "1.333s"),
            (5_000_000_000, "5s"),
            (90_000_000_000, "1m30s"),
            (5_400_000_000_000, "1h30m"),
            (172_800_000_000_000, "2d"),
            (59_999_999_999, "59.999s"),
            (119_999_999_999, "2m"),
        ] {
            assert_eq!(written(Duration::from_nanos(nanos)), text);
        }
        assert!(written(Duration::MAX).ends_with('s'));
    }
}
