mod facts;
mod keys;
mod renewal;
mod runs;
mod waiter;

use std::task::Poll::{Pending, Ready};
use std::time::Duration;

use super::Phase::{Asking, Held, Leaving, Over, Waiting};
use super::*;
use crate::{Command, Event, Inbox, Key, Mode, Note, Reply, Standing, StoreTime, Token};

const TTL: Duration = Duration::from_secs(30);
const WAITER: Duration = Duration::from_secs(9);
const STORE: StoreTime = StoreTime(5);

pub(super) fn at(millis: u64) -> Moment {
    Moment(1_000_000_000) + Duration::from_millis(millis)
}

pub(super) fn terms() -> Terms {
    Terms {
        ttl: TTL,
        waiter_ttl: WAITER,
        operation: OPERATION,
        policy: RenewalPolicy::Automatic(1.0 / 3.0),
        hand_off: true,
        max_hold: None,
        rotate_every: None,
        acknowledges: Acknowledges::Nothing,
    }
}

const OPERATION: Duration = Duration::from_secs(2);

const DEADLINES: Deadlines = Deadlines {
    began: Moment(1_000_000_000),
    give_up: None,
    stop: None,
    seed: 1,
};

/// The same, but for this.
fn but<T>(mut it: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut it);
    it
}

fn id(bits: u128) -> ClaimId {
    ClaimId::from_random(bits)
}

fn key() -> Key {
    Key::new("k").unwrap()
}

pub(super) fn asked(terms: Terms) -> (ClaimMachine, Transmit) {
    asked_within(terms, DEADLINES)
}

fn asked_within(terms: Terms, deadlines: Deadlines) -> (ClaimMachine, Transmit) {
    let claim = Claim::new(id(1), Mode::EXCLUSIVE, terms.ttl);
    let mut life = ClaimMachine::claim(claim, terms, deadlines, at(0));
    assert_eq!(life.phase(), Asking);
    let ask = send(&mut life, 0);
    (life, ask)
}

pub(super) fn send(life: &mut ClaimMachine, millis: u64) -> Transmit {
    life.poll_transmit(at(millis), || None)
        .expect("it has something to send")
}

/// What it sends at that moment is answered at once.
#[track_caller]
fn answered_at(life: &mut ClaimMachine, now: Moment, answer: Result<Response, Failure>) {
    let sent = life.poll_transmit(now, || None);
    life.handle_answer(now, &sent.expect("it asks"), answer);
}

/// What it sends at one time is answered at the other.
#[track_caller]
fn exchange(life: &mut ClaimMachine, sent: u64, answered: u64, reply: Reply) {
    let transmit = send(life, sent);
    life.handle_answer(at(answered), &transmit, Ok(heard(reply)));
}

/// Asked for at 0, and answered at 1.
fn answered(terms: Terms, answer: Result<Response, Failure>) -> ClaimMachine {
    let (mut life, ask) = asked(terms);
    life.handle_answer(at(1), &ask, answer);
    life
}

pub(super) fn heard(reply: Reply) -> Response {
    Response {
        reply,
        at: STORE,
        epoch: 1,
        enough: None,
    }
}

/// What the store says of a claim with this arrival number.
fn place(arrival: u64, token: Option<u64>, behind: Option<u64>) -> Standing {
    Standing {
        arrival: Arrival(arrival),
        token: token.map(Token),
        behind: behind.map(Arrival),
        position: u64::from(token.is_none() || behind.is_some()),
        deadline: StoreTime(0),
        blocked_until: None,
    }
}

pub(super) fn standing(token: Option<u64>) -> Reply {
    Reply::Standing(Standing {
        blocked_until: token.is_none().then_some(STORE + TTL),
        ..place(7, token, None)
    })
}

/// Granted with this token, behind the claim with that number.
pub(super) fn behind(token: u64, ahead: u64) -> Reply {
    Reply::Standing(place(7, Some(token), Some(ahead)))
}

pub(super) fn waiting() -> ClaimMachine {
    let life = answered(terms(), Ok(heard(standing(None))));
    assert_eq!((life.phase(), life.position()), (Waiting, Some(1)));
    life
}

pub(super) fn held(terms: Terms) -> ClaimMachine {
    let life = answered(terms, Ok(heard(standing(Some(7)))));
    assert_eq!((life.phase(), life.token()), (Held, Some(Token(7))));
    life
}

/// A grant of the claim with the id 1, in a step that the store took then.
pub(super) fn granted(arrival: u64, token: u64, millis: u64) -> Push {
    granted_to(id(1), arrival, token, None, millis)
}

/// The same of another claim, which may be granted behind one of its client.
fn granted_to(id: ClaimId, arrival: u64, token: u64, behind: Option<u64>, millis: u64) -> Push {
    let event = Event::Granted {
        inbox: Inbox::from_random(1),
        arrival: Arrival(arrival),
        id,
        token: Token(token),
        behind: behind.map(Arrival),
        deadline: StoreTime(0),
        waited: Duration::ZERO,
    };
    Push::of(&event, &key(), STORE + Duration::from_millis(millis), 1)
}

/// Somebody has broken the hold of the claim with the id 1.
fn revocation() -> Push {
    let event = Event::Revoked {
        inbox: Inbox::from_random(1),
        arrival: Arrival(7),
        id: id(1),
    };
    Push::of(&event, &key(), STORE, 1)
}

pub(super) fn released(life: &mut ClaimMachine, millis: u64) -> Transmit {
    let release = send(life, millis);
    release_in(&release);
    release
}

/// Who knows a claim's id can prove a push; a token that the store's clock does not reach
/// is not believed from it either, but asked about.
#[test]
fn a_token_beyond_the_clock_is_asked_about() {
    for (token, believed) in [(9, true), (u64::MAX, false), (9_007_199_254_740_991, false)] {
        let mut life = waiting();
        life.handle_push(at(2), &granted(7, token, 0));
        assert_eq!(life.phase() == Held, believed, "{token}");
        if !believed {
            assert_eq!(life.poll_timeout(), Some(at(2)), "it asks at once");
        }
    }
}

/// A push of before the answer that the claim waits was said to it before: it is worth a
/// question, however genuine it was.
#[test]
fn an_older_grant_is_asked_about() {
    let later = but(heard(standing(None)), |it| it.at = StoreTime(1_005));
    let mut life = answered(terms(), Ok(later));
    life.handle_push(at(1), &granted(7, 1, 0));
    assert_eq!(life.phase(), Waiting);
    assert_eq!(life.poll_timeout(), Some(at(1)));
}

#[test]
fn a_lost_connection_before_the_first_answer_is_one_to_ask_about() {
    let (mut life, ask) = asked(terms());
    life.handle_reset(at(1));
    life.handle_answer(at(2), &ask, Ok(heard(standing(None))));
    assert_eq!(life.poll_timeout(), Some(at(2)), "the answer may be older");
}

#[test]
fn what_leaves_is_released_until_confirmed_or_lapsed() {
    let mut life = held(terms());
    life.leave(at(10));
    assert_eq!(life.valid_until(), Moment::default());
    let until = at(10) + TTL;
    let lost = released(&mut life, 10);
    assert_eq!(life.poll_timeout(), None, "it waits for the answer");
    life.handle_answer(at(20), &lost, Err(Failure::Unanswered));
    let due = life.poll_timeout().unwrap();
    assert!(due > at(20) && due < until, "it tries again");
    let mut confirmed = life.clone();
    answered_at(&mut confirmed, due, Ok(heard(Reply::Absent)));
    assert_eq!((confirmed.phase(), confirmed.has_left()), (Over, false));
    life.handle_timeout(until);
    assert_eq!(life.phase(), Over, "the claim has lapsed by then");
}

/// A lease that was prolonged beyond its TTL, here or by whoever had it before, lives at the store
/// for as long as that has said, or may have said: the answer can be lost.
#[test]
fn what_lives_longer_than_its_ttl_is_released_for_as_long() {
    let long = Reply::Standing(Standing {
        deadline: STORE + 100 * TTL,
        ..place(7, Some(7), None)
    });
    for answer in [Ok(heard(long)), Err(Failure::Unanswered)] {
        let mut life = held(terms());
        life.change(Change::Renew(Some(100 * TTL)), at(10));
        let renew = send(&mut life, 10);
        let limit = renew.limit;
        life.handle_answer(at(20), &renew, answer);
        life.release(at(30));
        let lost = released(&mut life, 30);
        life.handle_answer(at(40), &lost, Err(Failure::Unanswered));
        life.handle_timeout(at(30) + 99 * TTL);
        assert_eq!((life.phase(), life.released()), (Leaving, None));
        life.handle_timeout(at(20) + limit + 100 * TTL);
        // It was valid when it was given back, and nobody has said that it was gone before.
        assert_eq!((life.phase(), life.released()), (Over, None));
    }
}

#[test]
fn a_release_says_whether_the_lease_was_held_up_to_then() {
    let answers = [
        (&[Some(Reply::Released { held: true })][..], true),
        (&[Some(Reply::Absent)], false),
        (&[None, Some(Reply::Absent)], true),
        (&[None, Some(Reply::Released { held: false })], false),
    ];
    for (replies, expected) in answers {
        let mut life = held(terms());
        life.release(at(10));
        let mut now = at(10);
        for reply in replies {
            answered_at(&mut life, now, reply.map(heard).ok_or(Failure::Unanswered));
            now = life.poll_timeout().unwrap_or(now);
        }
        assert_eq!(life.released(), Some(expected), "{replies:?}");
        assert_eq!(life.phase(), Over);
    }
    // What was not taken has released nothing.
    for failure in [Failure::NotNow, Failure::Refused] {
        let mut life = held(terms());
        life.release(at(10));
        let release = released(&mut life, 10);
        life.handle_answer(at(10), &release, Err(failure));
        let again = send_at(&mut life, at(11));
        life.handle_answer(at(1_000), &again, Ok(heard(Reply::Absent)));
        assert_eq!(life.released(), Some(false), "{failure:?}");
    }
    let (mut late, mut now) = (held(terms()), at(0) + 2 * TTL);
    late.release(now);
    for answer in [Err(Failure::Unanswered), Ok(heard(Reply::Absent))] {
        answered_at(&mut late, now, answer);
        now = late.poll_timeout().unwrap_or(now);
    }
    assert_eq!(late.released(), Some(false), "it was lost before");
    let mut revoked = held(terms());
    revoked.handle_push(at(5), &revocation());
    revoked.release(at(10));
    assert_eq!(revoked.released(), Some(false), "nobody has to be asked");
    assert_eq!(revoked.phase(), Over);
}

#[test]
fn what_may_have_been_made_is_released() {
    let blocked_until = STORE;
    let busy = Reply::Busy { blocked_until };
    // One that was never sent, and one whose only answer says that it made nothing.
    let claim = Claim::new(id(1), Mode::EXCLUSIVE, TTL);
    let mut never = ClaimMachine::claim(claim, terms(), DEADLINES, at(0));
    never.leave(at(0));
    assert_eq!(never.phase(), Over);
    let life = answered(terms(), Ok(heard(busy)));
    assert_eq!(life.end(), Some(End::Busy(Duration::ZERO)));
    assert_eq!(life.phase(), Over);
    // One whose first request may still come to something.
    let mut life = answered(terms(), Err(Failure::Unanswered));
    let due = life.poll_timeout().unwrap();
    answered_at(&mut life, due, Ok(heard(busy)));
    assert_eq!(life.phase(), Leaving);
    let sent = life.poll_transmit(due, || None).unwrap();
    let release = release_in(&sent);
    assert!(!release.settled && release.unused);
    // A refusal of the only request is definite; of a later one it is not.
    let life = answered(terms(), Err(Failure::Refused));
    assert_eq!((life.end(), life.phase()), (Some(End::Refused), Over));
}

/// A store that answers "not now" is there: only a caller who does not wait is told at once.
#[test]
fn what_the_store_cannot_do_now_is_asked_for_again() {
    let waiting = |waits| {
        let claim = Claim {
            wait: waits,
            ..Claim::new(id(1), Mode::EXCLUSIVE, TTL)
        };
        let mut life = ClaimMachine::claim(claim, terms(), DEADLINES, at(0));
        let ask = life.poll_transmit(at(0), || None).unwrap();
        (life, ask)
    };
    let (mut tries, ask) = waiting(false);
    tries.handle_answer(at(1), &ask, Err(Failure::NotNow));
    assert_eq!((tries.end(), tries.phase()), (Some(End::Refused), Over));

    // For longer than any patience: before it has a place, and when it has one.
    let outlive = |life: &mut ClaimMachine, from: Moment, failure: Failure| {
        let (mut now, end) = (from, from + TTL * 4 + OPERATION * 4);
        while now < end && life.end().is_none() {
            now = life.poll_timeout().unwrap().max(now);
            life.handle_timeout(now);
            if let Some(sent) = life.poll_transmit(now, || None) {
                life.handle_answer(now, &sent, Err(failure));
            }
        }
        now
    };
    let (mut life, ask) = waiting(true);
    life.handle_answer(at(1), &ask, Err(Failure::NotNow));
    let now = outlive(&mut life, at(1), Failure::NotNow);
    assert_eq!(life.phase(), Asking);
    let ask = send_at(&mut life, now);
    life.handle_answer(now, &ask, Ok(heard(standing(None))));
    assert_eq!(life.phase(), Waiting);
    let now = outlive(&mut life, now, Failure::NotNow);
    assert_eq!(life.phase(), Waiting);
    // Its place has expired meanwhile: its client makes another claim.
    let beat = send_at(&mut life, now);
    life.handle_answer(now, &beat, Ok(heard(Reply::Gone)));
    assert_eq!(life.end(), Some(End::Gone));

    // What stays ends the waiting at once, with and without a place.
    let (mut life, ask) = waiting(true);
    life.handle_answer(at(1), &ask, Err(Failure::NotNow));
    let again = send_at(&mut life, at(1));
    life.handle_answer(at(2), &again, Err(Failure::Refused));
    assert_eq!(life.end(), Some(End::Refused));
    let (mut life, ask) = waiting(true);
    life.handle_answer(at(1), &ask, Ok(heard(standing(None))));
    let beat = send_at(&mut life, at(1));
    life.handle_answer(at(2), &beat, Err(Failure::Refused));
    assert_eq!((life.end(), life.phase()), (Some(End::Refused), Leaving));
}

#[track_caller]
fn release_in(sent: &Transmit) -> &crate::Release {
    match &*sent.command {
        Command::Release(release) => release,
        other => panic!("{other:?}"),
    }
}

/// The request that is sent next, at `now` or later.
fn send_at(life: &mut ClaimMachine, now: Moment) -> Transmit {
    let due = life.poll_timeout().unwrap().max(now);
    life.handle_timeout(due);
    life.poll_transmit(due, || None).unwrap()
}

#[test]
fn an_answer_to_what_was_given_up_changes_nothing() {
    let (mut life, ask) = asked(terms());
    life.leave(at(1));
    life.handle_answer(at(2), &ask, Ok(heard(standing(Some(7)))));
    assert_eq!(life.phase(), Leaving);
    assert_eq!(life.token(), None);
}

#[test]
fn a_lease_that_was_long_on_its_way_is_renewed_before_it_is_handed_out() {
    let (mut life, ask) = asked(terms());
    let late = 28_000;
    life.handle_answer(at(late), &ask, Ok(heard(standing(Some(7)))));
    assert_eq!(life.collect(at(late)), Pending);
    let top_up = send(&mut life, late);
    let mut unanswered = life.clone();
    life.handle_answer(at(late + 1), &top_up, Ok(heard(standing(Some(7)))));
    assert_eq!(life.collect(at(late + 1)), Ready(Ok(())));
    unanswered.handle_answer(at(late + 1), &top_up, Err(Failure::Unanswered));
    assert_eq!(unanswered.collect(at(late + 1)), Ready(Ok(())));
    for policy in [terms().policy, RenewalPolicy::Manual, RenewalPolicy::Fixed] {
        let (mut life, ask) = asked(Terms { policy, ..terms() });
        life.handle_answer(at(30_000), &ask, Ok(heard(standing(Some(7)))));
        assert_eq!(life.collect(at(30_000)), Ready(Err(End::Late)));
        assert_eq!(life.phase(), Leaving);
    }
}

#[test]
fn a_grant_counts_once_others_have_acknowledged_it() {
    let acknowledged = but(terms(), |it| it.acknowledges = Acknowledges::Grants);
    let told = |token, enough| but(heard(standing(Some(token))), |it| it.enough = Some(enough));
    let mut life = answered(acknowledged, Ok(told(7, true)));
    assert_eq!(life.collect(at(1)), Ready(Ok(())));
    let life = answered(acknowledged, Ok(told(7, false)));
    assert_eq!(life.end(), Some(End::Unacknowledged));
    assert_eq!(life.phase(), Leaving, "it stands at the store");
    // One that was pushed has been told to nobody yet.
    for (enough, expected) in [
        (true, Ready(Ok(()))),
        (false, Ready(Err(End::Unacknowledged))),
    ] {
        let mut life = answered(acknowledged, Ok(heard(standing(None))));
        life.handle_push(at(2), &granted(7, 9, 1));
        assert_eq!(life.collect(at(2)), Pending);
        let confirm = send(&mut life, 2);
        assert!(matches!(&*confirm.command, Command::Renew(renew) if renew.confirms));
        life.handle_answer(at(3), &confirm, Ok(told(9, enough)));
        assert_eq!(life.collect(at(3)), expected);
    }
}

/// Waits in line until 1,000, and withdraws: the release that is under way.
pub(super) fn withdrawing() -> (ClaimMachine, Transmit) {
    let deadlines = but(DEADLINES, |it| it.give_up = Some(at(1_000)));
    let (mut life, ask) = asked_within(terms(), deadlines);
    life.handle_answer(at(1), &ask, Ok(heard(standing(None))));
    assert_eq!(life.collect(at(999)), Pending);
    assert_eq!((life.collect(at(1_000)), life.end()), (Pending, None));
    assert_eq!(life.phase(), Leaving);
    let release = released(&mut life, 1_000);
    (life, release)
}

/// The answer to the withdrawal says whether others have the key, or the store is out of reach:
/// it costs no further request.
#[test]
fn a_wait_has_timed_out_when_the_store_confirms_that_it_left() {
    for answer in [
        Ok(heard(Reply::Released { held: false })),
        Ok(heard(Reply::Absent)),
        Err(Failure::Refused),
    ] {
        let (mut life, release) = withdrawing();
        assert_eq!(life.collect(at(1_001)), Pending);
        life.handle_answer(at(1_002), &release, answer);
        let ended = life.collect(at(1_002));
        assert_eq!(ended, Ready(Err(End::TimedOut)), "{answer:?}");
        life.give_up(at(1_003));
        assert_eq!(life.end(), Some(End::TimedOut), "it has ended");
    }
    let unreachable = Ready(Err(End::Unreachable));
    let (mut life, release) = withdrawing();
    life.handle_answer(at(1_002), &release, Err(Failure::Unanswered));
    assert_eq!(life.collect(at(1_499)), Pending);
    life.give_up(at(1_500));
    assert_eq!(life.collect(at(1_500)), unreachable);
    assert_eq!(life.phase(), Leaving, "it is released all the same");
    let (mut life, release) = withdrawing();
    life.handle_answer(at(40_000), &release, Err(Failure::Unanswered));
    assert_eq!(life.collect(at(40_000)), unreachable, "not given up");
}

/// Whatever a caller waits for, its time is over then, and nothing stays behind.
#[test]
fn who_gives_up_leaves_whatever_it_waits_for() {
    let unreachable = Ready(Err(End::Unreachable));
    let (asking, _) = asked(terms());
    let confirming = held(but(terms(), |it| it.acknowledges = Acknowledges::Grants));
    for mut life in [asking, waiting(), confirming] {
        assert_eq!(life.collect(at(2)), Pending);
        life.give_up(at(3));
        assert_eq!(life.collect(at(3)), unreachable);
        released(&mut life, 3);
    }
}

/// The last request of a change is given up when its time is over, and not later.
#[test]
fn a_change_ends_in_the_time_of_an_operation() {
    let terms = but(terms(), |it| it.ttl = Duration::from_secs(3));
    let mut life = held(terms);
    let change = life.change(Change::Renew(Some(terms.ttl)), at(10));
    let mut now = at(10);
    while life.outcome(change).is_none() {
        if let Some(sent) = life.poll_transmit(now, || None) {
            // Each is without an answer for as long as it may take.
            now = now + sent.limit;
            life.handle_answer(now, &sent, Err(Failure::Unanswered));
        } else {
            now = life.poll_timeout().expect("it is asked for again");
        }
    }
    assert_eq!(life.outcome(change), Some(Changed::Unanswered));
    assert!(now <= at(10) + OPERATION, "{now:?}");
}

#[test]
fn a_change_is_asked_for_until_it_is_answered() {
    let mut life = held(terms());
    let note = Note::new("hello").unwrap();
    let change = life.change(Change::Note(note.clone()), at(10));
    let first = send(&mut life, 10);
    assert!(matches!(&*first.command, Command::Renew(renew) if renew.note == Some(note)));
    life.handle_answer(at(11), &first, Err(Failure::Unanswered));
    assert_eq!(life.state(), Some(LeaseState::Unknown));
    assert_eq!(life.changed(change), None);
    let due = life.poll_timeout().unwrap();
    answered_at(&mut life, due, Ok(heard(standing(Some(7)))));
    assert_eq!(life.changed(change), Some(Changed::Done));
    // Its time is over, or the store says no, or there is nothing left to change.
    let change = life.change(Change::Renew(Some(TTL)), at(100));
    let (mut now, mut tries) = (at(100), 0);
    while life.outcome(change).is_none() {
        if let Some(sent) = life.poll_transmit(now, || None) {
            life.handle_answer(now, &sent, Err(Failure::Unanswered));
            tries += 1;
        }
        assert!(now <= at(100) + OPERATION, "in the time of an operation");
        now = life.poll_timeout().unwrap();
    }
    assert_eq!(life.changed(change), Some(Changed::Unanswered));
    assert!((4..30).contains(&tries), "{tries} in {OPERATION:?}");
    let now = at(5_000);
    let change = life.change(Change::Downgrade, now);
    answered_at(&mut life, now, Err(Failure::Refused));
    assert_eq!(life.changed(change), Some(Changed::Refused));
    let change = life.change(Change::Renew(Some(TTL)), now);
    answered_at(&mut life, now, Ok(heard(Reply::Gone)));
    assert_eq!(life.changed(change), Some(Changed::Lost));
    assert_eq!(life.state(), Some(LeaseState::Lost(Loss::Gone)));
}

#[test]
fn a_refused_note_says_nothing_of_the_lease() {
    for change in [Change::Note(Note::new("hello").unwrap()), Change::Downgrade] {
        let mut life = held(terms());
        let before = (life.state(), life.poll_timeout());
        let change = life.change(change, at(10));
        answered_at(&mut life, at(10), Err(Failure::Refused));
        assert_eq!(life.changed(change), Some(Changed::Refused));
        assert_eq!((life.state(), life.poll_timeout()), before);
    }
}

#[test]
fn an_answer_about_a_replaced_id_says_nothing() {
    let mut life = held(terms());
    let beat_at = life.poll_timeout().unwrap();
    let beat = life.poll_transmit(beat_at, || None).unwrap();
    let change = life.change(Change::Rotate(id(2)), beat_at);
    answered_at(&mut life, beat_at, Ok(heard(standing(Some(7)))));
    assert_eq!(life.changed(change), Some(Changed::Done));
    assert_eq!(life.identity(), (&id(2), 1));
    life.handle_answer(beat_at, &beat, Ok(heard(Reply::Superseded)));
    assert_eq!(life.state(), Some(LeaseState::Unknown), "asked again");
    // An id that is another claim's is not asked for again by itself.
    let change = life.change(Change::Rotate(id(3)), beat_at);
    answered_at(&mut life, beat_at, Ok(heard(Reply::Taken)));
    assert_eq!(life.changed(change), Some(Changed::Taken));
    assert_eq!(life.identity(), (&id(2), 1));
}

/// The watchdog's renewal carries a rotation that its caller asks for, too. The one that comes
/// second to the store is refused there, when the id has been replaced once more since.
#[test]
fn a_refusal_of_a_rotation_that_was_followed_by_another_says_nothing() {
    let mut life = held(terms());
    let rotate = |life: &mut ClaimMachine, bits| {
        life.change(Change::Rotate(id(bits)), at(10));
        send(life, 10)
    };
    let first = rotate(&mut life, 2);
    let doubled = rotate(&mut life, 2);
    life.handle_answer(at(11), &first, Ok(heard(standing(Some(7)))));
    let next = rotate(&mut life, 3);
    let mut sooner = life.clone();
    life.handle_answer(at(12), &next, Ok(heard(standing(Some(7)))));
    for life in [&mut life, &mut sooner] {
        life.handle_answer(at(13), &doubled, Ok(heard(Reply::Superseded)));
        assert_eq!(life.state(), Some(LeaseState::Unknown), "asked again");
    }
    let lost = rotate(&mut life, 4);
    life.handle_answer(at(14), &lost, Ok(heard(Reply::Superseded)));
    assert_eq!(life.state(), Some(LeaseState::Lost(Loss::Superseded)));
}

/// Once, the id was replaced by itself then, and the lease was lost with the next rotation.
#[test]
fn an_id_that_a_renewal_has_brought_meanwhile_is_not_asked_for_again() {
    let mut life = held(terms());
    let change = life.change(Change::Rotate(id(2)), at(10));
    let lost = send(&mut life, 10);
    life.handle_reset(at(11));
    let beat_at = at(11);
    let beat = send(&mut life, 11);
    let rotates = matches!(&*beat.command, Command::Renew(renew) if renew.rotate.is_some());
    assert!(rotates, "it travels with what keeps the lease");
    life.handle_answer(beat_at, &lost, Err(Failure::Unanswered));
    life.handle_answer(beat_at, &beat, Ok(heard(standing(Some(7)))));
    assert_eq!(life.identity(), (&id(2), 1));
    assert_eq!(life.changed(change), Some(Changed::Done));
    assert_eq!(life.poll_transmit(at(31), || None), None);
}

/// The first id was asked for once more then, and a late answer about it was taken for that: the lease
/// went on by an id that the store had replaced, and was lost.
#[test]
fn an_id_that_was_brought_and_replaced_is_not_asked_for_again() {
    let mut life = held(terms());
    let first = life.change(Change::Rotate(id(2)), at(10));
    let lost = send(&mut life, 10);
    life.handle_reset(at(11));
    let beat = send(&mut life, 11);
    life.handle_answer(at(11), &lost, Err(Failure::Unanswered));
    let again = send(&mut life, 31);
    life.handle_answer(at(32), &beat, Ok(heard(standing(Some(7)))));
    let second = life.change(Change::Rotate(id(3)), at(33));
    exchange(&mut life, 33, 34, standing(Some(7)));
    life.handle_answer(at(35), &again, Err(Failure::Unanswered));
    let outcomes = [first, second].map(|change| life.changed(change));
    assert_eq!(outcomes, [Some(Changed::Done); 2]);
    assert_eq!(life.identity(), (&id(3), 2));
}

#[test]
fn who_rotates_by_itself_leaves_under_both_ids() {
    let mut life = held(but(terms(), |it| {
        it.rotate_every = Some(Duration::from_secs(5));
    }));
    let due = life.poll_timeout().unwrap();
    let beat = life.poll_transmit(due, || Some(id(2))).unwrap();
    assert!(matches!(&*beat.command, Command::Renew(renew) if renew.rotate.is_some()));
    life.handle_answer(due, &beat, Err(Failure::Unanswered));
    life.leave(due);
    let mut left = Vec::new();
    while let Some(release) = life.poll_transmit(due, || None) {
        left.push(release_in(&release).id.clone());
        let held = left.len() == 2;
        life.handle_answer(due, &release, Ok(heard(Reply::Released { held })));
    }
    assert_eq!(left, [id(1), id(2)]);
    assert_eq!((life.phase(), life.has_left()), (Over, true));
}

#[test]
fn what_is_handed_over_is_relied_on_no_more_and_stays() {
    let mut life = held(terms());
    let change = life.hand_over(at(10));
    assert_eq!(life.valid_until(), Moment::default());
    assert_eq!(life.state(), Some(LeaseState::Lost(Loss::HandedOver)));
    let settle = send(&mut life, 10);
    assert!(matches!(&*settle.command, Command::Renew(renew) if renew.ttl == TTL));
    assert_eq!(life.changed(change), None);
    life.handle_answer(at(11), &settle, Ok(heard(standing(Some(7)))));
    assert_eq!(life.changed(change), Some(Changed::Done));
    life.forget();
    assert_eq!(life.phase(), Over);
    assert_eq!(life.poll_transmit(at(12), || None), None);
}

/// Whoever takes it over must find it holding: the release of the lease ahead is awaited.
#[test]
fn what_is_handed_over_holds_at_the_store() {
    let mut life = held(terms());
    let change = life.hand_over(at(10));
    exchange(&mut life, 10, 11, behind(7, 1));
    assert_eq!(life.changed(change), None);
    let due = life.poll_timeout().expect("it asks again");
    answered_at(&mut life, due, Ok(heard(standing(Some(7)))));
    assert_eq!(life.changed(change), Some(Changed::Done));
}

/// The store has lost that grant, as in a fail-over, and others may have held since.
#[test]
fn what_the_store_has_forgotten_is_not_handed_over() {
    for forgotten in [standing(None), standing(Some(9))] {
        let mut life = held(terms());
        let change = life.hand_over(at(10));
        exchange(&mut life, 10, 11, forgotten);
        assert_eq!(life.changed(change), Some(Changed::Lost));
    }
}

#[test]
fn an_adoption_gets_what_is_held_and_nothing_else() {
    let adopt = || {
        let rotate = Rotate {
            to: id(2),
            version: 3,
            adopt: None,
        };
        let mut life = ClaimMachine::adopt(id(1), rotate, terms(), DEADLINES, at(0));
        let ask = send(&mut life, 0);
        (life, ask)
    };
    let (mut life, ask) = adopt();
    life.handle_answer(at(1), &ask, Ok(heard(standing(Some(9)))));
    assert_eq!(life.collect(at(1)), Ready(Ok(())));
    assert_eq!(life.identity(), (&id(2), 4));
    for (reply, end, phase) in [
        (Reply::Gone, End::Gone, Over),
        (Reply::Taken, End::Taken, Over),
        (Reply::Superseded, End::Superseded, Over),
        // It is ours now, and not what was asked for.
        (standing(None), End::Gone, Leaving),
    ] {
        let (mut life, ask) = adopt();
        life.handle_answer(at(1), &ask, Ok(heard(reply)));
        assert_eq!((life.end(), life.phase()), (Some(end), phase), "{reply:?}");
    }
    // One that comes late to the store must not take it over for nobody.
    let (mut life, _) = adopt();
    life.leave(at(1));
    let sent = released(&mut life, 1);
    let release = release_in(&sent);
    assert!(release.id == id(2) && !release.settled);
}

#[test]
fn a_shutdown_ends_whatever_there_is() {
    let mut waits = waiting();
    let mut holds = held(terms());
    for life in [&mut waits, &mut holds] {
        life.shut_down(at(10));
        assert_eq!(life.phase(), Leaving);
        released(life, 10);
    }
    assert_eq!(holds.state(), Some(LeaseState::Lost(Loss::Shutdown)));
    assert!(matches!(holds.collect(at(11)), Ready(Err(_))));
    // A lease whose time was over was lost before, and nothing was given back.
    let (mut late, mut handed) = (held(terms()), held(terms()));
    late.shut_down(at(30_000));
    handed.hand_over(at(30_000));
    for life in [&late, &handed] {
        assert_eq!(life.state(), Some(LeaseState::Lost(Loss::Unanswered)));
    }
    assert_eq!(late.phase(), Leaving);
    // What is known to have gone is nobody's to release.
    let mut revoked = held(terms());
    revoked.handle_push(at(5), &revocation());
    revoked.shut_down(at(10));
    assert_eq!(revoked.phase(), Over);
    assert_eq!(revoked.state(), Some(LeaseState::Lost(Loss::Revoked)));
}
