//! From the arguments to a client of the store.

use std::path::PathBuf;

use leasehold::store::describe;
use leasehold::{Access, Client, ClientBuilder, Pem};

use crate::config::{CommandSettings, Key, Value, password_of_environment};
use crate::failure::Failure;
use crate::nested_store::{Opening, handed_on};

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
        let password = password_of_environment().filter(|_| !store.without_environment);
        let file = ours.get(&Key::PasswordFile);
        match (file, password) {
            (Some(file), password) if file.from.is_said() || password.is_none() => {
                opening.password = None;
            }
            (_, Some(password)) => {
                ours.remove(&Key::PasswordFile);
                opening.credentials.remove(&Key::PasswordFile);
                opening.password = Some(password);
            }
            _ => {}
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
        access.password = self.password.as_ref().map(|set| set.value.clone());
        access.password_file = path(Key::PasswordFile);
        let pem = |key| path(key).map(Pem::File);
        access.tls.ca = pem(Key::TlsCa);
        access.tls.cert = pem(Key::TlsCert);
        access.tls.key = pem(Key::TlsKey);
        access
    }

    /// Whether one who knows the store as `shown` only could not open it the same way.
    pub(crate) fn has_more_than(&self, shown: &str) -> bool {
        let logs_in = !self.credentials.is_empty() || self.password.is_some();
        describe(&self.url).is_ok_and(|described| described.has_servers)
            && (self.url != shown || logs_in)
    }
}
