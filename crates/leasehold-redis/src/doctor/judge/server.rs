//! What a server says of itself.

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
    (bounded && policy != "noeviction").then_some(policy)
}

pub(super) fn version(facts: &Facts) -> Finding {
    let (name, version) = facts.version();
    let found = if version.is_empty() {
        "the server does not tell its version".to_owned()
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
                .meaning("it keeps some of the keys only, and refuses the others")
                .remedied("use redis-cluster://"),
        );
    }
    (facts.info("role") == "slave").then(|| {
        Finding::new(Severity::Unsafe, "role", "it is a replica")
            .meaning("locks are granted by the primary only")
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
        .remedied("set maxmemory-policy to noeviction, or keep locks on a server of their own");
    }
    let bounded = facts.number("maxmemory").is_some_and(|bound| bound > 0);
    match (bounded, policy) {
        (true, _) => Finding::new(Severity::Fine, EVICTION, "noeviction"),
        (false, "noeviction" | "") => {
            Finding::new(Severity::Fine, EVICTION, "no bound on the memory")
        }
        (false, policy) => Finding::new(
            Severity::Note,
            EVICTION,
            format!("maxmemory-policy {policy}, and no bound on the memory"),
        )
        .meaning("nothing is evicted now; with a maxmemory, locks would be")
        .remedied("set maxmemory-policy to noeviction before anybody sets maxmemory"),
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
        .meaning("when it is full, no new claims are taken; renewals and releases still are")
        .remedied("raise maxmemory, or remove what the server need not keep"),
    )
}

pub(super) fn persistence(facts: &Facts) -> Finding {
    let check = "persistence";
    let votes = facts.part == Part::Voter && !facts.classic;
    if votes || facts.restart != Restart::Trust {
        let kept = facts.info("aof_enabled") == "1";
        let found = if kept {
            "append-only file"
        } else {
            "no append-only file"
        };
        let finding = Finding::new(
            if kept { Severity::Fine } else { Severity::Note },
            check,
            found,
        );
        return if kept {
            finding
        } else {
            finding.meaning(match facts.part {
                Part::Voter => {
                    "a restart takes its vote away for a quarantine, and exclusion holds"
                }
                _ => "after a restart nothing is granted for a quarantine, and exclusion holds",
            })
        };
    }
    let snapshots = facts.config("save").is_none_or(|save| !save.is_empty());
    match (facts.info("aof_enabled"), facts.config("appendfsync")) {
        ("1", Some("always")) => Finding::new(
            Severity::Fine,
            check,
            "append-only file, appendfsync always",
        ),
        ("1", fsync) => {
            let fsync = fsync.map_or(String::new(), |fsync| format!(", appendfsync {fsync}"));
            Finding::new(Severity::Note, check, format!("append-only file{fsync}"))
                .meaning(
                    "a crash of the machine can forget the grants of the last seconds, and another \
                     client may be granted the same lock; tokens go on rising",
                )
                .remedied("appendfsync always closes that; or fence what the lock protects")
        }
        _ if snapshots => Finding::new(Severity::Warning, check, "snapshots only")
            .meaning(
                "a restart forgets the locks since the last snapshot, and brings back those that \
                 were held then, until their TTL",
            )
            .remedied("set appendonly yes, or fence what the lock protects"),
        _ => Finding::new(Severity::Warning, check, "none")
            .meaning("a restart forgets all locks, and another client may be granted at once")
            .remedied("set appendonly yes, or fence what the lock protects"),
    }
}

/// What keeps the server from writing what it should.
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
                .meaning("it may refuse all writes, and with them all locks")
                .remedied("look at the server's log and at the space on its disk")
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
            "one that takes over at the same address counts as a restart, with a quarantine",
        )];
    }
    for replica in &replicas {
        let name = format!("{}:{}", replica.host, replica.port);
        let found = if !replica.online {
            format!("replica {name} is not in step yet")
        } else if replica.silent_for >= SILENT {
            format!(
                "nothing was heard of replica {name} for {} s",
                replica.silent_for
            )
        } else {
            continue;
        };
        findings.push(
            Finding::new(Severity::Warning, "replicas", found)
                .meaning("if it takes over, it has forgotten recent grants")
                .remedied("look at its log, and at the network between the two"),
        );
    }
    let found = format!("{} connected", replicas.len());
    findings.push(
        Finding::new(Severity::Note, "replicas", found).meaning(match facts.restart {
            Restart::Trust => {
                "a fail-over can forget grants that had not reached the replica that takes over; \
                 tokens go on rising"
            }
            Restart::Quarantine(_) => "a fail-over is followed by a quarantine",
        }),
    );
    findings
}

/// Whether a primary that is cut off goes on granting.
pub(super) fn isolation(facts: &Facts) -> Option<Finding> {
    if let Restart::Quarantine(quarantine) = &facts.restart {
        return restart::isolation(facts, quarantine);
    }
    let open = facts.config("min-replicas-to-write") == Some("0");
    if !open || facts.part == Part::Voter || facts.replicas().is_empty() {
        return None;
    }
    Some(
        Finding::new(Severity::Warning, "isolation", "min-replicas-to-write 0")
            .meaning(
                "a primary that is cut off from its replicas goes on granting while another has \
                 taken its place",
            )
            .remedied(
                "set min-replicas-to-write to the number of replicas that may take over, and \
                 min-replicas-max-lag to a few seconds",
            ),
    )
}

pub(super) fn clock(facts: &Facts) -> Option<Finding> {
    let clock = facts.clock?;
    let check = CLOCK;
    if !clock.advances {
        return Some(
            Finding::new(Severity::Unsafe, check, "the server's clock stands still")
                .meaning("leases do not end, and a dead holder keeps its lock")
                .remedied("restart the server, and look at its clock source"),
        );
    }
    let ahead = Duration::from_micros(clock.ahead.unsigned_abs());
    let way = if clock.ahead < 0 {
        "behind"
    } else {
        "ahead of"
    };
    let within = millis(clock.within);
    let found = format!("{} {way} ours (within {within})", millis(ahead));
    if ahead <= CLOCK_TOLERANCE + clock.within {
        return Some(Finding::new(Severity::Fine, check, found));
    }
    Some(
        Finding::new(Severity::Warning, check, found)
            .meaning(
                "one of the two is not kept by a time service; a step that sets the server's right \
                 ends leases early, or keeps them longer",
            )
            .remedied("let a time service slew both clocks, and never step them"),
    )
}

pub(super) fn millis(time: Duration) -> String {
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
            .meaning("a lease is valid from when it was asked for: of a short one little is left")
            .remedied(
                "choose TTLs of a hundred such round trips or more; see the server's SLOWLOG",
            ),
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
                format!("idle ones are closed after {timeout} s"),
            )
            .meaning("an idle client has to connect again before its next lock"),
        );
    }
    findings
}
