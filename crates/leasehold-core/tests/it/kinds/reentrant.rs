//! Re-entrant locks: several claims, one owner.

use crate::kinds::cast::*;

/// Two owners, with every other client each.
fn owner_of(who: usize) -> u128 {
    who as u128 % 2
}

fn wants(who: usize) -> Claim {
    Claim {
        secret: Some(OwnerSecret::from_random(owner_of(who))),
        ..claim(who, id(0), Mode::EXCLUSIVE)
    }
}

const ALL: &[Verb] = verbs![Join Join Join Join Renew Renew Release Release Die Rotate Break];

proptest! {
    #![proptest_config(config())]

    /// However claims leave (released in any order, lapsed, buried, broken): the
    /// lock is free exactly when its owner's last claim has left, all that hold
    /// are one owner's and share its token, and none of that owner's waits.
    #[test]
    fn the_last_claim_of_an_owner_frees_the_lock(script in script(ALL)) {
        let mut cast = Cast::new(wants);
        for step in &script {
            cast.play(step);
            let seen = cast.look();
            let owners = seen.holders.iter().map(|h| owner_of(h.claim.owner.pid as usize));
            let owners: BTreeSet<_> = owners.collect();
            let tokens: BTreeSet<_> = seen.holders.iter().map(|h| h.token).collect();
            prop_assert!(owners.len() <= 1, "two owners: {:?}", seen);
            prop_assert!(tokens.len() <= 1, "two tokens: {:?}", seen);
            for waiter in &seen.waiters {
                let owner = owner_of(waiter.claim.owner.pid as usize);
                prop_assert!(!owners.contains(&owner), "waits for itself: {:?}", seen);
            }
            let free = seen.holders.is_empty() && seen.waiters.is_empty();
            prop_assert_eq!(cast.is_free(), free, "{:?}", seen);
        }
    }

    /// Its owner comes in at once, past whoever waits, under the same token; it
    /// leaves in any order; and the one behind comes when all have left.
    #[test]
    fn an_owner_enters_at_once_and_leaves_in_any_order(
        order in Just((0..CLIENTS - 1).collect::<Vec<_>>()).prop_shuffle(),
        adopted in prop::option::of(0..CLIENTS - 1),
    ) {
        let last = CLIENTS - 1;
        let mine = |who| Command::Claim(Claim {
            secret: Some(OwnerSecret::from_random(7)),
            ..claim(who, id(who), Mode::EXCLUSIVE)
        });
        let mut cast = Cast::new(wants);
        cast.apply(&mine(0));
        cast.apply(&Command::Claim(claim(last, id(last), Mode::EXCLUSIVE)));
        for who in 1..last {
            let Reply::Standing(standing) = cast.apply(&mine(who)).reply else {
                panic!("not granted");
            };
            prop_assert_eq!(standing.token, Some(cast.look().holders[0].token));
        }
        if let Some(who) = adopted {
            // It is another client's then, and holds like the others.
            cast.apply(&rotate(id(who), id(100 + who), 0, Some(adopt(9))));
        }
        for (left, who) in (1..).zip(order) {
            prop_assert!(!cast.look().waiters.is_empty(), "one left too early");
            let name = if adopted == Some(who) { id(100 + who) } else { id(who) };
            prop_assert_eq!(cast.apply(&release(name)).reply, Reply::Released { held: true });
            prop_assert_eq!(cast.look().holders.len(), (last - left).max(1));
        }
        prop_assert_eq!(cast.look().holders[0].claim.owner.pid as usize, last);
        cast.apply(&Command::Bury { inboxes: vec![inbox(last)] });
        prop_assert!(cast.queue.is_empty());
    }
}

/// One of them may be what the holder waits for.
#[test]
fn claims_of_one_owner_that_wait_are_granted_together() {
    let mut cast = Cast::new(wants);
    let mine = |who| Command::Claim(but(wants(who), |it| it.id = id(who)));
    for who in [0, 1, 2, 3, 5] {
        cast.apply(&mine(who));
    }
    // 0 and 2 hold; 1, 3 and 5 are the other owner's.
    assert_eq!(cast.look().holders.len(), 2);
    cast.apply(&release(id(0)));
    let outcome = cast.apply(&release(id(2)));
    let seen = cast.look();
    assert_eq!((seen.holders.len(), seen.waiters.len()), (3, 0));
    assert_eq!(outcome.events.len(), 3, "each hears of its grant");
}
