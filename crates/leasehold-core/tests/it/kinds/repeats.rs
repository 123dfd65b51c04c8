//! Idempotence: a repeated request has no further effect, at once or while released ids are
//! remembered.

use crate::kinds::cast::*;

/// Two owners' nested claims, a writer, and readers; for so long that nothing
/// lapses, since a repeated request does prolong a claim.
fn wants(who: usize) -> Claim {
    let day = Duration::from_secs(86_400);
    Claim {
        secret: (who < 3).then(|| OwnerSecret::from_random(who as u128 / 2)),
        lease_ttl: day,
        waiter_ttl: day,
        ..claim(who, id(0), lock_mode(who < 4))
    }
}

/// What people see, but for deadlines and the time.
fn seen(cast: &Cast) -> Snapshot {
    let mut seen = cast.look();
    seen.at = StoreTime(0);
    seen.clock = StoreTime(0);
    for holder in &mut seen.holders {
        holder.claim.deadline = StoreTime(0);
    }
    for waiter in &mut seen.waiters {
        waiter.claim.deadline = StoreTime(0);
    }
    seen
}

/// Who was told about what; the times differ with the deadlines.
fn told(events: &[Event]) -> Vec<(&Inbox, Option<Arrival>)> {
    let told = events.iter().map(|event| (event.inbox(), event.arrival()));
    told.collect()
}

/// What still means the same later. A note is replaced by whichever request
/// comes last; who is broken or buried later may be somebody else.
fn means_the_same_later(command: &Command) -> bool {
    match command {
        Command::Claim(_) | Command::Release(_) => true,
        Command::Renew(renew) => renew.note.is_none(),
        _ => false,
    }
}

const ALL: &[Verb] = verbs![Join Join Join Renew Release Release Downgrade Note Rotate GiveAway];

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_request_that_comes_again_does_nothing_more(
        script in script(ALL),
        again in prop::collection::vec((0_usize..4, any::<prop::sample::Index>()), 60),
    ) {
        let mut once = Cast::new(wants);
        let mut often = Cast::new(wants);
        let mut sent: Vec<(StoreTime, Command)> = Vec::new();
        for (step, (repeats, late)) in script.iter().zip(again) {
            let Some(command) = once.command(step) else { continue };
            often.clock = once.clock;
            let outcome = once.apply(&command);
            once.learn(step, &command, &outcome.reply);
            let first = often.apply(&command);
            prop_assert_eq!(told(&first.events), told(&outcome.events));
            for _ in 0..repeats {
                let events = often.apply(&command).events;
                prop_assert!(events.is_empty(), "{:?}", events);
            }
            // Any that was sent within the memory of the tombstones.
            sent.push((once.clock, command));
            sent.retain(|(at, _)| *at + TOMBSTONE_LIFE > once.clock);
            let (_, old) = late.get(&sent);
            if means_the_same_later(old) {
                let events = often.apply(old).events;
                prop_assert!(events.is_empty(), "{:?} by {:?}", events, old);
            }
            prop_assert_eq!(seen(&once), seen(&often));
        }
        // No count has drifted: when all have left, the key is free.
        for who in 0..CLIENTS {
            if let Some(part) = &once.parts[who] {
                often.apply(&release(part.id.clone()));
            }
        }
        prop_assert!(often.queue.is_empty(), "{:?}", often.look());
        prop_assert!(often.is_free());
    }

    /// Also where clients die, and it comes again at once.
    #[test]
    fn a_verb_that_comes_again_at_once_finds_nothing_to_do(
        script in script(&[ALL, verbs![Die Watch]].concat()),
    ) {
        let mut cast = Cast::new(wants);
        for step in &script {
            let Some((command, _)) = cast.play(step) else { continue };
            let before = seen(&cast);
            let again = cast.apply(&command);
            prop_assert_eq!(seen(&cast), before);
            prop_assert!(again.events.is_empty(), "{:?}", again);
        }
    }
}
