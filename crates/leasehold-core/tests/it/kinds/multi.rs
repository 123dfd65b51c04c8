//! Several keys at once: all or nothing.

use crate::kinds::cast::*;

const BUSY: &[Verb] = verbs![Join Join Release Release Release Die Renew];

proptest! {
    #![proptest_config(config())]

    #[test]
    fn all_or_nothing(
        scripts in prop::collection::vec(script(BUSY), 1..5),
        reads in prop::collection::vec(any::<bool>(), 5),
        waits in any::<bool>(),
    ) {
        let casts = scripts.iter().map(|script| {
            let mut cast = Cast::new(|who| claim(who, id(0), lock_mode(who < 3)));
            for step in script {
                cast.play(step);
            }
            cast
        });
        let casts: Vec<_> = casts.collect();
        let clock = casts.iter().map(|cast| cast.clock).max().unwrap();
        let mut queues: Vec<Queue> = casts.into_iter().map(|cast| cast.queue).collect();
        let before = queues.clone();
        let claims = reads.iter().take(queues.len()).map(|reads| {
            let claim = Claim::new(id(99_999), lock_mode(!reads), LEASE);
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
                    let left = queue.apply(&release(id(99_999)), clock).reply;
                    prop_assert_eq!(left, Reply::Released { held: true });
                }
            }
        }
    }
}
