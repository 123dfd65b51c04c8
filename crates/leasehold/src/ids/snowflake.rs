//! The sequence of Snowflake ids. It has no clock: the time is an argument.

use std::time::{Duration, UNIX_EPOCH};

use leasehold_core::Invalid;

use super::SnowflakeConfig;

const PLACE_BITS: u32 = 5;
const SEQUENCE_BITS: u32 = 12;
/// Ids of one millisecond.
pub(super) const PER_MILLISECOND: u64 = 1 << SEQUENCE_BITS;
/// Milliseconds from the epoch until ids would need a 64th bit: 69 years.
pub(super) const LIFE: u64 = 1 << 41;

#[derive(Debug)]
pub(super) struct Snowflake {
    /// In milliseconds since 1970.
    epoch: u64,
    /// Data centre and machine, where they stand in an id.
    place: u64,
    /// The millisecond of the last id.
    last: u64,
    /// Ids made in it.
    made: u64,
}

/// What to do for an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Here it is.
    Id(u64),
    /// No number is left in this millisecond: retry after this time.
    Full(Duration),
    /// The clock is this far behind the last id: retry then, with this time subtracted from the
    /// patience.
    Behind(Duration),
    /// The same, and more than the patience.
    Refuse(Duration),
    /// The time since the epoch does not fit 41 bits any more.
    Over,
}

impl Snowflake {
    /// `now` is the time since 1970.
    pub(super) fn new(config: &SnowflakeConfig, now: Duration) -> Result<Self, Invalid> {
        for (what, number) in [
            ("data centre", config.data_centre),
            ("machine", config.machine),
        ] {
            if number > SnowflakeConfig::MAX_PLACE {
                return Err(Invalid::plain(format!(
                    "the {what} {number} of a Snowflake id is above {}",
                    SnowflakeConfig::MAX_PLACE
                )));
            }
        }
        let epoch = config.epoch.duration_since(UNIX_EPOCH).map(millis);
        let now = millis(now);
        let fits = |&epoch: &u64| epoch <= now && now - epoch < LIFE;
        let Some(epoch) = epoch.ok().filter(fits) else {
            return Err(Invalid::new(
                "the epoch of Snowflake ids is before 1970, in the future or over 69 years ago",
                "choose a day shortly before the first id is made, the same in all processes",
            ));
        };
        let place = u64::from(config.data_centre) << PLACE_BITS | u64::from(config.machine);
        Ok(Self {
            epoch,
            place: place << SEQUENCE_BITS,
            last: epoch,
            made: 0,
        })
    }

    /// The next id at a time since 1970, for one who would wait so long for a
    /// clock that is behind.
    pub(super) fn next(&mut self, now: Duration, patience: Duration) -> Next {
        let now_ms = millis(now);
        if now_ms < self.last {
            let gap = Duration::from_millis(self.last).saturating_sub(now);
            return if gap <= patience {
                Next::Behind(gap)
            } else {
                Next::Refuse(gap)
            };
        }
        if now_ms - self.epoch >= LIFE {
            return Next::Over;
        }
        if now_ms > self.last {
            (self.last, self.made) = (now_ms, 0);
        }
        if self.made == PER_MILLISECOND {
            return Next::Full(Duration::from_millis(now_ms + 1).saturating_sub(now));
        }
        let time = (now_ms - self.epoch) << (2 * PLACE_BITS + SEQUENCE_BITS);
        let id = time | self.place | self.made;
        self.made += 1;
        Next::Id(id)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const EPOCH: u64 = 1_000_000;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn config(data_centre: u8, machine: u8) -> SnowflakeConfig {
        SnowflakeConfig {
            epoch: UNIX_EPOCH + ms(EPOCH),
            ..SnowflakeConfig::new(data_centre, machine)
        }
    }

    fn machine(data_centre: u8, machine: u8) -> Snowflake {
        Snowflake::new(&config(data_centre, machine), ms(EPOCH)).unwrap()
    }

    #[test]
    fn the_bits_are_where_they_belong() {
        let mut machine = machine(3, 17);
        for sequence in 0..3 {
            assert_eq!(
                machine.next(ms(EPOCH + 5), Duration::ZERO),
                Next::Id(5 << 22 | 3 << 17 | 17 << 12 | sequence)
            );
        }
        let last = machine.next(ms(EPOCH + LIFE - 1), Duration::ZERO);
        assert_eq!(last, Next::Id((LIFE - 1) << 22 | 3 << 17 | 17 << 12));
        let over = machine.next(ms(EPOCH + LIFE), Duration::ZERO);
        assert_eq!(over, Next::Over);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let now = ms(EPOCH);
        assert!(Snowflake::new(&config(31, 31), now).is_ok());
        for (data_centre, machine, named) in [(32, 0, "data centre 32"), (0, 32, "machine 32")] {
            let error = Snowflake::new(&config(data_centre, machine), now).unwrap_err();
            assert!(error.message.contains(named), "{error}");
        }
        let early = SnowflakeConfig {
            epoch: UNIX_EPOCH - ms(1),
            ..config(0, 0)
        };
        assert!(Snowflake::new(&early, now).is_err());
        assert!(Snowflake::new(&config(0, 0), ms(EPOCH - 1)).is_err());
        assert!(Snowflake::new(&config(0, 0), ms(EPOCH + LIFE - 1)).is_ok());
        assert!(Snowflake::new(&config(0, 0), ms(EPOCH + LIFE)).is_err());
    }

    #[test]
    fn a_millisecond_holds_4096_ids_and_the_next_waits() {
        let mut machine = machine(0, 0);
        let now = ms(EPOCH) + Duration::from_micros(300);
        for sequence in 0..4096 {
            assert_eq!(machine.next(now, Duration::ZERO), Next::Id(sequence));
        }
        let rest = Duration::from_micros(700);
        assert_eq!(machine.next(now, Duration::ZERO), Next::Full(rest));
        assert_eq!(machine.next(now + rest, Duration::ZERO), Next::Id(1 << 22));
    }

    #[test]
    fn a_clock_that_stepped_back_is_waited_for_or_refused() {
        let mut machine = machine(0, 0);
        machine.next(ms(EPOCH + 10), Duration::ZERO);
        let now = ms(EPOCH + 7) + Duration::from_micros(1);
        let gap = Duration::from_micros(2999);
        assert_eq!(machine.next(now, Duration::ZERO), Next::Refuse(gap));
        let less = gap - Duration::from_nanos(1);
        assert_eq!(machine.next(now, less), Next::Refuse(gap));
        assert_eq!(machine.next(now, gap), Next::Behind(gap));
        let caught_up = machine.next(now + gap, Duration::ZERO);
        assert_eq!(caught_up, Next::Id(10 << 22 | 1));
        // Behind the epoch too.
        assert!(matches!(
            machine.next(ms(0), Duration::ZERO),
            Next::Refuse(_)
        ));
    }

    proptest! {
        #[test]
        fn ids_rise_whatever_the_clock_does(
            steps in vec((-3_000_i64..5_000, 1_u32..3000), 1..40),
            patience in 0_u64..5,
        ) {
            let mut machine = machine(31, 31);
            let (mut now, mut last) = (ms(EPOCH + 100), None);
            for (step, count) in steps {
                now = now.saturating_add_signed_micros(step);
                for _ in 0..count {
                    match machine.next(now, ms(patience)) {
                        Next::Id(id) => {
                            prop_assert!(last < Some(id), "{:?} then {}", last, id);
                            let time = ms(EPOCH + (id >> 22));
                            prop_assert!(time <= now && now < time + ms(1));
                            prop_assert_eq!(id >> 12 & 1023, 1023);
                            last = Some(id);
                        }
                        // Whoever waits that long gets one.
                        Next::Full(wait) => {
                            prop_assert!(Duration::ZERO < wait && wait <= ms(1));
                            now += wait;
                        }
                        Next::Behind(wait) => {
                            prop_assert!(Duration::ZERO < wait && wait <= ms(patience));
                            now += wait;
                            let next = machine.next(now, Duration::ZERO);
                            prop_assert!(!matches!(next, Next::Behind(_) | Next::Refuse(_)));
                            if let Next::Id(id) = next {
                                prop_assert!(last < Some(id));
                                last = Some(id);
                            }
                        }
                        Next::Refuse(gap) => {
                            prop_assert!(gap > ms(patience));
                            break;
                        }
                        Next::Over => prop_assert!(false, "not in this life"),
                    }
                }
            }
        }
    }

    trait AddSigned {
        fn saturating_add_signed_micros(self, micros: i64) -> Self;
    }

    impl AddSigned for Duration {
        fn saturating_add_signed_micros(self, micros: i64) -> Self {
            let change = Self::from_micros(micros.unsigned_abs());
            if micros < 0 {
                self.saturating_sub(change)
            } else {
                self.saturating_add(change)
            }
        }
    }
}
