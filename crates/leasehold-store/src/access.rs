//! Credentials and certificates to open a store.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::error::{ErrorKind, StoreError};

/// The files with the client's certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate authority of the server; the system's authorities by default.
    pub ca: Option<PathBuf>,
    /// The client certificate, if the server asks for one.
    pub cert: Option<PathBuf>,
    /// The private key of the client certificate.
    pub key: Option<PathBuf>,
}

/// Credentials and certificates to open a store. They override the URL. `Debug` hides the
/// password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// The user to log in as.
    pub user: Option<String>,
    /// The password to log in with.
    pub password: Option<String>,
    /// A file whose first line is the password; overrides `password`.
    pub password_file: Option<PathBuf>,
    /// Certificates for TLS.
    pub tls: TlsFiles,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("user", &self.user)
            .field("password_file", &self.password_file)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

impl Access {
    /// Checks that the password file can be read, even if no password is needed.
    ///
    /// # Errors
    /// `Invalid` if it cannot be read, or is empty.
    pub fn check(&self) -> Result<(), StoreError> {
        let file = self.password_file.as_deref();
        file.map_or(Ok(()), |file| read_password(file).map(drop))
    }
}

/// Reads the password from the first line of a file.
///
/// # Errors
/// `Invalid` if it cannot be read, or is empty.
pub fn read_password(file: &Path) -> Result<String, StoreError> {
    let invalid = |message| StoreError::new(ErrorKind::Invalid, message);
    let name = file.display();
    let text = read_file(file)
        .and_then(|text| String::from_utf8(text).map_err(|_| io::Error::other("it is not UTF-8")))
        .map_err(|error| invalid(format!("cannot read the password file {name}: {error}")))?;
    match text.lines().next() {
        Some(password) if !password.is_empty() => Ok(password.to_owned()),
        _ => Err(invalid(format!("the password file {name} is empty"))
            .with_hint("write the password into its first line")),
    }
}

/// The largest file of credentials that is read.
const LARGEST: u64 = 1 << 20;

/// Reads a file of credentials: a password, a certificate or a key.
///
/// It never waits, and never reads without end: what is opened must be a regular file of at most
/// 1 MiB.
///
/// # Errors
/// If it cannot be read, or is not such a file.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    // A FIFO would make the open wait; a terminal would become ours.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut content = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LARGEST {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// Each open would wait, or each read would go on, for ever.
    #[test]
    fn a_file_of_credentials_is_regular_and_small() {
        let name = format!("leasehold-credentials-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        let fifo = directory.join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let large = directory.join("large");
        std::fs::write(&large, vec![b'x'; 1 << 20]).unwrap();
        assert_eq!(read_file(&large).unwrap().len(), 1 << 20);
        std::fs::write(&large, vec![b'x'; (1 << 20) + 1]).unwrap();
        for (path, why) in [
            (&fifo, "not a regular file"),
            (&directory, "not a regular file"),
            (&PathBuf::from("/dev/zero"), "not a regular file"),
            (&large, "larger than 1 MiB"),
            (&directory.join("none"), "No such file"),
        ] {
            let error = read_password(path).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
