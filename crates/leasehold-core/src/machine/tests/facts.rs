use super::Fact::{Ended, Granted, Lost, Queued, Released, Renewed, Requested, Unanswered};
use super::*;
use crate::{Capacity, Reply, StoreTime};

fn look(facts: &mut Facts, life: &ClaimMachine, millis: u64) -> Vec<Fact> {
    let mut told = Vec::new();
    facts.look(life, at(millis), |fact| told.push(fact));
    told
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_life_is_told_from_its_request_to_its_release() {
    let mut facts = Facts::default();
    let mut life = waiting();
    let queued = Queued { position: 1 };
    assert_eq!(look(&mut facts, &life, 1), [Requested, queued]);
    assert_eq!(look(&mut facts, &life, 2), []);
    life.handle_push(at(40), &granted(7, 9, 0));
    let (token, waited) = (Token(9), millis(39));
    assert_eq!(look(&mut facts, &life, 40), [Granted { token, waited }]);
    assert_eq!(look(&mut facts, &life, 41), []);
    life.release(at(90));
    let held = millis(50);
    assert_eq!(look(&mut facts, &life, 90), [Released { held }]);
    let (release, answer) = (released(&mut life, 91), Reply::Released { held: true });
    life.handle_answer(at(92), &release, Ok(heard(answer)));
    assert_eq!(look(&mut facts, &life, 92), []);
}

/// Whether it has timed out, or the store is out of reach, is known when it has left.
#[test]
fn an_end_is_told_once_it_is_known() {
    for (confirmed, end) in [(true, End::TimedOut), (false, End::Unreachable)] {
        let mut facts = Facts::default();
        let (mut life, release) = withdrawing();
        let told = look(&mut facts, &life, 1_000);
        assert!(!told.iter().any(|fact| matches!(fact, Ended { .. })));
        if confirmed {
            let answer = Reply::Released { held: false };
            life.handle_answer(at(1_200), &release, Ok(heard(answer)));
        } else {
            life.give_up(at(1_200));
        }
        let (end, waited) = (Some(end), millis(200));
        assert_eq!(look(&mut facts, &life, 1_200), [Ended { end, waited }]);
    }
}

#[test]
fn renewals_are_told_and_so_is_the_lack_of_an_answer() {
    let mut facts = Facts::default();
    let mut life = held(terms());
    assert_eq!(look(&mut facts, &life, 1).len(), 2);
    life.change(Change::Renew(None), at(2_000));
    exchange(&mut life, 2_000, 2_001, standing(Some(7)));
    let told = look(&mut facts, &life, 2_001);
    assert!(matches!(told[..], [Renewed { remaining }] if remaining > millis(29_000)));

    let due = life.poll_timeout().unwrap();
    life.handle_timeout(due);
    let renew = life.poll_transmit(due, || None).unwrap();
    life.handle_answer(due + millis(100), &renew, Err(Failure::Unanswered));
    let mut told = Vec::new();
    facts.look(&life, due + millis(100), |fact| told.push(fact));
    assert!(matches!(told[..], [Unanswered { .. }]), "{told:?}");
}

#[test]
fn a_loss_is_told_once() {
    let mut facts = Facts::default();
    let mut life = held(terms());
    look(&mut facts, &life, 1);
    life.change(Change::Renew(None), at(500));
    exchange(&mut life, 500, 501, Reply::Gone);
    let (loss, held) = (Loss::Gone, millis(500));
    assert_eq!(look(&mut facts, &life, 501), [Lost { loss, held }]);
    life.leave(at(600));
    assert_eq!(look(&mut facts, &life, 600), []);
}

#[test]
fn what_was_not_granted_ends_with_its_reason() {
    let mut facts = Facts::default();
    let (mut life, ask) = asked(terms());
    assert_eq!(look(&mut facts, &life, 0), [Requested]);
    let busy = Reply::Busy {
        blocked_until: StoreTime(2_000_005),
    };
    life.handle_answer(at(3), &ask, Ok(heard(busy)));
    let told = look(&mut facts, &life, 3);
    let waited = millis(3);
    assert!(
        matches!(told[..], [Ended { end: Some(End::Busy(_)), waited: time }] if time == waited),
        "{told:?}"
    );

    let (mut facts, mut life) = (Facts::default(), waiting());
    look(&mut facts, &life, 1);
    life.leave(at(7));
    let (end, waited) = (None, millis(6));
    assert_eq!(look(&mut facts, &life, 7), [Ended { end, waited }]);
}

/// Bindings know them by their numbers.
#[test]
fn the_numbers_stay() {
    let (left, capacity) = (Duration::ZERO, Capacity::Lock);
    let ends = [
        (End::Busy(left), 1),
        (End::Quarantined(left), 2),
        (End::TimedOut, 3),
        (End::Unreachable, 4),
        (End::Refused, 5),
        (End::Gone, 6),
        (End::Superseded, 7),
        (End::Mismatch(capacity), 8),
        (End::Taken, 9),
        (End::Unacknowledged, 10),
        (End::Late, 11),
        (End::TooLate, 12),
    ];
    assert!(ends.iter().all(|(end, number)| end.number() == *number));
    assert_eq!((Loss::Gone as u8, Loss::Forked as u8), (1, 10));
}
