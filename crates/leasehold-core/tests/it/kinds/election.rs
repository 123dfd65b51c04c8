//! Elections: one leader, and observers.

use crate::kinds::cast::*;

fn candidate(who: usize) -> Claim {
    Claim {
        note: Some(Note::new(format!("client {who}")).unwrap()),
        ..claim(who, id(0), Mode::EXCLUSIVE)
    }
}

/// Readers, and an owner with several claims: the first holder counts here too.
fn anybody(who: usize) -> Claim {
    Claim {
        mode: lock_mode(who < 3),
        secret: (who < 2).then(|| OwnerSecret::from_random(1)),
        ..candidate(who)
    }
}

/// What somebody who watches knows of the first holder.
type Leader = Option<(Arrival, Token, Option<Note>)>;

fn leader(cast: &Cast) -> Leader {
    let first = cast.look().holders.into_iter().next()?;
    Some((first.claim.arrival, first.token, first.claim.note))
}

const ALL: &[Verb] =
    verbs![Join Join Join Renew Renew Release Release Die Note Note Rotate GiveAway Break Watch];

/// Whoever watches looks when it hears, and then knows the first holder until it
/// hears again.
fn watchers_know(wants: fn(usize) -> Claim, script: &[Move]) {
    let mut cast = Cast::new(wants);
    let mut watching: Vec<Option<(StoreTime, Leader)>> = vec![None; CLIENTS];
    for step in script {
        let Some(command) = cast.command(step) else {
            continue;
        };
        let was_dead = first_is_dead(&cast);
        let outcome = cast.apply(&command);
        cast.learn(step, &command, &outcome.reply);
        match command {
            Command::Watch { .. } => {
                // Asked first, looked then: the other way round misses a change.
                watching[step.who] = Some((cast.clock + 2 * LEASE, leader(&cast)));
            }
            Command::Bury { .. } => watching[step.who] = None,
            _ => {}
        }
        for (who, watch) in watching.iter_mut().enumerate() {
            let changed = Event::Changed { inbox: inbox(who) };
            let heard = outcome.events.iter().filter(|it| **it == changed).count();
            let Some((_, known)) = watch.as_mut().filter(|(until, _)| *until > cast.clock) else {
                assert_eq!(heard, 0, "{who} does not watch");
                continue;
            };
            let now = leader(&cast);
            match heard {
                0 => {
                    let is_known = now == *known || first_is_dead(&cast);
                    assert!(is_known, "{command:?} changed it");
                }
                1 => {
                    assert!(now != *known || was_dead, "{command:?} changed nothing");
                    *known = now;
                }
                _ => panic!("told {heard} times"),
            }
        }
    }
}

/// Whether the first in the record has lapsed: it is not dropped before the key
/// needs it, and until then counts as first.
fn first_is_dead(cast: &Cast) -> bool {
    let deadline = serde_json::to_value(&cast.queue).unwrap()["granted"][0][1]["deadline"].as_u64();
    deadline.is_some_and(|deadline| StoreTime(deadline) <= cast.look().at)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn watchers_know_the_leader(script in script(ALL)) {
        watchers_know(candidate, &script);
    }

    #[test]
    fn watchers_know_the_first_of_several_holders(script in script(ALL)) {
        watchers_know(anybody, &script);
    }

    /// A term is a token: the next one is always higher.
    #[test]
    fn terms_strictly_increase(script in script(ALL)) {
        let mut cast = Cast::new(candidate);
        let mut last: Option<(Arrival, Token, u32)> = None;
        for step in &script {
            cast.play(step);
            let holders = cast.look().holders;
            prop_assert!(holders.len() <= 1);
            for leader in holders {
                let now = (leader.claim.arrival, leader.token, leader.claim.owner.pid);
                if let Some(before) = last.filter(|before| *before != now) {
                    prop_assert!(leader.token > before.1, "{:?} after {:?}", now, before);
                }
                last = Some(now);
            }
        }
    }
}

/// An owner may hold by several claims: when the first of them leaves, another
/// is shown, and its note, though the token stays.
#[test]
fn watchers_hear_when_another_claim_of_the_owner_comes_first() {
    let mut cast = Cast::new(anybody);
    for who in 0..2 {
        cast.apply(&Command::Claim(but(anybody(who), |it| it.id = id(who))));
    }
    cast.apply(&Command::Watch {
        inbox: inbox(9),
        ttl: LEASE,
    });
    let changed = [Event::Changed { inbox: inbox(9) }];
    let note = |who: usize| {
        Command::Renew(Renew {
            note: Some(Note::new("new").unwrap()),
            ..Renew::new(id(who), LEASE)
        })
    };
    assert_eq!(cast.apply(&note(1)).events, [], "it is not the first");
    assert_eq!(cast.apply(&note(0)).events, changed);
    assert_eq!(cast.apply(&note(0)).events, [], "the same note");
    let left = cast.apply(&release(id(0)));
    assert_eq!(left.reply, Reply::Released { held: true });
    assert_eq!(left.events, changed);
}
