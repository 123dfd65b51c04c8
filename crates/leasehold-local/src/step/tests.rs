//! One step on several keys: all records are written, or none.

use std::fs;
use std::sync::Mutex;

use leasehold_core::{Claim, Reply};
use tokio::task::JoinSet;

use super::*;
use crate::tests::{Place, claim_for, key, release};

async fn all(store: &Arc<Inner>, keys: &[&str]) -> Result<Taken, StoreError> {
    let keys: Vec<_> = keys.iter().map(|name| key(name)).collect();
    let claim = |number| {
        Command::Claim(Claim {
            wait: false,
            inbox: Some(store.session.inbox().clone()),
            ..claim_for(number, std::time::Duration::MAX)
        })
    };
    let claims: Vec<_> = (1..).map(claim).take(keys.len()).collect();
    take(store, &keys.iter().collect::<Vec<_>>(), &claims, true).await
}

#[tokio::test]
async fn nothing_is_written_where_one_record_cannot_be() {
    let place = Place::new();
    let store = place.store();
    // In the way of the last record.
    fs::create_dir(place.at("records/b.rec")).unwrap();
    all(&store, &["c", "a", "b"]).await.unwrap_err();
    assert_eq!(place.names("records"), ["b.rec"]);
    fs::remove_dir(place.at("records/b.rec")).unwrap();
    all(&store, &["c", "a", "b"]).await.unwrap().unwrap();
    assert_eq!(place.names("records"), ["a.rec", "b.rec", "c.rec"]);
}

#[tokio::test]
async fn nothing_is_written_where_one_key_is_taken() {
    let place = Place::new();
    let (store, other) = (place.store(), place.store());
    all(&other, &["b"]).await.unwrap().unwrap();
    let (part, refused) = all(&store, &["c", "b", "a"]).await.unwrap().unwrap_err();
    assert!(matches!((part, refused.reply), (1, Reply::Busy { .. })));
    assert_eq!(place.names("records"), ["b.rec"]);
}

/// A process killed between two records leaves one of its claims.
#[tokio::test]
async fn the_dead_are_not_in_the_way() {
    let place = Place::new();
    let (store, one, other) = (place.store(), place.store(), place.store());
    all(&one, &["b"]).await.unwrap().unwrap();
    all(&other, &["c"]).await.unwrap().unwrap();
    drop((one, other));
    let granted = all(&store, &["a", "b", "c"]).await.unwrap().unwrap();
    assert_eq!(granted.len(), 3);
    assert_eq!(place.names("records"), ["a.rec", "b.rec", "c.rec"]);
}

#[tokio::test]
async fn no_parts_are_granted() {
    let store = Place::new().store();
    assert_eq!(all(&store, &[]).await.unwrap(), Ok(Vec::new()));
}

#[tokio::test]
async fn tasks_take_turns_of_few_steps() {
    let place = Place::new();
    let store = place.store();
    let (taken, steps) = (Arc::new(Mutex::new(Vec::new())), 64);
    let mut tasks = JoinSet::new();
    for name in ["a", "b"] {
        let (store, taken) = (store.clone(), taken.clone());
        tasks.spawn(async move {
            for number in 0..steps {
                let step = [release(number)];
                let step = take(&store, &[&key(name)], &step, false).await;
                step.unwrap().unwrap();
                taken.lock().unwrap().push(name);
            }
        });
    }
    tasks.join_all().await;
    let taken = taken.lock().unwrap();
    let in_a_row = taken.chunk_by(|one, next| one == next).map(<[_]>::len);
    let mut in_a_row: Vec<_> = in_a_row.collect();
    // When the other is done, one goes on alone.
    in_a_row.pop();
    assert!(in_a_row.iter().all(|steps| *steps <= 8), "{taken:?}");
    assert!(in_a_row.len() >= 12, "{taken:?}");
}
