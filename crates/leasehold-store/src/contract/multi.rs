//! Contract cases of several keys in one step.

use crate::ErrorKind;
use crate::{AllAnswer, Answer};
use leasehold_core::{Claim, Key, Reply};

use super::Fixture;
use super::actor::{Actor, key, knows_all_kinds, scene, stands};

fn trying(claim: Claim) -> Claim {
    Claim {
        wait: false,
        ..claim
    }
}

/// Asks for all of them; `None` from a store that can only do one by one.
async fn ask_all(actor: &Actor, parts: &[(Key, Claim)]) -> Option<AllAnswer> {
    let answer = actor.store.claim_all(parts).await;
    let answer = answer.expect("the store answers a claim of several keys");
    assert_eq!(answer.is_some(), actor.store.capabilities().multi);
    answer
}

fn all(answer: AllAnswer) -> Vec<Answer> {
    match answer {
        AllAnswer::All(answers) => answers,
        AllAnswer::NotAll { .. } => panic!("{answer:?} where all were due"),
    }
}

/// If one key is taken, none of the others is granted; if all are free, all are granted.
pub async fn claim_all_is_all_or_nothing(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b], _) = scene(fixture).await;
    // Not in the order of the alphabet.
    let (lock, slots, table) = (key("k/z"), key("k/a"), key("k/m"));
    b.granted(&slots, &b.want_permits(1, 2, 2)).await;
    b.granted(&table, &b.want_shared(1)).await;
    let parts = [
        (lock.clone(), trying(a.want(2))),
        (table.clone(), trying(a.want_shared(3))),
        (slots.clone(), trying(a.want_permits(4, 1, 2))),
    ];
    let Some(answer) = ask_all(&a, &parts).await else {
        return;
    };
    match answer {
        AllAnswer::NotAll { part: 2, answer } => {
            assert!(matches!(answer.reply, Reply::Busy { .. }), "{answer:?}");
        }
        other => panic!("{other:?} where one was taken"),
    }
    assert!(a.look(&lock).await.holders.is_empty());
    assert_eq!(a.look(&table).await.holders.len(), 1);
    assert!(a.look(&slots).await.waiters.is_empty());

    b.release(&slots, &b.want(1)).await;
    let answers = all(ask_all(&a, &parts).await.expect("as before"));
    assert_eq!(answers.len(), parts.len());
    for ((key, claim), answer) in parts.iter().zip(answers) {
        let look = b.look(key).await;
        let held = stands(answer.reply);
        assert!(look.holders.iter().any(|holder| {
            holder.claim.arrival == held.arrival
                && Some(holder.token) == held.token
                && holder.claim.mode == claim.mode
        }));
    }
    b.waiting(&lock, &b.want(5)).await;
    a.release(&lock, &a.want(2)).await;
    b.granted(&lock, &b.want(5)).await;
}

/// A repeated request finds all of its claims, also those that existed before.
pub async fn claim_all_again_finds_itself(fixture: &dyn Fixture) {
    let ([a], _) = scene(fixture).await;
    let parts = [
        (key("one"), trying(a.want(1))),
        (key("two"), trying(a.want(2))),
    ];
    let (_, token) = a.granted(&parts[1].0, &parts[1].1).await;
    let Some(first) = ask_all(&a, &parts).await else {
        return;
    };
    let held = |answers: Vec<Answer>| -> Vec<_> {
        let standings = answers.iter().map(|answer| stands(answer.reply));
        standings.map(|held| (held.arrival, held.token)).collect()
    };
    let first = held(all(first));
    assert_eq!(first[1].1, Some(token));
    let again = held(all(ask_all(&a, &parts).await.expect("as before")));
    assert_eq!(again, first);
    for (key, claim) in &parts {
        a.release(key, claim).await;
    }
    let gone = ask_all(&a, &parts).await.expect("as before");
    assert!(matches!(gone, AllAnswer::NotAll { part: 0, answer } if answer.reply == Reply::Gone));
}

/// A key cannot be claimed twice in one step, and the claims cannot wait.
pub async fn claim_all_of_one_key_twice_is_invalid(fixture: &dyn Fixture) {
    let ([a], _) = scene(fixture).await;
    if !a.store.capabilities().multi {
        return;
    }
    let (one, two) = (key("one"), key("two"));
    let twice = [
        (one.clone(), trying(a.want_shared(1))),
        (two.clone(), trying(a.want_shared(2))),
        (one.clone(), trying(a.want_shared(3))),
    ];
    let waits = [(one.clone(), a.want(4))];
    for parts in [&twice[..], &waits] {
        let refused = a.store.claim_all(parts).await.expect_err("a refusal");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(a.look(&one).await.holders.is_empty());
    }
}
