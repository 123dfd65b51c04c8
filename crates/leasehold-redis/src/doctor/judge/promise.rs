//! The guarantees of a deployment, as far as the findings allow.

use leasehold_store::report::Finding;
use leasehold_store::trial::Trial;

use super::super::facts::{Facts, Part, Vote};
use super::is_unusable;
use super::server::{evicts, is_synced_always};

/// What is promised where locks cannot be used.
pub(super) const NOTHING: &str = "Nothing: locks cannot be used here.";

/// What is promised where a quarantine follows a restart.
const QUARANTINE: &str = "Exclusion while a lease is valid, also when the server restarts \
     without its data or is flushed, and after a fail-over if the former primary no longer grants; \
     as long as the server's clock is not stepped forward. Fencing: tokens keep rising in all \
     these cases, as long as its clock does not go back further than the quarantine.";

/// What is promised on a cluster.
pub(super) const CLUSTER: &str = "Exclusion while a lease is valid, until a primary \
     loses data or a replica is promoted, as long as the nodes' clocks agree and are not stepped \
     forward. Fencing: tokens keep rising in all these cases, unless the clock of a new primary is \
     behind by more than the fail-over took.";

/// What is promised on independent servers.
pub(super) const REDLOCK: &str = "Exclusion while a lease is valid, also when servers \
     restart without their data, as long as the servers' clocks are not stepped and the quorum \
     tolerates the faulty servers. Fencing: tokens rise while the servers that two quorums share \
     keep their data, or the clients' clocks differ by less than max_ttl. Waiters have no order.";

/// The same without a quarantine.
pub(super) const WITHOUT_QUARANTINE: &str = "Exclusion while a lease is valid, until a server \
     restarts without its data, as long as the servers' clocks are not stepped. Fencing: tokens \
     rise while the servers that two quorums share keep their data. Waiters have no order.";

/// What is promised where other libraries share the locks, on one server or node.
const CLASSIC: &str = "Exclusion among all libraries that share the locks, \
     while a lease is valid, until a server loses data or a replica is promoted, as long as its \
     clock is not stepped forward. No fencing: there are no tokens. Waiters have no order.";

/// The same by a majority of servers.
const CLASSIC_REDLOCK: &str = "Exclusion among all libraries that share the \
     locks, while a lease is valid, until a server restarts without its data, as long as the \
     servers' clocks are not stepped. No fencing: there are no tokens. Waiters have no order.";

/// What is promised on such a server, of which that was found.
pub(in super::super) fn promise(facts: &Facts, findings: &[Finding]) -> String {
    if facts.unreachable.is_some() {
        return "Nothing: the server cannot be used.".to_owned();
    }
    if is_unusable(findings) {
        return NOTHING.to_owned();
    }
    let promise = usual(facts) + &eviction_ends(std::slice::from_ref(facts));
    match facts.vote {
        None | Some(Vote::Now) => promise,
        Some(_) => format!("Nothing until it grants. From then on: {promise}"),
    }
}

/// What is promised on several servers, of which that was found; these cannot be used.
pub(in super::super) fn promise_together(
    facts: &[Facts],
    found: &[Finding],
    unusable: &[String],
    trial: Option<&Trial>,
    quorum: usize,
) -> String {
    if trial.is_some_and(|trial| trial.failed.is_some()) || unusable.len() == facts.len() {
        return NOTHING.to_owned();
    }
    let promise = facts.first().map(usual).unwrap_or_default() + &eviction_ends(facts);
    match unusable {
        _ if is_unusable(found) => {
            format!("Nothing until {quorum} servers vote. From then on: {promise}")
        }
        [] => promise,
        _ => format!(
            "{promise} Nothing for the locks on {}: they cannot be used.",
            unusable.join(" or ")
        ),
    }
}

/// What ends exclusion where the memory of a server is bounded.
fn eviction_ends(facts: &[Facts]) -> String {
    let reached = facts.iter().filter(|one| one.unreachable.is_none());
    let policy = match reached.filter_map(evicts).min_by_key(|it| it.is_empty()) {
        Some("") => "is unknown",
        Some(policy) => policy,
        None => return String::new(),
    };
    format!(
        " Exclusion ends sooner if a server with full memory evicts a lock (maxmemory-policy \
         {policy})."
    )
}

/// What such a store promises where nothing is the matter.
fn usual(facts: &Facts) -> String {
    let usual = match (facts.part, facts.options.is_classic()) {
        (Part::Voter, true) => CLASSIC_REDLOCK,
        (Part::Voter, false) if facts.votes_at_once => WITHOUT_QUARANTINE,
        (Part::Voter, false) => REDLOCK,
        (_, true) => CLASSIC,
        (Part::Node, false) => CLUSTER,
        (Part::Alone, false) if facts.is_quarantined() => QUARANTINE,
        (Part::Alone, false) => return as_it_keeps_data(facts),
    };
    usual.to_owned()
}

/// What one server promises by what it keeps across a restart.
fn as_it_keeps_data(facts: &Facts) -> String {
    // A server that does not say what it is may have replicas.
    let alone = !facts.info("role").is_empty() && facts.replicas().is_empty();
    let exclusion = match (is_synced_always(facts), alone) {
        (true, true) => "also over a restart of the server",
        (false, true) => "until the server loses data (a restart, FLUSHALL)",
        (_, false) if facts.acknowledged_by().is_some() => {
            "until the server loses data, or a replica that lacks a lock is promoted"
        }
        (_, false) => "until the server loses data or a replica is promoted",
    };
    format!(
        "Exclusion while a lease is valid, {exclusion}, as long as the server's clock is not \
         stepped forward. Fencing: tokens keep rising in all these cases, as long as its clock \
         does not go back further than the loss."
    )
}
