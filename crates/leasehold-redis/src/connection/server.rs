//! Checks a server process at connect: version, role, restarts and acknowledgements.

use std::collections::HashMap;

use leasehold_store::{ErrorKind, StoreError};
use redis::ConnectionAddr;
use redis::aio::MultiplexedConnection;

use super::connect::Target;
use super::demand::Demand;
use super::gate::Gate;
use super::rights::{self, Rights};
use super::sentinel::Named;
use crate::refusal;

/// One process of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Server {
    pub(crate) is_primary: bool,
    /// Another each time the server is started.
    pub(crate) run_id: String,
    /// What must be acknowledged, if anything must.
    pub(crate) demand: Option<Demand>,
    /// The arguments of scripts with a quarantine, if the client uses it.
    pub(crate) gate: Option<Gate>,
    /// What a Sentinel said about it.
    pub(crate) named: Option<Named>,
    /// What it lets us do.
    pub(crate) rights: Rights,
}

impl Target {
    /// Judges a server by what was found out of it.
    pub(super) async fn look_at(
        &self,
        connection: &mut MultiplexedConnection,
        info: &HashMap<String, String>,
        rights: Result<Rights, StoreError>,
        address: &ConnectionAddr,
    ) -> Result<Server, StoreError> {
        let field = |name: &str| info.get(name).map_or("", String::as_str);
        self.found_cluster(field("cluster_enabled") == "1");
        check_version(field("redis_version"))?;
        if field("loading") == "1" {
            return Err(refusal::loading(address));
        }
        let (run_id, is_primary) = (field("run_id"), is_primary(field("role"))?);
        // Whoever seeks the primary asks elsewhere, and in a cluster a replica says
        // itself who has the key; others connect to what they name.
        let alone = self.search().is_none() && !self.is_cluster();
        if !is_primary && field("slave_read_only") != "0" && alone {
            return Err(refusal::read_only());
        }
        let mut rights = rights?;
        self.common
            .reported
            .say(&rights, &self.redacted, &self.options.prefix);
        // On a cluster it counts those at one node only, and who does not say may be
        // part of one.
        rights.counts &= field("cluster_enabled") == "0";
        // Its length stands in one byte of the mark.
        if self.votes && !matches!(run_id.len(), 1..=255) {
            return Err(rights::no_run_id("a restart would go unnoticed"));
        }
        warn_of_eviction(
            field("maxmemory"),
            field("maxmemory_policy"),
            &self.redacted,
        );
        let acknowledge = self.options.acknowledge;
        if acknowledge.is_some() && (run_id.is_empty() || field("role").is_empty()) {
            let why = "an acknowledgement could come from another server";
            return Err(rights::no_run_id(why));
        }
        let connected = field("connected_slaves").parse().unwrap_or(0);
        let demand = acknowledge.map(|policy| policy.demand(connected));
        if let Some(demand) = demand.filter(|_| is_primary) {
            demand.probe(connection, info).await?;
        }
        Ok(Server {
            is_primary,
            gate: self.gate(run_id)?,
            run_id: run_id.to_owned(),
            demand,
            named: None,
            rights,
        })
    }

    /// What gated scripts are told on a server that runs as `run_id`.
    fn gate(&self, run_id: &str) -> Result<Option<Gate>, StoreError> {
        let Some(quarantine) = self.options.restart.quarantine() else {
            return Ok(None);
        };
        if self.is_cluster() {
            return Err(StoreError::new(
                ErrorKind::Unsupported,
                "restart=quarantine does not work with this server: it is a node of a cluster",
            )
            .with_hint(
                "leave out restart; docs/stores/cluster.md says what a fail-over can lose",
            ));
        }
        if !matches!(run_id.len(), 1..=255) {
            return Err(rights::no_run_id("restart=quarantine cannot work"));
        }
        let gate = Gate::new(&self.options.prefix, run_id, &quarantine.terms());
        Ok(Some(gate))
    }
}

/// Whether the server is a primary. One that does not say may be: it refuses writes if it is not.
fn is_primary(role: &str) -> Result<bool, StoreError> {
    match role {
        "master" | "" => Ok(true),
        "slave" => Ok(false),
        other => Err(StoreError::new(
            ErrorKind::Refused,
            format!("the server is neither a primary nor a replica: it names its role {other:?}"),
        )
        .with_hint("check that the URL names a Redis or Valkey server, and use `redis-sentinel://` for Sentinels")),
    }
}

fn warn_of_eviction(maxmemory: &str, maxmemory_policy: &str, url: &str) {
    if maxmemory != "0" && !matches!(maxmemory_policy, "" | "noeviction") {
        tracing::warn!(
            %url,
            maxmemory_policy,
            "this server may evict locks and grant them twice; set maxmemory-policy to noeviction"
        );
    }
}

fn check_version(version: &str) -> Result<(), StoreError> {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    let known = (parts.next().flatten(), parts.next().flatten());
    match known {
        (Some(major), Some(minor)) if (major, minor) < (6, 2) => Err(StoreError::new(
            ErrorKind::Refused,
            format!("the server is Redis {version}; 6.2 or later is needed"),
        )
        .with_hint("upgrade it, or use Valkey")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
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
