//! What the claims of one client on a key mean to each other.

use super::*;

type Keys = KeyMachine<()>;

const ONE: ClaimNumber = ClaimNumber(1);
const TWO: ClaimNumber = ClaimNumber(2);

/// The claims 1 and 2, asked for and not answered yet.
fn asking() -> (Keys, [Transmit; 2]) {
    let mut keys = Keys::default();
    for number in [ONE, TWO] {
        let claim = Claim::new(id(number.0.into()), Mode::EXCLUSIVE, TTL);
        keys.claim(number, (), claim, terms(), DEADLINES, at(0));
        keys.set_driven(at(0), number, false);
    }
    let sent = [ONE, TWO].map(|number| {
        let (sent, transmit) = keys.poll_transmit(at(0), || None).expect("it asks");
        assert_eq!(sent, number, "in the order in which they came");
        transmit
    });
    assert!(keys.poll_transmit(at(0), || None).is_none());
    (keys, sent)
}

/// The same, and answered at 1: the first holds, the other follows it.
fn run() -> Keys {
    let (mut keys, [one, two]) = asking();
    keys.handle_answer(at(1), ONE, &one, Ok(said(7, Some(70), None)));
    keys.handle_answer(at(1), TWO, &two, Ok(said(8, Some(71), Some(7))));
    keys
}

/// What is sent next, for the first of them, is answered.
fn answered(keys: &mut Keys, sent: u64, answered: u64, reply: Reply) {
    let (_, transmit) = keys.poll_transmit(at(sent), || None).unwrap();
    keys.handle_answer(at(answered), ONE, &transmit, Ok(heard(reply)));
}

/// What the store says of a claim of this arrival number.
fn said(arrival: u64, token: Option<u64>, behind: Option<u64>) -> Response {
    heard(Reply::Standing(place(arrival, token, behind)))
}

fn phase(keys: &Keys, number: ClaimNumber) -> Phase {
    keys.get(number).map_or(Over, ClaimMachine::phase)
}

fn due(keys: &Keys, number: ClaimNumber) -> Option<Moment> {
    keys.get(number).and_then(ClaimMachine::poll_timeout)
}

/// Once, what was kept for others filled the room, and a grant was missed until the next heartbeat.
#[test]
fn a_push_before_its_claim_is_kept_however_many_came_before() {
    let (mut keys, [one, two]) = asking();
    for arrival in (1..=1_000).rev() {
        keys.handle_push(at(1), &granted(arrival, 9, 1));
    }
    keys.handle_answer(at(2), ONE, &one, Ok(said(7, None, None)));
    assert_eq!(phase(&keys, ONE), Held);
    keys.handle_answer(at(2), TWO, &two, Ok(said(8, None, None)));
    assert_eq!(phase(&keys, TWO), Waiting, "that push was the other's");
    keys.handle_push(at(3), &granted_to(id(2), 8, 9, None, 2));
    assert_eq!(phase(&keys, TWO), Held);
    assert_eq!(keys.remembered, None, "nobody has to know anything more");
}

/// As many as calls on its lease at once.
#[test]
fn any_number_of_tasks_may_drive_a_claim() {
    let mut keys = run();
    for _ in 0..=u16::MAX {
        keys.set_driven(at(2), ONE, true);
    }
    assert_eq!(phase(&keys, ONE), Held);
    // Whoever is left has to be woken when the claim changes.
    for _ in 0..u16::MAX {
        keys.set_driven(at(2), ONE, false);
    }
    assert!(keys.claims[0].drivers > 0);
    // And if nobody is, its release must not wait for one.
    keys.update(at(3), ONE, |claim| claim.release(at(3)));
    let sent = keys.poll_transmit(at(3), || None);
    assert!(sent.is_some_and(|(number, _)| number == ONE), "{keys:?}");
}

#[test]
fn a_release_hands_on_within_the_client() {
    let mut keys = run();
    assert_eq!(phase(&keys, TWO), Waiting);
    keys.update(at(5), ONE, |claim| claim.release(at(5)));
    let it = keys.get(TWO).unwrap();
    assert_eq!((it.phase(), it.token()), (Held, Some(Token(71))));
    let (number, sent) = keys.poll_transmit(at(5), || None).unwrap();
    let release = crate::Release {
        id: id(1),
        hand_off: true,
        settled: true,
        unused: true,
    };
    assert_eq!((number, release_in(&sent)), (ONE, &release));
}

/// The answer that says that a claim is behind another comes when that one was passed on, and even
/// when it has left.
#[test]
fn who_hears_late_of_its_place_in_a_run_holds() {
    for left in [false, true] {
        let (mut keys, [one, two]) = asking();
        keys.handle_answer(at(1), ONE, &one, Ok(said(7, Some(70), None)));
        keys.update(at(2), ONE, |claim| claim.release(at(2)));
        keys.detach(at(2), ONE);
        if left {
            answered(&mut keys, 2, 3, Reply::Released { held: true });
            while keys.poll_changed(|_, (), _, _| ()) {}
            assert!(keys.get(ONE).is_none(), "nobody owns it");
        }
        keys.handle_answer(at(4), TWO, &two, Ok(said(8, Some(71), Some(7))));
        assert_eq!(phase(&keys, TWO), Held, "left: {left}");
    }
}

#[test]
fn a_lost_connection_forgets_what_was_passed_on() {
    let (mut keys, [one, two]) = asking();
    keys.handle_answer(at(1), ONE, &one, Ok(said(7, Some(70), None)));
    keys.update(at(2), ONE, |claim| claim.release(at(2)));
    answered(&mut keys, 2, 3, Reply::Released { held: true });
    keys.handle_lost_connection(at(4));
    keys.handle_answer(at(5), TWO, &two, Ok(said(8, Some(71), Some(7))));
    assert_eq!(phase(&keys, TWO), Waiting, "another server may answer");
}

/// However the claim ahead ends without passing its hold on, the one behind asks the store.
#[test]
fn who_follows_asks_when_the_one_ahead_is_lost_or_gone() {
    let lost = |claim: &mut ClaimMachine| _ = claim.hand_over(at(2));
    let told = |claim: &mut ClaimMachine| {
        claim.expose();
        claim.leave(at(2));
    };
    for end in [&lost as &dyn Fn(&mut ClaimMachine), &told] {
        let mut keys = run();
        assert!(due(&keys, TWO) > Some(at(2)));
        keys.update(at(2), ONE, |claim| end(claim));
        if phase(&keys, ONE) == Leaving {
            answered(&mut keys, 2, 2, Reply::Absent);
        }
        assert_eq!(due(&keys, TWO), Some(at(2)));
    }
}

/// While a claim of the client is not answered yet, it may be the one ahead.
#[test]
fn who_follows_an_unknown_claim_waits_for_the_answers_of_the_others() {
    let unknown = |arrival| {
        let (mut keys, [one, two]) = asking();
        keys.handle_answer(at(1), TWO, &two, Ok(said(8, Some(71), Some(7))));
        let soon = due(&keys, TWO).unwrap();
        assert!(soon > at(1) && soon < at(100), "it may be known at once");
        let (_, ask) = keys.poll_transmit(soon, || None).unwrap();
        keys.handle_answer(soon, TWO, &ask, Ok(said(8, Some(71), Some(7))));
        assert!(due(&keys, TWO) < Some(at(2_000)), "from time to time");
        keys.handle_answer(soon, ONE, &one, Ok(said(arrival, Some(70), None)));
        (keys, soon)
    };
    let (keys, soon) = unknown(6);
    assert_eq!(due(&keys, TWO), Some(soon), "it is none of ours");
    let (mut keys, soon) = unknown(7);
    keys.update(soon, ONE, |claim| claim.release(soon));
    assert_eq!(phase(&keys, TWO), Held);
}

/// A third that is not answered yet is no reason to go on asking.
#[test]
fn who_follows_is_told_as_soon_as_the_one_ahead_is_known() {
    let (mut keys, [one, two]) = asking();
    let third = Claim::new(id(3), Mode::EXCLUSIVE, TTL);
    keys.claim(ClaimNumber(3), (), third, terms(), DEADLINES, at(0));
    keys.handle_answer(at(1), TWO, &two, Ok(said(8, Some(71), Some(7))));
    assert_eq!((keys.astray, keys.passing), (1, 2));
    keys.handle_answer(at(2), ONE, &one, Ok(said(7, Some(70), None)));
    assert_eq!((keys.astray, keys.passing), (0, 1));
}

/// A task that asks or releases sees to that itself; the rest is for whoever drives the key.
#[test]
fn what_a_task_drives_is_not_sent_twice() {
    let mut keys = Keys::default();
    let claim = Claim::new(id(1), Mode::EXCLUSIVE, TTL);
    keys.claim(ONE, (), claim, terms(), DEADLINES, at(0));
    assert_eq!(keys.poll_timeout(), None, "whoever makes it asks for it");
    keys.set_driven(at(0), ONE, true);
    assert!(keys.poll_transmit(at(0), || None).is_none());
    let ask = keys.update(at(0), ONE, |claim| claim.poll_transmit(at(0), || None));
    let ask = ask.flatten().unwrap();
    keys.handle_answer(at(1), ONE, &ask, Ok(said(7, Some(70), None)));
    assert_eq!(keys.poll_timeout(), due(&keys, ONE), "others send it");
    keys.set_driven(at(2), ONE, false);
    keys.update(at(2), ONE, |claim| claim.leave(at(2)));
    assert_eq!(keys.poll_timeout(), Some(at(2)));
}

/// With many claims the next deadline may be too early, never too late.
#[test]
fn no_deadline_of_many_claims_is_missed() {
    let mut keys = Keys::default();
    for number in 0..100 {
        let claim = Claim::new(id(number), Mode::EXCLUSIVE, TTL);
        let number = ClaimNumber(u64::try_from(number).unwrap());
        keys.claim(number, (), claim, terms(), DEADLINES, at(number.0));
        keys.set_driven(at(0), number, false);
    }
    let mut sent = 0;
    while let Some(due) = keys.poll_timeout().filter(|due| *due < at(200)) {
        let earliest = keys.claims.iter().filter_map(|it| it.claim.poll_timeout());
        assert!(Some(due) <= earliest.min());
        keys.handle_timeout(due);
        while let Some((number, _)) = keys.poll_transmit(due, || None) {
            assert_eq!(due, at(number.0));
            sent += 1;
        }
        keys.handle_timeout(due);
    }
    assert_eq!(sent, 100);
}

/// A client may hold leases by the hundred thousand.
#[test]
#[cfg(target_pointer_width = "64")]
fn a_lease_is_small() {
    let bytes = (size_of::<Entry<usize>>(), size_of::<ClaimMachine>());
    assert!(bytes.0 <= 72 && bytes.1 <= 248, "{bytes:?}");
}
