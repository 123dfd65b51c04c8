//! Examines Redis servers: reads their settings, uses a lock, and judges the results.

mod facts;
#[cfg(feature = "fuzzing")]
pub(super) mod fuzzing;
mod judge;
mod probe;
mod sentinels;
mod trial;

use futures_util::future::join_all;
use leasehold_store::report::Report;
use leasehold_store::trial::Trial;
use leasehold_store::{ErrorKind, StoreError};

use self::facts::{Facts, Part, Vote};
use crate::connection::endpoint::Endpoint;
use crate::options::{RedisOptions, SHORTEST_RETENTION};
use crate::quorum::{RedlockOptions, RedlockStore};
use crate::routing::Route;
use crate::routing::cluster::RedisClusterOptions;

/// Examines the server at these options, or the primary that Sentinels name.
pub(crate) async fn examine(options: &RedisOptions) -> Result<Report, StoreError> {
    let endpoint = unless_invalid(Endpoint::new(options))?;
    let facts = probe::ask(options, Part::Alone, None).await;
    let mut findings = match endpoint.as_ref().ok().and_then(Endpoint::search) {
        Some(search) => sentinels::examine(search).await,
        None => Vec::new(),
    };
    let judged = judge::judge(&facts);
    let promise = judge::promise(&facts, &judged);
    findings.extend(judged);
    Ok(Report::new(options.redacted_url(), promise, findings))
}

/// Examines the primaries of a cluster.
pub(crate) async fn examine_cluster(options: &RedisClusterOptions) -> Result<Report, StoreError> {
    let mut brief = options.clone();
    brief.node.retention = SHORTEST_RETENTION;
    let layout = brief.node.layout;
    let route = unless_invalid(Route::open_cluster(brief, layout).await)?;
    let nodes = route.as_ref().map(Route::nodes).unwrap_or_default();
    let trial = trial::run(route).await;
    let asked = nodes.iter().map(|node| probe::ask(node, Part::Node, None));
    let facts = join_all(asked).await;
    Ok(report(options.redacted_url(), &facts, Some(&trial), 1))
}

/// Examines the servers of a set.
pub(crate) async fn examine_redlock(options: &RedlockOptions) -> Result<Report, StoreError> {
    for server in &options.servers {
        unless_invalid(Endpoint::new(server))?.ok();
    }
    let terms = options.terms();
    let ask = |server| probe::ask(server, Part::Voter, Some(&terms));
    let facts = join_all(options.servers.iter().map(ask)).await;
    // A lock of ours would start the quarantine of a server that is new.
    let is_new = |one: &Facts| matches!(one.vote, Some(Vote::Unmarked | Vote::Restarted));
    let trial = if facts.iter().any(is_new) {
        None
    } else {
        let mut brief = options.clone();
        for server in &mut brief.servers {
            server.retention = SHORTEST_RETENTION;
        }
        let store = RedlockStore::connect(brief).await;
        Some(trial::on_set(store, options.max_ttl).await)
    };
    // Options that make no quorum are refused before this.
    let quorum = options.size().map_or(1, |size| size.quorum());
    let url = options.redacted_url();
    Ok(report(url, &facts, trial.as_ref(), quorum))
}

/// Refuses invalid options. Whatever else fails is a finding, as in a build without TLS.
fn unless_invalid<T>(made: Result<T, StoreError>) -> Result<Result<T, StoreError>, StoreError> {
    match made {
        Err(error) if error.kind() == ErrorKind::Invalid => Err(error),
        made => Ok(made),
    }
}

/// What is said of each server, then of all of them as one store.
fn report(store: String, facts: &[Facts], trial: Option<&Trial>, quorum: usize) -> Report {
    let mut findings = Vec::new();
    let mut unusable = Vec::new();
    for one in facts {
        let judged = judge::judge(one);
        if judge::is_unusable(&judged) {
            unusable.push(one.options.address.shown());
        }
        findings.extend(judged);
    }
    let together = judge::together(facts, trial, quorum);
    let promise = judge::promise_together(facts, &together, &unusable, trial, quorum);
    findings.extend(together);
    Report::new(store, promise, findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_build_cannot_do_is_a_finding() {
        let made = |kind| unless_invalid(Err::<(), _>(StoreError::new(kind, "why")));
        assert!(made(ErrorKind::Invalid).is_err());
        assert!(made(ErrorKind::Unsupported).unwrap().is_err());
        assert!(unless_invalid(Ok(())).unwrap().is_ok());
    }
}
