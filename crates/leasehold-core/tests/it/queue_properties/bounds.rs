//! Limits of the queue, which show only with many claims or at exact times.

use crate::common::*;
use crate::queue_properties::histories::{inbox, ms};
use crate::queue_properties::world::in_the_record;

fn id(n: u64) -> ClaimId {
    ClaimId::new(format!("{n:06}")).unwrap()
}

fn one(n: u64, mode: Mode, waits: Duration) -> Claim {
    Claim {
        waiter_ttl: waits,
        inbox: Some(inbox(1)),
        ..Claim::new(id(n), mode, waits)
    }
}

fn claim(n: u64, mode: Mode, waits: Duration) -> Command {
    Command::Claim(one(n, mode, waits))
}

/// Design 1: "at most 256 drops a step", and still nobody waits for ever.
#[test]
fn a_crowd_of_dead_claims_is_dropped_in_bounded_steps() {
    for (mode, dead) in [(Mode::SHARED, 700_u64), (Mode::EXCLUSIVE, 700)] {
        let mut queue = Queue::default();
        let start = StoreTime(1_000_000_000);
        for n in 0..dead {
            queue.apply(&claim(n, mode, ms(10)), start);
        }
        let later = start + ms(10_000);
        let last = claim(dead, Mode::EXCLUSIVE, ms(60_000));
        let mut steps = 0;
        while queue.look(later).holders.is_empty() {
            let before = in_the_record(&queue);
            let reply = queue.apply(&last, later).reply;
            let dropped = (before + usize::from(steps == 0)).saturating_sub(in_the_record(&queue));
            assert!(dropped <= DROPS_PER_STEP, "{dropped}: {reply:?}");
            steps += 1;
            assert!(steps <= 5, "still blocked: {reply:?}");
        }
        assert!(steps > 2, "{steps}");
        assert_eq!(in_the_record(&queue), 1);
    }
}

/// Design 1: tombstones are "bounded by time and by number".
#[test]
fn tombstones_are_bounded() {
    let mut queue = Queue::default();
    let now = StoreTime(1_000_000_000);
    let release = |n: u64| release(id(n));
    for n in 0..=TOMBSTONES as u64 {
        assert_eq!(queue.apply(&release(n), now).reply, Reply::Absent);
    }
    let try_again = |queue: &Queue, n, at| {
        let mut queue = queue.clone();
        queue.apply(&claim(n, Mode::SHARED, ms(9)), at).reply
    };
    assert!(matches!(try_again(&queue, 0, now), Reply::Standing(_)));
    assert_eq!(try_again(&queue, 1, now), Reply::Gone);
    let almost = TOMBSTONE_LIFE - Duration::from_micros(1);
    assert_eq!(try_again(&queue, 1, now + almost), Reply::Gone);
    let forgotten = try_again(&queue, 1, now + TOMBSTONE_LIFE);
    assert!(matches!(forgotten, Reply::Standing(_)));
    // Forgetting needs no step of its own, and a step back of the clock does
    // not make a tombstone live longer than that in the key's time.
    queue.apply(&release(999), now.before(ms(5_000)));
    assert_eq!(try_again(&queue, 999, now), Reply::Gone);
}

/// `Release::hand_off`: without it "somebody else may come first", namely a
/// claim that asks to be granted `ahead`. A fair one may not.
#[test]
fn after_a_release_without_hand_off_an_unfair_claim_may_come_first() {
    let now = StoreTime(1_000_000_000);
    let lease = ms(60_000);
    let mut queue = Queue::default();
    queue.apply(&claim(0, Mode::EXCLUSIVE, lease), now);
    queue.apply(&claim(1, Mode::EXCLUSIVE, lease), now);
    let told = queue.apply(&vacate(id(0)), now).events;
    assert!(matches!(told[..], [Event::Next { blocked_until, .. }] if blocked_until == now));

    let token_of = |queue: &Queue, ahead: bool| {
        let stranger = Command::Claim(but(one(2, Mode::EXCLUSIVE, lease), |it| it.ahead = ahead));
        standing(queue.clone().apply(&stranger, now).reply).token
    };
    assert_eq!(token_of(&queue, false), None, "fair");
    assert!(token_of(&queue, true).is_some(), "unfair");
}
