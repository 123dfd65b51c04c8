//! Store URLs as they may be shown.

use leasehold::Invalid;
use leasehold::store::local::LocalOptions;
use leasehold::store::redis::{RedisAddress, RedisClusterOptions, RedisOptions, RedlockOptions};

use crate::failure::Failure;

/// A URL that a store can be opened with.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The URL, with `***` in the place of each password.
    pub(crate) url: String,
    pub(crate) has_password: bool,
}

impl Shown {
    /// Reads the URL as the store will.
    pub(crate) fn of(url: &str) -> Result<Self, Failure> {
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        let family = scheme.split(['-', '+']).next().unwrap_or_default();
        Ok(match family {
            "local" => {
                LocalOptions::from_url(url)?;
                Self::open(url)
            }
            "memory" => Self::open(url),
            "redlock" | "redlocks" => {
                let options = RedlockOptions::from_url(url)?;
                let has = options.servers.iter().any(has_password);
                Self::with(options.redacted_url(), has)
            }
            _ if scheme.ends_with("-cluster") => {
                let options = RedisClusterOptions::from_url(url)?;
                let has = has_password(&options.node);
                Self::with(options.redacted_url(), has)
            }
            _ if RedisOptions::reads(url) => {
                let options = RedisOptions::from_url(url)?;
                let has = has_password(&options);
                Self::with(options.redacted_url(), has)
            }
            _ => return Err(unknown(scheme).into()),
        })
    }

    fn open(url: &str) -> Self {
        Self::with(url.to_owned(), false)
    }

    fn with(url: String, has_password: bool) -> Self {
        Self { url, has_password }
    }
}

/// Also one for the Sentinels.
fn has_password(options: &RedisOptions) -> bool {
    let of_sentinels = match &options.address {
        RedisAddress::Sentinel(sentinels) => sentinels.password.is_some(),
        _ => false,
    };
    options.password.is_some() || of_sentinels
}

fn unknown(scheme: &str) -> Invalid {
    let message = match scheme {
        "" => "the store is not a URL".to_owned(),
        scheme => format!("there is no store for {scheme:?} URLs"),
    };
    Invalid::new(
        message,
        "write it like redis://host/ or local:; leasehold run --help lists the others",
    )
}
