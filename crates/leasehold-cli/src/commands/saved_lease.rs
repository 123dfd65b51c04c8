//! A lease in a file: `hold --save` writes it, `renew` and `release` use it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::{Any, Client, Error, ErrorKind, HolderInfo, LeaseParts, Released, Settings, Token};
use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};

use crate::args::{ReleaseArgs, RenewArgs};
use crate::config::CommandSettings;
use crate::connect::connect;
use crate::duration::{millis, spoken};
use crate::exit;
use crate::failure::Failure;
use crate::output::{Fields, Printer};
use crate::store_warnings::say_if_not_sent;
use crate::user_file::{Draft, Links, Owner, UserFile, quoted};

/// Whoever writes the file decides which server is asked, and which keys are released.
const OWNER: Owner = Owner::Trusted("copy it to a file of your own if you trust it");

/// What the file says. It holds the secrets of the claims.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedLease {
    /// The URL, without password.
    pub(crate) store: String,
    /// The TTL that the lease was acquired with.
    ttl_ms: u64,
    /// One for each key.
    pub(crate) leases: Vec<LeaseParts<Any>>,
}

/// Where a lease is to be saved.
pub(crate) struct SaveTarget {
    path: PathBuf,
    /// An empty file, or that of `lease`.
    old: Option<UserFile>,
    /// What is saved there.
    pub(crate) lease: Option<SavedLease>,
}

impl SavedLease {
    pub(crate) fn read(path: &Path) -> Result<(Self, UserFile), Failure> {
        let cannot_read = |error| {
            Failure::usage(format!("cannot read {}: {error}", path.display()))
                .hint("name the file that `leasehold hold --save` has written")
        };
        let file = UserFile::open(path, Links::Refuse).map_err(cannot_read)?;
        file.check(OWNER)?;
        let text = file.bytes().map_err(cannot_read)?;
        let lease = serde_json::from_slice(&text).map_err(|_| {
            let message = format!("{} is damaged, or is not a saved lease", path.display());
            Failure::new(exit::CORRUPT, message)
        })?;
        Ok((lease, file))
    }
}

impl SaveTarget {
    /// Looks at it. What is not a saved lease is not replaced.
    pub(crate) fn at(path: &Path) -> Result<Self, Failure> {
        let refused = |why: &dyn std::fmt::Display| {
            let message = format!("cannot save the lease in {}: {why}", path.display());
            Failure::usage(message)
                .hint("name a new file, or one that `leasehold hold --save` has written")
        };
        let old = match UserFile::open(path, Links::Refuse) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => Some(opened.map_err(|error| refused(&error))?),
        };
        let mut lease = None;
        if let Some(old) = &old {
            old.check(OWNER)?;
            let text = old.bytes().map_err(|error| refused(&error))?;
            if !text.is_empty() {
                let another = |_| refused(&"there is a file that is not a saved lease");
                lease = Some(serde_json::from_slice(&text).map_err(another)?);
            }
        }
        // Without its directory the lock would be waited for in vain.
        access(path.with_file_name("."), Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| cannot_write(path, &io::Error::from(error)))?;
        let path = path.to_owned();
        Ok(Self { path, old, lease })
    }

    /// Writes the file, whole or not at all, for this user only.
    pub(crate) fn write(self, lease: &SavedLease) -> Result<UserFile, Failure> {
        let written = self.try_write(lease);
        written.map_err(|error| cannot_write(&self.path, &error))
    }

    fn try_write(&self, lease: &SavedLease) -> io::Result<UserFile> {
        let new = Draft::new(&self.path, 0o600, &serde_json::to_vec(lease)?)?;
        new.file.sync_all()?;
        let Some(old) = &self.old else {
            return new.put();
        };
        // Some file systems have no such locks.
        let is_locked = old.try_lock().unwrap_or(true);
        match is_locked && old.is_there()? {
            true => new.replace(),
            false => Err(io::Error::other("another process has just written it")),
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let message = format!("cannot write the lease to {}: {error}", path.display());
    Failure::new(exit::OUTPUT, message)
}

/// Renews each lease of the file.
pub(crate) async fn renew(args: &RenewArgs, printer: &Printer) -> Result<u8, Failure> {
    let (saved, _) = SavedLease::read(&args.file)?;
    let client = connect_to(&saved, &args.common.store.settings, printer).await?;
    let saved_ttl = Duration::from_millis(saved.ttl_ms);
    let ttl = args.ttl.unwrap_or(saved_ttl);
    Settings::default().with_ttl(ttl).check()?;
    let renew = async |lease: &LeaseParts<Any>| {
        let key = lease.key().as_str();
        match client.renew_by_parts(lease, ttl).await {
            Ok(()) => Ok(Ok(format!("renewed {key} for {}", spoken(ttl)))),
            Err(error) if error.kind() == ErrorKind::Lost => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    };
    each(&saved, Some(ttl), printer, renew, || Ok(())).await
}

/// Releases each lease of the file, and removes the file.
pub(crate) async fn release(args: &ReleaseArgs, printer: &Printer) -> Result<u8, Failure> {
    let (saved, file) = SavedLease::read(&args.file)?;
    let client = connect_to(&saved, &args.common.store.settings, printer).await?;
    // `hold` does not take its lease for lost meanwhile. Some file systems have no such locks.
    let _ = file.try_lock();
    let release = async |lease: &LeaseParts<Any>| {
        let (key, released) = (lease.key().as_str(), client.release_by_parts(lease).await?);
        let ended = "the lease had ended before; another may have held it since";
        Ok::<_, Error>(match released {
            Released::Held => Ok(format!("released {key}")),
            _ => Err(format!("{key} was not held: {ended}")),
        })
    };
    let end = move || {
        file.remove().map_err(|error| {
            let message = format!("cannot remove {}: {error}", args.file.display());
            Failure::new(exit::OUTPUT, message)
        })
    };
    each(&saved, None, printer, release, end).await
}

async fn connect_to(
    saved: &SavedLease,
    store: &CommandSettings,
    printer: &Printer,
) -> Result<Client, Failure> {
    let store = store.or_saved(&saved.store);
    say_if_not_sent(&store, printer);
    connect(&store).await
}

/// Does `work` with each lease of the file, then `end`, and says after that what was done, or that a
/// lease had ended: that with `-q`, too. Answers the worst status. Output that cannot be written, or
/// that nobody reads, keeps no lease from its turn, nor does one of which the record is damaged.
async fn each(
    saved: &SavedLease,
    ttl: Option<Duration>,
    printer: &Printer,
    work: impl AsyncFn(&LeaseParts<Any>) -> Result<Result<String, String>, Error>,
    end: impl FnOnce() -> Result<(), Failure>,
) -> Result<u8, Failure> {
    let (mut all, mut failed) = (Vec::new(), Ok(()));
    for lease in &saved.leases {
        match work(lease).await {
            Ok(done) => all.push((lease.key().as_str(), done)),
            Err(error) if error.is_unavailable() => {
                failed = failed.and(Err(error));
                break;
            }
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    let worked = failed.map_err(Failure::from).and_then(|()| end());
    let mut status = worked.map(|()| exit::OK);
    for (key, done) in all {
        let shown = Fields::default()
            .with("key", key)
            .with("held", done.is_ok())
            .with_known("ttl_ms", ttl.filter(|_| done.is_ok()).map(millis));
        let said = match done {
            Ok(sentence) => printer.done(&shown, &sentence).map(|()| exit::OK),
            Err(sentence) => {
                printer.failure(&Failure::new(exit::LOST, sentence));
                printer.show(&shown, String::new).map(|_| exit::LOST)
            }
        };
        status = status.and_then(|worst| Ok(worst.max(said?)));
    }
    status
}

/// Saves a lease. One that is saved there and still holds is not replaced: nobody could release it
/// then.
pub(crate) async fn save(
    leases: Vec<LeaseParts<Any>>,
    file: &Path,
    client: &Client,
    store: &CommandSettings,
) -> Result<UserFile, Failure> {
    let lease = &SavedLease {
        store: client.store_url().to_owned(),
        ttl_ms: millis(store.ttl().value),
        leases,
    };
    let place = SaveTarget::at(file)?;
    if let Some(old) = &place.lease {
        let (shown, quoted) = (file.display(), quoted(file));
        let hint = format!("save to another file, or first run leasehold release {quoted}");
        let held = still_held(old, lease, client, store).await;
        let held = held.map_err(|failure| {
            let message = format!(
                "cannot tell whether the lease that is saved in {shown} still holds: {failure}"
            );
            Failure { message, ..failure }.hint(&*hint)
        })?;
        if let Some(key) = held {
            let message = format!("the lease that is saved in {shown} still holds {key}");
            return Err(Failure::usage(message).hint(hint));
        }
    }
    place.write(lease)
}

/// The first key that the old lease still holds.
async fn still_held(
    old: &SavedLease,
    new: &SavedLease,
    client: &Client,
    store: &CommandSettings,
) -> Result<Option<String>, Failure> {
    let client = match old.store == new.store {
        true => client.clone(),
        false => connect(&store.elsewhere(&old.store)).await?,
    };
    let is_ours = |key| old.store == new.store && new.leases.iter().any(|it| it.key() == key);
    for lease in &old.leases {
        let (key, token) = (lease.key(), lease.token());
        // Without tokens the holder may be the old one, unless it is the new one.
        let is_old = |holder: &HolderInfo| match token == Token::NONE {
            true => !is_ours(key),
            false => holder.token == token,
        };
        let seen = client.inspect(key.as_str()).await?;
        if seen.holders.iter().any(|it| !it.kept && is_old(it)) {
            return Ok(Some(key.to_string()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_file_is_private_whole_and_known_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deploy.lease");
        let lease = SavedLease {
            store: "local:".to_owned(),
            ttl_ms: 30_000,
            leases: vec![],
        };
        let write = || SaveTarget::at(&path).unwrap().write(&lease).unwrap();
        let first = write();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let read = SavedLease::read(&path).unwrap().0;
        assert_eq!(read.ttl_ms, 30_000);
        let (one, other) = (
            SaveTarget::at(&path).unwrap(),
            SaveTarget::at(&path).unwrap(),
        );
        let second = one.write(&lease).unwrap();
        assert!(!first.is_there().unwrap() && second.is_there().unwrap());
        let late = other.write(&lease).unwrap_err();
        assert_eq!(late.status, exit::OUTPUT, "only one replaces the first");
        first.remove().unwrap();
        assert!(second.is_there().unwrap());
        second.remove().unwrap();
        assert_eq!(SavedLease::read(&path).unwrap_err().status, exit::USAGE);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        // As `mktemp` makes one.
        fs::write(&path, "").unwrap();
        write();
        fs::write(&path, "{}").unwrap();
        assert_eq!(SavedLease::read(&path).unwrap_err().status, exit::CORRUPT);
        let kept = SaveTarget::at(&path).err().map(|refused| refused.status);
        assert_eq!(kept, Some(exit::USAGE));
    }
}
