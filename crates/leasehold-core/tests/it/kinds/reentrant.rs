//! Re-entrant locks: several claims, one owner.

use crate::kinds::cast::*;

/// One of them may be what the holder waits for.
#[test]
fn claims_of_one_owner_that_wait_are_granted_together() {
    let mut cast = Cast::new();
    for who in [0, 1, 2, 3, 5] {
        // Two owners, with every other client each.
        cast.apply(&Command::Claim(Claim {
            secret: Some(OwnerSecret::from_random(who as u128 % 2)),
            ..claim(who, id(who), Mode::EXCLUSIVE)
        }));
    }
    // 0 and 2 hold; 1, 3 and 5 are the other owner's.
    assert_eq!(cast.look().holders.len(), 2);
    cast.apply(&release(id(0)));
    let outcome = cast.apply(&release(id(2)));
    let seen = cast.look();
    assert_eq!((seen.holders.len(), seen.waiters.len()), (3, 0));
    assert_eq!(outcome.events.len(), 3, "each hears of its grant");
}
