//! The time that all processes of one boot share.
//!
//! The time since boot, which nobody can set, plus an anchor: the wall clock of
//! that boot's origin as the first process found it. So no step of the wall
//! clock moves a deadline, and times look like microseconds since 1970, which
//! keeps tokens rising over restarts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::StoreTime;
use rustix::fs::{OFlags, Stat};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::directory::{Directory, Locked};
use super::file;
use crate::error::{ErrorKind, StoreError};

const FILE: &str = "clock";
const TEMPORARY: &str = "clock.tmp";

#[cfg(any(target_os = "linux", target_os = "android"))]
const SINCE_BOOT: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const SINCE_BOOT: ClockId = ClockId::Monotonic;

/// How far a file time may be off the clock, and the boot's origin off itself.
const SLACK: Duration = Duration::from_secs(2);

/// No boot is later, in microseconds since 1970 (the year 2255): an anchor beyond it
/// would leave no room for tokens.
const LATEST: u64 = 1 << 53;

/// The clock of this boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Clock {
    /// Which boot: claims of another one are void.
    boot: String,
    /// The wall clock at the boot's origin, in microseconds since 1970.
    anchor: u64,
}

impl Clock {
    /// Finds the anchor of this boot, or sets it.
    pub(super) fn open(directory: &Directory) -> Result<Self, StoreError> {
        let failed = |errno| directory.failed("write to", errno);
        let _alone = Locked::wait(directory.reopen(".").map_err(failed)?).map_err(failed)?;
        let found = match directory.file(FILE, OFlags::RDONLY) {
            Ok(found) => Some(found),
            Err(rustix::io::Errno::NOENT) => None,
            Err(errno) => return Err(failed(errno)),
        };
        if let Some(found) = found {
            let (text, stat) = file::read(found).map_err(failed)?;
            let earlier = is_of_earlier_boot(&stat);
            match Self::read(&text) {
                Some(clock) if clock.is_of_this_boot(earlier) => return Ok(clock),
                None if !earlier => return Err(corrupt(directory)),
                Some(_) | None => {}
            }
        }
        let clock = Self::new();
        let text = serde_json::to_vec(&clock).unwrap_or_default();
        file::replace(directory, TEMPORARY, FILE, &text).map_err(failed)?;
        Ok(clock)
    }

    /// Reads what [`Clock::open`] wrote.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let clock: Option<Self> = serde_json::from_slice(text).ok();
        clock.filter(|clock| clock.anchor <= LATEST)
    }

    fn new() -> Self {
        let anchor = wall().saturating_sub(since_boot());
        Self {
            boot: boot_id().unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
            anchor: u64::try_from(anchor.as_micros()).unwrap_or(0),
        }
    }

    /// The clock as it was in another boot.
    #[cfg(test)]
    pub(super) fn of_boot(boot: &str) -> Self {
        Self {
            boot: boot.to_owned(),
            ..Self::new()
        }
    }

    /// Where the kernel does not number its boots, the file's age decides.
    fn is_of_this_boot(&self, earlier: bool) -> bool {
        boot_id().map_or(!earlier, |boot| boot == self.boot)
    }

    pub(super) fn boot(&self) -> &str {
        &self.boot
    }

    pub(super) fn now(&self) -> StoreTime {
        self.at(since_boot())
    }

    /// The time so long after the boot.
    pub(super) fn at(&self, since_boot: Duration) -> StoreTime {
        StoreTime(self.anchor) + since_boot
    }
}

/// Whether a file was last written before the machine started.
pub(super) fn is_of_earlier_boot(stat: &Stat) -> bool {
    let written = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
    written + SLACK < wall().saturating_sub(since_boot())
}

pub(super) fn wall() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

fn since_boot() -> Duration {
    let time = clock_gettime(SINCE_BOOT);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

fn corrupt(directory: &Directory) -> StoreError {
    let path = directory.path().join(FILE);
    StoreError::new(ErrorKind::Corrupt, format!("{} is damaged", path.display()))
        .with_hint("stop what uses that directory, then remove it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_processes_of_a_boot_have_one_anchor() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path().join("d")).unwrap();
        let first = Clock::open(&directory).unwrap();
        assert_eq!(Clock::open(&directory).unwrap(), first);
        assert!(first.now() <= first.now());
        let off = wall().as_micros().abs_diff(u128::from(first.now().0));
        assert!(off < 5_000_000, "looks like the wall clock");
    }

    #[test]
    fn another_boot_has_another_anchor() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path().join("d")).unwrap();
        let text = serde_json::to_vec(&Clock::of_boot("earlier")).unwrap();
        file::replace(&directory, TEMPORARY, FILE, &text).unwrap();
        let clock = Clock::open(&directory).unwrap();
        assert_ne!(clock.boot(), "earlier");
        assert_eq!(Clock::open(&directory).unwrap(), clock, "and keeps it");
    }

    #[test]
    fn a_damaged_anchor_is_left_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path().join("d")).unwrap();
        let path = place.path().join("d").join(FILE);
        std::fs::write(&path, "{").unwrap();
        let error = Clock::open(&directory).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let boot = boot_id().unwrap_or_default();
        let beyond = format!(r#"{{"boot":"{boot}","anchor":{}}}"#, u64::MAX);
        std::fs::write(&path, beyond).unwrap();
        let error = Clock::open(&directory).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        // Unless the machine went down while it was written.
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
        assert!(Clock::open(&directory).is_ok());
    }
}
