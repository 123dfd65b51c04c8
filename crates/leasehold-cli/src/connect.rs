//! From the arguments to a client of the store; and how an inner leasehold opens the store of an outer
//! one: without the outer one's secrets in its arguments or its environment.
//!
//! The outer one keeps the URL, the password and what else it was given in memory, and says in
//! `LEASEHOLD_STORE_FILE` where: `/proc/PID/fd/N`. Who may read that could read the memory of the
//! outer one as well: processes of the same user, while it lives. (On Linux; elsewhere nothing is
//! handed on.)

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use leasehold::store::describe;
use leasehold::{Access, Client, ClientBuilder, Pem};

use crate::config::{CommandSettings, Key, Layer, Origin, Setting, TABLE, Value};
use crate::env;
use crate::failure::Failure;
use crate::user_file::{Links, UserFile};

/// Connects, for looking only.
pub(crate) async fn connect(store: &CommandSettings) -> Result<Client, Failure> {
    Ok(builder(store).connect().await?)
}

/// What opens the store.
pub(crate) fn builder(store: &CommandSettings) -> ClientBuilder {
    let opening = Opening::of(store);
    let access = opening.access();
    Client::builder().store(opening.url).access(access)
}

/// How a store is opened, and where that comes from.
#[derive(Default)]
pub(crate) struct Opening {
    pub(crate) url: String,
    pub(crate) credentials: Layer,
}

impl Opening {
    /// What was said or found, and what is missing of it from an outer leasehold that uses this
    /// store.
    pub(crate) fn of(store: &CommandSettings) -> Self {
        let (named, mut ours) = (store.named().value, store.credentials());
        let outer = handed_on(&named);
        if outer.is_some() {
            // An outer leasehold knows better than a file how its store is opened.
            ours.retain(|_, set| set.from.is_said());
        }
        let mut opening = outer.unwrap_or_else(|| Self {
            url: named,
            ..Self::default()
        });
        // A file that was said goes before the environment; both before the outer one, and that
        // before a file that was found.
        let has_password = ours.contains_key(&Key::Password);
        let given_way = match ours.get(&Key::PasswordFile) {
            Some(file) if file.from.is_said() || !has_password => Some(Key::Password),
            _ => has_password.then_some(Key::PasswordFile),
        };
        if let Some(given_way) = given_way {
            ours.remove(&given_way);
            opening.credentials.remove(&given_way);
        }
        opening.credentials.extend(ours);
        opening
    }

    /// As the library takes it.
    pub(crate) fn access(&self) -> Access {
        let value = |key| self.credentials.get(&key).map(|set| &set.value);
        let path = |key| value(key).and_then(Value::get::<PathBuf>);
        let mut access = Access::default();
        access.user = value(Key::User).and_then(Value::get);
        access.password = value(Key::Password).and_then(Value::get);
        access.password_file = path(Key::PasswordFile);
        let pem = |key| path(key).map(Pem::File);
        access.tls.ca = pem(Key::TlsCa);
        access.tls.cert = pem(Key::TlsCert);
        access.tls.key = pem(Key::TlsKey);
        access
    }

    /// Whether one who knows the store as `shown` only could not open it the same way.
    pub(crate) fn has_more_than(&self, shown: &str) -> bool {
        describe(&self.url).is_ok_and(|described| described.has_servers)
            && (self.url != shown || !self.credentials.is_empty())
    }
}

/// What is handed on: the credentials by the names of their settings, and the store and its URL.
type Content = BTreeMap<String, Option<String>>;

/// The URL that opens the store; the store is named by that which everybody may see.
const URL: &str = "url";

/// Hands on how the store was opened that everybody may know as `store`, as long as the answer is open.
pub(crate) fn hand_on(store: &str, opening: &Opening) -> io::Result<OwnedFd> {
    let text = |set: &Setting<Value>| match set.value.get::<PathBuf>() {
        Some(path) => {
            let path = std::path::absolute(path)?.into_os_string().into_string();
            path.map(Some)
                .map_err(|_| io::Error::other("path contains invalid UTF-8 characters"))
        }
        None => Ok(set.value.get()),
    };
    let credentials = opening.credentials.iter();
    let credentials = credentials.map(|(key, set)| Ok((key.row().id(), text(set)?)));
    let mut content = credentials.collect::<io::Result<Content>>()?;
    content.insert(Key::Store.row().id(), Some(store.to_owned()));
    content.insert(URL.to_owned(), Some(opening.url.clone()));
    in_memory(&serde_json::to_vec(&content)?)
}

/// Where it can be read.
pub(crate) fn path_of(handed_on: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), handed_on.as_raw_fd())
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
pub(crate) fn handed_on(store: &str) -> Option<Opening> {
    let path = PathBuf::from(std::env::var_os(env::STORE_FILE)?);
    let file = UserFile::open(&path, Links::Follow).ok()?;
    // Another user may have the process id of an outer one that is gone.
    if file.metadata.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let mut content: Content = serde_json::from_slice(&file.bytes().ok()?).ok()?;
    let url = content.remove(URL)??;
    if content.remove(&Key::Store.row().id())?? != store {
        return None;
    }
    let credentials = TABLE.iter().filter_map(|row| {
        let text = content.remove(&row.id())??;
        let value = match row.key {
            Key::User => Value::Text(text),
            Key::Password => Value::Secret(text),
            _ => Value::Path(text.into()),
        };
        let from = Origin::variable(env::STORE_FILE);
        Some((row.key, Setting::new(value, from)))
    });
    Some(Opening {
        credentials: credentials.collect(),
        url,
    })
}
