//! Rotation and adoption: new ids and new clients of claims.

use crate::kinds::cast::*;

/// Somebody holds, and another waits, which is to be rotated.
fn line() -> Cast {
    let mut cast = Cast::new();
    for who in 0..2 {
        cast.apply(&Command::Claim(claim(who, id(who), Mode::EXCLUSIVE)));
    }
    cast
}

/// How often a client is told that it has the key.
fn grants_to(who: usize, outcome: &Outcome) -> usize {
    let to = inbox(who);
    let told = |event: &&Event| matches!(event, Event::Granted { inbox, .. } if *inbox == to);
    outcome.events.iter().filter(told).count()
}

/// A refused request may still be the step that grants the claim it names: its
/// client hears that by a push, since the answer does not say so.
#[test]
fn a_refusal_does_not_swallow_a_grant() {
    let lapse = 2 * LEASE;
    let stay = Command::Renew(Renew::new(id(1), 2 * lapse));
    let refused = [
        rotate(id(1), id(100), 7, None),
        rotate(id(1), id(2), 0, None),
        Command::Claim(claim(5, id(1), Mode::EXCLUSIVE)),
    ];
    for request in refused {
        let mut cast = line();
        cast.apply(&release(id(2)));
        cast.apply(&stay);
        cast.pass(lapse);
        let outcome = cast.apply(&request);
        let refused = matches!(outcome.reply, Reply::Superseded | Reply::Taken);
        assert!(refused, "{outcome:?}");
        assert_eq!(grants_to(1, &outcome), 1, "{outcome:?}");
    }
}

/// The version comes from elsewhere: a lease as data may say any.
#[test]
fn a_rotation_after_the_last_version_is_refused() {
    let mut cast = Cast::new();
    let mut apply = |command: &Command| cast.apply(command).reply;
    assert!(apply(&Command::Claim(claim(1, id(1), Mode::EXCLUSIVE))).is_grant());
    let mut turn = |version| apply(&rotate(id(1), id(2), version, None));
    assert!(turn(0).is_grant());
    assert!(turn(0).is_grant(), "the same once more");
    assert_eq!(turn(u64::MAX), Reply::Superseded);
}
