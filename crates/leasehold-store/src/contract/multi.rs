//! Contract cases of several keys in one step.

use leasehold_core::{Claim, Key, Reply};

use super::Fixture;
use super::actor::{Actor, key, permits, scene, shared, stands, trying};
use crate::{AllAnswer, Answer, ErrorKind};

/// Asks for all of them; `None` from a store that can only do one by one.
async fn ask_all(actor: &Actor, parts: &[(Key, Claim)]) -> Option<AllAnswer> {
    let answer = actor.store.claim_all(parts).await;
    let answer = answer.expect("the store answers a claim of several keys");
    assert_eq!(answer.is_some(), actor.can().multi);
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
    let [a, b] = scene(fixture).await;
    // Not in the order of the alphabet.
    let [lock, table, slots] = ["k/z", "k/m", "k/a"];
    b.at(slots).granted(permits(1, 2, 2)).await;
    b.at(table).granted(shared(1)).await;
    let part = |name, claim| (key(name), a.want(trying(claim)));
    let parts = [
        (key(lock), a.want(trying(2))),
        part(table, shared(3)),
        part(slots, permits(4, 1, 2)),
    ];
    let Some(answer) = ask_all(&a, &parts).await else {
        return;
    };
    let is_busy = |answer: &Answer| matches!(answer.reply, Reply::Busy { .. });
    let refused = matches!(&answer, AllAnswer::NotAll { part: 2, answer } if is_busy(answer));
    assert!(refused, "{answer:?} where one was taken");
    assert!(a.at(lock).look().await.holders.is_empty());
    assert_eq!(a.at(table).look().await.holders.len(), 1);
    assert!(a.at(slots).look().await.waiters.is_empty());

    b.at(slots).release(1).await;
    let answers = all(ask_all(&a, &parts).await.expect("as before"));
    assert_eq!(answers.len(), parts.len());
    for ((key, claim), answer) in parts.iter().zip(answers) {
        let held = stands(answer.reply);
        let found = b.at(key.as_str()).look().await.holders;
        assert!(found.iter().any(|it| {
            (it.claim.arrival, Some(it.token), it.claim.mode)
                == (held.arrival, held.token, claim.mode)
        }));
    }
    b.at(lock).waiting(5).await;
    a.at(lock).release(2).await;
    b.at(lock).granted(5).await;
}

/// A repeated request finds all of its claims, also those that existed before.
pub async fn claim_all_again_finds_itself(fixture: &dyn Fixture) {
    let [a] = scene(fixture).await;
    let parts = [
        (key("one"), a.want(trying(1))),
        (key("two"), a.want(trying(2))),
    ];
    let (_, token) = a.at("two").granted(parts[1].1.clone()).await;
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
    a.at("one").release(1).await;
    a.at("two").release(2).await;
    let gone = ask_all(&a, &parts).await.expect("as before");
    assert!(matches!(gone, AllAnswer::NotAll { part: 0, answer } if answer.reply == Reply::Gone));
}

/// A key cannot be claimed twice in one step, and the claims cannot wait.
pub async fn claim_all_of_one_key_twice_is_invalid(fixture: &dyn Fixture) {
    let [a] = scene(fixture).await;
    let part = |name, number| (key(name), a.want(trying(shared(number))));
    let twice = [part("one", 1), part("two", 2), part("one", 3)];
    let waits = [(key("one"), a.want(4))];
    for parts in [&twice[..], &waits] {
        let refused = a.store.claim_all(parts).await.expect_err("a refusal");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(a.at("one").look().await.holders.is_empty());
    }
}
