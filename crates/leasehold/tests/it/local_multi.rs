//! Several keys of the local store in one step, while others use them too.
#![cfg(all(unix, feature = "local"))]

use crate::local_support::*;

/// A store with records of `a` and `b`, which are free.
async fn used(place: &Place) -> Arc<LocalStore> {
    let store = place.open().await;
    assert!(has_all(&store, &parts(&store, &["a", "b"], 1)).await);
    release_both(&store, 1).await;
    Arc::new(store)
}

async fn release_both(store: &LocalStore, id: u128) {
    for name in ["a", "b"] {
        store.release(&key(name), &release(id)).await.unwrap();
    }
}

/// Another process, stopped in the middle of a step on that key.
fn stopped(place: &Place, name: &str) -> fs::File {
    let stopped = fs::File::open(place.at(&format!("records/{name}.rec"))).unwrap();
    stopped.lock().unwrap();
    stopped
}

/// A process that was stopped in the middle of a step on one key holds up those
/// who want that key, and not those who want the others.
#[tokio::test]
async fn nobody_holds_up_a_key_while_it_waits_for_another() {
    let place = Place::new();
    let store = used(&place).await;
    for (id, locked, other) in [(2, "a", "b"), (3, "b", "a")] {
        let stopped = stopped(&place, locked);
        let (waiting, both) = (store.clone(), parts(&store, &["b", "a"], id));
        let mut all = tokio::spawn(async move { has_all(&waiting, &both).await });
        let early = timeout(Duration::from_millis(100), &mut all).await;
        assert!(early.is_err(), "it waits");
        for number in 0..20 {
            let (key, release) = (key(other), release(1_000 + number));
            let released = timeout(Duration::from_secs(2), store.release(&key, &release)).await;
            released.expect("nobody is in the way").unwrap();
        }
        stopped.unlock().unwrap();
        assert!(all.await.unwrap());
        release_both(&store, id).await;
    }
}

/// Whoever gave up has made the claim or not, and has no lock.
#[tokio::test]
async fn a_claim_that_was_given_up_leaves_no_lock() {
    let place = Place::new();
    let store = used(&place).await;
    let stopped = stopped(&place, "b");
    let given_up = parts(&store, &["a", "b"], 2);
    let early = timeout(Duration::from_millis(100), has_all(&store, &given_up)).await;
    assert!(early.is_err(), "dropped while it waits");
    stopped.unlock().unwrap();
    release_both(&store, 2).await;
    assert!(has_all(&store, &parts(&store, &["a", "b"], 3)).await);
}

/// The store reads all records in one step, whose error names no key.
#[tokio::test]
async fn of_several_keys_the_one_whose_record_is_damaged_is_named() {
    let place = Place::new();
    used(&place).await;
    fs::write(place.at("records/b.rec"), "damaged").unwrap();
    let client = place.connect().await;
    let both = client.multi(["b", "a"]).unwrap();
    for locked in [both.try_lock().await, both.lock().await.map(Some)] {
        let error = fails(locked, ErrorKind::Corrupt, &["b.rec"]);
        assert_eq!(error.key().map(|key| key.as_str()), Some("b"), "{error}");
    }
    let a = client.mutex("a").unwrap().try_lock().await.unwrap();
    assert!(a.is_some(), "it was released");
}
