use leasehold_core::{ClaimId, RenewalPolicy, Reply, Standing, StoreTime, Token, WaiterConfig};

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

fn granted(key: &Key, arrival: u64) -> Push {
    let (arrival, token) = (Arrival(arrival), Token(arrival));
    Push::Granted {
        epoch: 1,
        key: key.clone(),
        arrival,
        token,
    }
}

/// Once, what was kept for others filled the room, and a grant was missed
/// until the next heartbeat.
#[test]
fn a_push_before_its_claim_is_kept_however_many_came_before() {
    let key = Key::new("k").expect("a key");
    let mut registry = Registry::new(1, OwnIds::default());
    let (now, last) = (Moment(1), 3 * EARLY_PUSHES as u64);
    for arrival in 1..=last {
        registry.handle_push(&granted(&key, arrival), now, true);
    }
    let signal = Arc::new(Signal::default());
    registry.insert_waiting(subject(&key), waiter(Arrival(last)), signal.clone(), now);
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
