//! The history of a key, given to the core's queue.
//!
//! Fair claims are granted in the order of their arrival, and their tokens say in which
//! order they were granted. So of all the orders in which the store may have carried out
//! what the clients asked for, one is left to be tried: each claim, by its token, as soon
//! as it may have arrived, and each release as soon as it was sent. If that makes any
//! grant later than its holder had it, no other order does better, and the history is not
//! one of the queue. This is the search of Wing and Gong ("Testing and Verifying
//! Concurrent Objects", 1993), which here needs no backtracking.
//!
//! The commands are then applied to [`leasehold::core::Queue`] itself, in that order,
//! which has to grant the same claims in the same order.
//!
//! Left out are claims that lapsed, lost their place, or had no grant. They may have stood
//! in the way, so that grants came later than they do here, never sooner.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::core::{
    Arrival, Claim, ClaimId, Command, Event, Inbox, Queue, Release, Reply, StoreTime,
};

use super::{Finding, Property, by_key, name};
use crate::faults::history::{Grant, Micros, Op};

/// How much was replayed, and what the queue would not have done.
#[derive(Debug, Default)]
pub struct Replayed {
    /// How many leases.
    pub leases: usize,
    /// What the queue would not have done.
    pub findings: Vec<Finding>,
}

/// Replays each key that only fair claims were made for.
#[must_use]
pub fn replay(ops: &[Op]) -> Replayed {
    let mut all = Replayed::default();
    for (key, ops) in by_key(ops) {
        if ops.iter().any(|op| !op.fair) {
            continue;
        }
        let leases = leases(&ops);
        all.leases += leases.len();
        let found = plan(&leases).and_then(|steps| apply(&leases, steps));
        if let Err((at, what)) = found {
            let finding = Finding::new(Property::Queue, at, key, what);
            all.findings.push(finding);
        }
    }
    all
}

/// A lease that ended with its release.
struct Lease<'a> {
    op: &'a Op,
    grant: &'a Grant,
    releasing: Micros,
}

fn leases<'a>(ops: &[&'a Op]) -> Vec<Lease<'a>> {
    let lease = |op: &'a Op| {
        let grant = op.grant.as_ref()?;
        let sound = grant.lost.is_none() && grant.rejoined == 0 && grant.token.is_some();
        // Its time was not over before its release was sent.
        let releasing = grant.releasing.filter(|at| sound && grant.until == *at)?;
        Some(Lease {
            op,
            grant,
            releasing,
        })
    };
    let mut leases: Vec<_> = ops.iter().filter_map(|op| lease(op)).collect();
    leases.sort_by_key(|lease| lease.grant.token);
    leases
}

/// A command of the lease at that place, and when it was carried out at the earliest.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StepAt {
    at: Micros,
    /// A release before a claim at the same time: that is sooner for all.
    claims: bool,
    place: usize,
}

/// The earliest times at which everything can have happened, or what cannot have.
fn plan(leases: &[Lease<'_>]) -> Result<Vec<StepAt>, (Micros, String)> {
    let mut steps = Vec::new();
    let (mut arrival, mut granted) = (0, 0);
    // Who holds, by when it ends.
    let mut held: Vec<(Micros, u64)> = Vec::new();
    for (place, lease) in leases.iter().enumerate() {
        let Lease { op, grant, .. } = lease;
        arrival = op.invoked.max(arrival);
        let latest = op.queued.unwrap_or(grant.at).min(grant.at);
        if arrival > latest {
            let what = "must have stood in the queue before one with a lower token was asked for";
            return Err((grant.at, format!("{} {what}", name(op))));
        }
        granted = arrival.max(granted);
        held.retain(|(until, _)| *until > granted);
        held.sort_unstable();
        let mut used: u64 = held.iter().map(|(_, weight)| weight).sum();
        while used + op.mode.weight() > op.mode.capacity().units() {
            let (until, weight) = held.remove(0);
            (granted, used) = (until.max(granted), used - weight);
        }
        if granted > grant.at {
            let early = granted - grant.at;
            let what = format!("{} had it {early} µs before there was room", name(op));
            return Err((grant.at, what));
        }
        let release = lease.releasing.max(granted);
        held.push((release, op.mode.weight()));
        let (at, claims) = (arrival, true);
        steps.push(StepAt { at, claims, place });
        let (at, claims) = (release, false);
        steps.push(StepAt { at, claims, place });
    }
    steps.sort_unstable();
    Ok(steps)
}

/// Far from 0, as a store's clock is.
const EPOCH: u64 = 1_000_000_000_000_000;

/// Longer than any schedule, so that nothing lapses: what did is left out.
const LONG: Duration = Duration::from_secs(24 * 3600);

fn apply(leases: &[Lease<'_>], steps: Vec<StepAt>) -> Result<(), (Micros, String)> {
    let inbox = Inbox::new("replay").ok();
    let mut queue = Queue::default();
    let mut places: HashMap<Arrival, usize> = HashMap::new();
    let mut order = Vec::new();
    for StepAt { at, claims, place } in steps {
        let id = ClaimId::from_random(place as u128 + 1);
        let command = if claims {
            Command::Claim(Claim {
                inbox: inbox.clone(),
                waiter_ttl: LONG,
                ..Claim::new(id, leases[place].op.mode, LONG)
            })
        } else {
            Command::Release(Release {
                id,
                hand_off: true,
                settled: true,
                unused: false,
            })
        };
        let outcome = queue.apply(&command, StoreTime(EPOCH + at));
        match outcome.reply {
            Reply::Standing(standing) => {
                places.insert(standing.arrival, place);
                order.extend(standing.token.map(|_| place));
            }
            Reply::Released { held: true } => {}
            other => {
                let op = name(leases[place].op);
                return Err((at, format!("the core answers {other:?} to {op}")));
            }
        }
        let granted = outcome.events.iter().filter_map(|event| match event {
            Event::Granted { arrival, .. } => places.get(arrival).copied(),
            _ => None,
        });
        order.extend(granted);
    }
    let wrong = order.iter().enumerate().find(|(due, place)| due != *place);
    wrong.map_or(Ok(()), |(due, place)| {
        let (granted, due) = (&leases[*place], &leases[due]);
        let (early, late) = (name(granted.op), name(due.op));
        let what = format!("the core grants {early} before {late}");
        Err((granted.grant.at, what))
    })
}

#[cfg(test)]
mod tests {
    use leasehold::Mode;

    use super::super::examples::{held_as, lease, queued, wish};
    use super::*;

    fn found(ops: &[Op]) -> Vec<String> {
        replay(ops).findings.into_iter().map(|it| it.what).collect()
    }

    #[test]
    fn a_queue_that_serves_in_order_is_one() {
        let ops = [
            lease(1, 0, 2, 10, 5),
            queued(4, lease(2, 1, 11, 20, 6)),
            queued(6, lease(3, 5, 21, 22, 7)),
            wish(4, 3),
            lease(1, 30, 31, 32, 8),
        ];
        assert_eq!(found(&ops), Vec::<String>::new());
        assert_eq!(replay(&ops).leases, 4);
    }

    #[test]
    fn a_grant_before_the_release_was_sent_is_found() {
        let found = found(&[lease(1, 0, 2, 10, 5), lease(2, 1, 9, 20, 6)]);
        assert!(found[0].contains("1 µs before there was room"), "{found:?}");
    }

    #[test]
    fn who_stood_there_first_and_was_granted_last_is_found() {
        let found = found(&[lease(2, 5, 7, 9, 5), queued(4, lease(1, 1, 10, 20, 6))]);
        assert!(found[0].contains("client 1"), "{found:?}");
    }

    #[test]
    fn a_reader_that_passed_a_waiting_writer_is_found() {
        let reader = |client, invoked, at, until, token| {
            held_as(Mode::SHARED, lease(client, invoked, at, until, token))
        };
        let ops = |late| {
            [
                reader(1, 0, 1, 10, 1),
                queued(4, lease(2, 2, 12, 14, if late { 3 } else { 2 })),
                reader(
                    3,
                    5,
                    if late { 6 } else { 15 },
                    16,
                    if late { 2 } else { 3 },
                ),
            ]
        };
        assert_eq!(found(&ops(false)), Vec::<String>::new());
        assert_eq!(found(&ops(true)).len(), 1);
    }

    #[test]
    fn permits_are_granted_when_there_is_room() {
        let take = |take, op| held_as(Mode::permits(3, take), op);
        let ops = |second| {
            [
                take(2, lease(1, 0, 1, 10, 1)),
                take(second, lease(2, 2, 3, 20, 2)),
            ]
        };
        assert_eq!(found(&ops(1)), Vec::<String>::new());
        assert_eq!(found(&ops(2)).len(), 1);
    }

    #[test]
    fn keys_with_unfair_claims_and_leases_that_lapsed_are_left_out() {
        let mut unfair = lease(2, 1, 9, 20, 6);
        unfair.fair = false;
        assert_eq!(replay(&[lease(1, 0, 2, 10, 5), unfair]).leases, 0);
        let mut lapsed = lease(1, 0, 2, 10, 5);
        lapsed.grant.as_mut().unwrap().releasing = None;
        assert_eq!(replay(&[lapsed, lease(2, 1, 9, 20, 6)]).leases, 1);
        // Its holder stood still, and released it when another had it.
        let mut late = lease(1, 0, 2, 8, 5);
        late.grant.as_mut().unwrap().releasing = Some(50);
        let after = replay(&[late, lease(2, 1, 9, 20, 6)]);
        assert_eq!((after.leases, after.findings), (1, vec![]));
    }
}
