//! One step on several keys: all records are written, or none.

use std::fs;
use std::path::Path;
use std::time::Duration;

use leasehold_core::{Claim, ClaimId, Mode, Reply};

use super::*;

fn open(path: &Path) -> Arc<Inner> {
    Inner::open(path.to_owned(), Duration::from_secs(60), None).unwrap()
}

async fn all(store: &Arc<Inner>, keys: &[&str]) -> Result<Taken, StoreError> {
    let keys: Vec<_> = keys.iter().map(|key| Key::new(key).unwrap()).collect();
    let claim = |number| {
        Command::Claim(Claim {
            wait: false,
            inbox: Some(store.session.inbox().clone()),
            ..Claim::new(ClaimId::from_random(number), Mode::EXCLUSIVE, Duration::MAX)
        })
    };
    let claims: Vec<_> = (1..).map(claim).take(keys.len()).collect();
    take(store, &keys.iter().collect::<Vec<_>>(), &claims, true).await
}

fn left(path: &Path) -> Vec<String> {
    let names = fs::read_dir(path.join("records")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[tokio::test]
async fn nothing_is_written_where_one_record_cannot_be() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("d");
    let store = open(&path);
    // In the way of the last record.
    fs::create_dir(path.join("records/b.rec")).unwrap();
    all(&store, &["c", "a", "b"]).await.unwrap_err();
    assert_eq!(left(&path), ["b.rec"]);
    fs::remove_dir(path.join("records/b.rec")).unwrap();
    all(&store, &["c", "a", "b"]).await.unwrap().unwrap();
    assert_eq!(left(&path), ["a.rec", "b.rec", "c.rec"]);
}

#[tokio::test]
async fn nothing_is_written_where_one_key_is_taken() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("d");
    let (store, other) = (open(&path), open(&path));
    all(&other, &["b"]).await.unwrap().unwrap();
    let (part, refused) = all(&store, &["c", "b", "a"]).await.unwrap().unwrap_err();
    assert!(matches!((part, refused.reply), (1, Reply::Busy { .. })));
    assert_eq!(left(&path), ["b.rec"]);
}

/// A process killed between two records leaves one of its claims.
#[tokio::test]
async fn the_dead_are_not_in_the_way() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("d");
    let (store, one, other) = (open(&path), open(&path), open(&path));
    all(&one, &["b"]).await.unwrap().unwrap();
    all(&other, &["c"]).await.unwrap().unwrap();
    drop((one, other));
    let granted = all(&store, &["a", "b", "c"]).await.unwrap().unwrap();
    assert_eq!(granted.len(), 3);
    assert_eq!(left(&path), ["a.rec", "b.rec", "c.rec"]);
}

#[tokio::test]
async fn no_parts_are_granted() {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place.path().join("d"));
    assert_eq!(all(&store, &[]).await.unwrap(), Ok(Vec::new()));
}
