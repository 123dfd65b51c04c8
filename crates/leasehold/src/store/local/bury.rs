//! A command, and the burials that come before it is answered.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::{Command, Event, Inbox, Outcome, Queue, Reply, StoreTime};

use super::Inner;

/// How many of those who wait are looked at, beside those who hold.
const WAITERS_LOOKED_AT: usize = 8;

/// How many lives one round looks at. Where a semaphore has more holders, the
/// looks take turns.
const LIVES_PER_ROUND: usize = 64;

/// How long one share of holders is looked at before the next has its turn.
const TURN: Duration = Duration::from_millis(100);

/// How often one step starts again: burying some may grant to others who are dead.
const ROUNDS: usize = 8;

/// Whether somebody who matters to this queue is dead.
pub(super) fn has_dead(store: &Inner, queue: &Queue) -> bool {
    lives(queue)
        .iter()
        .any(|inbox| store.session.sees_dead(inbox))
}

/// Applies the command, after it has buried the dead that would be in its way,
/// or would be told. Without a command it only buries.
///
/// Who they are shows when the command is applied; then it starts again. If
/// they were buried afterwards, a claim could have been granted to one of them,
/// and its minimum hold would keep a key that nobody ever used.
pub(super) fn apply(
    queue: &mut Queue,
    command: Option<&Command>,
    clock: StoreTime,
    mut is_dead: impl FnMut(&Inbox) -> bool,
) -> Outcome {
    let before = queue.clone();
    let mut dead = BTreeSet::new();
    for _ in 0..ROUNDS {
        let outcome = apply_without(queue, &dead, command, clock);
        let mut suspects: BTreeSet<_> = outcome.events.iter().filter_map(next_to_act).collect();
        if command.is_none() || is_unserved(&outcome.reply) || !dead.is_empty() {
            suspects.extend(share(lives(queue), clock));
        }
        suspects.retain(|inbox| !dead.contains(inbox) && is_dead(inbox));
        if suspects.is_empty() {
            return outcome;
        }
        dead.append(&mut suspects);
        queue.clone_from(&before);
    }
    // Whoever is left is found by those who ask next.
    apply_without(queue, &dead, command, clock)
}

/// Applies the command to what is left when those are buried.
fn apply_without(
    queue: &mut Queue,
    dead: &BTreeSet<Inbox>,
    command: Option<&Command>,
    clock: StoreTime,
) -> Outcome {
    let buried = (!dead.is_empty()).then(|| queue.bury_all(dead, clock));
    let applied = command.map(|command| queue.apply(command, clock));
    let mut outcome = match (buried, applied) {
        (Some(Outcome { mut events, .. }), Some(applied)) => {
            add(&mut events, applied.events);
            Outcome { events, ..applied }
        }
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => Outcome {
            reply: Reply::Done,
            at: queue.look(clock).at,
            events: Vec::new(),
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

/// The inbox that has to do something now, if it lives. One that only hears
/// what it has lost needs no burial: that would come before the command, and
/// make it take the key from somebody else.
fn next_to_act(event: &Event) -> Option<Inbox> {
    match event {
        Event::Revoked { .. } | Event::Adopted { .. } => None,
        _ => Some(event.inbox().clone()),
    }
}

/// Whether the dead may be in the way of whoever asked.
fn is_unserved(reply: &Reply) -> bool {
    match reply {
        Reply::Standing(standing) => standing.token.is_none(),
        Reply::Busy { .. } | Reply::Mismatch { .. } => true,
        _ => false,
    }
}

/// Those who matter to whoever waits for this queue.
pub(super) fn lives(queue: &Queue) -> BTreeSet<Inbox> {
    queue.inboxes(WAITERS_LOOKED_AT).cloned().collect()
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
        let outdated = |old: &Event| match event {
            Event::Next { .. } => true,
            Event::Granted { arrival, .. } => old.arrival() == Some(arrival),
            _ => false,
        };
        events.retain(|old| !matches!(old, Event::Next { .. }) || !outdated(old));
        events.push(event);
    }
}
