//! The sequence of Snowflake numbers. It has no clock: the time is an argument.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use leasehold_core::Invalid;

use super::SnowflakeConfig;

const PLACE_BITS: u32 = 5;
const SEQUENCE_BITS: u32 = 12;
/// Milliseconds from the epoch until ids would need a 64th bit: 69 years.
const LIFE: u64 = 1 << 41;

#[derive(Debug)]
pub(super) struct Snowflake {
    /// In milliseconds since 1970.
    epoch: u64,
    /// Data centre and machine, where they stand in an id.
    place: u64,
    /// The next millisecond and sequence number that are not used yet.
    free: AtomicU64,
}

impl Snowflake {
    /// `now` is the time since 1970.
    pub(super) fn new(config: &SnowflakeConfig, now: Duration) -> Result<Self, Invalid> {
        for (what, number) in [
            ("data centre", config.data_centre),
            ("machine", config.machine),
        ] {
            let most = SnowflakeConfig::MAX_PLACE;
            if number > most {
                let why = format!("the {what} {number} of a Snowflake id is above {most}");
                return Err(Invalid::plain(why));
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
            free: AtomicU64::new(0),
        })
    }

    /// The next number at a time since 1970: above all before.
    pub(super) fn next(&self, now: Duration) -> Result<u64, Invalid> {
        let since = millis(now).saturating_sub(self.epoch).min(LIFE);
        let at_least = since << SEQUENCE_BITS;
        let after = |free: u64| Some(free.max(at_least) + 1);
        let order = Ordering::Relaxed;
        let free = self.free.fetch_update(order, order, after);
        let taken = free.unwrap_or_else(|free| free).max(at_least);
        let (time, sequence) = (taken >> SEQUENCE_BITS, taken & ((1 << SEQUENCE_BITS) - 1));
        if time >= LIFE {
            return Err(Invalid::new(
                "the 69 years of these claim ids are over",
                "choose a later epoch in all processes at the same time, or use random ids",
            ));
        }
        Ok(time << (2 * PLACE_BITS + SEQUENCE_BITS) | self.place | sequence)
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
        let machine = machine(3, 17);
        let place = 3 << 17 | 17 << 12;
        for sequence in 0..3 {
            let number = machine.next(ms(EPOCH + 5)).unwrap();
            assert_eq!(number, 5 << 22 | place | sequence);
        }
        let last = machine.next(ms(EPOCH + LIFE - 1)).unwrap();
        assert_eq!(last, (LIFE - 1) << 22 | place);
        for late in [LIFE, LIFE + 1, u64::MAX - EPOCH] {
            assert!(machine.next(ms(EPOCH + late)).is_err());
        }
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

    proptest! {
        #[test]
        fn numbers_rise_whatever_the_clock_does(
            steps in vec((-3_000_i64..5_000, 1_u32..9000), 1..40),
        ) {
            let machine = machine(31, 31);
            let (mut now, mut latest, mut last) = (EPOCH + 100, 0, None);
            for (step, count) in steps {
                now = now.saturating_add_signed(step);
                latest = latest.max(now);
                for _ in 0..count {
                    let number = machine.next(ms(now)).unwrap();
                    prop_assert!(last < Some(number), "{:?} then {}", last, number);
                    prop_assert!(EPOCH + (number >> 22) >= now.max(EPOCH));
                    prop_assert_eq!(number >> 12 & 1023, 1023);
                    last = Some(number);
                }
            }
            // It runs ahead of the clock by what the clock gave no room for.
            prop_assert!(last.map(|last| last >> 22) <= Some(latest.max(EPOCH) - EPOCH + 40 * 3));
        }
    }
}
