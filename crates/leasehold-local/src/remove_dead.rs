//! Removes the claims of dead clients that are in the way of a command.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::{Claim, Command, Event, Inbox, Mode, Now, Outcome, Queue, Reply, StoreTime};
use leasehold_store::StoreError;

use super::Inner;

/// How many of those who wait are looked at, beside those who hold. An exclusive claim looks at none of
/// them: while a holder lives, the claim waits anyway. The step that grants to one who is dead looks at
/// it, and the looks of waiters remove the others.
const WAITERS_LOOKED_AT: usize = 8;

/// How many lives one round looks at. Where a semaphore has more holders, the
/// looks take turns.
const LIVES_PER_ROUND: usize = 64;

/// How long one share of holders is looked at before the next has its turn.
const TURN: Duration = Duration::from_millis(100);

/// How often one step starts again: removing some may grant to others who are dead.
const ROUNDS: usize = 8;

/// Whether somebody who matters to this queue is dead.
pub(super) fn are_in(store: &Inner, queue: &Queue) -> bool {
    let clients = clients_that_matter(queue, WAITERS_LOOKED_AT);
    clients.iter().any(|inbox| store.session.sees_dead(inbox))
}

/// Applies the command, after it has removed the dead that would be in its way,
/// or would be told; says who they were. Without a command it only removes.
///
/// Who they are shows when the command is applied; then it starts `again`, with the queue as it
/// was. If they were removed afterwards, a claim could have been granted to one of them,
/// and its minimum hold would keep a key that nobody ever used.
pub(super) fn apply(
    queue: &mut Queue,
    command: Option<&Command>,
    now: Now,
    mut is_dead: impl FnMut(&Inbox) -> bool,
    mut again: impl FnMut() -> Result<Queue, StoreError>,
) -> Result<(Outcome, BTreeSet<Inbox>), StoreError> {
    let mut dead = BTreeSet::new();
    let exclusive = |claim: &Claim| claim.mode == Mode::EXCLUSIVE;
    let waits_for_all = matches!(command, Some(Command::Claim(claim)) if exclusive(claim));
    for _ in 0..ROUNDS {
        let outcome = apply_without(queue, &dead, command, now);
        // Who has to do something now. One that only hears what it has lost needs no removal: that
        // would come before the command, and make it take the key from somebody else.
        let acts = |event: &&Event| !matches!(event, Event::Revoked { .. } | Event::Adopted { .. });
        let told = outcome.events.iter().filter(acts);
        let mut suspects: BTreeSet<_> = told.map(|event| event.inbox().clone()).collect();
        // Whether the dead may be in the way of whoever asked.
        let is_unserved = match &outcome.reply {
            Reply::Standing(standing) => standing.token.is_none(),
            reply => matches!(reply, Reply::Busy { .. } | Reply::Mismatch { .. }),
        };
        if command.is_none() || is_unserved || !dead.is_empty() {
            let waiters = WAITERS_LOOKED_AT * usize::from(!waits_for_all || !dead.is_empty());
            suspects.extend(share(clients_that_matter(queue, waiters), now.clock));
        }
        suspects.retain(|inbox| !dead.contains(inbox) && is_dead(inbox));
        if suspects.is_empty() {
            return Ok((outcome, dead));
        }
        dead.append(&mut suspects);
        *queue = again()?;
    }
    // Whoever is left is found by those who ask next.
    Ok((apply_without(queue, &dead, command, now), dead))
}

/// Applies the command to what is left when those are removed.
pub(super) fn apply_without(
    queue: &mut Queue,
    dead: &BTreeSet<Inbox>,
    command: Option<&Command>,
    now: impl Into<Now>,
) -> Outcome {
    let now = now.into();
    let removed = (!dead.is_empty()).then(|| {
        let inboxes = dead.iter().cloned().collect();
        queue.apply(&Command::Bury { inboxes }, now)
    });
    let applied = command.map(|command| queue.apply(command, now));
    let mut outcome = match (removed, applied) {
        (Some(removed), Some(mut applied)) => {
            let (mut events, mut audit) = (removed.events, removed.audit);
            add(&mut events, std::mem::take(&mut applied.events));
            audit.append(&mut applied.audit);
            Outcome {
                events,
                audit,
                ..applied
            }
        }
        (Some(one), None) | (None, Some(one)) => one,
        // No step was taken, and nobody asks when.
        (None, None) => Outcome {
            reply: Reply::Done,
            at: now.clock,
            events: Vec::new(),
            audit: Vec::new(),
        },
    };
    if let Reply::Standing(standing) = outcome.reply {
        // It learns from the answer where it stands.
        let learned = |event: &Event| {
            matches!(event, Event::Granted { .. } | Event::Next { .. })
                && event.arrival() == Some(standing.arrival)
        };
        outcome.events.retain(|event| !learned(event));
    }
    outcome
}

/// Those who matter to whoever waits for this queue.
fn clients_that_matter(queue: &Queue, waiters: usize) -> BTreeSet<Inbox> {
    queue.inboxes(waiters).cloned().collect()
}

/// As many as one round looks at; others at another time.
fn share(lives: BTreeSet<Inbox>, clock: StoreTime) -> impl Iterator<Item = Inbox> {
    let shares = lives.len().div_ceil(LIVES_PER_ROUND).max(1) as u64;
    let turn = clock.0 / (TURN.as_micros() as u64) % shares;
    let skipped = usize::try_from(turn).unwrap_or(0) * LIVES_PER_ROUND;
    lives.into_iter().skip(skipped).take(LIVES_PER_ROUND)
}

/// Adds later events: only the latest word on who is next counts.
fn add(events: &mut Vec<Event>, later: Vec<Event>) {
    for event in later {
        events.retain(|old| match (old, &event) {
            (Event::Next { .. }, Event::Next { .. }) => false,
            (Event::Next { arrival: of, .. }, Event::Granted { arrival, .. }) => of != arrival,
            _ => true,
        });
        events.push(event);
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Adopt, ClientInfo, OwnerSecret, Renew, Rotate};

    use super::*;
    use crate::tests::{claim_for, id, release};

    const START: StoreTime = StoreTime(1_000_000);
    const LEASE: Duration = Duration::from_secs(30);
    const HOLD: Duration = Duration::from_secs(5);

    fn inbox(name: &str) -> Inbox {
        Inbox::new(name).unwrap()
    }

    fn claim(number: u128, by: &str) -> Claim {
        Claim {
            inbox: Some(inbox(by)),
            ..claim_for(number, LEASE)
        }
    }

    /// A step while all whose names begin with `dead` are.
    fn step(queue: &mut Queue, command: &Command) -> Outcome {
        let is_dead = |inbox: &Inbox| inbox.as_str().starts_with("dead");
        let before = queue.clone();
        let again = || Ok(before.clone());
        let (outcome, dead) = apply(queue, Some(command), START.into(), is_dead, again).unwrap();
        let mut replayed = before.clone();
        apply_without(&mut replayed, &dead, Some(command), START);
        assert_eq!(
            replayed, *queue,
            "who takes the same step comes to the same"
        );
        outcome
    }

    /// A queue in which those stand in that order, all alive when they came.
    fn line(claims: impl IntoIterator<Item = Claim>) -> Queue {
        let mut queue = Queue::default();
        for claim in claims {
            queue.apply(&Command::Claim(claim), START);
        }
        queue
    }

    /// Who hears of it, of those who are told what they get.
    fn told(outcome: &Outcome) -> Vec<&str> {
        let inboxes = outcome.events.iter().map(Event::inbox);
        inboxes.map(Inbox::as_str).collect()
    }

    #[test]
    fn dead_waiters_are_passed_and_keep_nothing() {
        let dead = (2..20).map(|number| Claim {
            min_hold: HOLD,
            ..claim(number, &format!("dead{number}"))
        });
        let mut queue = line(
            [claim(1, "a")]
                .into_iter()
                .chain(dead)
                .chain([claim(20, "b")]),
        );
        let outcome = step(&mut queue, &release(1));
        assert_eq!(outcome.reply, Reply::Released { held: true });
        assert_eq!(told(&outcome), ["b"]);
        let look = queue.look(START);
        assert_eq!((look.holders.len(), look.waiters.len()), (1, 0));
        assert!(!look.holders[0].claim.kept);
    }

    #[test]
    fn an_exclusive_claim_looks_at_those_who_wait_only_if_the_holder_is_dead() {
        for (holder, left) in [("a", 2), ("dead", 0)] {
            let mut queue = line([claim(1, holder), claim(2, "dead2")]);
            step(&mut queue, &Command::Claim(claim(3, "b")));
            assert_eq!(queue.look(START).waiters.len(), left, "behind {holder}");
        }
        // A reader may be behind a writer that waits.
        let shared = |claim| Claim {
            mode: Mode::SHARED,
            ..claim
        };
        let mut queue = line([shared(claim(1, "a")), claim(2, "dead")]);
        let outcome = step(&mut queue, &Command::Claim(shared(claim(3, "b"))));
        assert!(outcome.reply.is_grant());
    }

    #[test]
    fn a_dead_holder_keeps_its_minimum_hold() {
        let kept = Claim {
            min_hold: HOLD,
            ..claim(1, "dead")
        };
        let mut queue = line([kept]);
        let outcome = step(&mut queue, &Command::Claim(claim(2, "b")));
        let Reply::Standing(standing) = outcome.reply else {
            panic!("{outcome:?}")
        };
        assert_eq!(standing.blocked_until, Some(START + HOLD));
        let holder = &queue.look(START).holders[0];
        assert!(holder.claim.kept);
        assert_eq!(clients_that_matter(&queue, 8), BTreeSet::from([inbox("b")]));
        let outcome = queue.apply(&Command::Claim(claim(2, "b")), START + HOLD);
        assert!(outcome.reply.is_grant());
    }

    /// Whichever of an owner's claims carried the weight.
    #[test]
    fn a_dead_nested_claim_leaves_the_key_to_the_others() {
        for dies_first in [true, false] {
            let (one, two) = if dies_first {
                ("dead", "a")
            } else {
                ("a", "dead")
            };
            let nested = |claim| Claim {
                secret: Some(OwnerSecret::from_random(7)),
                ..claim
            };
            let mut queue = line([nested(claim(1, one)), nested(claim(2, two))]);
            let last = queue.look(START).last_token;
            let waits = step(&mut queue, &Command::Claim(claim(3, "b")));
            assert!(!waits.reply.is_grant());
            let holders = queue.look(START).holders;
            assert_eq!((holders.len(), holders[0].token), (1, last));
            let left = step(&mut queue, &release(if dies_first { 2 } else { 1 }));
            assert_eq!(told(&left), ["b"]);
        }
    }

    #[test]
    fn dead_watchers_are_forgotten_and_the_living_told() {
        let mut queue = Queue::default();
        for number in 0..40 {
            let watch = |inbox| Command::Watch { inbox, ttl: LEASE };
            queue.apply(&watch(inbox(&format!("dead{number}"))), START);
            queue.apply(&watch(inbox("a")), START);
        }
        let outcome = step(&mut queue, &Command::Claim(claim(1, "b")));
        assert_eq!(told(&outcome), ["a"]);
        assert!(!format!("{queue:?}").contains("Inbox(dead"));
    }

    #[test]
    fn a_break_takes_the_key_from_the_dead_and_not_from_the_next() {
        let mut queue = line([claim(1, "dead"), claim(2, "b")]);
        let (by, only) = (ClientInfo::unknown(), None);
        let outcome = step(&mut queue, &Command::Break { by, only });
        assert!(matches!(outcome.reply, Reply::Broken { holders: 1, .. }));
        let holders = queue.look(START).holders;
        assert_eq!(holders.len(), 1);
        assert!(told(&outcome).contains(&"b"));
    }

    #[test]
    fn the_former_client_of_an_adopted_claim_is_told() {
        let mut queue = line([claim(1, "a"), claim(2, "a")]);
        for number in [1, 2] {
            let adopt = Adopt {
                inbox: Some(inbox("b")),
                owner: ClientInfo::default(),
            };
            let rotate = Rotate {
                to: id(10 + number),
                version: 0,
                adopt: Some(adopt),
            };
            let renew = Renew {
                rotate: Some(rotate),
                ..Renew::new(id(number), LEASE)
            };
            let outcome = step(&mut queue, &Command::Renew(renew));
            assert!(
                matches!(&outcome.events[..], [Event::Adopted { inbox, .. }] if inbox.as_str() == "a"),
                "{outcome:?}"
            );
        }
    }
}
