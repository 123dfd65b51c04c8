//! The expected notifications of a step.

use crate::common::*;
use crate::queue_properties::invariants::{arrivals_held, claims};
use crate::queue_properties::world::{Taken, World, claim_id, granted_in};

/// `watching` are those who watched before the step.
pub(crate) fn what_it_should(world: &World, taken: &Taken<'_>, watching: &[(Inbox, StoreTime)]) {
    every_grant_is_told(world, taken);
    who_is_next_is_told(world, taken);
    whoever_loses_a_claim_is_told(world, taken);
    watchers_hear_of_every_change_and_of_nothing_else(world, taken, watching);
}

/// The inbox that a claim has now.
fn inbox_of(world: &World, arrival: Arrival) -> Option<Inbox> {
    let claims = &world.reference.claims;
    let found = claims.iter().find(|claim| claim.arrival == arrival)?;
    found.inbox.clone()
}

/// The claim whose client gets to know where it stands by the answer itself.
fn answered(taken: &Taken<'_>) -> Option<Arrival> {
    match taken.outcome.reply {
        Reply::Standing(standing) => Some(standing.arrival),
        _ => None,
    }
}

/// Design 1, "report grants", "hand-off is direct": whoever is granted by
/// another's step and has an inbox is told, once.
fn every_grant_is_told(world: &World, taken: &Taken<'_>) {
    let held_before = arrivals_held(&taken.seen_before);
    let granted_before = granted_in(taken.before);
    let mut told = BTreeMap::new();
    for event in &taken.outcome.events {
        if let Event::Granted {
            inbox,
            arrival,
            token,
            behind,
            deadline,
            ..
        } = event
        {
            let twice = told.insert(*arrival, (inbox.clone(), *token, *behind, *deadline));
            assert_eq!(twice, None, "told twice: {event:?}");
        }
    }
    for claim in world.reference.held() {
        let (arrival, token) = (claim.arrival, claim.token.unwrap());
        let known = held_before.contains(&arrival) || granted_before.get(&arrival) == Some(&token);
        let new = !known && answered(taken) != Some(arrival);
        let expected = claim.inbox.clone().filter(|_| new).map(|inbox| {
            let behind = world.reference.behind(claim);
            (inbox, token, behind, claim.deadline)
        });
        assert_eq!(told.remove(&arrival), expected, "{claim:?}");
    }
    assert!(told.is_empty(), "told of a grant that is not: {told:?}");
}

fn is_silent(taken: &Taken<'_>, inbox: &Inbox) -> bool {
    matches!(taken.command, Command::Unheard { silent, .. } if silent.contains(inbox))
}

/// Design 3: so is whoever became next in line.
fn who_is_next_is_told(world: &World, taken: &Taken<'_>) {
    let first = |seen: &Snapshot, queue: &Queue| {
        let granted = granted_in(queue);
        let mut waiters = seen.waiters.iter().map(|waiter| &waiter.claim);
        let first = waiters.find(|claim| !granted.contains_key(&claim.arrival));
        first.cloned()
    };
    if let Some(next) = first(&taken.seen_after, &world.queue)
        && let Some(was) = first(&taken.seen_before, taken.before)
        && was.arrival != next.arrival
        && answered(taken) != Some(next.arrival)
        && inbox_of(world, next.arrival).is_some_and(|inbox| !is_silent(taken, &inbox))
        // Whom the queue had not dropped yet was first in its eyes.
        && taken.outcome.events.iter().all(|e| !matches!(e, Event::Next { .. }))
    {
        panic!("{next:?} became next after {was:?}, and nobody told it");
    }
}

/// A waiting claim goes by itself, by its client, or because it is too heavy:
/// then it hears of that, by the answer or by a push. Who gives its claim to
/// another client hears of that.
fn whoever_loses_a_claim_is_told(world: &World, taken: &Taken<'_>) {
    let unfit = |arrival| {
        let is_it = |e: &&Event| matches!(e, Event::Unfit { arrival: a, .. } if *a == arrival);
        taken.outcome.events.iter().filter(is_it).count()
    };
    let after = claims(&taken.seen_after);
    let after: BTreeSet<_> = after.map(|claim| claim.arrival).collect();
    let actor = claim_id(taken.command).map(ToString::to_string);
    for waiter in &taken.seen_before.waiters {
        let claim = &waiter.claim;
        let stays = after.contains(&claim.arrival);
        let is_actor = actor.as_ref() == Some(&claim.id_hint);
        let by_itself = is_actor && taken.outcome.reply != Reply::Taken;
        let listens = record_inbox(taken.before, claim.arrival).is_some();
        let buried = matches!(taken.command, Command::Bury { .. });
        let told = stays || by_itself || buried || unfit(claim.arrival) == usize::from(listens);
        assert!(told, "{claim:?} was dropped in silence, or told twice");
    }
    let adopted = |event: &&Event| matches!(event, Event::Adopted { .. });
    let adopted: Vec<_> = taken.outcome.events.iter().filter(adopted).collect();
    for event in &adopted {
        let former = record_inbox(taken.before, event.arrival().unwrap());
        assert_eq!(former.as_ref(), Some(event.inbox()));
    }
    let moved = after.iter().filter(|arrival| {
        let former = record_inbox(taken.before, **arrival);
        let mut claims = world.reference.claims.iter();
        let kept = claims.any(|claim| claim.arrival == **arrival && claim.kept);
        former.is_some() && former != inbox_of(world, **arrival) && !kept
    });
    assert_eq!(moved.count(), adopted.len(), "{:?}", taken.command);
}

fn record_inbox(queue: &Queue, arrival: Arrival) -> Option<Inbox> {
    let record = serde_json::to_value(queue).unwrap();
    let granted = record["granted"].as_array().unwrap().iter().map(|g| &g[1]);
    let mut all = granted.chain(record["waiting"].as_array().unwrap());
    let found = all.find(|entry| entry["arrival"] == arrival.0)?;
    serde_json::from_value(found["inbox"].clone()).unwrap()
}

/// `Command::Watch`: "whenever another holds first, or its note has changed".
/// The queue's own view counts: a holder that is dead and not dropped yet holds.
fn watchers_hear_of_every_change_and_of_nothing_else(
    world: &World,
    taken: &Taken<'_>,
    watching: &[(Inbox, StoreTime)],
) {
    let first = |queue: &Queue| {
        let record = serde_json::to_value(queue).unwrap();
        let (token, entry) = (&record["granted"][0][0], &record["granted"][0][1]);
        [token, &entry["arrival"], &entry["note"]].map(Clone::clone)
    };
    let changed = first(taken.before) != first(&world.queue);
    let dead = match taken.command {
        Command::Bury { inboxes } => inboxes.as_slice(),
        Command::Unheard { silent, .. } => silent,
        _ => &[],
    };
    let mut expected: Vec<_> = watching
        .iter()
        .filter(|(inbox, until)| changed && *until > taken.outcome.at && !dead.contains(inbox))
        .map(|(inbox, _)| inbox)
        .collect();
    let changed = |event: &&Event| matches!(event, Event::Changed { .. });
    let told = taken.outcome.events.iter().filter(changed);
    let mut told: Vec<_> = told.map(Event::inbox).collect();
    expected.sort();
    told.sort();
    assert_eq!(told, expected, "{:?}", taken.command);
}
