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

/// How many rounds one step takes: burying one may grant to another dead one.
const ROUNDS: usize = 8;

/// Whether somebody who matters to this queue is dead.
pub(super) fn has_dead(store: &Inner, queue: &Queue) -> bool {
    lives(queue)
        .iter()
        .any(|inbox| store.session.sees_dead(inbox))
}

/// Applies the command. Where the dead are in its way, or would be told, they
/// are buried first. Without a command it only buries.
pub(super) fn apply(
    queue: &mut Queue,
    command: Option<&Command>,
    clock: StoreTime,
    mut is_dead: impl FnMut(&Inbox) -> bool,
) -> Outcome {
    let mut outcome = match command {
        Some(command) => queue.apply(command, clock),
        None => Outcome {
            reply: Reply::Done,
            at: queue.look(clock).at,
            events: Vec::new(),
        },
    };
    for _ in 0..ROUNDS {
        let unserved = command.is_none() || is_unserved(&outcome.reply);
        let mut suspects: BTreeSet<Inbox> = outcome
            .events
            .iter()
            .map(|event| event.inbox().clone())
            .collect();
        if unserved {
            suspects.extend(share(lives(queue), clock));
        }
        suspects.retain(&mut is_dead);
        if suspects.is_empty() {
            break;
        }
        for inbox in &suspects {
            let bury = Command::Bury {
                inbox: inbox.clone(),
            };
            let events = queue.apply(&bury, clock).events;
            add(&mut outcome.events, events);
        }
        outcome
            .events
            .retain(|event| !suspects.contains(event.inbox()));
        // Asked again it finds itself, or what the dead left free.
        if let Some(command) = command.filter(|_| unserved) {
            let again = queue.apply(command, clock);
            outcome.reply = again.reply;
            add(&mut outcome.events, again.events);
        }
    }
    if let Reply::Standing(standing) = outcome.reply {
        // It learns that from the answer.
        outcome
            .events
            .retain(|event| event.arrival() != Some(standing.arrival));
    }
    outcome
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
