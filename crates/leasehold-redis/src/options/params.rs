//! The parameters of a server's URL that are not like others: those of an address, and those that
//! depend on another. The table of all is beside [`RedisOptions`].

use leasehold_core::Invalid;
use leasehold_store::params::Field::{self, Refused, Secret, Text};
use leasehold_store::params::{Param, Params};

use super::acknowledge::{self, Acknowledge};
use super::restart::{Quarantine, Restart};
use super::sentinels::Sentinels;
use super::{RedisAddress, RedisLayout, RedisOptions};

/// The login of a server with a socket, whose URL has no other place for it.
pub(super) const OF_SOCKETS: &[Param<RedisOptions>] = &[
    ("user", |options| Text(&mut options.access.user)),
    ("pass", |options| Secret(&mut options.access.password)),
];

/// The login at the Sentinels.
pub(super) const OF_SENTINELS: &[Param<RedisOptions>] = &[
    ("sentinel_user", |options| {
        at_sentinels(options, |them| Text(&mut them.username))
    }),
    ("sentinel_pass", |options| {
        at_sentinels(options, |them| Secret(&mut them.password))
    }),
];

impl RedisOptions {
    pub(super) fn set_layout(&mut self, text: &str) -> Result<(), Invalid> {
        match text {
            "native" => Ok(()),
            "classic" => {
                self.layout = RedisLayout::Classic;
                self.prefix.clear();
                Ok(())
            }
            _ => Err(Invalid::new(
                format!("unknown layout {text:?}"),
                "write layout=classic for locks that other libraries share, or leave it out",
            )),
        }
    }
}

/// The parameters of a URL's query.
pub(crate) fn of_query(query: &str) -> Params {
    let mut params = Params::new(url::form_urlencoded::parse(query.as_bytes()));
    if params.get("acknowledge") == Some("none") {
        params.ignore(&["acknowledge_timeout", "acknowledge_renewals"]);
    }
    params
}

fn at_sentinels(options: &mut RedisOptions, field: fn(&mut Sentinels) -> Field<'_>) -> Field<'_> {
    match &mut options.address {
        RedisAddress::Sentinel(sentinels) => field(sentinels),
        _ => Refused(Invalid::plain("the URL names no Sentinel")),
    }
}

pub(super) fn acknowledged(
    options: &mut RedisOptions,
    field: fn(&mut Acknowledge) -> Field<'_>,
) -> Field<'_> {
    let why = "the URL has options for acknowledgements, and no `acknowledge`";
    match &mut options.acknowledge {
        Some(policy) => field(policy),
        None => Refused(Invalid::new(why, acknowledge::EXAMPLE)),
    }
}

pub(super) fn quarantined(
    options: &mut RedisOptions,
    field: fn(&mut Quarantine) -> Field<'_>,
) -> Field<'_> {
    match &mut options.restart {
        Restart::Quarantine(quarantine) => field(quarantine),
        Restart::Trust => Refused(Invalid::new(
            "max_ttl and quarantine have no effect without restart=quarantine",
            "add restart=quarantine to the URL, or leave them out",
        )),
    }
}

/// A parameter that means nothing in the classic layout, which has `why`.
pub(crate) fn only_native(name: &str, why: &str) -> Invalid {
    Invalid::new(
        format!("{name} has no effect with layout=classic, which has {why}"),
        "leave it out",
    )
}

pub(super) fn parse_db(text: &str) -> Result<i64, Invalid> {
    text.parse().ok().filter(|db| *db >= 0).ok_or_else(|| {
        Invalid::new(
            format!("the database {text:?} is not a number"),
            "write redis://host/2 for database 2",
        )
    })
}
