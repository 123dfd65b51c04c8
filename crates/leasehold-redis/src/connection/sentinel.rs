//! Queries to Sentinels, and their answers.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_store::sync::timeout;
use leasehold_store::{ErrorKind, StoreError};
use redis::{ServerError, Value};

use super::address::Address;
use super::socket::Socket;
use super::value::{field, items, text_of};
use crate::errors;

/// What a Sentinel says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    /// The primary, as far as this Sentinel knows.
    pub(crate) primary: Address,
    /// Rises with every fail-over from zero; `None` where the Sentinel does not say.
    pub(crate) epoch: Option<u64>,
}

impl Named {
    /// Whether whoever uses `ours` has to leave it. Its epoch may be lower than ours: that of
    /// Sentinels which were set up anew.
    pub(super) fn replaces(&self, ours: &Self) -> bool {
        self.primary != ours.primary
            && (self.epoch != ours.epoch || self.epoch.is_none_or(|epoch| epoch == 0))
    }
}

/// What a Sentinel has named, or which primaries it watches that have other names.
pub(super) type Answered = Result<Named, BTreeSet<String>>;

/// Asks one Sentinel where the primary is.
pub(super) async fn ask(
    connection: &Socket,
    master: &str,
    limit: Duration,
) -> Result<Answered, StoreError> {
    let sentinel = |what: &[&str]| redis::cmd("SENTINEL").arg(what).to_owned();
    // The epoch first: with a fail-over in between, a new primary has the old epoch. The other way
    // round the old one would have the new epoch, and would be kept.
    let questions = [
        sentinel(&["MASTER", master]),
        sentinel(&["GET-MASTER-ADDR-BY-NAME", master]),
    ];
    let Ok(answers) = timeout(limit, connection.ask_all(&questions)).await else {
        return Err(errors::silent(limit));
    };
    let answers = answers.map_err(errors::of_connection)?;
    let [about, whom] = answers.as_slice() else {
        return Err(odd());
    };
    let epoch = field(about, "config-epoch").and_then(|epoch| epoch.parse().ok());
    match whom {
        Value::Nil => {
            let known = match timeout(limit, connection.ask(&sentinel(&["MASTERS"]))).await {
                Ok(Ok(Value::Array(known))) => known,
                // It does not say.
                _ => Vec::new(),
            };
            let names = known.iter().filter_map(|master| field(master, "name"));
            Ok(Err(names.map(|name| errors::tame(&name)).collect()))
        }
        Value::ServerError(error) => Err(refusal(error)),
        whom => Ok(Ok(Named {
            primary: read_address(whom).ok_or_else(odd)?,
            // A user who may not see more can still find the primary.
            epoch,
        })),
    }
}

pub(crate) fn read_address(value: &Value) -> Option<Address> {
    let [host, port] = items(value)? else {
        return None;
    };
    let host = errors::tame(&text_of(host)?);
    Some(Address::new(host, text_of(port)?.parse().ok()?))
}

/// How one round of asking has failed, Sentinel by Sentinel.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    said: Vec<String>,
    /// What those watch that do not know the name.
    names: BTreeSet<String>,
    /// Those of all others.
    errors: Vec<StoreError>,
}

impl Failures {
    pub(super) fn unknown(&mut self, node: &Address, names: BTreeSet<String>) {
        self.said.push(format!("{node} does not know this name"));
        self.names.extend(names);
    }

    pub(super) fn failed(&mut self, node: &Address, error: StoreError) {
        self.said.push(format!("{node}: {error}"));
        self.errors.push(error);
    }

    pub(super) fn named(&mut self, node: &Address, primary: &Address, why: StoreError) {
        self.said.push(format!("{node} names {primary}: {why}"));
        self.errors.push(why);
    }

    /// All of it as one error.
    pub(super) fn into_error(self, master: &str) -> StoreError {
        let Some(last) = self.errors.last() else {
            let why = format!("no Sentinel knows a primary named {master:?}");
            let names: Vec<_> = self.names.iter().map(String::as_str).collect();
            return StoreError::new(ErrorKind::Invalid, why).with_hint(match names.is_empty() {
                true => "the Sentinels watch no primary: check `sentinel monitor` in their \
                         configuration"
                    .to_owned(),
                false => format!("the Sentinels know: {}", names.join(", ")),
            });
        };
        // Waiting does not cure it if nobody lets us in.
        let is_refusal = |error: &StoreError| error.kind() != ErrorKind::Unavailable;
        let refused = self.errors.len() == self.said.len() && self.errors.iter().all(is_refusal);
        let said = self.said.join("; ");
        let message = format!("cannot find the primary {master:?}: {said}");
        let error = match refused {
            true => StoreError::new(ErrorKind::Refused, message).with_hint_of(last),
            false => errors::unavailable(message).with_hint(
                "check that the Sentinels and the primary are running and reachable from this host",
            ),
        };
        error.with_source(last.clone())
    }
}

/// An error that a Sentinel answered, with what helps there.
pub(crate) fn refusal(error: &ServerError) -> StoreError {
    let refused = errors::of_server(error);
    match error.details().unwrap_or_default() {
        said if said.contains("unknown command") => odd(),
        said if said.contains("No such master") => errors::refused(
            "this Sentinel does not know this name",
            "check the name in the URL, and `sentinel monitor` in its configuration",
        ),
        _ if error.code() == "NOPERM" => refused.with_hint(
            "this rule is enough at a Sentinel: ACL SETUSER <name> on ><password> resetchannels \
             &+switch-master -@all +subscribe +sentinel|get-master-addr-by-name +sentinel|master \
             +sentinel|masters +sentinel|ckquorum",
        ),
        _ => refused,
    }
}

fn odd() -> StoreError {
    errors::refused(
        "the answer is not that of a Sentinel",
        "check that it is a Sentinel; their default port is 26379",
    )
}

/// A server that a Sentinel names, and that is not the primary.
pub(crate) fn not_primary() -> StoreError {
    errors::unavailable(
        "that server is a replica: a fail-over is in progress, or this Sentinel is out of date",
    )
}

/// A Sentinel that has not heard of the last fail-over.
pub(crate) fn behind() -> StoreError {
    let why = "this Sentinel does not know of the last fail-over yet, or was set up anew";
    errors::unavailable(why)
}

#[cfg(test)]
mod tests {
    use leasehold_testkit::expect::says;

    use super::*;

    #[test]
    fn what_a_sentinel_refuses_comes_with_what_helps_there() {
        let denied = "NOPERM User x has no permissions to run the 'sentinel|master' command";
        for (said, helps) in [
            (denied, "+sentinel|master"),
            ("ERR No such master with that name", "`sentinel monitor`"),
            ("ERR unknown command 'SENTINEL'", "26379"),
        ] {
            let answer = redis::parse_redis_value(format!("-{said}\r\n").as_bytes());
            let Ok(Value::ServerError(error)) = answer else {
                panic!("{said:?} is {answer:?}");
            };
            says(refusal(&error).hint().unwrap(), [helps]);
        }
    }

    #[test]
    fn an_address_can_be_shown() {
        let answer = redis::parse_redis_value(b"*2\r\n$5\r\n\x1b[2Jh\r\n$1\r\n9\r\n").unwrap();
        assert_eq!(read_address(&answer), Some(Address::new("[2Jh", 9)));
    }

    #[test]
    fn a_primary_is_left_for_one_of_another_epoch() {
        let named = |host: &str, epoch| Named {
            primary: Address::new(host, 6379),
            epoch,
        };
        let ours = named("a", Some(5));
        for (epoch, leaves) in [(6, true), (5, false), (2, true), (0, true)] {
            assert_eq!(named("b", Some(epoch)).replaces(&ours), leaves);
            assert!(!named("a", Some(epoch)).replaces(&ours));
        }
        assert!(named("b", None).replaces(&ours));
    }

    #[test]
    fn failures_name_the_sentinels_and_what_each_said() {
        let node = |name: &str| Address::new(name, 26379);
        let mut failures = Failures::default();
        let late = errors::silent(Duration::from_millis(500));
        failures.failed(&node("a"), late);
        let names = |names: &[&str]| BTreeSet::from_iter(names.iter().map(ToString::to_string));
        failures.unknown(&node("b"), names(&["x"]));
        failures.named(&node("c"), &Address::new("d", 6379), not_primary());
        let error = failures.into_error("m");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let said = error.to_string();
        for part in [
            "primary \"m\"",
            "a:26379: no answer within 500ms",
            "b:26379 does not know this name",
            "c:26379 names d:6379: that server is a replica",
        ] {
            assert!(said.contains(part), "{said}");
        }

        let mut failures = Failures::default();
        failures.unknown(&node("b"), names(&["x", "y"]));
        let error = failures.into_error("m");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(error.hint(), Some("the Sentinels know: x, y"));
    }
}
