//! Invariants that must hold after every step.

use crate::common::*;
use crate::queue_properties::histories::{id_shown_as, ms};
use crate::queue_properties::reference::{Expected, Known, Reference};
use crate::queue_properties::world::{Taken, World, adopts, granted_in, in_the_record};

pub(crate) fn hold(world: &mut World, taken: &Taken<'_>) {
    reply_is_as_the_reference_says(taken);
    each_verb_has_its_replies(taken);
    look_agrees_with_the_state(&world.queue, &world.reference, taken.clock);
    tokens_increase_in_the_order_of_grants(world, taken);
    arrivals_increase_and_order_is_kept(world, taken);
    granted_weights_fit_the_capacity(taken);
    a_closed_store_grants_nothing(taken);
    position_is_a_bound_and_zero_iff_granted(taken);
    blocked_until_comes_early(taken);
    the_same_request_again_changes_nothing(taken, &world.queue);
    a_record_can_be_written_and_read(&world.queue);
    at_most_so_many_drops(taken, &world.queue);
    nobody_waits_for_ever_behind_the_dead(taken, &world.queue);
}

/// Design 1, the table of verbs: what each answers.
fn reply_is_as_the_reference_says(taken: &Taken<'_>) {
    let agree = match (&taken.expected, &taken.outcome.reply) {
        (Expected::Standing(granted, _), Reply::Standing(s)) => {
            *granted == (s.token, s.behind, s.deadline)
        }
        (Expected::Busy, Reply::Busy { .. })
        | (Expected::Quarantined, Reply::Quarantined { .. }) => true,
        (Expected::Exactly(expected), reply) => expected == reply,
        // Whom laziness has not dropped yet may be counted as well.
        (Expected::Broken(at_least, raised), Reply::Broken { holders, token }) => {
            holders >= at_least && token == raised
        }
        _ => false,
    };
    let (command, expected, reply) = (taken.command, &taken.expected, taken.outcome.reply);
    assert!(agree, "{command:?}: {expected:?}, and not {reply:?}");
}

/// Callers match the replies of their verb only: whatever it was, it is one of those.
fn each_verb_has_its_replies(taken: &Taken<'_>) {
    let reply = taken.outcome.reply;
    let typed = match taken.command {
        Command::Claim(_) => ClaimReply::try_from(reply).map(Reply::from),
        Command::Renew(_) => RenewReply::try_from(reply).map(Reply::from),
        Command::Release(_) => ReleaseReply::try_from(reply).map(Reply::from),
        Command::Resize { .. } => ResizeReply::try_from(reply).map(Reply::from),
        Command::Watch { .. } => WatchReply::try_from(reply).map(Reply::from),
        Command::Break { .. } => BreakReply::try_from(reply).map(Reply::from),
        Command::Void(_) => unreachable!("these keys are no votes"),
        Command::Unheard { .. } | Command::Bury { .. } => Ok(Reply::Done),
    };
    assert_eq!(typed, Ok(reply), "{:?}", taken.command);
}

/// Design 1: "`inspect` and `list` only look", at the live claims of the key in
/// order, with all that the verbs gave them.
pub(crate) fn look_agrees_with_the_state(queue: &Queue, reference: &Reference, clock: StoreTime) {
    let view = |c: &Known| ClaimView {
        arrival: c.arrival,
        mode: c.mode,
        owner: c.owner.clone(),
        since: c.since,
        deadline: c.deadline,
        id_hint: c.id.to_string(),
        note: c.note.clone(),
        kept: c.kept,
        renewed: c.renewed,
    };
    let seen = queue.look(clock);
    let (mut held, behind): (Vec<_>, Vec<_>) =
        reference.held().partition(|claim| reference.holds(claim));
    held.sort_by_key(|claim| (claim.token, claim.arrival));
    let holder = |c: &&Known| Holder {
        claim: view(c),
        token: c.token.unwrap(),
    };
    let holders: Vec<_> = held.iter().map(holder).collect();
    assert_eq!(holders, seen.holders, "holders");
    let line = behind.into_iter().chain(reference.waiting());
    let line = line.map(view).zip(1_u64..);
    let waiters = line.map(|(claim, position)| WaiterView { claim, position });
    let waiters: Vec<_> = waiters.collect();
    assert_eq!(waiters, seen.waiters, "waiters");
    assert_eq!(seen.capacity, reference.capacity(), "capacity");
    assert_eq!(seen.last_token, reference.last_token, "last token");
    // A key that nobody has used keeps no time either.
    let now = match *queue == Queue::default() {
        true => clock,
        false => reference.now,
    };
    assert_eq!((seen.at, seen.clock), (now, clock), "time");
}

/// Design 1: tokens are "strictly increasing per key; and because time is the
/// floor, still increasing after the record is lost". One grant has one token,
/// until it is adopted; claims of one owner share it.
fn tokens_increase_in_the_order_of_grants(world: &mut World, taken: &Taken<'_>) {
    let highest = world.highest_token;
    let before = granted_in(taken.before);
    let held_before = arrivals_held(&taken.seen_before);
    for (arrival, token) in granted_in(&world.queue) {
        let known = world.grants.insert(arrival, token);
        if known == Some(token) {
            continue;
        }
        // Who waits behind another of its client may have to wait anew.
        let anew = !held_before.contains(&arrival);
        let may_change = known.is_none() || adopts(taken.command) || anew;
        assert!(may_change, "the token of {arrival:?} changed");
        let shared = before.values().any(|before| *before == token);
        let in_order = token > highest || (shared && known.is_none());
        assert!(in_order, "{token:?} granted after {highest:?}");
        world.highest_token = world.highest_token.max(token);
    }
    // Whoever comes to hold has a higher token than all who have held.
    let has_held = |(arrival, _): &(&Arrival, &Token)| world.held.contains(arrival);
    let shared = before.iter().filter(has_held);
    let shared: BTreeSet<_> = shared.map(|(_, token)| *token).collect();
    let tokens: BTreeSet<_> = taken.seen_after.holders.iter().map(|h| h.token).collect();
    for token in tokens {
        let (held, highest) = (shared.contains(&token), world.highest_held);
        assert!(held || token > highest, "{token:?} holds after {highest:?}");
        world.highest_held = highest.max(token);
    }
    world.held.extend(arrivals_held(&taken.seen_after));
    let (before, last) = (taken.seen_before.last_token, taken.seen_after.last_token);
    assert!(last >= before, "{before:?} was forgotten");
    world.highest_token = world.highest_token.max(last);
}

/// Design 1: "claims in order of arrival"; "arrival numbers have the same floor".
fn arrivals_increase_and_order_is_kept(world: &mut World, taken: &Taken<'_>) {
    let known = |snapshot: &Snapshot| -> BTreeSet<_> {
        claims(snapshot).map(|claim| claim.arrival).collect()
    };
    for arrival in known(&taken.seen_after).difference(&known(&taken.seen_before)) {
        let highest = world.highest_arrival;
        assert!(*arrival > highest, "{arrival:?} came after {highest:?}");
        world.highest_arrival = *arrival;
    }
    let waiters = &taken.seen_after.waiters;
    let in_order = waiters.is_sorted_by(|one, next| one.claim.arrival < next.claim.arrival);
    assert!(in_order, "waiters out of order");
}

pub(crate) fn arrivals_held(seen: &Snapshot) -> BTreeSet<Arrival> {
    seen.holders.iter().map(|h| h.claim.arrival).collect()
}

pub(crate) fn claims(seen: &Snapshot) -> impl Iterator<Item = &ClaimView> {
    let holders = seen.holders.iter().map(|h| &h.claim);
    holders.chain(seen.waiters.iter().map(|w| &w.claim))
}

/// Design 1, the one rule: the weights granted fit the key's capacity. What was
/// granted before a semaphore shrank may exceed it, and does not grow.
fn granted_weights_fit_the_capacity(taken: &Taken<'_>) {
    let used = |seen: &Snapshot| -> u64 {
        let holds = seen.holders.iter();
        let holds = holds.map(|h| (h.token, h.claim.mode.weight()));
        holds.collect::<BTreeMap<_, _>>().values().sum()
    };
    let (was, is) = (used(&taken.seen_before), used(&taken.seen_after));
    let units = |seen: &Snapshot| seen.capacity.map_or(0, Capacity::units);
    // The step that shrinks it grants first what was due before.
    let shrinks = matches!(taken.command, Command::Resize { .. });
    let before = match shrinks {
        true => units(&taken.seen_before),
        false => 0,
    };
    let bound = units(&taken.seen_after).max(was).max(before);
    assert!(is <= bound, "{is} granted of {bound}, after {was}");
}

/// `Now::closed`: nobody is granted anything or takes it over, and whoever is told when to look is
/// told of a time at which the store is open.
fn a_closed_store_grants_nothing(taken: &Taken<'_>) {
    if taken.now.closed.is_zero() {
        return;
    }
    // Who was granted behind another may come to hold.
    let was = granted_in(taken.before);
    for holder in &taken.seen_after.holders {
        let before = was.get(&holder.claim.arrival);
        assert_eq!(before, Some(&holder.token), "while closed: {holder:?}");
    }
    let is_new = |event: &Event| matches!(event, Event::Granted { .. } | Event::Adopted { .. });
    assert!(!taken.outcome.events.iter().any(is_new));
    let opens = taken.outcome.at + taken.now.closed;
    for told in told_to_look(taken) {
        assert!(told >= opens, "look at {told:?}, closed to {opens:?}");
    }
}

/// The times that the answer and the events name to those who wait.
fn told_to_look(taken: &Taken<'_>) -> Vec<StoreTime> {
    let mut told = match taken.outcome.reply {
        Reply::Standing(standing) => Vec::from_iter(standing.blocked_until),
        Reply::Busy { blocked_until } => vec![blocked_until],
        Reply::Quarantined { until } => vec![until],
        _ => Vec::new(),
    };
    told.extend(taken.outcome.events.iter().filter_map(|event| match event {
        Event::Next { blocked_until, .. } => Some(*blocked_until),
        _ => None,
    }));
    told
}

/// Design 1: "`position` is an upper bound"; 0 is granted, and 1 is next.
fn position_is_a_bound_and_zero_iff_granted(taken: &Taken<'_>) {
    if let (Reply::Standing(s), Expected::Standing(_, place)) =
        (&taken.outcome.reply, &taken.expected)
    {
        assert!(s.position >= *place, "{} for {place}", s.position);
        assert_eq!(s.position == 0, s.holds(), "{s:?}");
        assert_eq!(s.blocked_until.is_none(), s.token.is_some(), "{s:?}");
    }
}

/// `Standing::blocked_until`: "comes early rather than late". It looks at
/// holders only: a claim behind a dead *waiter* that is heavier may be granted
/// before it, when that waiter's deadline passes; its own renewals notice.
fn blocked_until_comes_early(taken: &Taken<'_>) {
    let holders = taken.seen_after.holders.iter();
    let lapses = holders.map(|holder| holder.claim.deadline).min();
    let opens = taken.outcome.at + taken.now.closed;
    let truth = lapses.map_or(opens, |lapses| lapses.max(opens));
    for told in told_to_look(taken) {
        assert!(told <= truth, "told {told:?}, but {truth:?}");
    }
}

/// Design 1: "each idempotent by claim id". A release that came again answers
/// `Absent`. One that only told the next in line that the key is vacant grants
/// when it comes again, as every other step would. A claim that left because it
/// was too heavy may join again: it comes to another queue. An id that a dead
/// claim still has is taken until that is dropped.
fn the_same_request_again_changes_nothing(taken: &Taken<'_>, queue: &Queue) {
    let reply = taken.outcome.reply;
    let again_is_else = match taken.command {
        Command::Claim(_) => matches!(reply, Reply::Mismatch { .. }),
        Command::Renew(renew) => {
            reply == Reply::Taken || (renew.downgrade && granted_by_this_step(taken))
        }
        // While the store is closed, all that was there may have been too heavy.
        Command::Resize { .. } => queue.is_empty(),
        Command::Break { .. } | Command::Unheard { .. } => true,
        _ => false,
    };
    if again_is_else {
        return;
    }
    let mut again = queue.clone();
    let outcome = again.apply(taken.command, taken.now);
    match taken.command {
        Command::Release(release) => {
            assert_eq!(outcome.reply, Reply::Absent);
            if !release.hand_off && reply == (Reply::Released { held: true }) {
                return;
            }
        }
        // It is gone by then.
        Command::Renew(_) if matches!(reply, Reply::Mismatch { .. }) => {
            assert_eq!(outcome.reply, Reply::Gone);
        }
        _ => assert_eq!(outcome.reply, reply),
    }
    // Who has watched a key that nobody uses leaves nothing, and so no time.
    if *queue != Queue::default() {
        assert_eq!(outcome.at, taken.outcome.at);
    }
    assert_eq!(outcome.events, [], "events of {:?} again", taken.command);
    assert_eq!(again, *queue, "{:?} again", taken.command);
}

/// Whether the claim that the step is about waited before it, and holds now.
fn granted_by_this_step(taken: &Taken<'_>) -> bool {
    let Reply::Standing(standing) = taken.outcome.reply else {
        return false;
    };
    let held = |holder: &Holder| holder.claim.arrival == standing.arrival;
    standing.token.is_some() && !taken.seen_before.holders.iter().any(held)
}

/// Design 2: a record is written down and read by any store of the family.
fn a_record_can_be_written_and_read(queue: &Queue) {
    let read: Queue = serde_json::from_str(&serde_json::to_string(queue).unwrap()).unwrap();
    assert_eq!(*queue, read);
}

/// Design 1: "at most 256 drops a step"; the claim that the step is about is
/// dropped besides.
fn at_most_so_many_drops(taken: &Taken<'_>, after: &Queue) {
    if matches!(taken.command, Command::Break { .. } | Command::Bury { .. }) {
        return;
    }
    let (was, is) = (in_the_record(taken.before), in_the_record(after));
    assert!(is + DROPS_PER_STEP + 1 >= was, "{was}, {is} after a step");
}

/// Design 1: "a dead waiter drops out by itself", and any step drops dead
/// holders as far as promotion needs it. One that is too heavy is told so.
fn nobody_waits_for_ever_behind_the_dead(taken: &Taken<'_>, queue: &Queue) {
    let (mut queue, clock) = (queue.clone(), taken.clock);
    let stranger = Command::Renew(Renew::new(ClaimId::from_random(u128::MAX), ms(1)));
    if !taken.now.closed.is_zero() {
        // It opens: whoever was only kept out by that comes in first.
        queue.apply(&stranger, clock);
    }
    let seen = queue.look(clock);
    let Some(patient) = seen.waiters.first().cloned() else {
        return;
    };
    let patient_id = id_shown_as(&patient.claim.id_hint);
    let furthest = seen.holders.iter().map(|h| h.claim.deadline).max();
    let wait = furthest.map_or(Duration::ZERO, |at| at.since(seen.at));
    let stay = Command::Renew(Renew::new(patient_id, wait + ms(1)));
    let reply = queue.apply(&stay, clock).reply;
    if patient.claim.mode.weight() > seen.capacity.unwrap().units() {
        assert!(matches!(reply, Reply::Mismatch { .. }), "{patient:?}");
        return;
    }
    queue.apply(&stranger, clock + wait);
    let seen = queue.look(clock + wait);
    let holds = arrivals_held(&seen).contains(&patient.claim.arrival);
    assert!(holds, "{patient:?} waits behind the dead: {seen:?}");
}
