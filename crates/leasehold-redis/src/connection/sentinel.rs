//! Queries to Sentinels, and their answers.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::written;
use leasehold_store::{ErrorKind, StoreError};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::time::timeout;

use super::value::{field, text_of};
use crate::options::sentinels::address;
use crate::refusal;

/// A server by name or IP address, and port.
pub(crate) type Address = (String, u16);

/// What a Sentinel says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    /// The primary, as far as this Sentinel knows.
    pub(crate) primary: Address,
    /// Rises with every fail-over; zero where the Sentinel does not say.
    pub(crate) epoch: u64,
}

/// What asking one Sentinel comes to.
pub(crate) enum Asked {
    Named(Named),
    /// It watches no such primary, but these.
    Unknown(BTreeSet<String>),
    No(StoreError),
}

/// Asks one Sentinel where the primary is.
pub(crate) async fn ask(
    connection: &mut MultiplexedConnection,
    master: &str,
    limit: Duration,
) -> Asked {
    let sentinel = |what: &str| {
        let mut command = redis::cmd("SENTINEL");
        command.arg(what);
        command
    };
    let mut pipeline = redis::Pipeline::with_capacity(2);
    let mut about = sentinel("MASTER");
    about.arg(master);
    let mut whom = sentinel("GET-MASTER-ADDR-BY-NAME");
    whom.arg(master);
    pipeline.add_command(whom).add_command(about);
    let answers = match timeout(limit, connection.send_packed_commands(&pipeline, 0, 2)).await {
        Ok(Ok(answers)) => answers,
        Ok(Err(error)) => return Asked::No(refusal::of_connection(error)),
        Err(_) => return Asked::No(silent(limit)),
    };
    let [whom, about] = answers.as_slice() else {
        return Asked::No(odd());
    };
    match whom {
        Value::Nil => Asked::Unknown(masters(connection, sentinel("MASTERS"), limit).await),
        Value::ServerError(error) if error.details().is_some_and(is_unknown) => Asked::No(odd()),
        Value::ServerError(error) => Asked::No(refusal::of_server(error)),
        whom => match read_address(whom) {
            Some(primary) => Asked::Named(Named {
                primary,
                // A user who may not see more can still find the primary.
                epoch: field(about, "config-epoch")
                    .and_then(|epoch| epoch.parse().ok())
                    .unwrap_or(0),
            }),
            None => Asked::No(odd()),
        },
    }
}

/// The names that this Sentinel knows; none where it does not say.
async fn masters(
    connection: &mut MultiplexedConnection,
    command: Cmd,
    limit: Duration,
) -> BTreeSet<String> {
    match timeout(limit, connection.send_packed_command(&command)).await {
        Ok(Ok(Value::Array(masters))) => masters
            .iter()
            .filter_map(|master| field(master, "name"))
            .collect(),
        _ => BTreeSet::new(),
    }
}

pub(crate) fn read_address(value: &Value) -> Option<Address> {
    let Value::Array(parts) = value else {
        return None;
    };
    let [host, port] = parts.as_slice() else {
        return None;
    };
    Some((text_of(host)?, text_of(port)?.parse().ok()?))
}

/// How one round of asking has failed, Sentinel by Sentinel.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    said: Vec<String>,
    unknown: usize,
    refused: usize,
    names: BTreeSet<String>,
    last: Option<StoreError>,
}

impl Failures {
    pub(crate) fn no(&mut self, node: &Address, error: StoreError) {
        self.said
            .push(format!("{}: {error}", address(&node.0, node.1)));
        self.refused += usize::from(error.kind() != ErrorKind::Unavailable);
        self.last = Some(error);
    }

    pub(crate) fn unknown(&mut self, node: &Address, names: BTreeSet<String>) {
        self.said.push(format!(
            "{} does not know this name",
            address(&node.0, node.1)
        ));
        self.unknown += 1;
        self.names.extend(names);
    }

    pub(crate) fn named(&mut self, node: &Address, primary: &Address, why: &StoreError) {
        let (sentinel, primary) = (address(&node.0, node.1), address(&primary.0, primary.1));
        self.said.push(format!("{sentinel} names {primary}: {why}"));
        self.last = Some(why.clone());
    }

    /// All of it as one error.
    pub(crate) fn into_error(self, master: &str) -> StoreError {
        if self.unknown > 0 && self.unknown == self.said.len() {
            let error = StoreError::new(
                ErrorKind::Invalid,
                format!("no Sentinel knows a primary named {master:?}"),
            );
            return if self.names.is_empty() {
                error.with_hint(
                    "the Sentinels watch no primary: check `sentinel monitor` in their \
                 configuration",
                )
            } else {
                let names: Vec<_> = self.names.iter().map(String::as_str).collect();
                error.with_hint(format!("the Sentinels know: {}", names.join(", ")))
            };
        }
        // Waiting does not cure it if nobody lets us in.
        let refused = self.refused > 0 && self.refused == self.said.len();
        let mut error = StoreError::new(
            if refused {
                ErrorKind::Refused
            } else {
                ErrorKind::Unavailable
            },
            format!(
                "cannot find the primary {master:?}: {}",
                self.said.join("; ")
            ),
        )
        .with_hint(
            "check that the Sentinels and the primary are running and reachable from this \
         host",
        );
        if let Some(last) = self.last {
            if refused {
                error = error.with_hint_of(&last);
            }
            error = error.with_source(last);
        }
        error
    }
}

pub(crate) fn silent(limit: Duration) -> StoreError {
    StoreError::new(
        ErrorKind::Unavailable,
        format!("no answer within {}", written(limit)),
    )
}

/// Whether it is no Sentinel.
fn is_unknown(detail: &str) -> bool {
    detail.contains("unknown command")
}

fn odd() -> StoreError {
    StoreError::new(ErrorKind::Refused, "the answer is not that of a Sentinel")
        .with_hint("check that it is a Sentinel; their default port is 26379")
}

/// A server that a Sentinel names, and that is not the primary.
pub(crate) fn not_primary() -> StoreError {
    StoreError::new(
        ErrorKind::Unavailable,
        "that server is a replica: a fail-over is in progress, or this Sentinel is out of date",
    )
}

/// A Sentinel that has not heard of the last fail-over.
pub(crate) fn behind() -> StoreError {
    StoreError::new(
        ErrorKind::Unavailable,
        "this Sentinel does not know of the last fail-over yet",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_name_the_sentinels_and_what_each_said() {
        let node = |name: &str| (name.to_owned(), 26379);
        let mut failures = Failures::default();
        failures.no(&node("a"), silent(Duration::from_millis(500)));
        failures.unknown(&node("b"), BTreeSet::from(["x".to_owned()]));
        failures.named(&node("c"), &("d".to_owned(), 6379), &not_primary());
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
        failures.unknown(&node("b"), BTreeSet::from(["x".to_owned(), "y".to_owned()]));
        let error = failures.into_error("m");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(error.hint(), Some("the Sentinels know: x, y"));
    }
}
