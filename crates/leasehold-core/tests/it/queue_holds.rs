//! Minimum holds and watchers, which outlive the claims of a queue.

use crate::common::{self, *};

const START: StoreTime = StoreTime(1_000_000);
const SECOND: Duration = Duration::from_secs(1);

fn id(number: u128) -> ClaimId {
    ClaimId::from_random(number)
}

fn inbox(name: &str) -> Inbox {
    Inbox::new(name).unwrap()
}

fn claim(number: u128, by: &str, min_hold: Duration) -> Command {
    Command::Claim(Claim {
        inbox: Some(inbox(by)),
        min_hold,
        ..Claim::new(id(number), Mode::EXCLUSIVE, 30 * SECOND)
    })
}

fn release(number: u128) -> Command {
    common::release(id(number))
}

fn renew(number: u128) -> Command {
    Command::Renew(Renew::new(id(number), SECOND))
}

fn bury(names: &[&str]) -> Command {
    let inboxes = names.iter().map(|name| inbox(name)).collect();
    Command::Bury { inboxes }
}

/// Claims without a minimum hold, made at the start: the first holds.
fn line(claims: &[(u128, &str)]) -> Queue {
    let mut queue = Queue::default();
    for (number, by) in claims {
        queue.apply(&claim(*number, by, Duration::ZERO), START);
    }
    queue
}

/// Whoever waits was told of the lease, which would have lasted longer.
#[test]
fn the_next_is_told_how_long_a_key_is_kept() {
    for leaves in [release(1), bury(&["a"])] {
        let mut queue = Queue::default();
        queue.apply(&claim(1, "a", 5 * SECOND), START);
        let waiting = standing(queue.apply(&claim(2, "b", SECOND), START).reply);
        assert_eq!(waiting.blocked_until, Some(START + 30 * SECOND));
        let told = queue.apply(&leaves, START + SECOND).events;
        let next = Event::Next {
            inbox: inbox("b"),
            arrival: waiting.arrival,
            blocked_until: START + 5 * SECOND,
        };
        assert_eq!(told, [next]);
    }
}

/// A claim that is over when its minimum hold is does not free the key sooner.
#[test]
fn nobody_is_told_what_is_known_already() {
    let mut queue = Queue::default();
    queue.apply(&claim(1, "a", 40 * SECOND), START);
    queue.apply(&claim(2, "b", SECOND), START);
    assert!(queue.apply(&release(1), START + SECOND).events.is_empty());
}

/// Who should have listened and does not is passed over, and keeps its place: so does one that
/// has lost its connection for a moment.
#[test]
fn who_does_not_hear_of_its_turn_keeps_its_place() {
    let mut queue = line(&[(1, "a"), (2, "b"), (3, "c"), (4, "d")]);
    let later = START + UNHEARD_CUT;
    let mut outcome = queue.apply(&release(1), later);
    let mut told = Vec::new();
    queue.deliver(&mut outcome, later, |event| {
        let what = match event {
            Event::Granted { .. } => "granted",
            Event::Next { .. } => "next",
            other => panic!("{other:?}"),
        };
        told.push((what, event.inbox().clone()));
        *event.inbox() != inbox("b")
    });
    let expected = [("granted", "b"), ("granted", "c"), ("next", "d")];
    assert_eq!(told, expected.map(|(what, to)| (what, inbox(to))));
    let passed = &queue.look(later).waiters[0].claim;
    assert_eq!(passed.since, START);
    assert_eq!(passed.deadline, later + UNHEARD_CUT);
    // It listens again, and is served before who came later.
    let back = standing(queue.apply(&claim(2, "b", Duration::ZERO), later).reply);
    assert_eq!((back.token, back.position), (None, 1));
    let events = queue.apply(&release(3), later).events;
    assert!(
        matches!(&events[..], [Event::Granted { arrival, .. }, ..] if *arrival == back.arrival)
    );
}

/// Who has come just now may not listen yet: it is waited for, and loses no turn.
#[test]
fn who_has_just_come_is_waited_for() {
    let mut queue = line(&[(1, "a"), (2, "b"), (3, "c")]);
    let late = START + UNHEARD_CUT.saturating_sub(Duration::from_micros(1));
    let mut outcome = queue.apply(&release(1), late);
    queue.deliver(&mut outcome, late, |event| *event.inbox() != inbox("b"));
    let look = queue.look(late);
    assert_eq!(look.holders[0].claim.deadline, late + UNHEARD_CUT);
    let waiter = &look.waiters[0].claim;
    assert_eq!((waiter.since, look.waiters.len()), (START, 1));
    let found = standing(queue.apply(&claim(2, "b", Duration::ZERO), late).reply);
    assert!(found.token.is_some());
}

/// Who has said that it listens is not waited for: when it came, or when it asked again once its
/// inbox was open. What it said last counts.
#[test]
fn who_has_said_that_it_listens_is_passed_over_at_once() {
    let says = |listens| but(Now::from(START), |it| it.listens = listens);
    let claims = || claim(2, "b", Duration::ZERO);
    for (steps, passed) in [
        (vec![(claims(), true)], true),
        (vec![(claims(), false), (renew(2), true)], true),
        (vec![(claims(), false), (claims(), true)], true),
        (vec![(claims(), true), (renew(2), false)], false),
        (vec![(claims(), true), (claims(), false)], false),
    ] {
        let mut queue = Queue::default();
        queue.apply(&claim(1, "a", Duration::ZERO), says(true));
        for (step, listens) in &steps {
            queue.apply(step, says(*listens));
        }
        queue.apply(&claim(3, "c", Duration::ZERO), says(true));
        let mut outcome = queue.apply(&release(1), says(true));
        queue.deliver(&mut outcome, says(true), |event| {
            *event.inbox() != inbox("b")
        });
        let look = queue.look(START);
        let holds = if passed { 3 } else { 2 };
        assert_eq!(look.holders[0].claim.id_hint, id(holds).to_string());
        let cut = |claim: &ClaimView| claim.deadline == START + UNHEARD_CUT;
        let mut all = look.holders.iter().map(|holder| &holder.claim);
        let dead = look.waiters.iter().map(|waiter| &waiter.claim);
        assert_eq!(all.any(cut), !passed);
        assert_eq!(dead.take(1).any(cut), passed, "it keeps its place");
    }
}

/// The dead get nothing that other dead leave: no minimum hold starts there.
#[test]
fn those_who_are_buried_together_are_granted_nothing() {
    let mut queue = line(&[(1, "a")]);
    queue.apply(&claim(2, "b", 50 * SECOND), START);
    queue.apply(&claim(3, "c", SECOND), START);
    let outcome = queue.apply(&bury(&["a", "b"]), START);
    assert_eq!(outcome.reply, Reply::Done);
    assert!(matches!(
        &outcome.events[..],
        [Event::Granted { inbox: told, .. }] if *told == inbox("c")
    ));
    let look = queue.look(START);
    assert_eq!(look.holders.len(), 1);
    assert!(!look.holders[0].claim.kept && look.waiters.is_empty());
}

/// Watchers who died without a word do not stay in the record.
#[test]
fn watchers_are_forgotten_when_their_time_is_up() {
    let mut queue = Queue::default();
    let size = |queue: &Queue| serde_json::to_string(queue).unwrap().len();
    queue.apply(&claim(1, "a", Duration::ZERO), START);
    let before = size(&queue);
    for number in 0..50 {
        let (inbox, ttl) = (inbox(&format!("watcher{number}")), SECOND);
        queue.apply(&Command::Watch { inbox, ttl }, START);
    }
    assert!(size(&queue) > before);
    let broken = queue.apply(&break_all(), START + 2 * SECOND);
    assert_eq!(broken.events.len(), 1, "the holder's only");
    assert!(!serde_json::to_string(&queue).unwrap().contains("watcher"));
}

/// Tokens stay below 2^53, up to where a double counts one by one: a clock of a later
/// time is refused before a step, and the queue goes on when it is right again.
#[test]
fn a_clock_that_is_too_late_is_refused() {
    let mut queue = Queue::default();
    let refused = queue.check_clock(StoreTime::LATEST + SECOND).unwrap_err();
    assert!(refused.message.contains("the year 2219"), "{refused:?}");
    let later = StoreTime((1 << 53) + (1 << 51));
    let refused = queue.check_clock(later).unwrap_err();
    assert!(refused.message.contains("the year 2326"), "{refused:?}");
    queue.check_clock(StoreTime::LATEST).unwrap();

    // What steps back have cost counts, too.
    queue.apply(&claim(1, "a", Duration::ZERO), StoreTime::LATEST);
    queue.apply(&release(1), START);
    queue.check_clock(START).unwrap();
    queue.check_clock(StoreTime::LATEST).unwrap_err();
    let token = standing(queue.apply(&claim(2, "b", SECOND), START).reply).token;
    assert!(token.unwrap().get() < 1 << 53);
}
