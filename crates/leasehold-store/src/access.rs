//! Credentials and certificates to open a store.

use std::fmt;
use std::path::{Path, PathBuf};

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
    let text = std::fs::read_to_string(file)
        .map_err(|error| invalid(format!("cannot read the password file {name}: {error}")))?;
    match text.lines().next() {
        Some(password) if !password.is_empty() => Ok(password.to_owned()),
        _ => Err(invalid(format!("the password file {name} is empty"))
            .with_hint("write the password into its first line")),
    }
}
