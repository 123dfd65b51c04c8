//! The registry of stores, by their URL schemes.

use crate::error::{ErrorKind, StoreError};
use leasehold_store::scheme::Scheme;

/// Every store of this build: a line each.
static SCHEMES: &[&dyn Scheme] = &[
    &leasehold_store::memory::Memory,
    #[cfg(feature = "local")]
    &leasehold_local::Local,
    #[cfg(feature = "redis")]
    &leasehold_redis::OneServer,
    #[cfg(feature = "redis")]
    &leasehold_redis::ManyNodes,
    #[cfg(feature = "redis")]
    &leasehold_redis::Votes,
    #[cfg(feature = "postgres")]
    &leasehold_postgres::Postgres,
    #[cfg(feature = "zookeeper")]
    &leasehold_zookeeper::ZooKeeper,
];

/// The stores that another build has, by the feature that it has them with.
const OTHERS: &[(&str, &[&str])] = &[
    #[cfg(not(feature = "local"))]
    ("local", &["local"]),
    #[cfg(not(feature = "redis"))]
    (
        "redis",
        &[
            "redis", "rediss", "valkey", "valkeys", "redlock", "redlocks",
        ],
    ),
    #[cfg(not(feature = "postgres"))]
    ("postgres", &["postgres", "postgresql"]),
    #[cfg(not(feature = "zookeeper"))]
    ("zookeeper", &["zookeeper"]),
];

/// The store that a URL names, and the URL as the store reads it: the case of the scheme does not
/// matter.
pub(crate) fn of(url: &str) -> Result<(&'static dyn Scheme, String), StoreError> {
    let (name, rest) = url.split_once(':').unwrap_or(("", url));
    let name = name.to_ascii_lowercase();
    let known = SCHEMES.iter().find(|it| it.names().contains(&&*name));
    let scheme = known.copied().ok_or_else(|| unknown(&name))?;
    Ok((scheme, format!("{name}:{rest}")))
}

/// Examples of the URLs of all stores: for the tests of the command.
pub fn examples() -> impl Iterator<Item = &'static str> {
    SCHEMES.iter().flat_map(|scheme| scheme.examples()).copied()
}

fn unknown(name: &str) -> StoreError {
    let family = name.split(['-', '+']).next().unwrap_or_default();
    let elsewhere = OTHERS.iter().find(|(_, names)| names.contains(&family));
    if let Some((feature, _)) = elsewhere {
        let message = format!("this build has no support for {name}: stores");
        return StoreError::new(ErrorKind::Unsupported, message)
            .with_hint(format!("build leasehold with the feature {feature:?}"));
    }
    let message = match name {
        "" => "the store is not a URL".to_owned(),
        name => format!("there is no store for {name:?} URLs"),
    };
    let mut examples: Vec<_> = examples().collect();
    let last = examples.pop().unwrap_or_default();
    let hint = match &*examples {
        [] => format!("write it like {last}"),
        others => format!("write it like {} or {last}", others.join(", ")),
    };
    StoreError::new(ErrorKind::Invalid, message).with_hint(hint)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_case_of_a_scheme_does_not_matter() {
        let (scheme, url) = super::of("MeMory:Name?audit=24h").unwrap();
        assert_eq!(scheme.names(), ["memory"]);
        assert_eq!(url, "memory:Name?audit=24h");
        for url in ["MEMORIES:", "Memory", ""] {
            assert!(super::of(url).is_err(), "{url}");
        }
    }
}
