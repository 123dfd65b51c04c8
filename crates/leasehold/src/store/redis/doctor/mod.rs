//! Examines servers: asks them, uses them, and judges what came of it.

mod facts;
#[cfg(feature = "fuzzing")]
pub(super) mod fuzzing;
mod judge;
mod probe;
mod restart;
mod sentinels;
mod trial;

use futures_util::future::join_all;

use self::facts::{Part, Trial};
use super::connect::Target;
use super::{
    ClassicStore, RedisClusterOptions, RedisLayout, RedisOptions, RedisStore, RedlockOptions,
    RedlockStore,
};
use crate::store::report::{Finding, Report};

/// Examines the server at these options, or the primary that Sentinels name.
pub(crate) async fn examine(options: &RedisOptions) -> Report {
    let facts = probe::ask(options, Part::Alone).await;
    let target = Target::new(options).ok();
    let mut findings = match target.as_ref().and_then(Target::search) {
        Some(search) => sentinels::examine(search).await,
        None => Vec::new(),
    };
    findings.extend(judge::judge(&facts));
    Report {
        store: options.redacted_url(),
        promise: judge::promise(&facts),
        findings,
    }
}

/// Examines the primaries of a cluster.
pub(crate) async fn examine_cluster(options: &RedisClusterOptions) -> Report {
    let mut brief = options.clone();
    brief.node = trial::brief(&options.node);
    let url = options.redacted_url();
    if options.node.layout == RedisLayout::Classic {
        let store = ClassicStore::connect_cluster(options.clone()).await;
        let nodes = store
            .as_ref()
            .map_or_else(|_| Vec::new(), ClassicStore::nodes);
        let trial = trial::run(store, None).await;
        return examine_all(url, &nodes, Part::Node, &trial, judge::CLASSIC).await;
    }
    let store = RedisStore::connect_cluster(brief).await;
    let nodes = store
        .as_ref()
        .map_or_else(|_| Vec::new(), RedisStore::nodes);
    let trial = trial::run(store, None).await;
    examine_all(url, &nodes, Part::Node, &trial, judge::CLUSTER).await
}

/// Examines the servers of a set.
pub(crate) async fn examine_redlock(options: &RedlockOptions) -> Report {
    let trial = trial::run(RedlockStore::connect(options.clone()).await, None).await;
    let (url, voters) = (options.redacted_url(), &options.servers);
    let promise = match options.is_classic() {
        true => judge::CLASSIC_REDLOCK,
        false => judge::REDLOCK,
    };
    examine_all(url, voters, Part::Voter, &trial, promise).await
}

/// Each server, then all of them as one store.
async fn examine_all(
    store: String,
    servers: &[RedisOptions],
    part: Part,
    trial: &Trial,
    promise: &str,
) -> Report {
    let asked = servers.iter().map(|options| probe::ask(options, part));
    let facts = join_all(asked).await;
    let mut findings: Vec<Finding> = facts.iter().flat_map(judge::judge).collect();
    findings.extend(judge::together(&facts, trial));
    let promise = if trial.failed.is_some() {
        judge::NOTHING
    } else {
        promise
    };
    Report {
        store,
        promise: promise.to_owned(),
        findings,
    }
}
