//! The parameters of a server's URL that are not like others: those of an address, and those that
//! depend on another. The table of all is beside [`RedisOptions`].

use leasehold_core::Invalid;
use leasehold_store::params::Field::{Refused, Secret, Text};
use leasehold_store::params::{Param, Params};

use super::{RedisAddress, RedisOptions, acknowledge};

/// The login of a server with a socket, whose URL has no other place for it.
pub(super) const OF_SOCKETS: &[Param<RedisOptions>] = &[
    ("user", |options| Text(&mut options.access.user)),
    ("pass", |options| Secret(&mut options.access.password)),
];

/// The login at the Sentinels.
pub(super) const OF_SENTINELS: &[Param<RedisOptions>] = &[
    ("sentinel_user", |options| match &mut options.address {
        RedisAddress::Sentinel(them) => Text(&mut them.username),
        _ => Refused(no_sentinel()),
    }),
    ("sentinel_pass", |options| match &mut options.address {
        RedisAddress::Sentinel(them) => Secret(&mut them.password),
        _ => Refused(no_sentinel()),
    }),
];

impl RedisOptions {
    pub(super) fn set_layout(&mut self, text: &str) -> Result<(), Invalid> {
        match text {
            "native" => {}
            "classic" => *self = std::mem::take(self).classic(),
            _ => {
                return Err(Invalid::new(
                    format!("unknown layout {text:?}"),
                    "write layout=classic for locks that other libraries share, or leave it out",
                ));
            }
        }
        Ok(())
    }
}

/// The parameters of a URL's query, in which a plus is a space.
pub(crate) fn of_query(query: &str) -> Result<Params, Invalid> {
    let mut params = Params::of_query(&query.replace('+', " "))?;
    if params.get("acknowledge") == Some("none") {
        params.ignore(&["acknowledge_timeout", "acknowledge_renewals"]);
    }
    Ok(params)
}

fn no_sentinel() -> Invalid {
    Invalid::plain("the URL names no Sentinel")
}

pub(super) fn not_acknowledged() -> Invalid {
    let why = "the URL has options for acknowledgements, and no `acknowledge`";
    Invalid::new(why, acknowledge::EXAMPLE)
}

pub(super) fn not_quarantined() -> Invalid {
    let why = "max_ttl and quarantine have no effect without restart=quarantine";
    Invalid::new(why, "add restart=quarantine to the URL, or leave them out")
}

/// A parameter that means nothing in the classic layout, which has `why`.
pub(crate) fn only_native(name: &str, why: &str) -> Invalid {
    let message = format!("{name} has no effect with layout=classic, which has {why}");
    Invalid::new(message, "leave it out")
}

pub(super) fn parse_db(text: &str) -> Result<i64, Invalid> {
    text.parse().ok().filter(|db| *db >= 0).ok_or_else(|| {
        let why = format!("the database {text:?} is not a number from 0");
        Invalid::new(why, "write redis://host/2 for database 2")
    })
}
