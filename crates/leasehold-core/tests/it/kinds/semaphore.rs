//! Semaphores.

use crate::kinds::cast::*;

const PERMITS: u32 = 4;

fn permits(take: u32) -> Mode {
    Mode::permits(PERMITS, take)
}

/// The number of permits is changed from what it is taken for, or not at all.
#[test]
fn a_resize_of_another_size_changes_nothing() {
    let mut cast = Cast::new();
    let resize = |from, to| Command::Resize { from, to };
    assert_eq!(cast.apply(&resize(PERMITS, 2)).reply, Reply::Absent);
    cast.apply(&Command::Claim(claim(0, id(0), permits(1))));
    let in_use = Capacity::Permits(PERMITS);
    let refused = cast.apply(&resize(PERMITS + 1, 2));
    assert_eq!(refused.reply, Reply::Mismatch { in_use });
    assert_eq!(cast.look().capacity, Some(in_use));
    for _ in 0..2 {
        assert_eq!(cast.apply(&resize(PERMITS, 2)).reply, Reply::Resized);
    }
    assert_eq!(cast.look().capacity, Some(Capacity::Permits(2)));
}

/// Somebody else's request by the same id does not drop it in silence.
#[test]
fn another_clients_request_does_not_silence_one_that_is_too_heavy() {
    let mut cast = Cast::new();
    for (who, take) in [(0, PERMITS), (1, 1), (2, PERMITS)] {
        cast.apply(&Command::Claim(claim(who, id(who), permits(take))));
    }
    cast.apply(&Command::Resize {
        from: PERMITS,
        to: 2,
    });
    let stranger = claim(5, id(2), permits(PERMITS));
    assert_eq!(cast.apply(&Command::Claim(stranger)).reply, Reply::Taken);
    let in_use = Capacity::Permits(2);
    assert_eq!(cast.apply(&renew(id(2))).reply, Reply::Mismatch { in_use });
}
