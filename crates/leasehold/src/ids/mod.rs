//! Generators of claim ids: random, readable, Snowflake or custom.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{ClaimId, Invalid, check_word};
use leasehold_store::random::{random_u64, random_u128};

use crate::clock;

mod host;
mod snowflake;

/// Generates claim ids: one for each attempt to get a lease.
///
/// Each id ends in at least 64 random bits, which the library appends. So no id repeats, and none
/// can be guessed: anyone who can reach the store and knows the id of a claim can renew and release
/// it.
///
/// | | says |
/// |---|---|
/// | [`ClaimIds::random`], the default | nothing |
/// | [`ClaimIds::host_process_time`] | which machine and process, and when |
/// | [`ClaimIds::snowflake`] | which place, and when |
/// | [`ClaimIds::custom`] | what you like |
///
/// A clone continues the same sequence.
///
/// ```
/// use leasehold::ClaimIds;
///
/// # fn main() -> Result<(), leasehold::Invalid> {
/// let ids = ClaimIds::host_process_time();
/// let id = ids.next()?;
/// // mac-0242ac110002-31337-1772377184123456-002a-1d0k7vq4n9m2c
/// let fields: Vec<&str> = id.expose().split('-').collect();
/// assert_eq!(fields[2], std::process::id().to_string());
/// assert_ne!(ids.next()?, id);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct ClaimIds {
    /// Without it, the whole id is random.
    readable: Option<Arc<Readable>>,
}

struct Readable {
    /// What `Debug` shows.
    scheme: String,
    make: Box<dyn Fn() -> Result<String, Invalid> + Send + Sync>,
}

/// The place in the ids of a process, and the time from which they count; see
/// [`ClaimIds::snowflake`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnowflakeConfig {
    /// The epoch of the ids: at most 69 years ago, in whole milliseconds. Use the same epoch in
    /// all processes, and never change it.
    pub epoch: SystemTime,
    /// The number of the data centre: 0 to [`SnowflakeConfig::MAX_PLACE`].
    pub data_centre: u8,
    /// The number of the process: 0 to [`SnowflakeConfig::MAX_PLACE`].
    pub machine: u8,
}

impl SnowflakeConfig {
    /// The highest number of a data centre and of a machine: five bits each.
    pub const MAX_PLACE: u8 = 31;

    /// Settings for a process, with the epoch 2024-01-01 00:00 UTC.
    #[must_use]
    pub fn new(data_centre: u8, machine: u8) -> Self {
        Self {
            epoch: UNIX_EPOCH + Duration::from_secs(1_704_067_200),
            data_centre,
            machine,
        }
    }
}

impl ClaimIds {
    /// The longest readable part of an id, in bytes.
    pub const MAX_READABLE_BYTES: usize = ClaimId::MAX_BYTES - 1 - RANDOM_DIGITS;

    /// Random ids of 32 hexadecimal digits. The default.
    #[must_use]
    pub fn random() -> Self {
        Self::default()
    }

    /// Readable ids for audits:
    ///
    /// ```text
    /// mac-0242ac110002-31337-1772377184123456-002a-1d0k7vq4n9m2c
    ///     machine      pid   µs since 1970     |    64 random bits, base 36
    ///                                          sequence number, hexadecimal
    /// ```
    ///
    /// On Linux the machine is the MAC address of a network interface. An address assigned by the
    /// manufacturer is preferred over a local one, a device over a bridge, then the first by
    /// name. Without an address it is `host-` and ten digits of a hash (FNV-1a) of the host name.
    /// It is read once, in this call. The sequence number restarts after ffff. The time is the
    /// wall clock and may step.
    ///
    /// Everybody who can read the store's records sees the whole id, including the secret part.
    /// Do not use these ids if the machine must stay unknown.
    #[must_use]
    pub fn host_process_time() -> Self {
        let (host, sequence) = (host::mark(), AtomicU16::new(0));
        Self::made(format!("host, process, time: {host}"), move || {
            let (pid, micros) = (std::process::id(), clock::wall().as_micros());
            let sequence = sequence.fetch_add(1, Ordering::Relaxed);
            Ok(format!("{host}-{pid}-{micros}-{sequence:04x}"))
        })
    }

    /// Snowflake ids: decimal numbers that rise with time, each followed by a dash and 64 random
    /// bits in base 36. The number has, from the top: 41 bits of milliseconds since the epoch,
    /// 5 bits of the data centre, 5 bits of the machine, 12 bits of a sequence number.
    ///
    /// The numbers of one value rise also while the clock is behind the last one, or gives more
    /// than 4096 in a millisecond: they then run ahead of the clock.
    ///
    /// # Errors
    /// [`Invalid`] if a number is above [`SnowflakeConfig::MAX_PLACE`], or if the epoch is before
    /// 1970, in the future or more than 69 years ago.
    pub fn snowflake(config: SnowflakeConfig) -> Result<Self, Invalid> {
        let numbers = snowflake::Snowflake::new(&config, clock::wall())?;
        let scheme = format!("snowflake: {}/{}", config.data_centre, config.machine);
        Ok(Self::made(scheme, move || {
            numbers.next(clock::wall()).map(|number| number.to_string())
        }))
    }

    /// Custom ids. The function makes the readable part of each: 1 to
    /// [`ClaimIds::MAX_READABLE_BYTES`] printable ASCII characters without spaces. A dash and 64
    /// random bits in base 36 follow. The function is called for each claim, on the task that
    /// acquires, and for each rotation. It must not block.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use leasehold::ClaimIds;
    ///
    /// # fn main() -> Result<(), leasehold::Invalid> {
    /// let ids = ClaimIds::custom(Arc::new(|| "billing".to_owned()));
    /// assert!(ids.next()?.expose().starts_with("billing-"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn custom(readable: Arc<dyn Fn() -> String + Send + Sync>) -> Self {
        // It also runs on the task of all leases of a client, which must not end with it.
        let made = move || {
            let hint = "correct the function that is given to ClaimIds::custom";
            catch_unwind(AssertUnwindSafe(&*readable))
                .map_err(|_| Invalid::new("the function for claim ids has panicked", hint))
        };
        Self::made("custom".to_owned(), made)
    }

    fn made(
        scheme: String,
        make: impl Fn() -> Result<String, Invalid> + Send + Sync + 'static,
    ) -> Self {
        let make = Box::new(make);
        let readable = Some(Arc::new(Readable { scheme, make }));
        Self { readable }
    }

    /// Generates the next id.
    ///
    /// # Errors
    /// [`Invalid`] if a custom readable part is too long or has other characters, or its function
    /// panics, or if the 69 years of the Snowflake epoch are over.
    pub fn next(&self) -> Result<ClaimId, Invalid> {
        let Some(readable) = &self.readable else {
            return Ok(ClaimId::from_random(random_u128()));
        };
        let readable = (readable.make)()?;
        let what = "the readable part of a claim id";
        check_word(what, &readable, Self::MAX_READABLE_BYTES)?;
        ClaimId::new(format!("{readable}-{}", base_36(random_u64())))
    }
}

impl fmt::Debug for ClaimIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.readable.as_ref().map_or("random", |made| &made.scheme);
        write!(f, "ClaimIds({scheme})")
    }
}

/// So many digits are enough for 64 bits.
const RANDOM_DIGITS: usize = 13;

fn base_36(number: u64) -> String {
    // At most 35.
    let digit = |place| char::from_digit((number / 36_u64.pow(place) % 36) as u32, 36);
    (0..RANDOM_DIGITS as u32).rev().filter_map(digit).collect()
}

#[cfg(test)]
mod tests;
