//! Findings about one server: persistence, memory, replicas, clock, latency.

use std::time::Duration;

use leasehold_store::report::Finding;
use leasehold_store::report::Severity::{Fine, Note, Unsafe, Warning};

use super::super::facts::{Clock, Facts, Part, Replica};
use super::{CLOCK, EVICTION};
use crate::options::RedisAddress;
use crate::options::acknowledge::AcknowledgedBy;
use crate::options::restart::Quarantine;

/// A replica of which nothing was heard for so many seconds is behind.
const SILENT: u64 = 10;

/// A primary counts its replicas once a second, in whole seconds.
const COUNTING: Duration = Duration::from_secs(2);

/// Clocks that differ by more are not kept by a time service.
pub(super) const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// A slower round trip leaves little of a short lease.
const SLOW: Duration = Duration::from_millis(100);

/// What is true, and what helps, only where there are tokens.
const RISING: &str = "; tokens keep rising";
const FENCED: &str = "; or check tokens where the lock protects data";

/// What a restart loses without an append-only file.
const LOSES_ALL: &str = "a restart loses all locks, and another client may be granted one at once";
const LOSES_SOME: &str = "a restart loses the locks granted since the last snapshot, and brings \
     back earlier ones";

fn with_tokens(facts: &Facts, said: &str, of_tokens: &str) -> String {
    let rise = !facts.options.is_classic() && !facts.votes_at_once;
    said.to_owned() + if rise { of_tokens } else { "" }
}

/// Whether a grant is on the disk before it counts: by the server's settings, or as clients ask.
pub(super) fn is_synced_always(facts: &Facts) -> bool {
    let asked = matches!(facts.acknowledged_by(), Some(AcknowledgedBy::Disk { .. }));
    // While another process writes the file anew, this setting leaves out every sync.
    let leaves_out = facts.config("no-appendfsync-on-rewrite") == Some("yes");
    let always = facts.config("appendfsync") == Some("always") && !leaves_out;
    facts.info("aof_enabled") == "1" && (always || asked)
}

/// The policy by which a server may evict locks; empty if it does not say whether it does. All
/// locks expire by themselves, so the policies for such keys mean them too.
pub(super) fn evicts(facts: &Facts) -> Option<&str> {
    match (facts.number("maxmemory"), facts.info("maxmemory_policy")) {
        (None, _) => Some(""),
        (Some(0), _) | (_, "noeviction") => None,
        (_, policy) => Some(policy),
    }
}

/// What the server is, and its version: Redis 7.0.15, Valkey 8.1.0.
pub(super) fn version(facts: &Facts) -> Finding {
    let found = match (facts.info("valkey_version"), facts.info("redis_version")) {
        ("", "") => "the server does not report its version".to_owned(),
        ("", redis) => format!("Redis {redis}"),
        (valkey, _) => format!("Valkey {valkey}"),
    };
    Finding::new(Fine, "version", found)
}

pub(super) fn role(facts: &Facts) -> Option<Finding> {
    let in_cluster = facts.part != Part::Node && facts.info("cluster_enabled") == "1";
    Some(match facts.info("role") {
        _ if in_cluster => Finding::new(Unsafe, "role", "it is a node of a Redis Cluster")
            .meaning("it keeps only some of the keys, and refuses the others")
            .remedied("use redis-cluster://"),
        "slave" => Finding::new(Unsafe, "role", "it is a replica")
            .meaning("only the primary grants locks")
            .remedied("connect to the primary, or use redis-sentinel://, which finds it"),
        _ => return None,
    })
}

pub(super) fn eviction(facts: &Facts) -> Finding {
    let policy = facts.info("maxmemory_policy");
    let found = format!("maxmemory-policy {policy}");
    let unknown = "unknown: INFO does not contain maxmemory and its policy";
    match (evicts(facts), facts.number("maxmemory"), policy) {
        (Some(""), ..) => Finding::new(Note, EVICTION, unknown)
            .meaning("a server whose memory is bounded may evict locks and grant them twice")
            .remedied("make sure that its maxmemory-policy is noeviction"),
        (Some(_), ..) => Finding::new(Unsafe, EVICTION, found)
            .meaning("when its memory is full, the server may evict locks and grant them twice")
            .remedied("set maxmemory-policy to noeviction, or use a separate server for locks"),
        (_, Some(1..), _) => Finding::new(Fine, EVICTION, "noeviction"),
        (.., "noeviction" | "") => Finding::new(Fine, EVICTION, "maxmemory is not set"),
        _ => Finding::new(Note, EVICTION, found + ", and maxmemory is not set")
            .meaning("nothing is evicted now; once maxmemory is set, locks can be evicted")
            .remedied("set maxmemory-policy to noeviction before setting maxmemory"),
    }
}

pub(super) fn memory(facts: &Facts) -> Option<Finding> {
    let (used, bound) = (facts.number("used_memory")?, facts.number("maxmemory")?);
    (bound > 0 && used >= bound / 10 * 9).then(|| {
        let share = used.saturating_mul(100) / bound;
        Finding::new(Warning, "memory", format!("{share} % of maxmemory is used"))
            .meaning("when memory is full, new claims fail; renewals and releases still work")
            .remedied("raise maxmemory, or delete data that is not needed")
    })
}

pub(super) fn persistence(facts: &Facts) -> Finding {
    let finding = |severity, found: &str| Finding::new(severity, "persistence", found);
    // With a quarantine exclusion does not depend on what a restart leaves.
    match (facts.info("aof_enabled"), facts.is_quarantined()) {
        ("", _) => finding(Note, "unknown: INFO does not contain aof_enabled")
            .meaning("without an append-only file a restart loses locks")
            .remedied("make sure that appendonly is yes"),
        ("1", true) => finding(Fine, "append-only file"),
        (_, true) => finding(Note, "no append-only file").meaning(match facts.part {
            Part::Voter => {
                "after a restart it does not vote until its quarantine is over; exclusion holds"
            }
            Part::Alone | Part::Node => {
                "after a restart it grants nothing until its quarantine is over; exclusion holds"
            }
        }),
        ("1", _) if is_synced_always(facts) => {
            finding(Fine, "append-only file, synced before a grant counts")
        }
        ("1", _) => {
            let found = match facts.config("appendfsync") {
                Some("always") => "append-only file, no-appendfsync-on-rewrite yes".to_owned(),
                Some(fsync) => format!("append-only file, appendfsync {fsync}"),
                None => "append-only file; appendfsync is unknown: needs +config|get".to_owned(),
            };
            let always = "set appendfsync always, no-appendfsync-on-rewrite no";
            let lost = "unless each write is synced, a machine crash can lose the last grants";
            finding(Note, &found)
                .meaning(with_tokens(facts, lost, RISING))
                .remedied(with_tokens(facts, always, FENCED))
        }
        _ => {
            let (found, meaning) = match facts.config("save") {
                Some("") => ("none", LOSES_ALL),
                Some(_) => ("snapshots only", LOSES_SOME),
                None => (
                    "no append-only file; snapshots are unknown: needs +config|get",
                    "a restart loses all locks, or those granted since the last snapshot",
                ),
            };
            finding(Warning, found)
                .meaning(meaning)
                .remedied(with_tokens(facts, "set appendonly yes", FENCED))
        }
    }
}

/// Findings about writes to disk that fail.
pub(super) fn disk(facts: &Facts) -> Vec<Finding> {
    let failing = [
        ("rdb_last_bgsave", "its last snapshot failed"),
        ("aof_last_write", "it cannot write its append-only file"),
        (
            "aof_last_bgrewrite",
            "it could not rewrite its append-only file",
        ),
    ];
    failing
        .into_iter()
        .filter(|(of, _)| facts.info(&format!("{of}_status")) == "err")
        .map(|(_, found)| {
            Finding::new(Warning, "disk", found)
                .meaning("it may refuse all writes, including those of locks")
                .remedied("check the server's log and its free disk space")
        })
        .collect()
}

pub(super) fn replicas(facts: &Facts) -> Vec<Finding> {
    let replicas = facts.replicas();
    if replicas.is_empty() {
        return Vec::new();
    }
    let lagging = replicas.iter().filter(|_| facts.part != Part::Voter);
    let found = format!("{} connected", replicas.len());
    let (means, of_tokens) = match (facts.part, facts.is_quarantined()) {
        (Part::Voter, true) => (
            "a replica that takes over at the same address counts as a restart, with a quarantine",
            "",
        ),
        (_, false) => (
            "a fail-over can lose grants that had not reached the promoted replica",
            RISING,
        ),
        (_, true) => ("a fail-over is followed by a quarantine", ""),
    };
    let connected = Finding::new(Note, "replicas", found);
    let connected = connected.meaning(with_tokens(facts, means, of_tokens));
    lagging.filter_map(behind).chain([connected]).collect()
}

/// A replica that has not the latest grants.
fn behind(replica: &Replica) -> Option<Finding> {
    let name = &replica.name;
    let found = match replica.silent_for {
        _ if !replica.online => format!("replica {name} is still synchronising"),
        silent @ SILENT.. => {
            format!("the primary has not heard from replica {name} for {silent} s")
        }
        _ => return None,
    };
    let behind = Finding::new(Warning, "replicas", found)
        .meaning("if it is promoted, recent grants are lost")
        .remedied("check its log, and the network between the two");
    Some(behind)
}

/// Whether a primary that is cut off keeps granting; where a quarantine follows a fail-over,
/// whether it does so for longer than that allows.
pub(super) fn isolation(facts: &Facts) -> Option<Finding> {
    let quarantine = facts.options.restart.quarantine();
    let sought = matches!(facts.options.address, RedisAddress::Sentinel(_));
    let is_replaced = !facts.replicas().is_empty() || (sought && quarantine.is_some());
    if facts.part == Part::Voter || !is_replaced {
        return None;
    }
    let needed = facts.config("min-replicas-to-write");
    let lag = facts.config("min-replicas-max-lag");
    let of_none = Finding::new(Warning, "isolation", "min-replicas-to-write 0");
    Some(match (needed, lag, quarantine) {
        (None, ..) | (_, None, Some(_)) => {
            let found = "min-replicas-to-write and its lag are unknown: needs +config|get";
            Finding::new(Note, "isolation", found)
                .meaning(
                    "unless they are set, a primary that is cut off keeps granting after a replica \
                     was promoted",
                )
                .remedied("make sure that min-replicas-to-write is the number of replicas")
        }
        (Some("0"), _, Some(_)) => of_none
            .meaning(
                "a primary that is cut off keeps granting after a fail-over: no quarantine is long \
                 enough",
            )
            .remedied("set min-replicas-to-write to the number of replicas"),
        (Some("0"), _, None) => of_none
            .meaning(
                "a primary that is cut off with clients may keep granting after a replica was \
                 promoted",
            )
            .remedied(
                "set min-replicas-to-write to the number of replicas, and min-replicas-max-lag to \
                 a few seconds",
            ),
        (_, Some(lag), Some(quarantine)) => return outlasts(lag.parse().ok()?, quarantine),
        (.., None) => return None,
    })
}

/// Whether the leases of a primary that stops granting after this lag, in seconds, may outlast the
/// quarantine of the one in its place.
fn outlasts(lag: u64, quarantine: &Quarantine) -> Option<Finding> {
    let grants_for = Duration::from_secs(lag).saturating_add(COUNTING);
    let spare = quarantine.lasts().saturating_sub(quarantine.max_ttl);
    (grants_for > spare).then(|| {
        let enough = quarantine.max_ttl.saturating_add(grants_for).as_secs();
        let enough = enough.saturating_add(1);
        Finding::new(Warning, "isolation", format!("min-replicas-max-lag {lag}"))
            .meaning(
                "a primary that is cut off grants for that time; its leases may outlast the new \
                 one's quarantine",
            )
            .remedied(format!(
                "choose a quarantine of {enough} s or more, or a shorter lag"
            ))
    })
}

pub(super) fn clock(clock: Clock) -> Finding {
    if !clock.advances {
        return Finding::new(Unsafe, CLOCK, "the server's clock does not advance")
            .meaning("leases do not expire, so a crashed holder keeps its lock")
            .remedied("restart the server, and check its clock source");
    }
    let ahead = Duration::from_micros(clock.ahead.unsigned_abs());
    let way = match clock.ahead {
        ..0 => "behind",
        _ => "ahead of",
    };
    let (differs, within) = (millis(ahead), millis(clock.within));
    let found = format!("{differs} {way} this host's clock (within {within})");
    if ahead <= CLOCK_TOLERANCE + clock.within {
        return Finding::new(Fine, CLOCK, found);
    }
    Finding::new(Warning, CLOCK, found)
        .meaning(
            "one of the two clocks is not synchronised; a step of it ends leases early or prolongs \
             them",
        )
        .remedied("synchronise both clocks with a time service that slews and never steps them")
}

pub(super) fn millis(time: Duration) -> String {
    if time < Duration::from_micros(100) {
        return "less than 0.1 ms".to_owned();
    }
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

pub(super) fn latency([p50, p99]: [Duration; 2]) -> Finding {
    let found = format!("p50 {}, p99 {}", millis(p50), millis(p99));
    if p99 < SLOW {
        return Finding::new(Fine, "latency", found);
    }
    Finding::new(Warning, "latency", found)
        .meaning("validity counts from the request, so little is left of a short lease")
        .remedied("choose TTLs of at least 100 such round trips; see the server's SLOWLOG")
}

/// What ends connections, or keeps new ones out.
pub(super) fn connections(facts: &Facts) -> Vec<Finding> {
    let now = facts.number("connected_clients");
    let full = now.zip(facts.number("maxclients"));
    let full = full.filter(|(now, most)| *now > most / 10 * 9);
    let full = full.map(|(now, most)| {
        Finding::new(Warning, "connections", format!("{now} of {most}"))
            .meaning("soon no client can connect")
            .remedied("raise maxclients")
    });
    let timeout = facts.config("timeout").filter(|timeout| *timeout != "0");
    let closes = timeout.map(|timeout| {
        let found = format!("the server closes idle connections after {timeout} s");
        Finding::new(Note, "connections", found)
            .meaning("an idle client has to connect again before its next lock")
    });
    full.into_iter().chain(closes).collect()
}
