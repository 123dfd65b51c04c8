//! The handshake with a server: one starter for a server, the primary that Sentinels name, a node
//! of a cluster and a member of a set alike.
//!
//! It greets the server (`HELLO 3`, else RESP2), asks for `INFO` and for the permissions of the
//! client in one round trip, and judges what it found: version, role, restarts, acknowledgements.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use leasehold_store::StoreError;
use redis::RedisError;

use super::ack_policy::AckPolicy;
use super::dial::dial;
use super::endpoint::{Endpoint, Opened};
use super::rights::{self, Rights};
use super::sentinel::{self, Named};
use super::socket::Socket;
use super::target::Target;
use crate::codec::script::Gate;
use crate::errors;

/// One process of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Server {
    /// Whether it is part of a cluster.
    pub(super) in_cluster: bool,
    /// Another each time the server is started.
    pub(crate) run_id: String,
    /// What must be acknowledged, if anything must.
    pub(crate) ack: Option<AckPolicy>,
    /// The arguments of scripts with a quarantine, if the client uses it.
    pub(crate) gate: Option<Gate>,
    /// What a Sentinel said about it.
    pub(crate) named: Option<Named>,
    /// What it lets us do.
    pub(crate) rights: Rights,
}

/// A connection to a server of which nothing has been judged yet.
pub(crate) struct Handshake {
    pub(crate) socket: Socket,
    /// What it was opened to.
    pub(super) target: Target,
    /// The fields of `INFO`; none where it is forbidden.
    pub(crate) info: HashMap<String, String>,
    /// Refused where no script can be run.
    pub(crate) rights: Result<Rights, StoreError>,
}

impl Handshake {
    /// Opens a connection to one server, and reads its version, role and permissions.
    pub(super) async fn with(endpoint: &Endpoint, target: Target) -> Result<Self, StoreError> {
        let channel = endpoint.channel.as_deref();
        let channel = channel.filter(|_| target.push.is_some());
        let (socket, refused) = greet(endpoint, &target).await?;
        let closed = refused.as_ref().is_some_and(errors::is_closed);
        let found = rights::find(&socket, endpoint, refused.is_none(), channel).await;
        let (info, rights) = found.map_err(|error| match closed {
            true => {
                let address = target.address.shown();
                errors::of_closed(&address, endpoint.options.is_encrypted(), error)
            }
            false => error,
        })?;
        endpoint.common.worked.store(true, Ordering::Relaxed);
        Ok(Self {
            socket,
            target,
            info,
            rights,
        })
    }

    /// Refuses a server that cannot keep the locks of this client.
    pub(super) async fn judge(self, endpoint: &Endpoint) -> Result<Opened, StoreError> {
        let (info, socket) = (&self.info, &self.socket);
        let field = |name: &str| info.get(name).map_or("", String::as_str);
        let (url, options) = (&endpoint.redacted, &endpoint.options);
        let cluster = field("cluster_enabled");
        let in_cluster = endpoint.of_cluster || cluster == "1";
        check_version(field("redis_version"))?;
        if field("loading") == "1" {
            return Err(errors::loading(&self.target.address.shown()));
        }
        let is_primary = is_primary(field("role"))?;
        match endpoint.search() {
            _ if is_primary => {}
            Some(_) => return Err(sentinel::not_primary()),
            // In a cluster it says itself who has the key; others connect to what they name.
            None if in_cluster || field("slave_read_only") == "0" => {}
            None => return Err(errors::read_only()),
        }
        let mut rights = self.rights.clone()?;
        endpoint.common.report(&rights, url, &options.prefix);
        // On a cluster it counts those at one node only, and who does not say may be
        // part of one.
        rights.counts &= cluster == "0";
        let (bound, policy) = (field("maxmemory"), field("maxmemory_policy"));
        endpoint.common.report_eviction(url, bound, policy);
        let run_id = field("run_id").to_owned();
        let connected = field("connected_slaves").parse().unwrap_or(0);
        let ack = options.acknowledge.map(|ack| ack.policy(connected));
        let quarantine = || options.restart.quarantine().map(|it| it.terms());
        let terms = endpoint.set.clone().or_else(quarantine);
        let gate = terms.map(|terms| Gate::new(&options.prefix, &run_id, &terms));
        let server = Server {
            in_cluster,
            gate,
            run_id,
            ack,
            named: self.target.named.clone(),
            rights,
        };
        check_needs(endpoint, &server, field("role"))?;
        if let Some(ack) = ack.filter(|_| is_primary) {
            ack.probe(socket, info).await?;
        }
        Ok(Opened {
            handshake: self,
            server,
        })
    }
}

/// Refuses a server that does not have what the options of this client rest on: the run id tells
/// one process from the next.
fn check_needs(endpoint: &Endpoint, server: &Server, role: &str) -> Result<(), StoreError> {
    let (options, run_id) = (&endpoint.options, &server.run_id);
    let quarantine = options.restart.quarantine().is_some();
    if quarantine && server.in_cluster {
        return Err(errors::unsupported(
            "restart=quarantine does not work with this server: it is a node of a cluster",
            "leave out restart; docs/stores/cluster.md says what a fail-over can lose",
        ));
    }
    // Its length stands in one byte of the mark.
    let unmarked = !matches!(run_id.len(), 1..=255);
    let unknown = run_id.is_empty() || role.is_empty();
    let what = if endpoint.set.is_some() && unmarked {
        "a restart would go unnoticed"
    } else if options.acknowledge.is_some() && unknown {
        "an acknowledgement could come from another server"
    } else if quarantine && unmarked {
        "restart=quarantine cannot work"
    } else {
        return Ok(());
    };
    Err(errors::unsupported(
        format!("the server does not report its run id, so {what}"),
        "add +info to the user's ACL rule, and connect without a proxy",
    ))
}

/// Opens a connection. If it does not speak RESP3, also returns why: no push arrives then. Some
/// proxies close the connection on `HELLO`, as on every command that they do not know.
async fn greet(
    endpoint: &Endpoint,
    target: &Target,
) -> Result<(Socket, Option<RedisError>), StoreError> {
    let common = &endpoint.common;
    // Why there is no connection, with the address that was tried.
    let not_opened = |error| {
        let cause = errors::of_opening(error, &common.dialling(target));
        let message = format!("cannot connect to {}: {cause}", target.address.shown());
        let lacking = errors::lacking(cause.message());
        let error = cause.with_message(message);
        match lacking {
            Some(right) => error.with_hint(right),
            None => error,
        }
    };
    let try_resp3 = async || {
        let opened = dial(target, true).await?;
        common.greets.store(true, Ordering::Relaxed);
        Ok::<_, RedisError>((opened, None))
    };
    let refused = match try_resp3().await {
        Ok(opened) => return Ok(opened),
        Err(error) => error,
    };
    let login = target.login.password().is_some();
    // A client that went on without pushes would be passed in every queue. One that closes the
    // connection on `HELLO` may be a proxy that does not know it, but not where it was understood
    // before.
    let closed = errors::is_closed(&refused) && !common.greets.load(Ordering::Relaxed);
    if !closed && !errors::is_without_resp3(&refused, login) {
        return Err(not_opened(refused));
    }
    tracing::debug!(url = %endpoint.redacted, error = %refused, "the server does not speak RESP3; \
        connecting with RESP2");
    let opened = dial(target, false).await.map_err(not_opened)?;
    // A server that was just ending closes connections too; one that forbids HELLO does
    // so again.
    match closed {
        true => Ok(try_resp3().await.unwrap_or((opened, Some(refused)))),
        false => Ok((opened, Some(refused))),
    }
}

/// Whether the server is a primary. One that does not say may be: it refuses writes if it is not.
fn is_primary(role: &str) -> Result<bool, StoreError> {
    match role {
        "master" | "" => Ok(true),
        "slave" => Ok(false),
        other => Err(errors::refused(
            format!("the server is neither a primary nor a replica: it names its role {other:?}"),
            "check that the URL names a Redis or Valkey server, and use `redis-sentinel://` for Sentinels",
        )),
    }
}

fn check_version(version: &str) -> Result<(), StoreError> {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    let known = (parts.next().flatten(), parts.next().flatten());
    match known {
        (Some(major), Some(minor)) if (major, minor) < (6, 2) => Err(errors::refused(
            format!("the server is Redis {version}; 6.2 or later is needed"),
            "upgrade it, or use Valkey",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_store::ErrorKind;

    use super::*;

    #[test]
    fn a_role_that_is_not_known_is_no_primary() {
        assert!(is_primary("master").unwrap() && is_primary("").unwrap());
        assert!(!is_primary("slave").unwrap());
        for odd in ["replica", "sentinel", "Master", "master "] {
            let refused = is_primary(odd).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Refused, "{odd}");
        }
    }

    #[test]
    fn versions() {
        for known in ["6.2.0", "7.0.15", "8.4.0", "10.0", "", "unknown"] {
            assert!(check_version(known).is_ok(), "{known}");
        }
        for old in ["6.0.16", "5.0.7", "2.8"] {
            let refused = check_version(old).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Refused);
            assert_eq!(
                refused.to_string(),
                format!("the server is Redis {old}; 6.2 or later is needed")
            );
        }
    }
}
