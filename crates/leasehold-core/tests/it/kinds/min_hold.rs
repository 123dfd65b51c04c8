//! Minimum holds: the key stays taken, even if the claim ends earlier.

use crate::kinds::cast::*;

/// One that is held for so long at least.
fn held_for(who: usize, min_hold: Duration) -> Command {
    Command::Claim(Claim {
        min_hold,
        ..claim(who, id(who), Mode::EXCLUSIVE)
    })
}

/// A grant that nobody heard of lapses soon; what has lapsed stays so, also when
/// its client is found to be dead before anybody needs the key.
#[test]
fn a_lapsed_grant_is_not_kept_when_its_client_is_buried() {
    let mut cast = Cast::new();
    cast.apply(&held_for(1, 2 * LEASE));
    let granted = cast.look().holders[0].claim.arrival;
    let inboxes = vec![inbox(1)];
    cast.apply(&Command::Unheard {
        silent: inboxes.clone(),
        granted: vec![(granted, Duration::ZERO)],
        passed: Vec::new(),
    });
    cast.pass(UNHEARD_CUT);
    assert!(cast.look().holders.is_empty());
    cast.apply(&Command::Bury { inboxes });
    assert!(cast.look().holders.is_empty());
}

/// What is kept is nobody's: its owner does not enter there, and waits.
#[test]
fn an_owner_does_not_enter_where_only_its_minimum_hold_is_left() {
    let mut cast = Cast::new();
    let mine = |who, min_hold| {
        Command::Claim(Claim {
            secret: Some(OwnerSecret::from_random(1)),
            min_hold,
            ..claim(who, id(who), Mode::EXCLUSIVE)
        })
    };
    cast.apply(&mine(1, LEASE / 2));
    assert!(cast.apply(&mine(2, Duration::ZERO)).reply.is_grant());
    cast.apply(&release(id(1)));
    // It still holds by the other claim.
    assert!(cast.apply(&mine(3, Duration::ZERO)).reply.is_grant());
    cast.apply(&release(id(2)));
    cast.apply(&release(id(3)));
    assert!(!cast.apply(&mine(4, Duration::ZERO)).reply.is_grant());
    cast.pass(LEASE / 2);
    assert!(cast.apply(&mine(4, Duration::ZERO)).reply.is_grant());
}

/// An administrator may: that is what breaking is for.
#[test]
fn break_ends_a_minimum_hold() {
    let mut cast = Cast::new();
    cast.apply(&held_for(1, LEASE));
    cast.apply(&release(id(1)));
    assert!(!cast.is_free());
    cast.apply(&break_all());
    assert!(cast.is_free());
}

/// After a restart of the machine, where no holder can have survived.
#[test]
fn voided_claims_leave_their_minimum_holds() {
    let mut cast = Cast::new();
    cast.apply(&held_for(1, LEASE / 2));
    cast.apply(&held_for(2, Duration::ZERO));
    cast.queue.void_claims();
    let seen = cast.look();
    assert_eq!((seen.holders.len(), seen.waiters.len()), (1, 0));
    assert!(seen.holders[0].claim.kept);
    cast.pass(LEASE / 2);
    assert!(cast.is_free());
}
