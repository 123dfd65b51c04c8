//! One step on one key: lock, read, bury the dead, apply, replace, tell.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::{Command, Event, Inbox, Key, Outcome, Queue, Reply, StoreTime};

use super::Inner;
use super::inbox;
use super::name::file_name;
use super::record::Place;
use crate::error::StoreError;

/// How many of those who wait are looked at, beside those who hold.
const WAITERS_LOOKED_AT: usize = 8;

/// How many lives one round looks at. Where a semaphore has more holders, the
/// looks take turns.
const LIVES_PER_ROUND: usize = 64;

/// How long one share of holders is looked at before the next has its turn.
const TURN: Duration = Duration::from_millis(100);

/// How many rounds one step takes: burying one may grant to another dead one.
const ROUNDS: usize = 8;

/// Takes one step. `None` if others had the key for too long: nothing was done.
///
/// Without a command it only buries the dead.
pub(super) fn take(
    store: &Inner,
    key: &Key,
    command: Option<&Command>,
) -> Result<Option<(Queue, Outcome)>, StoreError> {
    let place = Place::of(&file_name(key.as_str()));
    let locked = place
        .lock(&store.directory)
        .map_err(|errno| store.directory.failed("write to", errno))?;
    let Some(_locked) = locked else {
        return Ok(None);
    };
    let mut queue = place.read_key(&store.directory, &store.clock, key)?;
    let clock = store.clock.now();
    let outcome = turn(&mut queue, command, clock, |inbox| {
        store.session.sees_dead(inbox)
    });
    let expires = clock + queue.keep_for(clock, store.retention);
    place.write(&store.directory, &store.clock, key, &queue, expires)?;
    // Told under the lock, and after the grant is in the file: pushes come in
    // the order of the steps, and none before what it tells is true. The dead
    // are buried, so whoever does not hear is alive, and asks by itself.
    inbox::tell(&store.directory, key, outcome.at, &outcome.events);
    Ok(Some((queue, outcome)))
}

/// Whether somebody who matters to this queue is dead.
pub(super) fn has_dead(store: &Inner, queue: &Queue) -> bool {
    lives(queue)
        .iter()
        .any(|inbox| store.session.sees_dead(inbox))
}

fn turn(
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
            .retain(|event| event.arrival() != standing.arrival);
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

fn lives(queue: &Queue) -> BTreeSet<Inbox> {
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
            Event::Granted { arrival, .. } => old.arrival() == arrival,
            Event::Revoked { .. } => false,
        };
        events.retain(|old| !matches!(old, Event::Next { .. }) || !outdated(old));
        events.push(event);
    }
}
