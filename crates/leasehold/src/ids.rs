//! Generators of claim ids: random, readable, Snowflake or custom.

use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use leasehold_core::{ClaimId, Invalid, written};
use leasehold_store::random::{random_u64, random_u128};

use crate::clock;
use crate::error::{ErrorKind, StoreError};

mod host;
mod snowflake;

use snowflake::{Next, Snowflake};

/// Generates claim ids: one for each attempt to get a lease.
///
/// An id must be **unique**: a client that uses the id of an existing claim is treated as its
/// owner, so two clients with the same id would both hold the lock. An id should also be
/// **unguessable**: anyone who can reach the store and knows the id can renew and release the
/// claim.
///
/// | | unique | unguessable | says |
/// |---|---|---|---|
/// | [`ClaimIds::random`], the default | yes | yes | nothing |
/// | [`ClaimIds::host_process_time`] | yes | yes | which machine and process, and when |
/// | [`ClaimIds::snowflake`] | if each process has its own place | **no** | which place, and when |
/// | [`ClaimIds::custom`] | as you make them | as you make them | what you like |
///
/// A clone continues the same sequence.
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

/// The settings that make the Snowflake ids of a process unique; see [`ClaimIds::snowflake`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnowflakeConfig {
    /// The epoch of the ids: at most 69 years ago, in whole milliseconds. Use the same epoch in
    /// all processes, and never change it.
    pub epoch: SystemTime,
    /// The number of the data centre: 0 to [`SnowflakeConfig::MAX_PLACE`].
    pub data_centre: u8,
    /// The number of the process: 0 to [`SnowflakeConfig::MAX_PLACE`]. Each process of the data
    /// centre that uses the store needs its own, also on the same machine.
    pub machine: u8,
    /// What to do while the clock is behind the last id.
    pub on_step_back: StepBack,
}

/// What to do while the wall clock is behind the last id. A new id could then repeat an earlier
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepBack {
    /// Wait until the clock has caught up. Refuse if that takes longer than `at_most` in total.
    Wait {
        /// The longest wait for one id.
        at_most: Duration,
    },
    /// Refuse at once.
    Refuse,
}

impl SnowflakeConfig {
    /// The highest number of a data centre and of a machine: five bits each.
    pub const MAX_PLACE: u8 = 31;

    /// Settings for a process, with the epoch 2024-01-01 00:00 UTC and a wait of at most one
    /// second for a clock that stepped back.
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
    /// Random ids of 32 hexadecimal digits (a UUID, version 4). The default.
    #[must_use]
    pub fn random() -> Self {
        Self(Scheme::Random)
    }

    /// Readable ids for audits, which are as hard to guess as 64 random bits:
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
        Self(Scheme::HostProcessTime(Arc::new(HostProcessTime {
            host: host::mark(),
            sequence: AtomicU16::new(0),
        })))
    }

    /// Snowflake ids: decimal numbers that rise with time. From the top: 41 bits of milliseconds
    /// since the epoch, 5 bits of the data centre, 5 bits of the machine, 12 bits of a sequence
    /// number. The 4097th id of a millisecond waits for the next millisecond.
    ///
    /// **They can be guessed**: anyone who can reach the store and knows roughly when a claim was
    /// made can release it. Use them only if everybody who can reach the store may do that.
    /// Pushes cannot be verified with them, so a hand-off costs one more round trip.
    ///
    /// **They are unique only if data centre and machine are**: two processes with the same
    /// numbers can generate the same id, and then both hold the lock. Within a process, clone one
    /// value and do not make a second. A restarted process must start after the time of its last
    /// id: a clock step back during the restart is not noticed.
    ///
    /// # Errors
    /// [`Invalid`] if a number is above [`SnowflakeConfig::MAX_PLACE`], or if the epoch is before
    /// 1970, in the future or more than 69 years ago.
    pub fn snowflake(config: SnowflakeConfig) -> Result<Self, Invalid> {
        let machine = Mutex::new(Snowflake::new(&config, clock::wall())?);
        Ok(Self(Scheme::Snowflake(Arc::new(Places {
            config,
            machine,
        }))))
    }

    /// Custom ids. The function is called for each claim, on the task that acquires. It must not
    /// block. Its ids must be unique and should be unguessable. The client cannot know whether
    /// they are, so it does not rely on pushes, and a hand-off costs one more round trip.
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

    /// Generates the next id. It waits only for the clock of Snowflake ids: for a millisecond if
    /// the sequence is used up, or as [`StepBack`] says if the clock stepped back.
    ///
    /// # Cancel safety
    /// If the future is dropped, a number of the sequence may be skipped.
    ///
    /// # Errors
    /// - `Refused`: the clock is behind the last id, and waiting was not allowed or not enough.
    ///   `retry_after` says by how much.
    /// - `Invalid`: the 69 years of the Snowflake epoch are over, or the custom function returned
    ///   it.
    pub async fn next(&self) -> Result<ClaimId, StoreError> {
        match &self.0 {
            Scheme::Random => Ok(ClaimId::from_random(random_u128())),
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
        ClaimId::new(format!(
            "{}-{pid}-{}-{sequence:04x}-{}",
            self.host,
            now.as_micros(),
            base_36(random_u64())
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
            crate::sync::sleep_anywhere(wait).await;
        }
    }
}

fn behind(gap: Duration) -> StoreError {
    StoreError::new(
        ErrorKind::Refused,
        format!("the clock is {} behind the last claim id", written(gap)),
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
