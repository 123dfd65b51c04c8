//! The addresses of stores.
//!
//! Five lines are a URL with a password: the scheme, the user, what stands in the
//! password before and after the secret, and the rest. Anything else is a URL as it
//! stands.

use std::fmt::Debug;

use leasehold::core::Invalid;
use leasehold::fuzzing::{local, postgres, zookeeper};
use leasehold::store::local::LocalOptions;
use leasehold::store::postgres::PostgresOptions;
use leasehold::store::redis::{RedisAddress, RedisClusterOptions, RedisOptions, RedlockOptions};
use leasehold::store::zookeeper::ZooKeeperOptions;

use super::{SECRET, check_sentence};

pub(crate) fn run(text: &str) {
    let lines: Vec<_> = text.split('\n').collect();
    let (url, others) = match lines.as_slice() {
        [scheme, user, before, after, rest] => (
            format!("{scheme}://{user}:{before}{SECRET}{after}@{rest}"),
            [*scheme, user, rest].concat(),
        ),
        _ => (text.to_owned(), text.to_owned()),
    };
    let case = Case {
        url: &url,
        // Else it stands where it is no secret.
        secret: !as_read(&others).contains(SECRET),
    };
    case.check(
        RedisOptions::from_url,
        |options| (masked(options), options.redacted_url()),
        is_secret,
    );
    case.check(
        RedisClusterOptions::from_url,
        |options| {
            let mut copy = options.clone();
            copy.node = masked(&copy.node);
            (copy, options.redacted_url())
        },
        |options| is_secret(&options.node),
    );
    case.check(
        RedlockOptions::from_url,
        |options| {
            let mut copy = options.clone();
            copy.servers = copy.servers.iter().map(masked).collect();
            (copy, options.redacted_url())
        },
        |options| options.servers.iter().any(is_secret),
    );
    // Options that cannot be compared.
    case.check(
        PostgresOptions::from_url,
        |options| ((), options.redacted_url()),
        |options| postgres::holds(options, SECRET),
    );
    case.check(
        ZooKeeperOptions::from_url,
        |options| ((), options.redacted_url()),
        |options| zookeeper::holds(options, SECRET),
    );
    check_local(&case);
}

/// As a URL is read: without tabs and ends of lines, schemes and hosts in lower case.
fn as_read(text: &str) -> String {
    text.replace(['\t', '\r', '\n'], "").to_lowercase()
}

struct Case<'a> {
    url: &'a str,
    secret: bool,
}

impl Case<'_> {
    /// What was accepted reads back from its own address; `look` says what can be compared of the options,
    /// without their passwords, and that address.
    fn check<T: Debug, V: PartialEq + Debug>(
        &self,
        read: fn(&str) -> Result<T, Invalid>,
        look: impl Fn(&T) -> (V, String),
        holds_secret: impl Fn(&T) -> bool,
    ) {
        let options = match read(self.url) {
            Ok(options) => options,
            Err(invalid) => return self.refused(&invalid),
        };
        let (seen, shown) = look(&options);
        let again = match read(&shown) {
            Ok(again) => again,
            Err(invalid) => panic!("{:?} is shown as {shown:?}: {invalid}", self.url),
        };
        assert_eq!(look(&again), (seen, shown.clone()), "{:?}", self.url);
        // Unencoded, a password may have become a host or a parameter.
        if self.secret && holds_secret(&options) {
            for shown in [shown, format!("{options:?}")] {
                assert!(!shown.contains(SECRET), "{shown}");
            }
        }
    }

    fn refused(&self, invalid: &Invalid) {
        let Invalid { message, hint, .. } = invalid;
        for sentence in [message].into_iter().chain(hint) {
            check_sentence(sentence, self.url.len());
            let told = self.secret && sentence.contains(SECRET);
            assert!(!told, "{:?} is refused with: {sentence}", self.url);
        }
    }
}

fn is_secret(options: &RedisOptions) -> bool {
    let password = options.access.password.as_ref();
    password.is_some_and(|password| password.contains(SECRET))
}

fn masked(options: &RedisOptions) -> RedisOptions {
    let mask = |password: &mut Option<String>| {
        if let Some(password) = password {
            "***".clone_into(password);
        }
    };
    let mut copy = options.clone();
    // A user name that stands alone may be the password.
    if !copy.access.has_password() {
        mask(&mut copy.access.user);
    }
    mask(&mut copy.access.password);
    if let RedisAddress::Sentinel(sentinels) = &mut copy.address {
        if sentinels.password.is_none() {
            mask(&mut sentinels.username);
        }
        mask(&mut sentinels.password);
    }
    copy
}

fn check_local(case: &Case<'_>) {
    let case = Case {
        // Nothing is a secret in an address of this store.
        secret: case.secret && !case.url.starts_with("local:"),
        ..*case
    };
    let options = match LocalOptions::from_url(case.url) {
        Ok(options) => options,
        Err(invalid) => return case.refused(&invalid),
    };
    if let Some(directory) = &options.directory {
        let shown = local::url(directory, &options);
        assert_eq!(LocalOptions::from_url(&shown), Ok(options), "{shown}");
    }
}
