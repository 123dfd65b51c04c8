//! The time that all processes of one boot share.
//!
//! The time since boot, which nobody can set, plus an anchor: the wall clock of
//! that boot's origin as the first process found it. So no step of the wall
//! clock moves a deadline, and times look like microseconds since 1970, which
//! keeps tokens rising over restarts.

use std::io::ErrorKind as IoKind;
use std::path::Path;
use std::time::Duration;

use leasehold_core::StoreTime;
use leasehold_store::clock::{of_machine, wall};
use leasehold_store::random::random_u128;
use leasehold_store::{ErrorKind, StoreError};
use rustix::fs::{FlockOperation, OFlags, Stat, fstat, ftruncate};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::directory::{CLOCK, CLOCK_LOCK, Directory, last_written};
#[cfg(target_os = "linux")]
use super::machine::{self, BOOT};
use super::machine::{ONE_BOOT, TIME};
use super::{file, liveness};

/// No clock file is longer, in bytes.
const LONGEST: usize = 4096;

/// How far a file time may be off the clock, and the boot's origin off itself.
const SLACK: Duration = Duration::from_secs(2);

/// No boot is later, in microseconds since 1970 (the year 2255): an anchor beyond it
/// would leave no room for tokens.
const LATEST: u64 = 1 << 53;

/// The clock of this boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Clock {
    /// Which boot: claims of another one are void.
    boot: String,
    /// The wall clock at the boot's origin, in microseconds since 1970.
    anchor: u64,
    machine: SinceBoot,
}

/// How it is written down.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    boot: String,
    anchor: u64,
    checksum: String,
}

fn checksum(anchor: u64, boot: &str) -> String {
    format!("{:016x}", xxh3_64(format!("{anchor} {boot}").as_bytes()))
}

impl Clock {
    /// Finds the anchor of this boot, which was set long ago as a rule, or sets it.
    ///
    /// # Errors
    /// `Unavailable` if it is not set, and this may not `wait` for others who set it.
    pub(super) fn open(directory: &Directory, wait: bool) -> Result<Self, StoreError> {
        let boot = Boot::of_this_process(directory.path())?;
        let found = Self::find(directory, &boot).ok().flatten();
        if let Some(found) = found.filter(|clock| boot.is_of(clock)) {
            return Ok(found);
        }
        let failed = |name, errno| directory.failed_at(name, "write to", errno);
        if !wait {
            return Err(failed(CLOCK, Errno::WOULDBLOCK));
        }
        // Not the directory itself: another user who may read it could lock it.
        let locked = directory.lock_file(CLOCK_LOCK, FlockOperation::LockExclusive);
        let _alone = locked.map_err(|errno| failed(CLOCK_LOCK, errno))?;
        match Self::find(directory, &boot)? {
            Some(found) if boot.is_of(&found) => return Ok(found),
            // After a restart nobody of the boot before lives. Else it was none.
            Some(_) if liveness::some_live(directory) => {
                return Err(ONE_BOOT.fails(directory.path(), ""));
            }
            _ => {}
        }
        let clock = Self::new(boot);
        let file = directory.file(CLOCK, OFlags::WRONLY | OFlags::CREATE);
        let written = file.and_then(|file| {
            // Whoever is killed in between has set none.
            ftruncate(&file, 0)?;
            file::write(&file, &clock.written(), 0)
        });
        written.map_err(|errno| failed(CLOCK, errno))?;
        Ok(clock)
    }

    /// The anchor that was set last, if it may be of this boot. A damaged one is an error, and not
    /// set anew: if the wall clock was stepped meanwhile, who runs already would have
    /// another time.
    fn find(directory: &Directory, boot: &Boot) -> Result<Option<Self>, StoreError> {
        let failed = |errno| directory.failed_at(CLOCK, "read", errno);
        let found = match directory.file(CLOCK, OFlags::RDONLY) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        };
        let earlier = boot.since.is_before_boot(&fstat(&found).map_err(failed)?);
        let text = file::read(&found, 0, LONGEST).map_err(failed)?;
        match Self::read(&text, boot.since) {
            // Where the kernel does not number its boots, the file's age decides.
            Some(clock) if boot.id.is_some() || !earlier => Ok(Some(clock)),
            None if !earlier && !text.is_empty() => {
                let path = directory.path().join(CLOCK);
                let message = format!("{} is damaged", path.display());
                Err(StoreError::new(ErrorKind::Corrupt, message)
                    .with_hint("stop what uses that directory, then remove the file"))
            }
            _ => Ok(None),
        }
    }

    /// Reads what [`Clock::open`] wrote.
    pub(super) fn read(text: &[u8], machine: SinceBoot) -> Option<Self> {
        let found: Written = serde_json::from_slice(text).ok()?;
        let (boot, anchor) = (found.boot, found.anchor);
        let whole = found.checksum == checksum(anchor, &boot) && anchor <= LATEST;
        whole.then_some(Self {
            boot,
            anchor,
            machine,
        })
    }

    fn written(&self) -> Vec<u8> {
        let written = Written {
            boot: self.boot.clone(),
            anchor: self.anchor,
            checksum: checksum(self.anchor, &self.boot),
        };
        serde_json::to_vec(&written).unwrap_or_default()
    }

    fn new(boot: Boot) -> Self {
        let anchor = wall().saturating_sub(boot.since.now());
        Self {
            boot: boot.id.unwrap_or_else(|| format!("{:032x}", random_u128())),
            anchor: u64::try_from(anchor.as_micros()).unwrap_or(0),
            machine: boot.since,
        }
    }

    /// The clock as it was in another boot.
    #[cfg(test)]
    pub(super) fn of_boot(boot: &str) -> Self {
        Self {
            boot: boot.to_owned(),
            ..Self::new(Boot::default())
        }
    }

    pub(super) fn boot(&self) -> &str {
        &self.boot
    }

    pub(super) fn now(&self) -> StoreTime {
        self.at(self.machine.now())
    }

    /// Whether a file was last written before the machine started, by the wall clock of its first
    /// process and by that of now: it may have been stepped either way.
    pub(super) fn is_of_earlier_boot(&self, stat: &Stat) -> bool {
        StoreTime(0) + last_written(stat) < StoreTime(self.anchor)
            && self.machine.is_before_boot(stat)
    }

    /// The time so long after the boot.
    pub(super) fn at(&self, since_boot: Duration) -> StoreTime {
        StoreTime(self.anchor) + since_boot
    }
}

/// The boot in which this process runs.
#[derive(Debug, Clone, Default)]
struct Boot {
    /// `None` where the kernel does not number its boots: only elsewhere than on Linux.
    id: Option<String>,
    since: SinceBoot,
}

impl Boot {
    /// # Errors
    /// `Refused` where it cannot be known.
    #[cfg(target_os = "linux")]
    fn of_this_process(path: &Path) -> Result<Self, StoreError> {
        machine::check_proc(path)?;
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let id = id.map_err(|error| BOOT.fails(path, &error).with_source(error))?;
        let id = id.trim().to_owned();
        if id.is_empty() {
            return Err(BOOT.fails(path, "it is empty"));
        }
        Ok(Self {
            id: Some(id),
            since: SinceBoot::of_this_process(path)?,
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn of_this_process(path: &Path) -> Result<Self, StoreError> {
        let since = SinceBoot::of_this_process(path)?;
        Ok(Self { id: None, since })
    }

    /// Whether the clock was set in it.
    fn is_of(&self, clock: &Clock) -> bool {
        self.id.as_ref().is_none_or(|id| *id == clock.boot)
    }
}

/// The time since the machine started, also for a process in a time namespace, where
/// it is off by as much as whoever made the namespace liked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SinceBoot {
    /// By how many microseconds the clock of this process is ahead of the machine's.
    ahead: i64,
}

impl SinceBoot {
    /// # Errors
    /// `Refused` where it cannot be known.
    fn of_this_process(path: &Path) -> Result<Self, StoreError> {
        let exists = |path: &str| std::fs::symlink_metadata(path).is_ok();
        let offsets = match std::fs::read_to_string("/proc/self/timens_offsets") {
            Ok(offsets) => offsets,
            // No such namespaces on this system.
            Err(_) if cfg!(not(target_os = "linux")) => return Ok(Self::default()),
            Err(error)
                if error.kind() == IoKind::NotFound
                    && exists("/proc/self/ns")
                    && !exists("/proc/self/ns/time") =>
            {
                return Ok(Self::default());
            }
            Err(error) => {
                let found = format!("/proc/self/timens_offsets: {error}");
                return Err(TIME.fails(path, found).with_source(error));
            }
        };
        // They are those of its children.
        let namespace = |of| std::fs::read_link(format!("/proc/self/ns/{of}")).ok();
        if namespace("time") != namespace("time_for_children") {
            let found = "this process has left its time namespace to its children";
            return Err(TIME.fails(path, found));
        }
        let found = "/proc/self/timens_offsets is not understood";
        Self::read(&offsets).ok_or_else(|| TIME.fails(path, found))
    }

    /// Reads lines of a clock's name, seconds, and nanoseconds to be added.
    fn read(offsets: &str) -> Option<Self> {
        let mut lines = offsets.lines().map(str::split_whitespace);
        let mut words = lines.find_map(|mut words| {
            let ours = words.next() == Some("boottime");
            ours.then_some(words)
        })?;
        let mut number = || words.next()?.parse::<i64>().ok();
        let (seconds, nanoseconds) = (number()?, number()?);
        let ahead = seconds
            .checked_mul(1_000_000)?
            .checked_add(nanoseconds / 1_000)?;
        Some(Self { ahead })
    }

    fn now(self) -> Duration {
        Duration::from_micros(of_machine().0.saturating_add_signed(-self.ahead))
    }

    /// Whether a file was last written before the machine started.
    fn is_before_boot(self, stat: &Stat) -> bool {
        last_written(stat) + SLACK < wall().saturating_sub(self.now())
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use leasehold_core::Inbox;

    use super::*;
    use crate::tests::{Place, refusal};

    #[test]
    fn all_processes_of_a_boot_have_one_anchor() {
        let place = Place::new();
        let directory = place.directory();
        let unset = Clock::open(&directory, false).unwrap_err();
        assert_eq!(unset.kind(), ErrorKind::Unavailable);
        let first = Clock::open(&directory, true).unwrap();
        for wait in [true, false] {
            assert_eq!(Clock::open(&directory, wait).unwrap(), first);
        }
        assert!(first.now() <= first.now());
        let off = wall().as_micros().abs_diff(u128::from(first.now().0));
        assert!(off < 5_000_000, "looks like the wall clock");
    }

    #[test]
    fn another_boot_has_another_anchor() {
        let place = Place::new();
        let directory = place.directory();
        let text = Clock::of_boot("earlier").written();
        std::fs::write(place.at(CLOCK), text).unwrap();
        let clock = Clock::open(&directory, true).unwrap();
        assert_ne!(clock.boot(), "earlier");
        assert_eq!(
            Clock::open(&directory, true).unwrap(),
            clock,
            "and keeps it"
        );
    }

    /// A restart has no survivors: such clients are of another kernel, or of a container with a
    /// number of its own, and their claims must not be taken for those of a boot before.
    #[test]
    fn while_clients_of_another_boot_live_there_is_no_new_anchor() {
        let place = Place::new();
        let (directory, path) = (place.directory(), place.at(CLOCK));
        let session =
            liveness::Session::open(directory.clone(), Inbox::from_random(1), true).unwrap();
        let text = Clock::of_boot("another").written();
        std::fs::write(&path, &text).unwrap();
        std::fs::write(place.at("sessions/dead"), "").unwrap();
        refusal(Clock::open(&directory, true), ONE_BOOT.said);
        assert_eq!(std::fs::read(&path).unwrap(), text);
        drop(session);
        assert!(Clock::open(&directory, true).is_ok());
    }

    #[test]
    fn a_damaged_anchor_is_left_as_it_is() {
        let place = Place::new();
        let directory = place.directory();
        let path = place.at(CLOCK);
        std::fs::write(&path, "{").unwrap();
        let error = Clock::open(&directory, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.hint().unwrap().ends_with("remove the file"));
        let beyond = Clock {
            anchor: u64::MAX,
            ..Clock::new(Boot::default())
        };
        std::fs::write(&path, beyond.written()).unwrap();
        let error = Clock::open(&directory, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        // Unless the machine went down while it was written.
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
        assert!(Clock::open(&directory, true).is_ok());
    }

    /// One digit of the anchor is as much as an hour, or a day.
    #[test]
    fn no_change_of_the_anchor_goes_unnoticed() {
        let place = Place::new();
        let directory = place.directory();
        let clock = Clock::open(&directory, true).unwrap();
        let path = place.at(CLOCK);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                let read = Clock::read(&flipped, clock.machine);
                assert_eq!(read, None, "bit {bit} of byte {at}");
            }
            assert_eq!(
                Clock::read(&whole[..at], clock.machine),
                None,
                "cut to {at}"
            );
        }
        let digit = whole.iter().rposition(|byte| *byte == b',').unwrap() - 8;
        let mut wrong = whole;
        wrong[digit] = if wrong[digit] == b'1' { b'2' } else { b'1' };
        std::fs::write(&path, &wrong).unwrap();
        let error = Clock::open(&directory, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(std::fs::read(&path).unwrap(), wrong, "left as it is");
    }

    /// Its clients may live, however the wall clock has been stepped.
    #[test]
    fn a_file_of_this_boot_is_not_of_an_earlier_one() {
        let place = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(place.path().join("f")).unwrap();
        let now = Clock::new(Boot::default());
        let is_earlier = |clock: &Clock| clock.is_of_earlier_boot(&fstat(&file).unwrap());
        assert!(!is_earlier(&now));
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000))
            .unwrap();
        assert!(is_earlier(&now));
        let before_a_step = Clock {
            anchor: 1_000_000_000,
            ..now
        };
        assert!(!is_earlier(&before_a_step));
    }

    #[test]
    fn the_offset_of_a_time_namespace_is_read() {
        let of = |text| SinceBoot::read(text).map(|machine| machine.ahead);
        let none = "monotonic           0         0\nboottime            0         0\n";
        assert_eq!(of(none), Some(0));
        assert_eq!(
            of("monotonic 7 0\nboottime 100000 5\n"),
            Some(100_000_000_000)
        );
        // Half a second back: nanoseconds are added.
        assert_eq!(of("boottime -1 500000000"), Some(-500_000));
        for text in [
            "",
            "monotonic 0 0",
            "boottime",
            "boottime 1",
            "boottime x 0",
            "boottime 1 x",
        ] {
            assert_eq!(of(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_clock_that_is_ahead_tells_the_same_time() {
        let (here, hour) = (SinceBoot::default(), 3_600_000_000);
        let ahead = SinceBoot { ahead: -hour };
        let off = ahead
            .now()
            .abs_diff(here.now() + Duration::from_secs(3_600));
        assert!(off < Duration::from_secs(60), "{off:?}");
    }
}
