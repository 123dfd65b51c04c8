//! The parameters of a server's URL.

use std::path::PathBuf;

use leasehold_core::Invalid;
use leasehold_store::params::Field::{
    self, DurationOr, File, Refused, Secret, Text, TextOr, YesNo,
};
use leasehold_store::params::{Param, Params};

use super::acknowledge::{self, Acknowledge};
use super::restart::{self, Quarantine, Restart};
use super::sentinels::Sentinels;
use super::{PREFIX, RedisAddress, RedisLayout, RedisOptions, USUAL_RETENTION, USUAL_TIMEOUT};

/// The login of a server with a socket, whose URL has no other place for it.
const OF_SOCKETS: &[Param<RedisOptions>] = &[
    ("user", |options| Text(&mut options.username)),
    ("pass", |options| Secret(&mut options.password)),
];

/// The login at the Sentinels.
const OF_SENTINELS: &[Param<RedisOptions>] = &[
    ("sentinel_user", |options| {
        at_sentinels(options, |them| Text(&mut them.username))
    }),
    ("sentinel_pass", |options| {
        at_sentinels(options, |them| Secret(&mut them.password))
    }),
];

/// Those of every server. One that depends on another stands behind it.
const OF_ALL: &[Param<RedisOptions>] = &[
    // Where the path of a URL says the same, it is shown there.
    ("db", |options| {
        let is_socket = matches!(options.address, RedisAddress::Unix(_));
        let shown = is_socket.then(|| options.db.to_string());
        Field::custom(shown, |text| parse_db(text).map(|it| options.db = it))
    }),
    ("layout", |options| {
        let shown = options.is_classic().then(|| "classic".to_owned());
        Field::custom(shown, |text| options.set_layout(text))
    }),
    ("prefix", |options| {
        let usual = if options.is_classic() { "" } else { PREFIX };
        TextOr(&mut options.prefix, usual)
    }),
    ("retention", |options| match options.layout {
        RedisLayout::Native => DurationOr(&mut options.retention, USUAL_RETENTION),
        RedisLayout::Classic => Refused(only_native("retention", "no tokens to remember")),
    }),
    ("audit", |options| Field::Audit(&mut options.audit)),
    ("connect_timeout", |options| {
        DurationOr(&mut options.connect_timeout, USUAL_TIMEOUT)
    }),
    ("response_timeout", |options| {
        DurationOr(&mut options.response_timeout, USUAL_TIMEOUT)
    }),
    ("acknowledge", |options| {
        let shown = options.acknowledge.map(|policy| policy.by.to_string());
        Field::custom(shown, |text| {
            acknowledge::parse(text).map(|it| options.acknowledge = it)
        })
    }),
    ("acknowledge_timeout", |options| {
        acknowledged(options, |policy| {
            DurationOr(&mut policy.timeout, acknowledge::USUAL_TIMEOUT)
        })
    }),
    ("acknowledge_renewals", |options| {
        acknowledged(options, |policy| YesNo(&mut policy.renewals, true))
    }),
    ("restart", |options| {
        let shown = options.restart.quarantine();
        let shown = shown.map(|_| "quarantine".to_owned());
        Field::custom(shown, |text| {
            restart::parse(text).map(|it| options.restart = it)
        })
    }),
    ("max_ttl", |options| {
        quarantined(options, |it| {
            DurationOr(&mut it.max_ttl, restart::USUAL_MAX_TTL)
        })
    }),
    ("quarantine", |options| {
        quarantined(options, |it| Field::Duration(&mut it.lasts))
    }),
    ("ca", |options| {
        File(options.ca_file.get_or_insert_default())
    }),
    ("cert", |options| File(&mut certificate(options).0)),
    ("key", |options| File(&mut certificate(options).1)),
];

impl RedisOptions {
    /// The parameters that the URL of such a server can have.
    pub(super) fn params(&self) -> [&'static [Param<Self>]; 2] {
        let own = match &self.address {
            RedisAddress::Tcp { .. } => &[],
            RedisAddress::Unix(_) => OF_SOCKETS,
            RedisAddress::Sentinel(_) => OF_SENTINELS,
        };
        [own, OF_ALL]
    }

    fn set_layout(&mut self, text: &str) -> Result<(), Invalid> {
        match text {
            "native" => {}
            "classic" => {
                self.layout = RedisLayout::Classic;
                self.prefix.clear();
            }
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

fn acknowledged(options: &mut RedisOptions, field: fn(&mut Acknowledge) -> Field<'_>) -> Field<'_> {
    let why = "the URL has options for acknowledgements, and no `acknowledge`";
    match &mut options.acknowledge {
        Some(policy) => field(policy),
        None => Refused(Invalid::new(why, acknowledge::EXAMPLE)),
    }
}

fn quarantined(options: &mut RedisOptions, field: fn(&mut Quarantine) -> Field<'_>) -> Field<'_> {
    match &mut options.restart {
        Restart::Quarantine(quarantine) => field(quarantine),
        Restart::Trust => Refused(Invalid::new(
            "max_ttl and quarantine have no effect without restart=quarantine",
            "add restart=quarantine to the URL, or leave them out",
        )),
    }
}

/// Checked when both were read.
fn certificate(options: &mut RedisOptions) -> &mut (PathBuf, PathBuf) {
    options.client_certificate.get_or_insert_default()
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
