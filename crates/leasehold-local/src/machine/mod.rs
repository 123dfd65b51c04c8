//! What is assumed of the machine: that all who use a directory see the same locks, clock and boot.

use std::fmt;
use std::os::fd::AsFd;
use std::path::Path;

use leasehold_store::StoreError;

use super::errors::{failed, refused};

/// What is assumed: what a caller is told where it does not hold or cannot be known. The page
/// `docs/stores/local.md` has a table of these, which says how each is checked.
#[derive(Debug)]
pub(super) struct Assumption {
    pub(super) said: &'static str,
    remedy: &'static str,
}

pub(super) const FILE_SYSTEM: Assumption = Assumption {
    said: "other machines may use its file system",
    remedy: "name a directory on a disk of this machine: local:/some/dir",
};

pub(super) const LOCKS: Assumption = Assumption {
    said: "its file system does not support locks",
    remedy: "name a directory on a disk of this machine: local:/some/dir",
};

pub(super) const PROC: Assumption = Assumption {
    said: "/proc is missing, or is not the kernel's",
    remedy: "let this program see the kernel's /proc, or use a server",
};

pub(super) const BOOT: Assumption = Assumption {
    said: "the number of this boot is unknown: /proc/sys/kernel/random/boot_id cannot be read",
    remedy: "let this program see all of /proc (for systemd: without ProcSubset=pid), or use a server",
};

pub(super) const ONE_BOOT: Assumption = Assumption {
    said: "clients with the number of another boot use it, of another machine or container",
    remedy: "give each of them a directory of its own, or use a server",
};

pub(super) const TIME: Assumption = Assumption {
    said: "the machine's time is unknown",
    remedy: "start this program in its time namespace (unshare --fork --time), or use a server",
};

impl Assumption {
    /// What to tell a caller where it does not hold; `found` is said too if it is not empty.
    pub(super) fn fails(&self, path: &Path, found: impl fmt::Display) -> StoreError {
        let found = found.to_string();
        let found = match &*found {
            "" => found,
            found => format!(" ({found})"),
        };
        let (path, said) = (path.display(), self.said);
        let message = format!("the directory {path} cannot be used: {said}{found}");
        refused(message, self.remedy)
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn check_file_system(_path: &Path, _fd: impl AsFd) -> Result<(), StoreError> {
    Ok(())
}

/// Another machine has another clock, and does not see who lives here.
#[cfg(target_os = "linux")]
pub(super) fn check_file_system(path: &Path, fd: impl AsFd) -> Result<(), StoreError> {
    let found = rustix::fs::fstatfs(fd).map_err(|errno| failed(path, "look at", errno))?;
    // Magic numbers have 32 bits, whatever the width of the field.
    match shared(found.f_type as u32) {
        None => Ok(()),
        Some(name) => Err(FILE_SYSTEM.fails(path, name)),
    }
}

/// Refuses a `/proc` that says nothing of this kernel.
#[cfg(target_os = "linux")]
pub(super) fn check_proc(path: &Path) -> Result<(), StoreError> {
    const PROC_MAGIC: u32 = 0x9fa0;
    let found = rustix::fs::statfs("/proc").map(|found| found.f_type as u32);
    match found {
        Ok(PROC_MAGIC) => Ok(()),
        Ok(_) => Err(PROC.fails(path, "")),
        Err(errno) => Err(PROC.fails(path, std::io::Error::from(errno))),
    }
}

/// The name of a type of file systems to which other machines can write too, or who knows. `None`:
/// one kernel alone.
#[cfg(target_os = "linux")]
fn shared(magic: u32) -> Option<String> {
    let name = match magic {
        // ext4, xfs, btrfs, f2fs, zfs, bcachefs, jfs, reiserfs, nilfs2, ubifs.
        0xef53 | 0x5846_5342 | 0x9123_683e | 0xf2f5_2010 | 0x2fc1_2fc1 | 0xca45_1a4e
        | 0x3153_464a | 0x5265_4973 | 0x3434 | 0x2405_1905
        // hfsplus, vfat, exfat, ntfs3.
        | 0x482b | 0x4d44 | 0x2011_bab0 | 0x7366_746e
        // tmpfs, ramfs, overlay.
        | 0x0102_1994 | 0x8584_58f6 | 0x794c_7630 => return None,
        0x6969 => "nfs",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "smb",
        0x5346_414f | 0x6b41_4653 => "afs",
        0x00c3_6400 => "ceph",
        0x0bd0_0bd0 => "lustre",
        0x4750_4653 => "gpfs",
        0x0102_1997 => "9p",
        0x6573_5546 => "fuse: virtiofs, sshfs and others",
        0x7461_636f => "ocfs2",
        0x0116_1970 => "gfs2",
        0x786f_4256 => "vboxsf",
        number => return Some(format!("type {number:#x}, unknown to leasehold")),
    };
    Some(name.to_owned())
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
