//! A queue that was written down and read back is the same queue.

use leasehold_core::{Claim, Mode, Note, OwnerSecret, Queue};
use proptest::prelude::*;

use crate::cast::{Cast, Verb, claim, config, id, script};

fn wants(who: usize) -> Claim {
    Claim {
        secret: (who < 4).then(|| OwnerSecret::from_random(who as u128 % 2)),
        min_hold: std::time::Duration::from_secs(who as u64 % 3),
        note: (who == 2).then(|| Note::new("a note").unwrap()),
        ..claim(
            who,
            id(0),
            if who == 5 {
                Mode::Shared
            } else {
                Mode::Exclusive
            },
        )
    }
}

fn permits(who: usize) -> Claim {
    let take = 1 + u32::try_from(who).unwrap() % 3;
    claim(who, id(0), Mode::Permits { of: 4, take })
}

const ALL: [Verb; 16] = [
    Verb::Join,
    Verb::Join,
    Verb::Join,
    Verb::Join,
    Verb::Renew,
    Verb::Release,
    Verb::Release,
    Verb::Die,
    Verb::Downgrade,
    Verb::Note,
    Verb::Rotate,
    Verb::GiveAway,
    Verb::Break,
    Verb::Resize(3),
    Verb::Unheard,
    Verb::Watch,
];

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_queue_that_was_read_back_is_and_does_the_same(
        script in script(&ALL),
        semaphore in any::<bool>(),
    ) {
        let mut cast = Cast::new(if semaphore { permits } else { wants });
        for step in &script {
            let text = serde_json::to_string(&cast.queue).unwrap();
            let mut read: Queue = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read, &cast.queue);
            if let Some((command, outcome)) = cast.play(step) {
                prop_assert_eq!(read.apply(&command, cast.clock), outcome);
                prop_assert_eq!(&read, &cast.queue);
            }
        }
    }
}
