//! The locks: each as its documentation shows it, at its defaults.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::time::Duration;

use leasehold::{Client, Exclusive, Lease, Mutex, Settings};
use redis::TlsCertificates;
use rslock::{LockGuard, LockManager};
use rustix::fs::{FlockOperation, flock};

use crate::{Arguments, Failure};

/// How long a lock lives that has to be told.
const TTL: Duration = Duration::from_secs(30);

/// What opens locks: one a process.
pub(crate) enum Peer {
    Leasehold(Client),
    Rslock(LockManager, Duration),
    /// The kernel's, on files in that directory.
    Flock(PathBuf),
}

/// A task's own lock on a key.
#[expect(clippy::large_enum_variant, reason = "a task has one")]
pub(crate) enum Lock {
    Leasehold(Mutex, Option<Lease<Exclusive>>),
    Rslock(LockManager, Duration, String, Option<LockGuard>),
    Flock(File),
}

impl Peer {
    pub(crate) async fn connect(arguments: &Arguments) -> Result<Self, Failure> {
        let url = &arguments.url;
        Ok(match &*arguments.peer {
            "leasehold" | "leasehold-local" => {
                let settings = Settings::default();
                let settings = match arguments.ttl {
                    Some(ttl) => settings.with_ttl(ttl),
                    None => settings,
                };
                let client = Client::builder().store(url).settings(settings);
                Self::Leasehold(client.connect().await?)
            }
            "rslock" => Self::Rslock(rslock(url)?, arguments.ttl.unwrap_or(TTL)),
            "flock" => Self::Flock(url.trim_start_matches("local:").into()),
            other => return Err(format!("no such peer: {other}").into()),
        })
    }

    pub(crate) fn lock(&self, key: &str) -> Result<Lock, Failure> {
        Ok(match self {
            Self::Leasehold(client) => Lock::Leasehold(client.mutex(key)?, None),
            Self::Rslock(manager, ttl) => Lock::Rslock(manager.clone(), *ttl, key.to_owned(), None),
            Self::Flock(directory) => {
                let path = directory.join(key);
                let mut options = OpenOptions::new();
                Lock::Flock(options.create(true).append(true).open(path)?)
            }
        })
    }
}

/// With the certificate that `?ca=` of the URL names, as for leasehold.
fn rslock(url: &str) -> Result<LockManager, Failure> {
    let Some((address, ca)) = url.split_once("?ca=") else {
        return Ok(LockManager::new(vec![url]));
    };
    let certificates = TlsCertificates {
        client_tls: None,
        root_cert: Some(std::fs::read(ca)?),
    };
    let client = redis::Client::build_with_tls(address, certificates)?;
    Ok(LockManager::from_clients(vec![client]))
}

impl Lock {
    pub(crate) async fn acquire(&mut self) -> Result<(), Failure> {
        match self {
            Self::Leasehold(lock, held) => *held = Some(lock.lock().await?),
            Self::Rslock(manager, ttl, key, held) => {
                *held = Some(manager.acquire(key.as_str(), *ttl).await?);
            }
            Self::Flock(file) => flock(file, FlockOperation::LockExclusive)?,
        }
        Ok(())
    }

    pub(crate) async fn release(&mut self) -> Result<(), Failure> {
        match self {
            Self::Leasehold(_, held) => {
                if let Some(lease) = held.take() {
                    let _ = lease.release().await?;
                }
            }
            Self::Rslock(.., held) => {
                if let Some(guard) = held.take() {
                    guard.release().await;
                }
            }
            Self::Flock(file) => flock(file, FlockOperation::Unlock)?,
        }
        Ok(())
    }
}
