//! Where the ids of claims come from.

use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use leasehold_core::{ClaimId, Invalid};

use crate::clock;
use crate::error::{ErrorKind, StoreError};

mod host;
mod snowflake;

use snowflake::{Next, Snowflake};

/// Makes the ids of claims: one for each attempt to get a lease.
///
/// Two things hang on an id. It must be **unique**: who asks with the id of a
/// claim that is there is taken for its owner, so two that come by one id both
/// believe that they hold. And it should be **unguessable**: who can reach the
/// store and knows the id can renew and release the claim.
///
/// | | unique | unguessable | says |
/// |---|---|---|---|
/// | [`ClaimIds::random`], the default | yes | yes | nothing |
/// | [`ClaimIds::host_process_time`] | yes | yes | which machine and process, and when |
/// | [`ClaimIds::snowflake`] | if each process has its own place | **no** | which place, and when |
/// | [`ClaimIds::custom`] | as you make them | as you make them | what you like |
///
/// A clone goes on in the same sequence.
///
/// ```
/// use leasehold::ClaimIds;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::StoreError> {
/// let ids = ClaimIds::host_process_time();
/// let id = ids.next().await?;
/// // mac-0242ac110002-31337-1772377184123456-002a-1d0k7vq4n9m2c
/// let fields: Vec<&str> = id.expose().split('-').collect();
/// assert_eq!(fields[2], std::process::id().to_string());
/// assert_ne!(ids.next().await?, id);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct ClaimIds(Scheme);

#[derive(Clone, Default)]
enum Scheme {
    #[default]
    Random,
    HostProcessTime(Arc<HostProcessTime>),
    Snowflake(Arc<Places>),
    Custom(Arc<Maker>),
}

type Maker = dyn Fn() -> Result<ClaimId, Invalid> + Send + Sync;

struct HostProcessTime {
    /// `mac-…` or `host-…`.
    host: String,
    sequence: AtomicU16,
}

struct Places {
    config: SnowflakeConfig,
    machine: Mutex<Snowflake>,
}

/// What makes a process's Snowflake ids its own; see [`ClaimIds::snowflake`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnowflakeConfig {
    /// Where time begins: at most 69 years ago, by whole milliseconds.
    /// Everywhere the same, and never moved.
    pub epoch: SystemTime,
    /// 0 to [`SnowflakeConfig::MAX_PLACE`].
    pub data_centre: u8,
    /// 0 to [`SnowflakeConfig::MAX_PLACE`]: one for each process of the data
    /// centre that uses the store, also on one machine.
    pub machine: u8,
    /// What to do while the clock is behind the last id.
    pub on_step_back: StepBack,
}

/// What to do while the wall clock is behind the last id made, for then a new
/// id could be an old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepBack {
    /// Wait until it has caught up; refuse when that takes longer than this
    /// altogether.
    Wait {
        /// The longest wait for one id.
        at_most: Duration,
    },
    /// Refuse at once.
    Refuse,
}

impl SnowflakeConfig {
    /// The highest data centre and the highest machine: five bits each.
    pub const MAX_PLACE: u8 = 31;

    /// The place of a process, with an epoch of 2024-01-01 00:00 UTC and one
    /// second of patience with a clock that stepped back.
    #[must_use]
    pub fn new(data_centre: u8, machine: u8) -> Self {
        Self {
            epoch: UNIX_EPOCH + Duration::from_secs(1_704_067_200),
            data_centre,
            machine,
            on_step_back: StepBack::Wait {
                at_most: Duration::from_secs(1),
            },
        }
    }
}

impl ClaimIds {
    /// 32 hexadecimal digits: a random UUID (version 4). The default.
    #[must_use]
    pub fn random() -> Self {
        Self(Scheme::Random)
    }

    /// Ids to read in an audit, and no easier to guess than 64 random bits:
    ///
    /// ```text
    /// mac-0242ac110002-31337-1772377184123456-002a-1d0k7vq4n9m2c
    ///     machine      pid   µs since 1970     |    64 random bits, base 36
    ///                                          sequence number, hexadecimal
    /// ```
    ///
    /// The machine is the MAC address of an interface that has one, on Linux:
    /// assigned by a maker rather than made up, of a device rather than a
    /// bridge, then the first by name. Where there is none it is `host-` and
    /// ten digits of a hash (FNV-1a) of the host's name. It is looked up here,
    /// once. The sequence number starts anew after ffff; the time is the wall
    /// clock's and may step.
    ///
    /// Everybody who can look at the store's records reads all of that, the
    /// secret included: it is no place for a machine that must not be known.
    #[must_use]
    pub fn host_process_time() -> Self {
        Self(Scheme::HostProcessTime(Arc::new(HostProcessTime {
            host: host::mark(),
            sequence: AtomicU16::new(0),
        })))
    }

    /// Snowflake ids: numbers that rise with the time, in decimal. From the top
    /// 41 bits of milliseconds since the epoch, 5 of the data centre, 5 of the
    /// machine, 12 of a sequence number. The 4097th of a millisecond waits for
    /// the next.
    ///
    /// **They can be guessed**: whoever can reach the store, and knows about when
    /// a claim was made, can release it. Take them only where everybody who can
    /// reach the store may do that. Pushes prove nothing with them, so a hand-off
    /// costs one more round trip.
    ///
    /// **They are unique only if the places are**: two processes with one data
    /// centre and machine can come by one id, and then both believe that they
    /// hold. Within a process, clone one value and do not make a second. And a
    /// process that starts again has to start after its last id: a clock that
    /// stepped back in between is not noticed.
    ///
    /// # Errors
    /// [`Invalid`] if a number is above [`SnowflakeConfig::MAX_PLACE`], or the
    /// epoch before 1970, in the future or more than 69 years ago.
    pub fn snowflake(config: SnowflakeConfig) -> Result<Self, Invalid> {
        let machine = Mutex::new(Snowflake::new(&config, clock::wall())?);
        Ok(Self(Scheme::Snowflake(Arc::new(Places {
            config,
            machine,
        }))))
    }

    /// Ids of your own making. The function is called for each claim, on the
    /// task that asks: it must not block, and what it makes must be unique and
    /// should be unguessable. Whether it is cannot be known here, so pushes prove
    /// nothing, and a hand-off costs one more round trip.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use leasehold::{ClaimId, ClaimIds};
    ///
    /// # fn random_text() -> String { "6b1f0c".to_owned() }
    /// let ids = ClaimIds::custom(Arc::new(|| ClaimId::new(format!("billing.{}", random_text()))));
    /// ```
    #[must_use]
    pub fn custom(make: Arc<dyn Fn() -> Result<ClaimId, Invalid> + Send + Sync>) -> Self {
        Self(Scheme::Custom(make))
    }

    /// The next id. Waits only for a Snowflake's clock: a millisecond when its
    /// sequence is used up, and as [`StepBack`] says when it stepped back.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing but the number it would have had.
    ///
    /// # Errors
    /// - `Refused`: the clock is behind the last id, and waiting was not allowed
    ///   or not enough. `retry_after` says how far.
    /// - `Invalid`: the Snowflake's 69 years are over, or your own function said
    ///   so.
    pub async fn next(&self) -> Result<ClaimId, StoreError> {
        match &self.0 {
            Scheme::Random => Ok(ClaimId::from_random(uuid::Uuid::new_v4().as_u128())),
            Scheme::HostProcessTime(scheme) => Ok(scheme.next(clock::wall())?),
            Scheme::Snowflake(places) => places.next(clock::wall).await,
            Scheme::Custom(make) => Ok(make()?),
        }
    }

    /// The next id, if it can be made without waiting.
    pub(crate) fn now(&self) -> Option<ClaimId> {
        self.next().now_or_never().and_then(Result::ok)
    }

    /// Whether others may guess an id, as far as is known.
    pub(crate) fn may_be_guessed(&self) -> bool {
        match &self.0 {
            Scheme::Random | Scheme::HostProcessTime(_) => false,
            Scheme::Snowflake(_) | Scheme::Custom(_) => true,
        }
    }

    /// Whether one id can come twice: then a client must not use it twice.
    pub(crate) fn may_repeat(&self) -> bool {
        match &self.0 {
            Scheme::Random | Scheme::HostProcessTime(_) => false,
            Scheme::Snowflake(_) | Scheme::Custom(_) => true,
        }
    }
}

impl fmt::Debug for ClaimIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Scheme::Random => f.write_str("ClaimIds(random)"),
            Scheme::HostProcessTime(scheme) => {
                write!(f, "ClaimIds(host, process, time: {})", scheme.host)
            }
            Scheme::Snowflake(places) => {
                let SnowflakeConfig {
                    data_centre,
                    machine,
                    ..
                } = places.config;
                write!(f, "ClaimIds(snowflake: {data_centre}/{machine})")
            }
            Scheme::Custom(_) => f.write_str("ClaimIds(custom)"),
        }
    }
}

impl HostProcessTime {
    fn next(&self, now: Duration) -> Result<ClaimId, Invalid> {
        let pid = std::process::id();
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        // The halves of a UUID, each with a few fixed bits, make 64 random ones.
        let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
        ClaimId::new(format!(
            "{}-{pid}-{}-{sequence:04x}-{}",
            self.host,
            now.as_micros(),
            base_36(high ^ low)
        ))
    }
}

/// Thirteen digits, which is enough for 64 bits.
fn base_36(mut number: u64) -> String {
    let mut digits = ['0'; 13];
    for digit in digits.iter_mut().rev() {
        // At most 35.
        *digit = char::from_digit((number % 36) as u32, 36).unwrap_or('0');
        number /= 36;
    }
    digits.iter().collect()
}

impl Places {
    async fn next(&self, wall: impl Fn() -> Duration) -> Result<ClaimId, StoreError> {
        let mut patience = match self.config.on_step_back {
            StepBack::Wait { at_most } => at_most,
            StepBack::Refuse => Duration::ZERO,
        };
        loop {
            // Not held while waiting.
            let next = {
                let machine = self.machine.lock();
                let mut machine = machine.unwrap_or_else(PoisonError::into_inner);
                machine.next(wall(), patience)
            };
            let wait = match next {
                Next::Id(id) => return Ok(ClaimId::new(id.to_string())?),
                Next::Full(wait) => wait,
                Next::Behind(wait) => {
                    patience -= wait;
                    wait
                }
                Next::Refuse(gap) => return Err(behind(gap)),
                Next::Over => return Err(over()),
            };
            crate::sync::sleep(wait).await;
        }
    }
}

fn behind(gap: Duration) -> StoreError {
    StoreError::new(
        ErrorKind::Refused,
        format!("the clock is {gap:?} behind the last claim id"),
    )
    .with_hint("slew the clock instead of stepping it, or use random ids")
    .with_retry_after(gap)
}

fn over() -> StoreError {
    StoreError::new(
        ErrorKind::Invalid,
        "the 69 years of these claim ids are over",
    )
    .with_hint("choose a later epoch in all processes at the same time, or use random ids")
}

#[cfg(test)]
mod tests;
