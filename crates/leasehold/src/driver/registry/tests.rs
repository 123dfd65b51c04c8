use leasehold_core::{
    ClaimId, Event, Inbox, LastAnswer, RenewalPolicy, Reply, Standing, StoreTime, Token,
    WaiterConfig,
};

use super::*;

const TTL: Duration = Duration::from_secs(30);

fn subject(key: &Key) -> Subject {
    let terms = Terms {
        ttl: TTL,
        policy: RenewalPolicy::Manual,
        hand_off: true,
        max_hold: None,
        rotate_every: None,
    };
    Subject::new(key.clone(), ClaimId::from_random(1).into(), 0, terms, true)
}

/// A claim that was answered as waiting, on epoch 1.
fn waiter(arrival: Arrival) -> Waiter {
    let now = Moment(1);
    let config = WaiterConfig {
        lease_ttl: TTL,
        waiter_ttl: TTL,
        give_up: None,
        patience: TTL,
        seed: 1,
    };
    let mut waiter = Waiter::new(config, now);
    let request = waiter.poll_transmit(now).expect("it asks");
    let standing = Standing {
        arrival,
        token: None,
        position: 1,
        deadline: StoreTime(0),
        blocked_until: None,
    };
    let reply = Reply::Standing(standing);
    waiter.handle_reply(now, now, 1, request, &reply, StoreTime(0));
    waiter
}

/// A grant of the claim that `subject` makes, in a step that the store took then.
fn granted(key: &Key, arrival: u64, token: u64) -> Push {
    let event = Event::Granted {
        inbox: Inbox::from_random(1),
        arrival: Arrival(arrival),
        id: ClaimId::from_random(1),
        token: Token(token),
        deadline: StoreTime(0),
    };
    Push::of(&event, key, StoreTime(5), 1)
}

fn answered() -> LastAnswer {
    LastAnswer::new(Moment(1), StoreTime(5))
}

/// Who knows a claim's id can prove a push; a token that the store's clock does not reach
/// is not believed from it either, but asked about.
#[test]
fn a_token_beyond_the_clock_is_asked_about() {
    let key = Key::new("k").expect("a key");
    let now = Moment(1);
    for (token, believed) in [(9, true), (u64::MAX, false), (9_007_199_254_740_991, false)] {
        let mut registry = Registry::new(1, OwnIds::default());
        let signal = Arc::new(Signal::default());
        let waiter = waiter(Arrival(7));
        registry.insert_waiting(subject(&key), waiter, answered(), signal.clone(), now);
        registry.handle_push(&granted(&key, 7, token), now, false);
        let held = signal.standpoint_told() == Some(Standpoint::Held);
        assert_eq!(held, believed, "{token}");
        if !believed {
            assert_eq!(registry.next_due(), Some(now), "it asks at once");
        }
    }
}

/// A push of before the answer that the claim waits was said to it before: it is worth a
/// question, however genuine it was.
#[test]
fn an_older_grant_is_asked_about() {
    let key = Key::new("k").expect("a key");
    let (now, later) = (Moment(1), LastAnswer::new(Moment(1), StoreTime(6)));
    let mut registry = Registry::new(1, OwnIds::default());
    let signal = Arc::new(Signal::default());
    registry.insert_waiting(
        subject(&key),
        waiter(Arrival(7)),
        later,
        signal.clone(),
        now,
    );
    registry.handle_push(&granted(&key, 7, 1), now, false);
    assert_eq!(signal.standpoint_told(), None);
    assert_eq!(registry.next_due(), Some(now));
}

/// Once, what was kept for others filled the room, and a grant was missed
/// until the next heartbeat.
#[test]
fn a_push_before_its_claim_is_kept_however_many_came_before() {
    let key = Key::new("k").expect("a key");
    let mut registry = Registry::new(1, OwnIds::default());
    let (now, last) = (Moment(1), 3 * EARLY_PUSHES as u64);
    for arrival in 1..=last {
        registry.handle_push(&granted(&key, arrival, 1), now, true);
    }
    let signal = Arc::new(Signal::default());
    let waiter = waiter(Arrival(last));
    registry.insert_waiting(subject(&key), waiter, answered(), signal.clone(), now);
    assert_eq!(signal.standpoint_told(), Some(Standpoint::Held));
    assert_eq!(registry.early.len(), EARLY_PUSHES - 1, "and given out once");
}

#[test]
fn what_leaves_is_released_until_confirmed_or_lapsed() {
    let key = Key::new("k").expect("a key");
    let mut registry = Registry::new(1, OwnIds::default());
    let until = Moment(1) + TTL;
    registry.insert_leaving(subject(&key), Moment(1), until);
    let mut sends = Vec::new();
    registry.collect_due(Moment(1), &mut sends);
    assert!(matches!(
        sends[..],
        [Send {
            errand: Errand::Release,
            ..
        }]
    ));
    let lost = |send: Send| Done {
        entry: send.entry,
        errand: send.errand,
        sent: send.sent,
        result: Err(StoreError::new(crate::ErrorKind::Unavailable, "no answer")),
    };
    registry.complete(&lost(sends.remove(0)), Moment(2));
    assert_eq!(registry.departures(), (1, 0), "it tries again");
    assert!(
        registry
            .next_due()
            .is_some_and(|due| due > Moment(2) && due < until)
    );
    registry.collect_due(until, &mut sends);
    for send in sends {
        registry.complete(&lost(send), until);
    }
    assert!(registry.is_empty(), "the claim has lapsed by then");
}
