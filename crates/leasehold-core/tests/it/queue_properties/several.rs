//! Several keys at once: all or nothing.

use proptest::prelude::*;

use crate::common::*;
use crate::queue_properties::histories::{History, Tick, history, ms};
use crate::queue_properties::reference::Reference;

/// A key after a history of its own, as far as that goes without answers.
fn key_after(history: &History) -> (Queue, StoreTime) {
    let (mut queue, mut clock) = (Queue::default(), StoreTime(1_700_000_000_000_000));
    for act in &history.acts {
        if let Tick::Forward(by) = act.tick {
            clock = clock + Duration::from_micros(by);
        }
        let command = act.op.command(history.permits, &Reference::default());
        command.map(|command| queue.apply(&command, clock));
    }
    (queue, clock)
}

proptest! {
    #![proptest_config(config(300, 0x1ea5_e401d))]

    #[test]
    fn all_or_nothing(
        histories in prop::collection::vec(history(), 1..5),
        reads in prop::collection::vec(any::<bool>(), 5),
        waits in any::<bool>(),
        quiet in 0_u64..40_000,
    ) {
        let keys: Vec<_> = histories.iter().map(key_after).collect();
        let clock = keys.iter().map(|(_, clock)| *clock).max().unwrap() + ms(quiet);
        let mut queues: Vec<Queue> = keys.into_iter().map(|(queue, _)| queue).collect();
        let before = queues.clone();
        let id = || ClaimId::new("of-several").unwrap();
        let claims = reads.iter().take(queues.len()).map(|reads| {
            let claim = Claim::new(id(), lock_mode(!reads), ms(10_000));
            Command::Claim(Claim { wait: waits, ..claim })
        });
        let claims: Vec<_> = claims.collect();
        // What each key says on its own.
        let alone = before.iter().zip(&claims);
        let alone = alone.map(|(queue, claim)| queue.clone().apply(claim, clock));
        let alone: Vec<_> = alone.collect();
        let refused = alone.iter().position(|outcome| !outcome.reply.is_grant());
        match Queue::claim_all(&mut queues, &claims, clock) {
            Err((at, outcome)) => {
                prop_assert_eq!(Some(at), refused);
                prop_assert_eq!(&*outcome, &alone[at]);
                prop_assert_eq!(queues, before);
            }
            Ok(outcomes) => {
                prop_assert_eq!(refused, None);
                prop_assert_eq!(&outcomes, &alone);
                let taken = queues.clone();
                let again = Queue::claim_all(&mut queues, &claims, clock).unwrap();
                for (first, again) in outcomes.iter().zip(again) {
                    prop_assert_eq!(first.reply, again.reply);
                    prop_assert!(again.events.is_empty());
                }
                prop_assert_eq!(&queues, &taken, "it finds itself");
                for queue in &mut queues {
                    let left = queue.apply(&release(id()), clock).reply;
                    prop_assert_eq!(left, Reply::Released { held: true });
                }
            }
        }
    }
}
