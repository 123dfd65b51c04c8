use std::time::Duration;

use super::{DEADLINES, TTL, WAITER, at, but, heard, place, terms};
use crate::machine::types::{Granted, Request};
use crate::machine::waiter::Waiter;
use crate::machine::{End, Failure, Response};
use crate::{
    Arrival, Capacity, Claim, ClaimId, Command, Key, Mode, Moment, Proof, Push, Reply, Standing,
    StoreTime, Token, drift_allowance,
};

const RENEW: Request = Request::Renew(WAITER);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn waiter(give_up: Option<Moment>) -> Waiter {
    let ask = Command::Claim(Claim::new(ClaimId::from_random(1), Mode::EXCLUSIVE, TTL));
    let deadlines = but(DEADLINES, |it| it.give_up = give_up);
    Waiter::new(ask, &terms(), &deadlines, at(0))
}

fn standing(position: u64, left: u64) -> Reply {
    Reply::Standing(Standing {
        position,
        blocked_until: (position > 0).then(|| STORE + ms(left)),
        ..place(7, (position == 0).then_some(70), None)
    })
}

const STORE: StoreTime = StoreTime(5_000_000);

fn answer(epoch: u64, reply: Reply, at: StoreTime) -> Response {
    Response {
        at,
        epoch,
        ..heard(reply)
    }
}

/// The renewal that was sent then is answered, on this epoch.
fn renewed(waiter: &mut Waiter, now: u64, sent: u64, epoch: u64, reply: Reply) {
    waiter.handle_reply(at(now), at(sent), RENEW, &answer(epoch, reply, STORE));
}

#[track_caller]
fn granted(waiter: &Waiter) -> Granted {
    match waiter.outcome {
        Some(Ok(granted)) => granted,
        other => panic!("{other:?}"),
    }
}

/// Until when a wait is valid that was renewed by what was sent then.
fn valid_from(sent: u64) -> Moment {
    at(sent) + WAITER.saturating_sub(drift_allowance(WAITER))
}

fn pushed(epoch: u64, arrival: Arrival, at: StoreTime) -> Push {
    Push::Granted {
        epoch,
        key: Key::new("k").unwrap(),
        arrival,
        token: Token(70),
        behind: None,
        at,
        proof: Proof::of(&ClaimId::from_random(1), "proved before"),
    }
}

/// Waits at this place, by an answer that came at 10 on epoch 3.
fn waiting(position: u64, left: u64, give_up: Option<Moment>) -> Waiter {
    let mut waiter = waiter(give_up);
    assert_eq!(waiter.poll_transmit(at(0)), Some(Request::Claim));
    let reply = standing(position, left);
    waiter.handle_reply(at(10), at(0), Request::Claim, &answer(3, reply, STORE));
    waiter
}

#[test]
fn the_next_in_line_looks_first_and_the_others_one_after_another() {
    let look = |position, left| waiting(position, left, None).poll_timeout();
    assert_eq!(look(1, 500), Some(at(510)));
    assert_eq!(look(2, 500), Some(at(560)));
    assert_eq!(look(5, 500), Some(at(710)));
    assert_eq!(look(1, 0), Some(at(20)), "never at once again");
    assert_eq!(look(1, 60_000), Some(at(3_000)), "it keeps its place");
    let last = Some(at(1_010));
    assert_eq!(look(1_000, 0), last, "all ahead may be of one dead client");
    assert_eq!(look(u64::MAX, 0), last, "no overflow");
}

/// Waits where nothing is heard: answered at these times, each time at this place.
fn unheard(answers: &[(u64, u64)]) -> Waiter {
    let mut waiter = waiter(None);
    for &(time, position) in answers {
        renewed(&mut waiter, time, time, 0, standing(position, 60_000));
    }
    waiter
}

#[test]
fn where_nothing_is_heard_it_asks_by_its_place_and_by_how_long_it_has_had_it() {
    for (answers, next) in [
        (&[(0, 1)][..], 20),
        (&[(0, 3)], 60),
        (&[(0, 1), (160, 1)], 180),
        (&[(0, 1), (800, 1)], 900),
        (&[(0, 1), (80_000, 1)], 80_500),
        (&[(0, 2), (800, 2)], 1_000),
        // It has moved up: from then on it counts anew.
        (&[(0, 2), (800, 1)], 820),
        (&[(0, 2), (800, 1), (880, 1)], 900),
        // It keeps its place as others do.
        (&[(0, 500)], 3_000),
        (&[(0, u64::MAX)], 3_000),
    ] {
        let waiter = unheard(answers);
        assert_eq!(waiter.poll_timeout(), Some(at(next)), "{answers:?}");
    }
    let mut heard = unheard(&[(0, 1)]);
    renewed(&mut heard, 20, 20, 3, standing(1, 60_000));
    let next = heard.poll_timeout();
    assert_eq!(next, Some(at(3_020)), "others tell it again");
}

#[test]
fn a_push_that_overtakes_its_answer_is_kept() {
    let overtaken = |answer_epoch| {
        let mut waiter = waiting(1, 60_000, None);
        waiter.handle_reset(at(20));
        assert_eq!(waiter.poll_transmit(at(20)), Some(RENEW));
        waiter.handle_granted(&pushed(4, Arrival(7), STORE));
        assert_eq!(waiter.outcome, None, "no answer on its epoch yet");
        renewed(&mut waiter, 30, 20, answer_epoch, standing(1, 60_000));
        waiter.outcome.is_some()
    };
    assert!(overtaken(4));
    assert!(!overtaken(3), "another epoch");
}

#[test]
fn a_reset_asks_again_after_the_answer_under_way() {
    let mut waiter = waiting(1, 100, None);
    assert_eq!(waiter.poll_transmit(at(110)), Some(RENEW));
    waiter.handle_reset(at(120));
    renewed(&mut waiter, 130, 110, 3, standing(1, 60_000));
    assert_eq!(waiter.poll_transmit(at(130)), Some(RENEW));
}

#[test]
fn a_hint_does_not_put_off_what_is_due() {
    let mut waiter = waiting(1, 60_000, None);
    waiter.handle_reset(at(20));
    waiter.handle_next(at(20), Arrival(7), ms(500));
    assert_eq!(waiter.poll_transmit(at(20)), Some(RENEW));
}

#[test]
fn a_grant_counts_from_the_sending() {
    let mut waiter = waiting(1, 100, None);
    assert_eq!(waiter.poll_transmit(at(110)), Some(RENEW));
    assert!(waiter.in_flight());
    assert_eq!(waiter.poll_transmit(at(110)), None, "one at a time");
    renewed(&mut waiter, 900, 110, 3, standing(0, 0));
    let granted = granted(&waiter);
    assert_eq!(granted.token, Token(70));
    assert_eq!(granted.validity.until(), valid_from(110));
    assert_eq!(granted.confirm_at, Some(at(3_110)));
    assert_eq!(waiter.poll_timeout(), None);
}

#[test]
fn a_push_counts_for_its_epoch_and_arrival_only() {
    let mut waiter = waiter(None);
    waiter.handle_granted(&pushed(3, Arrival(7), STORE));
    assert_eq!(waiter.outcome, None, "before the first answer");
    for (epoch, arrival) in [(2, 7), (4, 7), (3, 6), (3, 8)] {
        let mut waiter = waiting(1, 100, None);
        waiter.handle_granted(&pushed(epoch, Arrival(arrival), STORE));
        assert_eq!(waiter.outcome, None, "{epoch} {arrival}");
    }
    let mut waiter = waiting(1, 100, None);
    waiter.handle_granted(&pushed(3, Arrival(7), STORE));
    let granted = granted(&waiter);
    assert_eq!(granted.validity.until(), valid_from(0));
    assert_eq!(granted.confirm_at, Some(at(3_000)));
}

#[test]
fn the_epoch_of_the_last_answer_counts() {
    let mut waiter = waiting(1, 1_000, None);
    waiter.handle_reset(at(50));
    waiter.handle_granted(&pushed(4, Arrival(7), STORE));
    assert_eq!(waiter.outcome, None, "not before an answer on it");
    assert!(waiter.poll_transmit(at(50)).is_some(), "asks at once");
    renewed(&mut waiter, 60, 50, 4, standing(1, 900));
    waiter.handle_granted(&pushed(3, Arrival(7), STORE));
    assert_eq!(waiter.outcome, None, "the old one is over");
    waiter.handle_granted(&pushed(4, Arrival(7), STORE));
    assert!(matches!(waiter.outcome, Some(Ok(_))));
}

/// A server that has lost the grant says that the claim waits: the push is of the past.
#[test]
fn a_push_of_before_the_answer_is_not_kept_for_it() {
    for (of, believed) in [(STORE, false), (STORE + ms(60), true)] {
        let mut waiter = waiting(1, 1_000, None);
        waiter.handle_reset(at(50));
        assert!(waiter.poll_transmit(at(50)).is_some(), "asks at once");
        waiter.handle_granted(&pushed(4, Arrival(7), of));
        let later = STORE + ms(60);
        waiter.handle_reply(at(60), at(50), RENEW, &answer(4, standing(1, 900), later));
        assert_eq!(waiter.outcome.is_some(), believed);
    }
}

#[test]
fn a_doubt_is_asked_about() {
    let mut waiter = waiting(1, 9_000, None);
    waiter.handle_doubt(at(20), at(20));
    assert_eq!(waiter.poll_transmit(at(20)), Some(RENEW));
    waiter.handle_doubt(at(21), at(70));
    renewed(&mut waiter, 30, 20, 3, standing(1, 9_000));
    assert_eq!(waiter.poll_transmit(at(30)), None, "that was for later");
    assert!(waiter.poll_transmit(at(3_030)).is_some());
    waiter.handle_doubt(at(3_040), at(3_040));
    renewed(&mut waiter, 3_050, 3_030, 3, standing(1, 9_000));
    let again = waiter.poll_transmit(at(3_050));
    assert_eq!(again, Some(RENEW), "the answer may be older");
}

#[test]
fn what_an_older_claim_of_the_id_allowed_is_forgotten() {
    let mut waiter = waiting(1, 9_000, None);
    assert!(waiter.poll_transmit(at(3_000)).is_some());
    let Reply::Standing(mut standing) = standing(2, 9_000) else {
        unreachable!();
    };
    standing.arrival = Arrival(9);
    renewed(&mut waiter, 3_010, 3_000, 3, Reply::Standing(standing));
    assert_eq!(waiter.position(), Some((Arrival(9), 2)));
    waiter.handle_granted(&pushed(3, Arrival(7), STORE));
    assert_eq!(waiter.outcome, None);
}

#[test]
fn a_hint_brings_the_look_forward_for_its_arrival() {
    let mut waiter = waiting(4, 2_000, None);
    waiter.handle_next(at(20), Arrival(6), ms(100));
    assert_eq!(waiter.poll_timeout(), Some(at(2_160)));
    waiter.handle_next(at(20), Arrival(7), ms(100));
    assert_eq!(waiter.poll_timeout(), Some(at(120)));
    assert_eq!(waiter.position(), Some((Arrival(7), 1)));
}

#[test]
fn gives_up_on_time_whatever_is_under_way() {
    let mut waiter = waiting(1, 9_000, Some(at(700)));
    assert_eq!(waiter.poll_timeout(), Some(at(700)));
    waiter.handle_timeout(at(699));
    assert_eq!(waiter.outcome, None, "an early call is nothing");
    waiter.handle_timeout(at(700));
    assert_eq!(waiter.outcome, Some(Err(End::TimedOut)));
    assert_eq!(waiter.poll_transmit(at(9_999)), None);
    renewed(&mut waiter, 701, 690, 3, standing(0, 0));
    assert_eq!(waiter.outcome, Some(Err(End::TimedOut)));
}

/// That its time is over says that others have the key only while the store answers.
#[test]
fn a_store_that_has_not_answered_is_no_time_out() {
    type Before = fn(&mut Waiter);
    fn asks(waiter: &mut Waiter, millis: u64) {
        waiter.handle_doubt(at(millis), at(millis));
        assert!(waiter.poll_transmit(at(millis)).is_some());
    }
    use End::{TimedOut, Unreachable};
    let cases: [(&str, End, Before); 5] = [
        ("nothing under way", TimedOut, |_| {}),
        ("its answer may come", TimedOut, |it| asks(it, 600)),
        ("it had the time", Unreachable, |it| asks(it, 500)),
        ("the last failed", Unreachable, |it| {
            asks(it, 900);
            it.handle_failure(at(990), Failure::Unanswered);
        }),
        ("answered since", TimedOut, |it| {
            asks(it, 100);
            it.handle_failure(at(110), Failure::Unanswered);
            let due = it.poll_timeout().unwrap();
            assert!(it.poll_transmit(due).is_some());
            it.handle_reply(at(200), due, RENEW, &answer(3, standing(1, 9_000), STORE));
        }),
    ];
    for (why, expected, before) in cases {
        let mut waiter = waiting(1, 9_000, Some(at(1_000)));
        before(&mut waiter);
        waiter.handle_timeout(at(1_000));
        assert_eq!(waiter.outcome, Some(Err(expected)), "{why}");
    }
    let mut asking = waiter(Some(at(1_000)));
    assert!(asking.poll_transmit(at(0)).is_some());
    asking.handle_failure(at(1_000), Failure::Unanswered);
    asking.handle_timeout(at(1_000));
    assert_eq!(asking.outcome, Some(Err(Unreachable)), "no place");
}

#[test]
fn is_patient_while_it_has_a_place() {
    let mut asking = waiter(None);
    assert!(asking.poll_transmit(at(0)).is_some());
    assert_eq!(asking.poll_timeout(), Some(at(2_000)));
    asking.handle_timeout(at(2_000));
    assert_eq!(asking.outcome, Some(Err(End::Unreachable)));

    let mut waiter = waiting(1, 9_000, None);
    assert!(waiter.poll_transmit(at(3_000)).is_some());
    let end = at(3_000) + WAITER;
    assert_eq!(waiter.poll_timeout(), Some(end), "nothing else matters");
    waiter.handle_timeout(end);
    assert_eq!(waiter.outcome, Some(Err(End::Unreachable)));
}

/// A process that was stopped has not asked: the store has been silent for no time.
#[test]
fn a_pause_of_the_client_is_no_silence_of_the_store() {
    let mut waiter = waiting(1, 9_000, None);
    let late = at(10) + 10 * WAITER;
    waiter.handle_timeout(late);
    assert_eq!(waiter.outcome, None);
    assert_eq!(waiter.poll_transmit(late), Some(RENEW));
    assert_eq!(waiter.poll_timeout(), Some(late + WAITER));
    waiter.handle_reply(late, late, RENEW, &answer(3, standing(2, 9_000), STORE));
    assert_eq!(waiter.position().map(|(_, position)| position), Some(2));
}

#[test]
fn asks_again_with_growing_pauses() {
    let mut waiter = waiting(1, 0, None);
    let mut tries = 0;
    while waiter.outcome.is_none() && tries < 1_000 {
        let now = waiter.poll_timeout().unwrap();
        waiter.handle_timeout(now);
        if waiter.poll_transmit(now).is_some() {
            tries += 1;
            waiter.handle_failure(now, Failure::Unanswered);
        }
    }
    assert!((8..25).contains(&tries), "{tries} in {WAITER:?}");
}

#[test]
fn definite_answers_end_it() {
    let busy = Reply::Busy {
        blocked_until: STORE,
    };
    let other = Reply::Mismatch {
        in_use: Capacity::Permits(3),
    };
    for (reply, verdict) in [
        (busy, End::Busy(Duration::ZERO)),
        (other, End::Mismatch(Capacity::Permits(3))),
        (Reply::Gone, End::Gone),
        (Reply::Absent, End::Gone),
    ] {
        let mut waiter = waiter(None);
        assert!(waiter.poll_transmit(at(0)).is_some());
        waiter.handle_reply(at(5), at(0), Request::Claim, &answer(1, reply, STORE));
        assert_eq!(waiter.outcome, Some(Err(verdict)));
        assert_eq!(waiter.poll_timeout(), None);
    }
}
