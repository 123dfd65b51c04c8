//! How an inner leasehold opens the store of an outer one: without the outer one's secrets in its
//! arguments or its environment.
//!
//! The outer one keeps the URL, the password and what else it was given in memory, and says in
//! `LEASEHOLD_STORE_FILE` where: `/proc/PID/fd/N`. Who may read that could read the memory of the
//! outer one as well: processes of the same user, while it lives. (On Linux; elsewhere nothing is
//! handed on.)

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use leasehold::{Access, TlsFiles};
use serde::{Deserialize, Serialize};

use crate::env;
use crate::user_file::{Links, UserFile};

/// What is handed on.
#[derive(Serialize, Deserialize)]
struct Content {
    /// The URL as everybody may see it: what follows is for this store only.
    store: String,
    url: String,
    user: Option<String>,
    password: Option<String>,
    password_file: Option<PathBuf>,
    tls_ca: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
}

/// What is handed on, as long as this lives.
#[derive(Debug)]
pub(crate) struct HandedOn(OwnedFd);

impl HandedOn {
    /// Hands on how the store was opened that everybody may know as `store`.
    pub(crate) fn new(store: &str, url: &str, access: &Access) -> io::Result<Self> {
        let absolute = |path: &Option<PathBuf>| path.as_ref().map(std::path::absolute).transpose();
        let content = Content {
            store: store.to_owned(),
            url: url.to_owned(),
            user: access.user.clone(),
            password: access.password.clone(),
            password_file: absolute(&access.password_file)?,
            tls_ca: absolute(&access.tls.ca)?,
            tls_cert: absolute(&access.tls.cert)?,
            tls_key: absolute(&access.tls.key)?,
        };
        in_memory(&serde_json::to_vec(&content)?).map(Self)
    }

    /// Where it can be read.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// A file that is nowhere but in memory, and does not change any more.
#[cfg(target_os = "linux")]
fn in_memory(content: &[u8]) -> io::Result<OwnedFd> {
    use std::fs::File;
    use std::io::Write;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("leasehold-store", flags)?);
    file.write_all(content)?;
    let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&file, all)?;
    Ok(file.into())
}

/// Nothing is handed on here.
#[cfg(not(target_os = "linux"))]
fn in_memory(_content: &[u8]) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}

/// How an outer leasehold has opened `store`, if it has handed that on and is still there.
pub(crate) fn handed_on(store: &str) -> Option<(String, Access)> {
    let path = PathBuf::from(std::env::var_os(env::STORE_FILE)?);
    let file = UserFile::open(&path, Links::Follow).ok()?;
    // Another user may have the process id of an outer one that is gone.
    if file.metadata.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let content: Content = serde_json::from_slice(&file.bytes().ok()?).ok()?;
    let access = Access {
        user: content.user,
        password: content.password,
        password_file: content.password_file,
        tls: TlsFiles {
            ca: content.tls_ca,
            cert: content.tls_cert,
            key: content.tls_key,
        },
    };
    (content.store == store).then_some((content.url, access))
}
