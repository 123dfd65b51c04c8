//! Semaphores.

use crate::kinds::cast::*;

const PERMITS: u32 = 4;

fn permits(take: u32) -> Mode {
    Mode::permits(PERMITS, take)
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
