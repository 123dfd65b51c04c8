//! Credentials and certificates to open a store.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Invalid;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::retry_on_intr;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::{ErrorKind, StoreError};
use crate::sync::check_runtime;

/// A text in PEM format: certificates, or a key.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pem {
    /// In a file, which is read whenever a connection is opened.
    File(PathBuf),
    /// The text itself. `Debug` hides it.
    Text(Vec<u8>),
}

impl Pem {
    /// Makes it of the text itself.
    pub fn text(text: impl Into<Vec<u8>>) -> Self {
        Self::Text(text.into())
    }
}

impl From<PathBuf> for Pem {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl From<&Path> for Pem {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Text(_) => f.write_str("Text"),
        }
    }
}

/// What an application has made. It is equal to itself alone.
pub(crate) struct Opaque<T: ?Sized>(pub(crate) Arc<T>);

impl<T: ?Sized> Clone for Opaque<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> PartialEq for Opaque<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T: ?Sized> Eq for Opaque<T> {}

impl<T: ?Sized> fmt::Debug for Opaque<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// Settings of TLS that an application has made, for all connections.
///
/// ```
/// use std::sync::Arc;
/// use leasehold_store::access::TlsConfig;
/// # fn make(config: rustls::ClientConfig) {
/// let config = TlsConfig::from(Arc::new(config));
/// # }
/// ```
#[cfg(feature = "tls")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig(pub(crate) Opaque<rustls::ClientConfig>);

#[cfg(feature = "tls")]
impl From<Arc<rustls::ClientConfig>> for TlsConfig {
    fn from(config: Arc<rustls::ClientConfig>) -> Self {
        Self(Opaque(config))
    }
}

#[cfg(feature = "tls")]
impl From<rustls::ClientConfig> for TlsConfig {
    fn from(config: rustls::ClientConfig) -> Self {
        Arc::new(config).into()
    }
}

/// How a connection is encrypted.
///
/// ```
/// use leasehold::{Pem, TlsOptions};
/// let tls = TlsOptions::trusting(Pem::text("-----BEGIN CERTIFICATE-----…"));
/// let builder = leasehold::Client::builder().store("rediss://cache/").tls(tls);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "options do nothing until a store is opened with them"]
pub struct TlsOptions {
    /// The certificate authorities of the server; those of the system by default.
    pub ca: Option<Pem>,
    /// The client certificate, if the server asks for one.
    pub cert: Option<Pem>,
    /// The private key of the client certificate.
    pub key: Option<Pem>,
    /// Settings of your own, in the place of all of the above.
    #[cfg(feature = "tls")]
    pub config: Option<TlsConfig>,
}

impl TlsOptions {
    /// Trusts these authorities instead of those of the system.
    pub fn trusting(ca: impl Into<Pem>) -> Self {
        Self {
            ca: Some(ca.into()),
            ..Self::default()
        }
    }

    /// With the certificate of the client, and its key.
    pub fn with_certificate(mut self, cert: impl Into<Pem>, key: impl Into<Pem>) -> Self {
        (self.cert, self.key) = (Some(cert.into()), Some(key.into()));
        self
    }

    /// Takes what `others` names.
    fn replace(&mut self, others: &Self) {
        replace(&mut self.ca, &others.ca);
        replace(&mut self.cert, &others.cert);
        replace(&mut self.key, &others.key);
        #[cfg(feature = "tls")]
        replace(&mut self.config, &others.config);
    }

    /// Returns whether nothing is set.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the client certificate and its key.
    ///
    /// # Errors
    /// [`Invalid`] if one is there without the other.
    pub fn certificate(&self) -> Result<Option<(&Pem, &Pem)>, Invalid> {
        match (&self.cert, &self.key) {
            (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
            (None, None) => Ok(None),
            _ => Err(Invalid::new(
                "a client certificate needs its key, and a key its certificate",
                "give both, or neither",
            )),
        }
    }
}

crate::setters! { TlsOptions {
    /// With settings of your own, which name authorities and certificates: no others are given then.
    #[cfg(feature = "tls")]
    with_config(config: impl Into<TlsConfig>): config = Some(config.into());
}}

/// Who logs in.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credentials {
    /// The user; the one of the URL if there is none.
    pub user: Option<String>,
    /// The password; nobody logs in without one. `Debug` hides it.
    pub password: Option<String>,
}

impl Credentials {
    /// Makes credentials of the password alone.
    pub fn password(password: impl Into<String>) -> Self {
        Self {
            user: None,
            password: Some(password.into()),
        }
    }

    /// Makes credentials of user and password.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            user: Some(user.into()),
            password: Some(password.into()),
        }
    }
}

crate::debug!(Credentials; |it| user: it.user);

fn replace<T: Clone>(ours: &mut Option<T>, theirs: &Option<T>) {
    if theirs.is_some() {
        ours.clone_from(theirs);
    }
}

type BoxError = Box<dyn Error + Send + Sync>;
type Provided = Pin<Box<dyn Future<Output = Result<Credentials, BoxError>> + Send>>;

/// Provides the credentials of each connection, when it is opened: the short-lived tokens of a
/// cloud, or what a vault says.
///
/// It may be called by several connections at the same time. An error, a panic, or an answer that
/// takes longer than a connection may, is a connection that could not be opened: it is tried again
/// as after any outage.
///
/// ```
/// use leasehold::{Credentials, CredentialsProvider};
/// # async fn sign() -> Result<String, std::io::Error> { Ok("token".to_owned()) }
/// let tokens = CredentialsProvider::new(async || {
///     Ok::<_, std::io::Error>(Credentials::new("app", sign().await?))
/// });
/// let builder = leasehold::Client::builder().store("rediss://cache/").credentials(tokens);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialsProvider(Opaque<dyn Fn() -> Provided + Send + Sync>);

impl CredentialsProvider {
    /// Makes a provider of what is called for each connection.
    pub fn new<F, E>(provide: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let provide = Arc::new(provide);
        Self(Opaque(Arc::new(move || {
            let provide = Arc::clone(&provide);
            Box::pin(async move { provide().await.map_err(Into::into) })
        })))
    }

    /// Asks once, in a task of its own: neither a panic nor a long wait is ours.
    async fn ask(&self, limit: Duration) -> Result<Credentials, StoreError> {
        check_runtime()?;
        let mut task = JoinSet::new();
        task.spawn((self.0.0)());
        let failed = |why: BoxError| {
            let message = format!("the credentials provider has failed: {why}");
            StoreError::new(ErrorKind::Unavailable, message)
                .with_hint("look at what your application provides as credentials")
                .with_source(io::Error::other(why))
        };
        match timeout(limit, task.join_next()).await {
            Ok(Some(Ok(provided))) => provided.map_err(failed),
            Ok(Some(Err(_))) => Err(failed("it has panicked".into())),
            Ok(None) | Err(_) => Err(failed("it has not answered in time".into())),
        }
    }
}

/// Credentials and certificates to open a store. They override the URL. `Debug` hides the
/// password.
///
/// ```
/// use std::path::Path;
/// use leasehold::{Access, TlsOptions};
/// let tls = TlsOptions::trusting(Path::new("/etc/ssl/redis.pem"));
/// let access = Access::default().user("app").password_file("/run/secrets/redis").tls(tls);
/// let builder = leasehold::Client::builder().store("rediss://cache/").access(access);
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "options do nothing until a store is opened with them"]
pub struct Access {
    /// The user to log in as.
    pub user: Option<String>,
    /// The password to log in with.
    pub password: Option<String>,
    /// A file whose first line is the password, read whenever a connection is opened; overrides
    /// `password`.
    pub password_file: Option<PathBuf>,
    /// Who provides user and password whenever a connection is opened; overrides the others.
    pub credentials: Option<CredentialsProvider>,
    /// Certificates for TLS.
    pub tls: TlsOptions,
}

crate::debug!(
    Access; |it| user: it.user, password_file: it.password_file, credentials: it.credentials,
    tls: it.tls
);

crate::setters! { Access {
    /// Sets the user to log in as.
    user(user: impl Into<String>): user = Some(user.into());
    /// Sets the password to log in with.
    password(password: impl Into<String>): password = Some(password.into());
    /// Reads the password from the first line of a file, whenever a connection is opened.
    password_file(file: impl Into<PathBuf>): password_file = Some(file.into());
    /// Asks for user and password whenever a connection is opened.
    credentials(provider: CredentialsProvider): credentials = Some(provider);
    /// Sets the certificates for TLS.
    tls(tls: TlsOptions): tls = tls;
}}

impl Access {
    /// Takes what `others` has. A password of theirs is in the place of ours, wherever it comes from.
    pub fn replace(&mut self, others: &Self) {
        replace(&mut self.user, &others.user);
        if others.has_password() {
            self.password.clone_from(&others.password);
            self.password_file.clone_from(&others.password_file);
            self.credentials.clone_from(&others.credentials);
        }
        self.tls.replace(&others.tls);
    }

    /// Makes this login that of all connections.
    pub fn set_login(&mut self, user: Option<String>, password: Option<String>) {
        (self.user, self.password) = (user, password);
        (self.password_file, self.credentials) = (None, None);
    }

    /// Returns whether there is a password, wherever it comes from.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.password.is_some() || self.may_change()
    }

    /// Returns whether the next connection may have another password.
    #[must_use]
    pub fn may_change(&self) -> bool {
        self.password_file.is_some() || self.credentials.is_some()
    }

    /// Checks that the password file can be read, even if no password is needed. For a store that is
    /// opened: later the file may be about to be replaced.
    ///
    /// # Errors
    /// `Invalid` if it cannot be read, or is empty.
    pub fn check(&self) -> Result<(), StoreError> {
        let file = self.password_file.as_deref();
        file.map_or(Ok(()), |file| read_password(file).map(drop))
    }

    /// Returns who logs in at the connection that is opened next.
    ///
    /// # Errors
    /// `Unavailable` for a password file that cannot be read now, or is empty, and if the provider does
    /// not provide within the limit.
    pub async fn login(&self, limit: Duration) -> Result<Credentials, StoreError> {
        let mut login = match (&self.credentials, &self.password_file) {
            (Some(provider), _) => provider.ask(limit).await?,
            (None, Some(file)) => {
                let password = read_password(file).map_err(StoreError::into_unavailable)?;
                Credentials::password(password)
            }
            (None, None) => Credentials {
                user: None,
                password: self.password.clone(),
            },
        };
        login.user = login.user.or_else(|| self.user.clone());
        Ok(login)
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
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(retry_on_intr(|| open(path, flags, Mode::empty()))?);
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

    /// Who has opened the store with it knows that it was the right one.
    #[tokio::test]
    async fn a_password_file_that_is_missing_later_may_come_back() {
        let access = Access {
            password_file: Some("/none/password".into()),
            ..Access::default()
        };
        assert_eq!(access.check().unwrap_err().kind(), ErrorKind::Invalid);
        let later = access.login(Duration::ZERO).await.unwrap_err();
        assert_eq!(later.kind(), ErrorKind::Unavailable);
        assert!(later.to_string().contains("/none/password"), "{later}");
    }

    #[test]
    fn what_is_given_besides_goes_before_the_rest() {
        let provider =
            CredentialsProvider::new(async || Ok::<_, io::Error>(Credentials::default()));
        let mut access = Access::default();
        access.set_login(Some("bob".to_owned()), Some("one".to_owned()));
        let mut others = Access::default();
        access.replace(&others);
        assert_eq!(access.user.as_deref(), Some("bob"));
        assert_eq!(access.password.as_deref(), Some("one"));
        // A password of theirs is not hidden behind what ours comes from.
        access.password_file = Some("/password".into());
        access.credentials = Some(provider.clone());
        others.password = Some("two".to_owned());
        access.replace(&others);
        assert_eq!(access.user.as_deref(), Some("bob"));
        assert_eq!(access.password.as_deref(), Some("two"));
        assert!(!access.may_change());
        others.credentials = Some(provider);
        others.user = Some("al".to_owned());
        access.replace(&others);
        assert_eq!(access, others);
    }
}
