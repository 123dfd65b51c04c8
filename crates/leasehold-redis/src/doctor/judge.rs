//! Judges the facts about servers: a pure function from facts to findings.

use std::time::Duration;

use leasehold_store::report::{Finding, Severity};
use leasehold_store::trial::Trial;
use leasehold_store::{ErrorKind, StoreError};

use super::facts::{Facts, Part, Vote};
use crate::errors;

mod promise;
mod rights;
mod server;

pub(super) use promise::{promise, promise_together};

/// What of these two is found to be unsafe ends a promise, and not the use of locks.
const EVICTION: &str = "eviction";
const CLOCK: &str = "clock";

/// All findings about one server, in the order in which one would look.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(error) = &facts.unreachable {
        let finding = of_server("reach", error, facts);
        findings.push(match facts.part {
            Part::Node => finding.meaning("its locks cannot be used until a replica is promoted"),
            Part::Alone | Part::Voter => finding,
        });
    } else {
        findings.push(server::version(facts));
        findings.extend(layout(facts).filter(|_| facts.part == Part::Alone));
        findings.extend(server::role(facts));
        findings.extend(facts.vote.map(|vote| votes(vote, facts.part)));
        findings.extend(facts.trial.iter().map(|trial| used(trial, facts)));
        findings.extend(rights::rights(facts));
        if let Some(trial) = &facts.trial {
            findings.extend(rights::pushes(trial).filter(|_| !facts.options.is_classic()));
            findings.extend(rights::listing(trial));
            findings.extend(rights::acknowledged(trial, facts));
        }
        if !facts.info.is_empty() {
            findings.push(server::eviction(facts));
            findings.extend(server::memory(facts));
            findings.push(server::persistence(facts));
        }
        findings.extend(server::disk(facts));
        findings.extend(server::replicas(facts));
        findings.extend(server::isolation(facts));
        findings.extend(facts.clock.map(server::clock));
        findings.extend(facts.latency.map(server::latency));
        findings.extend(server::connections(facts));
        findings.extend(rights::channels(facts).filter(|_| !facts.options.is_classic()));
    }
    for finding in &mut findings {
        finding.server = Some(facts.options.address.shown());
    }
    findings
}

/// An error, with the rights that are missing where the server names them.
fn of_error(check: &'static str, error: &StoreError) -> Finding {
    let finding = Finding::of_error(check, None, error);
    match errors::lacking(error.message()) {
        Some(lacking) => finding.remedied(lacking),
        None => finding,
    }
}

/// Why a server cannot be used. One voter of several is as if it were not there.
fn of_server(check: &'static str, error: &StoreError, facts: &Facts) -> Finding {
    let mut finding = of_error(check, error);
    if facts.part == Part::Voter {
        finding.severity = Severity::Warning;
        finding.consequence = "the other servers must form the quorum without it".to_owned();
    }
    finding
}

/// Whether one of these says that locks cannot be used: the others that are as bad
/// say that what is promised may end.
pub(super) fn is_unusable(findings: &[Finding]) -> bool {
    let is_of_promise = |it: &&Finding| matches!(it.check, EVICTION | CLOCK);
    let mut others = findings.iter().filter(|it| !is_of_promise(it));
    others.any(|it| it.severity >= Severity::Unsafe)
}

/// What all servers of a store are together.
/// Where the locks were not tried, some are new.
pub(super) fn together(facts: &[Facts], trial: Option<&Trial>, quorum: usize) -> Vec<Finding> {
    let nobody = Facts::default();
    let first = facts.first().unwrap_or(&nobody);
    let mut findings = vec![match trial {
        Some(trial) => used(trial, first),
        None => untried(facts, quorum),
    }];
    findings.extend(layout(first));
    if let Some(trial) = trial {
        let pushed = first.part == Part::Node && !first.options.is_classic();
        findings.extend(rights::pushes(trial).filter(|_| pushed));
        findings.extend(rights::listing(trial));
    }
    findings.extend(spread(facts));
    findings.extend(twins(facts));
    findings
}

/// Why no lock was taken; whether one could be.
fn untried(facts: &[Facts], quorum: usize) -> Finding {
    let votes = |one: &&Facts| one.vote == Some(Vote::Now);
    let (voting, all) = (facts.iter().filter(votes).count(), facts.len());
    if voting < quorum {
        let found = format!("{voting} of {all} servers vote, {quorum} are needed");
        return Finding::new(Severity::Unsafe, "vote", found)
            .meaning("no lock is granted until then")
            .remedied("if the servers are new, run leasehold init -S URL; otherwise wait");
    }
    Finding::new(Severity::Note, "scripts", "no lock was tried")
        .meaning("a trial would start the quarantine of a server that is new or was restarted")
}

/// How far the servers' clocks are apart; nothing of one alone.
fn spread(facts: &[Facts]) -> Option<Finding> {
    let clocks: Vec<_> = facts.iter().filter_map(|facts| facts.clock).collect();
    let _second = clocks.get(1)?;
    let ahead = || clocks.iter().map(|clock| clock.ahead);
    let apart = Duration::from_micros(ahead().max()?.abs_diff(ahead().min()?));
    let within = clocks.iter().map(|clock| clock.within).max()?;
    let found = format!("the servers' clocks differ by {}", server::millis(apart));
    Some(match apart <= server::CLOCK_TOLERANCE + within * 2 {
        true => Finding::new(Severity::Fine, CLOCK, found),
        false => Finding::new(Severity::Warning, CLOCK, found)
            .meaning("some servers expire leases earlier than their holders expect")
            .remedied("synchronise all clocks with a time service that slews and never steps them"),
    })
}

/// Two names of one server.
fn twins(facts: &[Facts]) -> Option<Finding> {
    let pair = facts.iter().enumerate().find_map(|(at, one)| {
        let run = one.info("run_id");
        let is_same = |other: &&Facts| !run.is_empty() && other.info("run_id") == run;
        Some([one, facts[..at].iter().find(is_same)?])
    });
    let [one, other] = pair?.map(|it| it.options.address.shown());
    let found = format!("{one} is the same server as {other}");
    let finding = Finding::new(Severity::Warning, "vote", found)
        .meaning("while it is down, both votes are missing")
        .remedied("name each server once, by one address");
    Some(finding)
}

/// Whether a voter votes, or a server that keeps all locks grants.
pub(super) fn votes(vote: Vote, part: Part) -> Finding {
    let alone = part != Part::Voter;
    let (check, does) = match alone {
        true => ("quarantine", "grants"),
        false => ("vote", "votes"),
    };
    let finding = |found: &str| Finding::new(Severity::Warning, check, found);
    let starts = |found: &str| {
        let then = format!("its quarantine starts with the next claim; after that it {does}");
        finding(found).meaning(then)
    };
    let finding = match (vote, alone) {
        (Vote::Now, _) => return Finding::new(Severity::Fine, check, format!("it {does}")),
        (Vote::After(left), _) => {
            let again = format!("it {does} again after {} s", left.as_secs() + 1);
            finding(&again).meaning(match alone {
                true => "until then holders keep their locks, and everybody else waits",
                false => "until then the other servers must form the quorum without it",
            })
        }
        (Vote::Restarted, _) => starts("it was restarted, and has received no claim since"),
        (Vote::Unmarked, _) => starts("it has no mark: it is new, or has lost its data"),
        (Vote::Foreign, true) => {
            let found = "it belongs to clients with other settings";
            return Finding::new(Severity::Unsafe, check, found)
                .meaning("it refuses clients with these settings")
                .remedied(
                    "use the same max_ttl and quarantine in all clients; leasehold init -S URL \
                     changes the server's",
                );
        }
        (Vote::Foreign, false) => {
            let found = "it belongs to another set of servers, or to clients with other settings";
            return finding(found)
                .meaning("it does not vote in this set")
                .remedied("leasehold init -S URL moves it to this set");
        }
    };
    finding.remedied(match vote {
        Vote::Unmarked => "if it is new, run leasehold init -S URL; never if it has lost its data",
        _ => "nothing: the quarantine ends by itself",
    })
}

/// What locks that other libraries share cannot do.
fn layout(facts: &Facts) -> Option<Finding> {
    let found = "classic: other libraries can share these locks";
    facts.options.is_classic().then(|| {
        Finding::new(Severity::Note, "layout", found)
            .meaning(
                "there are no fencing tokens, no order among waiters, and no notification of a \
                 free lock",
            )
            .remedied("leave out layout=classic once all clients use leasehold")
    })
}

/// What came of using a lock.
fn used(trial: &Trial, facts: &Facts) -> Finding {
    let (check, classic) = ("scripts", facts.options.is_classic());
    let Some((step, error)) = &trial.failed else {
        let found = match facts.part {
            Part::Voter => "a majority granted, renewed and released a lock",
            _ if classic => "a lock was acquired, renewed, released and inspected",
            _ => "a lock was acquired, renewed, handed to a waiter, inspected and broken",
        };
        return Finding::new(Severity::Fine, check, found);
    };
    let mut finding = of_error(check, error);
    finding.found = format!("cannot {step}: {error}");
    let refused = error.kind() == ErrorKind::Refused && error.to_string().contains("may not");
    // The server does not name the command, and the rule of the classic layout is in the error.
    if refused && !classic && errors::lacking(error.message()).is_none() {
        let user = facts.user.as_deref().unwrap_or("<name>");
        let rule = errors::acl(user, &facts.options.prefix);
        finding.remedy = Some(format!("this rule is enough: {rule}"));
    }
    finding
}

#[cfg(test)]
mod tests;
