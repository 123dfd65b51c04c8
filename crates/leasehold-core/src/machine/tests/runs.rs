//! One claim of a run: when it holds, and when it passes the hold on.

use super::*;
use crate::machine::types::RunNews;

/// Granted with the token 9, behind the claim 6 of the same client.
fn following() -> ClaimMachine {
    let life = answered(terms(), Ok(heard(behind(9, 6))));
    assert_eq!((life.phase(), life.position()), (Waiting, Some(1)));
    assert_eq!((life.behind(), life.token()), (Some(Arrival(6)), None));
    life
}

#[test]
fn who_follows_holds_when_the_lease_right_ahead_is_passed_on() {
    let mut life = following();
    life.handle_run(at(5), RunNews::Turn(Arrival(5), Token(8)));
    assert_eq!(life.phase(), Waiting, "that was another's turn");
    life.handle_run(at(6), RunNews::Turn(Arrival(6), Token(3)));
    assert_eq!((life.phase(), life.token()), (Held, Some(Token(9))));
    assert!(life.valid_until() > at(6));
}

/// The one ahead was granted anew, and so was this one, which has not heard of it.
#[test]
fn a_turn_in_a_run_that_has_ended_is_none() {
    let mut life = following();
    life.handle_run(at(6), RunNews::Turn(Arrival(6), Token(10)));
    assert_eq!(life.phase(), Waiting);
}

#[test]
fn a_push_can_say_that_a_claim_follows() {
    let mut life = waiting();
    life.handle_push(at(2), &granted_to(id(1), 7, 4, Some(6), 0));
    assert_eq!((life.phase(), life.behind()), (Waiting, Some(Arrival(6))));
    life.handle_run(at(3), RunNews::Turn(Arrival(6), Token(3)));
    assert_eq!((life.phase(), life.token()), (Held, Some(Token(4))));
}

/// However the one ahead has ended, the store knows who holds now.
#[test]
fn who_follows_asks_when_its_run_ends() {
    let mut life = following();
    life.handle_run(at(5), RunNews::Ended(Arrival(6)));
    assert_eq!((life.phase(), life.poll_timeout()), (Waiting, Some(at(5))));
    exchange(&mut life, 5, 6, standing(Some(9)));
    assert_eq!((life.phase(), life.token()), (Held, Some(Token(9))));
}

/// Another server may take over with less than this one knew.
#[test]
fn a_lost_connection_ends_a_run() {
    let mut life = following();
    life.handle_reconnection(at(5));
    assert_eq!((life.behind(), life.poll_timeout()), (None, Some(at(5))));
    life.handle_run(at(6), RunNews::Turn(Arrival(6), Token(3)));
    assert_eq!(life.phase(), Waiting);
}

/// Also before there is another connection. It has nobody to ask until then.
#[test]
fn a_disconnection_ends_a_run() {
    let mut life = following();
    let due = life.poll_timeout();
    life.handle_disconnection();
    assert_eq!((life.behind(), life.poll_timeout()), (None, due));
    life.handle_run(at(6), RunNews::Turn(Arrival(6), Token(3)));
    assert_eq!(life.phase(), Waiting);
    life.handle_reconnection(at(7));
    exchange(&mut life, 7, 8, behind(9, 6));
    life.handle_run(at(9), RunNews::Turn(Arrival(6), Token(3)));
    assert_eq!(life.phase(), Held, "the store knows of it");
}

#[test]
fn pushes_that_were_missed_do_not_end_a_run() {
    let mut life = following();
    life.handle_reset(at(5));
    assert_eq!(life.behind(), Some(Arrival(6)));
    assert_eq!(life.poll_timeout(), Some(at(5)));
    life.handle_run(at(6), RunNews::Turn(Arrival(6), Token(3)));
    assert_eq!((life.phase(), life.token()), (Held, Some(Token(9))));
}

/// A claim whose wait has lapsed by its own clock does not hold, whoever passes the hold on.
#[test]
fn a_turn_that_comes_too_late_is_none() {
    let mut life = following();
    life.handle_run(at(60_000), RunNews::Turn(Arrival(6), Token(3)));
    assert!(life.valid_until() < at(60_000));
    assert!(!matches!(life.collect(at(60_000)), Ready(Ok(()))));
}

#[test]
fn a_lease_is_passed_on_if_it_was_valid_and_nobody_else_can_have_it() {
    type Before = fn(&mut ClaimMachine);
    let cases: [(&str, bool, u64, Before); 7] = [
        ("at once", true, 10, |_| {}),
        ("not valid any more", false, 40_000, |_| {}),
        ("others may have broken or adopted it", false, 10, |it| {
            assert_eq!(it.expose().0, &id(1));
        }),
        ("another server may answer", false, 10, |it| {
            it.handle_reconnection(at(5));
        }),
        ("no server answers", false, 10, |it| {
            it.handle_disconnection();
        }),
        ("the same server", true, 10, |it| it.handle_reset(at(5))),
        ("it was lost", false, 10, |it| {
            it.handle_push(at(2), &revocation());
        }),
    ];
    for (why, passes, millis, before) in cases {
        let mut life = held(terms());
        before(&mut life);
        life.release(at(millis));
        let passed = passes.then_some((Arrival(7), Token(7)));
        assert_eq!(life.passed(), passed, "{why}");
    }
    let mut unfair = held(but(terms(), |it| it.hand_off = false));
    unfair.release(at(10));
    assert_eq!(unfair.passed(), None, "others may come first");
}

/// The release of the one ahead may not have reached the store yet.
#[test]
fn a_downgrade_is_asked_for_until_the_store_sees_its_lease_hold() {
    let mut life = following();
    life.handle_run(at(5), RunNews::Turn(Arrival(6), Token(3)));
    let change = life.change(Change::Downgrade, at(6));
    let mut ask = send(&mut life, 6);
    while !matches!(&*ask.command, Command::Renew(renew) if renew.downgrade) {
        life.handle_answer(at(6), &ask, Ok(heard(behind(9, 6))));
        ask = send(&mut life, 6);
    }
    life.handle_answer(at(7), &ask, Ok(heard(behind(9, 6))));
    assert_eq!(life.outcome(change), None);
    let again = life.poll_timeout().expect("it asks again");
    life.handle_timeout(again);
    answered_at(&mut life, again, Ok(heard(standing(Some(9)))));
    assert_eq!(life.outcome(change), Some(Changed::Done));
}

/// The answer of the server before may be read after the connection was lost: what it says of a
/// run is not of the server that answers next.
#[test]
fn an_answer_of_before_a_lost_connection_begins_no_run() {
    let mut life = waiting();
    life.handle_timeout(at(5_000));
    let ask = send(&mut life, 5_000);
    life.handle_reconnection(at(5_001));
    life.handle_answer(at(5_002), &ask, Ok(heard(behind(9, 6))));
    life.handle_run(at(5_003), RunNews::Turn(Arrival(6), Token(3)));
    assert_eq!(life.phase(), Waiting, "another server may not know it");
}

/// After a `break` whoever took its turn before it heard of it is granted anew, under another
/// token: that it is told so is a reason to ask.
#[test]
fn a_lease_that_is_granted_anew_asks() {
    let mut life = following();
    life.handle_run(at(5), RunNews::Turn(Arrival(6), Token(3)));
    life.handle_push(at(6), &granted(7, 20, 0));
    let due = life.poll_timeout().expect("it is void");
    assert!(due <= at(1_000), "{due:?}");
}

/// Its client may not know the claim ahead, or not yet.
#[test]
fn who_follows_what_its_client_does_not_know_asks_from_time_to_time() {
    let mut life = following();
    life.handle_run(at(5), RunNews::Unknown(Arrival(6)));
    let soon = life.poll_timeout().expect("it asks");
    assert!(soon > at(5) && soon < at(100), "it may be known at once");
    answered_at(&mut life, soon, Ok(heard(behind(9, 6))));
    let again = life.poll_timeout().expect("it asks again");
    assert!(again < at(2_000), "and long before its wait lapses");
    life.handle_run(soon, RunNews::Known);
    answered_at(&mut life, again, Ok(heard(behind(9, 6))));
    let later = life.poll_timeout().expect("it keeps its place");
    assert!(later > at(2_000), "its client tells it");
}
