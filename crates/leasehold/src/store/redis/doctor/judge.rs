//! What the facts mean for locks. Pure: facts in, findings out.

use std::time::Duration;

use super::facts::{Facts, Part, Trial, Vote};
use super::restart;
use crate::error::ErrorKind;
use crate::store::redis::{Restart, refusal};
use crate::store::report::{Finding, Severity};

mod rights;

/// A replica of which nothing was heard for so many seconds is behind.
const SILENT: u64 = 10;

/// Clocks that differ by more are not kept by a time service.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// A slower round trip leaves little of a short lease.
const SLOW: Duration = Duration::from_millis(100);

/// What is promised where locks cannot be used.
pub(super) const NOTHING: &str = "Nothing: locks cannot be used here.";

/// What is promised on a cluster.
pub(super) const CLUSTER: &str = "Exclusion while a lease is valid, until a primary loses data or a replica takes over, as long \
     as the nodes' clocks agree and are not stepped forward. Fencing: tokens rise over all of \
     that, unless a new node's clock is behind by more than the take-over took.";

/// What is promised on independent servers.
pub(super) const REDLOCK: &str = "Exclusion while a lease is valid, also when servers restart without their data, as long as \
     the servers' clocks are not stepped and the quorum tolerates those that misbehave. Fencing: \
     tokens rise while the servers that two quorums share keep their data, or the clients' clocks \
     differ by less than max_ttl. There is no order among those who wait.";

/// What is promised where other libraries share the locks, on one server or node.
pub(super) const CLASSIC: &str = "Exclusion among all libraries that share the locks, while a lease is valid, until a server \
     loses data or a replica takes over, as long as its clock is not stepped forward. No fencing: \
     there are no tokens. No order among those who wait.";

/// The same by a majority of servers.
pub(super) const CLASSIC_REDLOCK: &str = "Exclusion among all libraries that share the locks, while a lease is valid, until a server \
     restarts without its data, as long as the servers' clocks are not stepped. No fencing: there \
     are no tokens. No order among those who wait.";

/// All findings about one server, in the order in which one would look.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(error) = &facts.unreachable {
        findings.push(match facts.part {
            Part::Alone => Finding::of_error("reach", None, error),
            Part::Node => Finding::of_error("reach", None, error)
                .meaning("the locks that it keeps cannot be used until a replica takes over"),
            Part::Voter => Finding {
                severity: Severity::Warning,
                ..Finding::of_error("reach", None, error)
            }
            .meaning("the other servers have to agree without it"),
        });
    } else {
        findings.push(version(facts));
        findings.extend(layout(facts).filter(|_| facts.part == Part::Alone));
        findings.extend(role(facts));
        findings.extend(facts.vote.map(|vote| match facts.restart {
            Restart::Trust => votes(vote),
            Restart::Quarantine(_) => restart::grants(vote),
        }));
        findings.extend(facts.trial.iter().map(|trial| used(trial, facts)));
        findings.extend(rights::rights(facts));
        if let Some(trial) = &facts.trial {
            findings.extend(rights::pushes(trial).filter(|_| !facts.classic));
            findings.extend(rights::listing(trial));
            findings.extend(rights::acknowledged(trial, facts));
        }
        if !facts.info.is_empty() {
            findings.push(eviction(facts));
            findings.extend(memory(facts));
            findings.push(persistence(facts));
        }
        findings.extend(disk(facts));
        findings.extend(replicas(facts));
        findings.extend(isolation(facts));
        findings.extend(clock(facts));
        findings.extend(latency(facts));
        findings.extend(connections(facts));
    }
    for finding in &mut findings {
        finding.server = Some(facts.server.clone());
    }
    findings
}

/// What is promised on such a server, if nothing above speaks against it.
pub(super) fn promise(facts: &Facts) -> String {
    if facts.unreachable.is_some() {
        return "Nothing: the server cannot be used.".to_owned();
    }
    if facts.classic {
        return CLASSIC.to_owned();
    }
    if facts.restart != Restart::Trust {
        return restart::PROMISE.to_owned();
    }
    let exclusion = match (is_synced_always(facts), facts.replicas().is_empty()) {
        (true, true) => "also over a restart of the server",
        (false, true) => "until the server loses data (a restart, FLUSHALL)",
        (_, false) => "until the server loses data or a replica takes over",
    };
    format!(
        "Exclusion while a lease is valid, {exclusion}, as long as the server's clock is not \
         stepped forward. Fencing: tokens rise over all of that, as long as its clock does not \
         go back further than the loss."
    )
}

/// What all servers of a store are together.
pub(super) fn together(facts: &[Facts], trial: &Trial) -> Vec<Finding> {
    let nobody = Facts::default();
    let first = facts.first().unwrap_or(&nobody);
    let mut findings = vec![used(trial, first)];
    findings.extend(layout(first));
    let pushed = first.part == Part::Node && !first.classic;
    findings.extend(rights::pushes(trial).filter(|_| pushed));
    findings.extend(rights::listing(trial));
    findings.extend(spread(facts));
    findings
}

/// How far the servers' clocks are apart.
fn spread(facts: &[Facts]) -> Option<Finding> {
    let clocks: Vec<_> = facts.iter().filter_map(|facts| facts.clock).collect();
    let ahead = || clocks.iter().map(|clock| clock.ahead);
    let apart = Duration::from_micros(ahead().max()?.abs_diff(ahead().min()?));
    let within = clocks.iter().map(|clock| clock.within).max()?;
    let found = format!("the servers' are {} apart", millis(apart));
    if apart <= CLOCK_TOLERANCE + within * 2 {
        return Some(Finding::new(Severity::Fine, "clock", found));
    }
    Some(
        Finding::new(Severity::Warning, "clock", found)
            .meaning("leases end sooner at some servers than their holders know")
            .remedied("let a time service slew all clocks, and never step them"),
    )
}

/// Whether a voter votes.
fn votes(vote: Vote) -> Finding {
    let check = "vote";
    let finding = |found: String| Finding::new(Severity::Warning, check, found);
    match vote {
        Vote::Now => Finding::new(Severity::Fine, check, "it votes"),
        Vote::After(left) => finding(format!("it votes again after {} s", left.as_secs() + 1))
            .meaning("until then the other servers have to agree without it")
            .remedied("nothing: it ends by itself"),
        Vote::Restarted => finding("it was restarted, and has not been asked since".to_owned())
            .meaning("it votes again a quarantine after the next claim")
            .remedied("nothing: it ends by itself"),
        Vote::Foreign => finding("it belongs to another set".to_owned())
            .meaning("it gives no votes here")
            .remedied("leasehold init -S URL moves it to this set"),
        Vote::Unmarked => finding("it has never been used in a set".to_owned())
            .meaning("it votes only a quarantine after the first claim")
            .remedied("if it is new, say so: leasehold init -S URL"),
    }
}

/// What locks that other libraries share cannot do.
fn layout(facts: &Facts) -> Option<Finding> {
    let found = "classic: other libraries can share these locks";
    facts.classic.then(|| {
        Finding::new(Severity::Note, "layout", found)
            .meaning(
                "there are no fencing tokens, so a holder that was paused cannot be fenced; no \
                 order among those who wait; nobody is told when a lock is free",
            )
            .remedied("leave out layout=classic once all clients are leasehold")
    })
}

fn is_synced_always(facts: &Facts) -> bool {
    facts.info("aof_enabled") == "1" && facts.config("appendfsync") == Some("always")
}

fn version(facts: &Facts) -> Finding {
    let (name, version) = facts.version();
    let found = if version.is_empty() {
        "the server does not tell its version".to_owned()
    } else {
        format!("{name} {version}")
    };
    Finding::new(Severity::Fine, "version", found)
}

fn role(facts: &Facts) -> Option<Finding> {
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

/// What came of using a lock.
fn used(trial: &Trial, facts: &Facts) -> Finding {
    let check = "scripts";
    let Some((step, error)) = &trial.failed else {
        let found = match facts.part {
            Part::Voter => "a lock was taken, renewed and released by a majority",
            _ if facts.classic => "a lock was taken, renewed, released and looked at",
            _ => "a lock was taken, renewed, handed on, looked at and broken",
        };
        return Finding::new(Severity::Fine, check, found);
    };
    let mut finding = Finding::of_error(check, None, error);
    finding.found = format!("cannot {step}: {error}");
    let refused = error.kind() == ErrorKind::Refused && error.to_string().contains("may not");
    // The error names the rule of the classic layout itself.
    if refused && !facts.classic {
        let user = facts.user.as_deref().unwrap_or("<name>");
        let rule = refusal::acl(user, &facts.prefix);
        finding.remedy = Some(format!("this rule is enough: {rule}"));
    }
    finding
}

fn eviction(facts: &Facts) -> Finding {
    let policy = facts.info("maxmemory_policy");
    let bounded = facts.number("maxmemory").is_some_and(|bound| bound > 0);
    match (bounded, policy) {
        (true, "noeviction") => Finding::new(Severity::Fine, "eviction", "noeviction"),
        (true, policy) => Finding::new(
            Severity::Unsafe,
            "eviction",
            format!("maxmemory-policy {policy}"),
        )
        .meaning("when its memory is full, the server may evict locks and grant them twice")
        .remedied("set maxmemory-policy to noeviction, or keep locks on a server of their own"),
        (false, "noeviction" | "") => {
            Finding::new(Severity::Fine, "eviction", "no bound on the memory")
        }
        (false, policy) => Finding::new(
            Severity::Note,
            "eviction",
            format!("maxmemory-policy {policy}, and no bound on the memory"),
        )
        .meaning("nothing is evicted now; with a maxmemory, locks would be")
        .remedied("set maxmemory-policy to noeviction before anybody sets maxmemory"),
    }
}

fn memory(facts: &Facts) -> Option<Finding> {
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

fn persistence(facts: &Facts) -> Finding {
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
fn disk(facts: &Facts) -> Vec<Finding> {
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

fn replicas(facts: &Facts) -> Vec<Finding> {
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
fn isolation(facts: &Facts) -> Option<Finding> {
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

fn clock(facts: &Facts) -> Option<Finding> {
    let clock = facts.clock?;
    let check = "clock";
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

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn latency(facts: &Facts) -> Option<Finding> {
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
fn connections(facts: &Facts) -> Vec<Finding> {
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

#[cfg(test)]
mod tests;
