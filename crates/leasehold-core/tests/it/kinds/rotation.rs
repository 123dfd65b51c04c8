//! Rotation and adoption: new ids and new clients of claims.

use crate::kinds::cast::*;

fn nobody(who: usize) -> Claim {
    claim(who, id(0), Mode::EXCLUSIVE)
}

/// Somebody holds, and `waiting` others wait: the last of them is to be rotated.
fn line(waiting: usize) -> Cast {
    let mut cast = Cast::new(nobody);
    for who in 0..=waiting {
        cast.apply(&Command::Claim(claim(who, id(who), Mode::EXCLUSIVE)));
    }
    cast
}

proptest! {
    #![proptest_config(config())]

    /// Of any rotations of one id exactly one wins; it may be asked again, and
    /// the old id is good for nothing.
    #[test]
    fn exactly_one_rotation_wins(
        waiting in 0_usize..3,
        order in prop::collection::vec(0_usize..5, 1..12),
        adopts in prop::option::of(3_usize..6),
    ) {
        let mut cast = line(waiting);
        let old = id(waiting);
        let before = standing(cast.apply(&renew(old.clone())).reply);
        let turn = |n: usize| rotate(old.clone(), id(100 + n), 0, adopts.map(adopt));
        let mut won = None;
        for n in order {
            let reply = cast.apply(&turn(n)).reply;
            let Some((winner, first)) = won else {
                won = Some((n, standing(reply)));
                continue;
            };
            if n == winner {
                prop_assert_eq!(standing(reply), first);
            } else {
                prop_assert_eq!(reply, Reply::Superseded);
            }
        }
        let (winner, now) = won.unwrap();
        prop_assert_eq!(now.arrival, before.arrival);
        if adopts.is_none() {
            prop_assert_eq!(now.token, before.token);
        }
        let queue = cast.queue.clone();
        prop_assert_eq!(cast.apply(&renew(old.clone())).reply, Reply::Superseded);
        prop_assert_eq!(cast.apply(&release(old.clone())).reply, Reply::Absent);
        let claims = Command::Claim(claim(waiting, old, Mode::EXCLUSIVE));
        prop_assert_eq!(cast.apply(&claims).reply, Reply::Gone);
        prop_assert_eq!(&cast.queue, &queue, "the old id changes nothing");
        let left = cast.apply(&release(id(100 + winner))).reply;
        prop_assert_eq!(left, Reply::Released { held: waiting == 0 });
    }

    /// The version guards against a rotation that was decided on old knowledge.
    #[test]
    fn a_rotation_of_another_version_is_refused(turns in 1_u64..5, version in 0_u64..6) {
        let mut cast = line(0);
        let mut name = id(0);
        for (n, done) in (100..).zip(0..turns) {
            prop_assert!(cast.apply(&rotate(name, id(n), done, None)).reply.is_grant());
            name = id(n);
        }
        let queue = cast.queue.clone();
        let reply = cast.apply(&rotate(name, id(999), version, None)).reply;
        prop_assert_eq!(reply.is_grant(), version == turns);
        if version != turns {
            prop_assert_eq!(reply, Reply::Superseded);
            prop_assert_eq!(&cast.queue, &queue);
        }
    }

    /// Whoever takes a claim over gets a higher token without leaving the key for
    /// a moment, and so do the other claims of its owner.
    #[test]
    fn an_adopted_hold_goes_on_under_a_higher_token(
        nested in 1_usize..4,
        pick in any::<prop::sample::Index>(),
        waiting in 0_usize..3,
        shared in any::<bool>(),
    ) {
        let mut cast = Cast::new(nobody);
        let shared = shared && nested == 1;
        for who in 0..nested {
            let mode = if shared { Mode::SHARED } else { Mode::EXCLUSIVE };
            cast.apply(&Command::Claim(Claim {
                secret: (!shared).then(|| OwnerSecret::from_random(7)),
                ..claim(who, id(who), mode)
            }));
        }
        for who in nested..nested + waiting {
            cast.apply(&Command::Claim(claim(who, id(who), Mode::EXCLUSIVE)));
        }
        let before = cast.look();
        let old = pick.index(nested);
        let take = rotate(id(old), id(100), 0, Some(adopt(50)));
        let outcome = cast.apply(&take);
        let now = standing(outcome.reply);
        prop_assert!(now.token.unwrap() > before.last_token);
        let arrival = now.arrival;
        let expected = [Event::Adopted { inbox: inbox(old), arrival, id: id(old) }];
        prop_assert_eq!(&outcome.events[..], &expected[..]);
        let after = cast.look();
        prop_assert_eq!(after.holders.len(), nested);
        for (old, new) in before.holders.iter().zip(&after.holders) {
            prop_assert_eq!(Some(new.token), now.token);
            prop_assert_eq!(new.claim.arrival, old.claim.arrival);
            prop_assert_eq!(new.claim.since, old.claim.since);
        }
        prop_assert_eq!(after.waiters.len(), waiting);
        prop_assert_eq!(after.holders[old].claim.owner.pid, 50);
        // Asked again it is the same hold, not yet another.
        let again = cast.apply(&take);
        prop_assert_eq!((standing(again.reply), again.events), (now, vec![]));
    }
}

/// How often a client is told that it has the key.
fn grants_to(who: usize, outcome: &Outcome) -> usize {
    let to = inbox(who);
    let told = |event: &&Event| matches!(event, Event::Granted { inbox, .. } if *inbox == to);
    outcome.events.iter().filter(told).count()
}

/// A claim that waits keeps its place, and its new client hears of the grant.
#[test]
fn a_place_in_the_line_can_be_adopted() {
    let mut cast = line(2);
    let take = cast.apply(&rotate(id(1), id(100), 0, Some(adopt(50))));
    let taken = standing(take.reply);
    assert_eq!((taken.token, taken.position), (None, 1));
    let outcome = cast.apply(&release(id(0)));
    assert_eq!(grants_to(50, &outcome), 1, "{outcome:?}");
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
        let mut cast = line(1);
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
    let mut cast = Cast::new(nobody);
    let mut apply = |command: &Command| cast.apply(command).reply;
    assert!(apply(&Command::Claim(claim(1, id(1), Mode::EXCLUSIVE))).is_grant());
    let mut turn = |version| apply(&rotate(id(1), id(2), version, None));
    assert!(turn(0).is_grant());
    assert!(turn(0).is_grant(), "the same once more");
    assert_eq!(turn(u64::MAX), Reply::Superseded);
}
