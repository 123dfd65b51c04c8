//! Crashes of clients of the local store: each test kills real processes, which run this binary
//! in a special role.
#![cfg(all(unix, feature = "local"))]

use crate::local_support::roles::{ALL, MIN_HOLD};
use crate::local_support::*;

/// How soon what a dead process held is free here: the next in line looks every half a second.
const FREED: Duration = Duration::from_secs(5);

/// Somebody who waits for `k`, and stands in line already.
async fn next_in_line(place: &Place) -> Waiting {
    let client = place.connect().await;
    let next = waiting(&client, "k");
    in_line(&client, "k", 1).await;
    next
}

/// Looks at `k` until it is as it should be. A look buries the dead, but not
/// while somebody is at the key.
async fn seen(store: &LocalStore, is_right: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let look = async || store.inspect(&key("k")).await.unwrap();
    until("the dead are buried", async || is_right(&look().await)).await;
    look().await
}

#[tokio::test]
async fn a_killed_holder_keeps_its_key_for_its_minimum_hold() {
    let place = Place::new();
    let mut holder = place.start("keep");
    holder.says("held").await;
    let next = next_in_line(&place).await;
    holder.kill().await;
    let store = place.open().await;
    let kept = seen(&store, |look| look.holders[0].claim.kept).await;
    let kept = &kept.holders[0].claim;
    assert_eq!(kept.deadline, kept.since + MIN_HOLD);

    let lease = freed_within(MIN_HOLD + FREED, next).await;
    let holders = store.inspect(&key("k")).await.unwrap().holders;
    assert_eq!(holders[0].token, lease.token());
    assert!(holders[0].claim.since >= kept.deadline);
    let _ = lease.release().await.unwrap();
}

#[tokio::test]
async fn a_killed_process_leaves_the_key_to_the_others_of_its_owner() {
    for first_to_die in [0, 1] {
        let place = Place::new();
        let mut nested = [place.start("nest"), place.start("nest")];
        let held = nested[0].says("held").await;
        assert_eq!(nested[1].says("held").await, held, "one hold, one token");
        let mut next = next_in_line(&place).await;
        nested[first_to_die].kill().await;
        let store = place.open().await;
        let look = seen(&store, |look| look.holders.len() == 1).await;
        assert_eq!(look.waiters.len(), 1);
        assert_eq!(held, format!("held {}", look.holders[0].token));
        // Several looks of the next in line.
        let early = timeout(Duration::from_millis(900), &mut next).await;
        assert!(early.is_err(), "the other process still works");
        nested[1 - first_to_die].kill().await;
        let _ = freed_within(FREED, next).await.release().await.unwrap();
    }
}

/// The queue of `k` as a whole: it is written down now and then, and steps are in between.
async fn written_anew(store: &LocalStore, place: &Place) -> String {
    let read = || fs::read(place.at("records/k.rec")).unwrap();
    let before = read();
    let renew = Renew::new(ClaimId::from_random(1), LIMIT);
    while read()[..128] == before[..128] {
        store.renew(&key("k"), &renew).await.unwrap();
    }
    let bytes = read();
    let head: serde_json::Value = serde_json::from_slice(&bytes[..128]).unwrap();
    let frame = &bytes[usize::try_from(head["at"].as_u64().unwrap()).unwrap()..];
    let length = u64::from_le_bytes(frame[8..16].try_into().unwrap());
    String::from_utf8(frame[24..][..usize::try_from(length).unwrap()].to_vec()).unwrap()
}

#[tokio::test]
async fn killed_watchers_leave_the_record() {
    let place = Place::new();
    let store = place.open().await;
    claimed(&store, &key("k"), 1).await;
    let before = written_anew(&store, &place).await.len();
    let mut watchers = [(); 4].map(|()| place.start("watch"));
    for watcher in &mut watchers {
        watcher.says("watching").await;
    }
    let watched = written_anew(&store, &place).await.len();
    assert!(watched > before + 4 * 16, "an inbox each");
    for watcher in &mut watchers {
        watcher.kill().await;
    }
    released(&store, &key("k"), 1).await;
    let text = written_anew(&store, &place).await;
    assert!(!text.contains("watchers"), "{text}");
}

#[tokio::test]
async fn killed_in_the_middle_of_several_keys_leaves_none_taken() {
    let place = Place::new();
    let store = place.open().await;
    for id in 0..30_u128 {
        let mut churning = place.start("churn all");
        churning.says("churning").await;
        moment(5_000).await;
        churning.kill().await;
        let granted = has_all(&store, &parts(&store, &ALL, id)).await;
        assert!(granted, "the dead are buried in the same step");
        for name in ALL {
            store.release(&key(name), &release(id)).await.unwrap();
        }
    }
}
