//! Findings about one server: persistence, memory, replicas, clock, latency.

use std::time::Duration;

use leasehold_store::report::{Finding, Severity};

use super::super::facts::{Facts, Part};
use super::super::restart;
use super::{CLOCK, EVICTION};
use crate::options::restart::Restart;

/// A replica of which nothing was heard for so many seconds is behind.
const SILENT: u64 = 10;

/// Clocks that differ by more are not kept by a time service.
pub(super) const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// A slower round trip leaves little of a short lease.
const SLOW: Duration = Duration::from_millis(100);

pub(super) fn is_synced_always(facts: &Facts) -> bool {
    facts.info("aof_enabled") == "1" && facts.config("appendfsync") == Some("always")
}

/// The policy by which a server may evict locks. All of them expire by themselves, so
/// the policies for such keys mean them too.
pub(super) fn evicts(facts: &Facts) -> Option<&str> {
    let bounded = facts.number("maxmemory").is_some_and(|bound| bound > 0);
    let policy = facts.info("maxmemory_policy");
    (bounded && !matches!(policy, "noeviction" | "")).then_some(policy)
}

/// Whether the server does not say if it evicts.
pub(super) fn may_evict(facts: &Facts) -> bool {
    let bound = facts.number("maxmemory");
    bound.is_none_or(|bound| bound > 0 && facts.info("maxmemory_policy").is_empty())
}

/// Something that the server, or its access control, does not tell.
pub(in super::super) fn unknown(check: &'static str, found: impl Into<String>) -> Finding {
    Finding::new(Severity::Note, check, found)
}

pub(super) fn version(facts: &Facts) -> Finding {
    let (name, version) = facts.version();
    let found = if version.is_empty() {
        "the server does not report its version".to_owned()
    } else {
        format!("{name} {version}")
    };
    Finding::new(Severity::Fine, "version", found)
}

pub(super) fn role(facts: &Facts) -> Option<Finding> {
    if facts.part != Part::Node && facts.info("cluster_enabled") == "1" {
        let found = "it is a node of a Redis Cluster";
        return Some(
            Finding::new(Severity::Unsafe, "role", found)
                .meaning("it keeps only some of the keys, and refuses the others")
                .remedied("use redis-cluster://"),
        );
    }
    (facts.info("role") == "slave").then(|| {
        Finding::new(Severity::Unsafe, "role", "it is a replica")
            .meaning("only the primary grants locks")
            .remedied("connect to the primary, or use redis-sentinel://, which finds it")
    })
}

pub(super) fn eviction(facts: &Facts) -> Finding {
    let policy = facts.info("maxmemory_policy");
    if let Some(policy) = evicts(facts) {
        return Finding::new(
            Severity::Unsafe,
            EVICTION,
            format!("maxmemory-policy {policy}"),
        )
        .meaning("when its memory is full, the server may evict locks and grant them twice")
        .remedied("set maxmemory-policy to noeviction, or use a separate server for locks");
    }
    if may_evict(facts) {
        return unknown(
            EVICTION,
            "unknown: INFO does not contain maxmemory and its policy",
        )
        .meaning("a server whose memory is bounded may evict locks and grant them twice")
        .remedied("make sure that its maxmemory-policy is noeviction");
    }
    let bounded = facts.number("maxmemory").is_some_and(|bound| bound > 0);
    match (bounded, policy) {
        (true, _) => Finding::new(Severity::Fine, EVICTION, "noeviction"),
        (false, "noeviction" | "") => {
            Finding::new(Severity::Fine, EVICTION, "maxmemory is not set")
        }
        (false, policy) => Finding::new(
            Severity::Note,
            EVICTION,
            format!("maxmemory-policy {policy}, and maxmemory is not set"),
        )
        .meaning("nothing is evicted now; once maxmemory is set, locks can be evicted")
        .remedied("set maxmemory-policy to noeviction before setting maxmemory"),
    }
}

pub(super) fn memory(facts: &Facts) -> Option<Finding> {
    let (used, bound) = (facts.number("used_memory")?, facts.number("maxmemory")?);
    if bound == 0 || used < bound / 10 * 9 {
        return None;
    }
    let share = used.saturating_mul(100) / bound;
    Some(
        Finding::new(
            Severity::Warning,
            "memory",
            format!("{share} % of maxmemory is used"),
        )
        .meaning("when memory is full, new claims fail; renewals and releases still work")
        .remedied("raise maxmemory, or delete data that is not needed"),
    )
}

pub(super) fn persistence(facts: &Facts) -> Finding {
    const CHECK: &str = "persistence";
    const FENCE: &str = "check fencing tokens where the lock protects data";
    let aof = facts.info("aof_enabled");
    if aof.is_empty() {
        return unknown(CHECK, "unknown: INFO does not contain aof_enabled")
            .meaning("without an append-only file a restart loses locks")
            .remedied("make sure that appendonly is yes");
    }
    let votes = facts.part == Part::Voter && !facts.classic;
    if votes || facts.restart != Restart::Trust {
        return kept_for_quarantine(facts, CHECK);
    }
    let (severity, found, meaning, remedy) = match (aof, facts.config("appendfsync")) {
        ("1", Some("always")) => {
            let found = "append-only file, appendfsync always";
            return Finding::new(Severity::Fine, CHECK, found);
        }
        ("1", fsync) => (
            Severity::Note,
            match fsync {
                Some(fsync) => format!("append-only file, appendfsync {fsync}"),
                None => "append-only file; appendfsync is unknown: needs +config|get".to_owned(),
            },
            "without appendfsync always, a machine crash can lose the last grants; tokens keep rising",
            "set appendfsync always",
        ),
        _ => {
            let (found, meaning) = match facts.config("save") {
                Some("") => (
                    "none",
                    "a restart loses all locks, and another client may be granted one at once",
                ),
                Some(_) => (
                    "snapshots only",
                    "a restart loses the locks granted since the last snapshot, and brings back \
                     earlier ones",
                ),
                None => (
                    "no append-only file; snapshots are unknown: needs +config|get",
                    "a restart loses all locks, or those granted since the last snapshot",
                ),
            };
            let found = found.to_owned();
            (Severity::Warning, found, meaning, "set appendonly yes")
        }
    };
    Finding::new(severity, CHECK, found)
        .meaning(meaning)
        .remedied(format!("{remedy}, or {FENCE}"))
}

/// What a restart leaves where a quarantine follows it.
fn kept_for_quarantine(facts: &Facts, check: &'static str) -> Finding {
    if facts.info("aof_enabled") == "1" {
        return Finding::new(Severity::Fine, check, "append-only file");
    }
    Finding::new(Severity::Note, check, "no append-only file").meaning(match facts.part {
        Part::Voter => {
            "after a restart it does not vote until its quarantine is over; exclusion holds"
        }
        _ => "after a restart it grants nothing until its quarantine is over; exclusion holds",
    })
}

/// Findings about writes to disk that fail.
pub(super) fn disk(facts: &Facts) -> Vec<Finding> {
    let failing = [
        ("rdb_last_bgsave_status", "its last snapshot failed"),
        (
            "aof_last_write_status",
            "it cannot write its append-only file",
        ),
        (
            "aof_last_bgrewrite_status",
            "it could not rewrite its append-only file",
        ),
    ];
    failing
        .into_iter()
        .filter(|(field, _)| facts.info(field) == "err")
        .map(|(_, found)| {
            Finding::new(Severity::Warning, "disk", found)
                .meaning("it may refuse all writes, including those of locks")
                .remedied("check the server's log and its free disk space")
        })
        .collect()
}

pub(super) fn replicas(facts: &Facts) -> Vec<Finding> {
    let replicas = facts.replicas();
    let mut findings = Vec::new();
    if replicas.is_empty() {
        return findings;
    }
    if facts.part == Part::Voter {
        let found = format!("{} connected", replicas.len());
        let finding = Finding::new(Severity::Note, "replicas", found);
        return vec![finding.meaning(
            "a replica that takes over at the same address counts as a restart, with a quarantine",
        )];
    }
    for replica in &replicas {
        let name = format!("{}:{}", replica.host, replica.port);
        let found = if !replica.online {
            format!("replica {name} is still synchronising")
        } else if replica.silent_for >= SILENT {
            format!(
                "the primary has not heard from replica {name} for {} s",
                replica.silent_for
            )
        } else {
            continue;
        };
        findings.push(
            Finding::new(Severity::Warning, "replicas", found)
                .meaning("if it is promoted, recent grants are lost")
                .remedied("check its log, and the network between the two"),
        );
    }
    let found = format!("{} connected", replicas.len());
    findings.push(
        Finding::new(Severity::Note, "replicas", found).meaning(match facts.restart {
            Restart::Trust => {
                "a fail-over can lose grants that had not reached the promoted replica; tokens \
                 keep rising"
            }
            Restart::Quarantine(_) => "a fail-over is followed by a quarantine",
        }),
    );
    findings
}

/// Whether a primary that is cut off keeps granting.
pub(super) fn isolation(facts: &Facts) -> Option<Finding> {
    if let Restart::Quarantine(quarantine) = &facts.restart {
        return restart::isolation(facts, quarantine);
    }
    if facts.part == Part::Voter || facts.replicas().is_empty() {
        return None;
    }
    let Some(needed) = facts.config("min-replicas-to-write") else {
        return Some(isolation_is_unknown());
    };
    if needed != "0" {
        return None;
    }
    Some(
        Finding::new(Severity::Warning, "isolation", "min-replicas-to-write 0")
            .meaning(
                "a primary that is cut off from its replicas keeps granting after a replica was \
                 promoted",
            )
            .remedied(
                "set min-replicas-to-write to the number of replicas, and min-replicas-max-lag to \
                 a few seconds",
            ),
    )
}

/// What a primary does that is cut off is a matter of settings that cannot be read.
pub(in super::super) fn isolation_is_unknown() -> Finding {
    let found = "min-replicas-to-write and its lag are unknown: needs +config|get";
    unknown("isolation", found)
        .meaning(
            "unless they are set, a primary that is cut off keeps granting after a replica was \
             promoted",
        )
        .remedied("make sure that min-replicas-to-write is the number of replicas")
}

pub(super) fn clock(facts: &Facts) -> Option<Finding> {
    let clock = facts.clock?;
    let check = CLOCK;
    if !clock.advances {
        return Some(
            Finding::new(
                Severity::Unsafe,
                check,
                "the server's clock does not advance",
            )
            .meaning("leases do not expire, so a crashed holder keeps its lock")
            .remedied("restart the server, and check its clock source"),
        );
    }
    let ahead = Duration::from_micros(clock.ahead.unsigned_abs());
    let way = if clock.ahead < 0 {
        "behind"
    } else {
        "ahead of"
    };
    let within = millis(clock.within);
    let found = format!(
        "{} {way} this host's clock (within {within})",
        millis(ahead)
    );
    if ahead <= CLOCK_TOLERANCE + clock.within {
        return Some(Finding::new(Severity::Fine, check, found));
    }
    Some(
        Finding::new(Severity::Warning, check, found)
            .meaning(
                "one of the two clocks is not synchronised; a step of it ends leases early or \
                 prolongs them",
            )
            .remedied(
                "synchronise both clocks with a time service that slews and never steps them",
            ),
    )
}

pub(super) fn millis(time: Duration) -> String {
    if time < Duration::from_micros(100) {
        return "less than 0.1 ms".to_owned();
    }
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

pub(super) fn latency(facts: &Facts) -> Option<Finding> {
    let latency = facts.latency?;
    let found = format!("p50 {}, p99 {}", millis(latency.p50), millis(latency.p99));
    if latency.p99 < SLOW {
        return Some(Finding::new(Severity::Fine, "latency", found));
    }
    Some(
        Finding::new(Severity::Warning, "latency", found)
            .meaning("validity counts from the request, so little is left of a short lease")
            .remedied("choose TTLs of at least 100 such round trips; see the server's SLOWLOG"),
    )
}

/// What ends connections, or keeps new ones out.
pub(super) fn connections(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (now, most) = (
        facts.number("connected_clients"),
        facts.number("maxclients"),
    );
    if let (Some(now), Some(most)) = (now, most)
        && now > most / 10 * 9
    {
        findings.push(
            Finding::new(Severity::Warning, "connections", format!("{now} of {most}"))
                .meaning("soon no client can connect")
                .remedied("raise maxclients"),
        );
    }
    if let Some(timeout) = facts.config("timeout").filter(|timeout| *timeout != "0") {
        findings.push(
            Finding::new(
                Severity::Note,
                "connections",
                format!("the server closes idle connections after {timeout} s"),
            )
            .meaning("an idle client has to connect again before its next lock"),
        );
    }
    findings
}
