//! Minimum holds: the key stays taken, even if the claim ends earlier.

use crate::kinds::cast::*;

/// Some hold for at least a while, shorter or longer than their lease; two of
/// them are one owner's.
fn min_hold(who: usize) -> Duration {
    [0, 3_000, 25_000, 1, 0, 14_000].map(Duration::from_millis)[who]
}

fn wants(who: usize) -> Claim {
    Claim {
        min_hold: min_hold(who),
        secret: (who < 2).then(|| OwnerSecret::from_random(1)),
        ..claim(who, id(0), Mode::EXCLUSIVE)
    }
}

/// One that is held for so long at least.
fn held_for(who: usize, min_hold: Duration) -> Command {
    Command::Claim(Claim {
        min_hold,
        ..claim(who, id(who), Mode::EXCLUSIVE)
    })
}

const ALL: &[Verb] =
    verbs![Join Join Join Renew Release Release Release Die Die Unheard Rotate Downgrade];

proptest! {
    #![proptest_config(config())]

    /// Released, dead or lapsed: nobody else has the key before. A grant that
    /// was not heard is cut; once its client has found it, its hold counts again.
    #[test]
    fn nobody_else_holds_before_its_time(script in script(ALL)) {
        let mut cast = Cast::new(wants);
        // Whose grant keeps the key, until when.
        let mut grants: BTreeMap<Arrival, StoreTime> = BTreeMap::new();
        let mut unheard: BTreeSet<Arrival> = BTreeSet::new();
        for step in &script {
            let Some((command, outcome)) = cast.play(step) else { continue };
            match (&command, outcome.reply) {
                (Command::Unheard { .. }, _) => {
                    let holders = cast.look().holders;
                    let theirs = holders.iter().filter(|h| h.claim.owner.pid as usize == step.who);
                    unheard.extend(theirs.map(|h| h.claim.arrival));
                }
                (_, Reply::Standing(standing)) => {
                    unheard.remove(&standing.arrival);
                }
                _ => {}
            }
            let seen = cast.look();
            for holder in &seen.holders {
                let hold = min_hold(holder.claim.owner.pid as usize);
                grants.entry(holder.claim.arrival).or_insert_with(|| holder.claim.since + hold);
            }
            for (arrival, until) in &grants {
                let holds = seen.holders.iter().any(|h| h.claim.arrival == *arrival);
                let due = *until > seen.at && !unheard.contains(arrival);
                prop_assert!(holds || !due, "{:?} is gone before {:?}", arrival, until);
            }
        }
    }

    /// It ends at its time by itself, and until then is good for nothing else.
    #[test]
    fn what_is_kept_can_only_end(
        hold in 1_u64..20_000,
        after in 0_u64..20_000,
        dies in any::<bool>(),
        waits in any::<bool>(),
        hand_off in any::<bool>(),
        unused in any::<bool>(),
    ) {
        let ms = Duration::from_millis;
        let mut cast = Cast::new(wants);
        let start = cast.clock;
        cast.apply(&Command::Claim(Claim {
            min_hold: ms(hold),
            lease_ttl: 6 * LEASE,
            ..claim(0, id(0), Mode::EXCLUSIVE)
        }));
        if waits {
            cast.apply(&Command::Claim(Claim {
                waiter_ttl: 6 * LEASE,
                ..claim(1, id(1), Mode::EXCLUSIVE)
            }));
        }
        cast.pass(ms(after));
        let leave = if dies {
            Command::Bury { inboxes: vec![inbox(0)] }
        } else {
            Command::Release(Release { id: id(0), hand_off, settled: true, unused })
        };
        let left = cast.apply(&leave);
        let released = Reply::Released { held: true };
        prop_assert!(dies || left.reply == released);
        // What its client never used is not kept.
        let kept = after < hold && (dies || !unused);
        let view = |cast: &Cast| cast.look().holders.first().map(|h| h.claim.clone());
        prop_assert_eq!(view(&cast).is_some_and(|v| v.kept), kept);
        if !kept {
            return Ok(());
        }
        // The key is not vacant; who is next may hear until when.
        for event in &left.events {
            let told = matches!(event, Event::Next { blocked_until, .. }
                if *blocked_until == start + ms(hold));
            prop_assert!(told, "{:?}", event);
        }
        prop_assert_eq!(view(&cast).unwrap().deadline, start + ms(hold));
        let queue = cast.queue.clone();
        let mut requests = vec![
            renew(id(0)),
            rotate(id(0), id(100), 0, None),
            rotate(id(0), id(100), 0, Some(adopt(3))),
            Command::Claim(claim(0, id(0), Mode::EXCLUSIVE)),
        ];
        for request in &requests {
            prop_assert_eq!(cast.apply(request).reply, Reply::Gone, "{:?}", request);
            prop_assert_eq!(&cast.queue, &queue);
        }
        requests.push(release(id(0)));
        prop_assert_eq!(cast.apply(&requests[4]).reply, Reply::Absent);
        cast.pass(ms(hold - after) - Duration::from_micros(1));
        prop_assert!(view(&cast).is_some_and(|v| v.kept));
        cast.pass(Duration::from_micros(1));
        prop_assert_eq!(view(&cast).is_some(), false, "over by itself");
        let next = if waits { renew(id(1)) } else { Cast::stranger() };
        prop_assert!(cast.apply(&next).reply.is_grant());
    }
}

/// It counts from the grant, however long the claim has waited.
#[test]
fn a_minimum_hold_begins_with_the_grant() {
    let mut cast = Cast::new(wants);
    cast.apply(&held_for(0, Duration::ZERO));
    cast.apply(&held_for(1, Duration::from_secs(5)));
    cast.pass(Duration::from_secs(9));
    cast.apply(&release(id(0)));
    let granted = cast.clock;
    cast.apply(&release(id(1)));
    let claim = &cast.look().holders[0].claim;
    let until = granted + Duration::from_secs(5);
    assert_eq!((claim.kept, claim.deadline), (true, until));
}

/// A grant that nobody heard of lapses soon; what has lapsed stays so, also when
/// its client is found to be dead before anybody needs the key.
#[test]
fn a_lapsed_grant_is_not_kept_when_its_client_is_buried() {
    let mut cast = Cast::new(wants);
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
    let mut cast = Cast::new(wants);
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
    let mut cast = Cast::new(wants);
    cast.apply(&held_for(1, LEASE));
    cast.apply(&release(id(1)));
    assert!(!cast.is_free());
    cast.apply(&break_all());
    assert!(cast.is_free());
}

/// After a restart of the machine, where no holder can have survived.
#[test]
fn voided_claims_leave_their_minimum_holds() {
    let mut cast = Cast::new(wants);
    cast.apply(&held_for(1, LEASE / 2));
    cast.apply(&held_for(2, Duration::ZERO));
    cast.queue.void_claims();
    let seen = cast.look();
    assert_eq!((seen.holders.len(), seen.waiters.len()), (1, 0));
    assert!(seen.holders[0].claim.kept);
    cast.pass(LEASE / 2);
    assert!(cast.is_free());
}
