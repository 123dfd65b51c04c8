//! What is set for a subcommand: what was typed, and what is filled in from elsewhere.

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::store::describe;

use super::table::{Key, Setting, Value};
use crate::duration::spoken;
use crate::failure::Failure;

/// The settings of the environment, of a file or of a profile, or of several as one.
pub(crate) type Layer = BTreeMap<Key, Setting<Value>>;

/// The TTL that nobody asked for.
const USUAL_TTL: Duration = Duration::from_secs(30);
/// The longest grace time that nobody asked for.
const LONGEST_GRACE: Duration = Duration::from_secs(5);

/// The settings that are in force for a subcommand, also those that it does not use.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandSettings {
    pub(crate) layer: Layer,
    /// Whether the credentials of the environment belong to another store.
    pub(crate) without_environment: bool,
}

impl CommandSettings {
    fn get<T: Any + Clone>(&self, key: Key) -> Option<Setting<T>> {
        let set = self.layer.get(&key)?;
        Some(Setting::new(set.value.get()?, set.from.clone()))
    }

    /// The URL of the store, and where it comes from; `local:` unless one was named.
    pub(crate) fn named(&self) -> Setting<String> {
        let named = self.get(Key::Store);
        named.unwrap_or_else(|| Setting::default("local:".to_owned()))
    }

    /// Whether a store was named.
    pub(crate) fn is_named(&self) -> bool {
        self.layer.contains_key(&Key::Store)
    }

    /// How to log in at the store.
    pub(crate) fn credentials(&self) -> Layer {
        let mut credentials = self.layer.clone();
        credentials.retain(|key, _| key.is_credential());
        credentials
    }

    /// The store of a saved lease, unless -S names another. Only credentials that were typed are
    /// sent to another store than this one.
    pub(crate) fn or_saved(&self, url: &str) -> Self {
        let named = self.named();
        let described = describe(&named.value).map(|it| without_logins(&it.url));
        if named.from.is_typed() || described.is_ok_and(|it| it == without_logins(url)) {
            return self.clone();
        }
        let mut saved = self.elsewhere(url);
        let mut typed = self.credentials();
        typed.retain(|_, set| set.from.is_typed());
        saved.layer.extend(typed);
        saved
    }

    /// That store, without the credentials of this one.
    pub(crate) fn elsewhere(&self, url: &str) -> Self {
        let mut layer = self.layer.clone();
        layer.retain(|key, _| !key.is_credential());
        let url = Value::Text(url.to_owned());
        layer.insert(Key::Store, Setting::default(url));
        Self {
            layer,
            without_environment: true,
        }
    }

    /// How long to wait for the lock: zero is not at all, [`Duration::MAX`] for ever.
    pub(crate) fn wait(&self) -> Setting<Duration> {
        let wait = self.get(Key::Wait);
        wait.unwrap_or_else(|| Setting::default(Duration::MAX))
    }

    /// The longest outage that is waited through, if there is a limit.
    pub(crate) fn retry_for(&self) -> Option<Duration> {
        Some(self.get(Key::RetryFor)?.value)
    }

    /// A name that others see.
    pub(crate) fn label(&self) -> Option<String> {
        Some(self.get(Key::Label)?.value)
    }

    /// The TTL, and where it comes from.
    pub(crate) fn ttl(&self) -> Setting<Duration> {
        let ttl = self.get(Key::Ttl);
        ttl.unwrap_or_else(|| Setting::default(USUAL_TTL))
    }

    /// The grace time for that TTL, and where it comes from.
    pub(crate) fn grace(&self, ttl: &Setting<Duration>) -> Result<Setting<Duration>, Failure> {
        match self.get::<Duration>(Key::Grace) {
            None => Ok(Setting::default((ttl.value / 4).min(LONGEST_GRACE))),
            Some(grace) if grace.value > ttl.value / 2 => Err(Failure::usage(format!(
                "a grace time of {} ({}) is too long for a TTL of {} ({})",
                spoken(grace.value),
                grace.from,
                spoken(ttl.value),
                ttl.from,
            ))
            .hint("choose at most half of the TTL, or a longer TTL")),
            Some(grace) => Ok(grace),
        }
    }
}

impl Value {
    /// The value, if it has that type.
    pub(crate) fn get<T: Any + Clone>(&self) -> Option<T> {
        let value: &dyn Any = match self {
            Self::Text(text) | Self::Secret(text) => text,
            Self::Path(path) => path,
            Self::Duration(duration) => duration,
        };
        value.downcast_ref().cloned()
    }
}

/// What names a store in a URL without passwords: all of it but who logs in.
fn without_logins(url: &str) -> String {
    const LOGINS: [&str; 4] = ["user=", "pass=", "sentinel_user=", "sentinel_pass="];
    // `listen=` of PostgreSQL is a URL, too.
    let url = url.replace(":***@", "@").replace("%3A***%40", "%40");
    let (place, params) = url.split_once('?').unwrap_or((&*url, ""));
    let (scheme, place) = place.split_once("//").unwrap_or((place, ""));
    let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
    // A database of PostgreSQL that is not named has the name of the user.
    let is_of_user = scheme == "postgres:" && path.is_empty();
    let hosts = hosts.split(',').filter_map(|it| match is_of_user {
        true => Some(it),
        false => it.rsplit('@').next(),
    });
    let is_login = |it: &&str| LOGINS.iter().any(|login| it.starts_with(login));
    let others = params.split('&').filter(|it| !is_login(it));
    let parts: Vec<_> = hosts.chain(others).chain([scheme, path]).collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(url: &str) -> CommandSettings {
        let url = Setting::default(Value::Text(url.to_owned()));
        CommandSettings {
            layer: Layer::from([(Key::Store, url)]),
            without_environment: false,
        }
    }

    /// A password in the URL, and a user without one, are shown otherwise than they are saved.
    #[test]
    fn the_store_of_a_saved_lease_gets_the_credentials_of_its_url() {
        for (url, saved) in [
            ("redis://h/", "redis://h:6379/0"),
            ("redis://:hush@h/", "redis://h:6379/0"),
            ("redis://app:hush@h/", "redis://app@h:6379/0"),
            ("redis://app@h/", "redis://app@h:6379/0"),
            ("unix:///s?user=a&pass=hush", "redis+unix:///s?user=a&db=0"),
            (
                "redlock://:hush@a,b:hush@b,c",
                "redlock://a:6379,b@b:6379,c:6379/0",
            ),
            ("postgres://app:hush@h/db", "postgres://app@h/db"),
            ("postgres://h/db", "postgres://app@h/db"),
            ("postgres://app:hush@h", "postgres://app@h"),
        ] {
            let settings = named(url).or_saved(saved);
            assert_eq!(settings.named().value, url, "{saved}");
            assert!(!settings.without_environment, "{url}");
        }
        let redis = "redis://:hush@h/";
        for (url, saved) in [
            (redis, "redis://other:6379/0"),
            (redis, "redis://h:6380/0"),
            (redis, "redis://h:6379/1"),
            (redis, "rediss://h:6379/0"),
            ("unix:///s@h?pass=hush", "redis+unix:///t@h?db=0"),
            ("postgres://a:hush@h", "postgres://b@h"),
            ("postgres://h/db?sslmode=require", "postgres://h/db"),
        ] {
            let settings = named(url).or_saved(saved);
            assert_eq!(settings.named().value, saved);
            assert!(settings.without_environment, "{saved}");
        }
    }
}
