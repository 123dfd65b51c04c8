//! Contract cases of inspection and listing.

use leasehold_core::{Capacity, ClientInfo, Mode, Note};

use super::actor::{Wanted, id, key, renewing, scene, shared};
use super::{Fixture, LONG};

/// A snapshot shows holders and waiters in order, without whole claim ids.
pub async fn inspect_shows_holders_and_waiters(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let (_, one) = a.granted(shared(1)).await;
    let (_, two) = a.granted(shared(2)).await;
    let waiting = b.waiting(3).await.arrival;
    b.waiting(shared(4)).await;
    assert_eq!(b.held().await, [one, two]);
    let look = b.look().await;
    assert_eq!(look.capacity, Some(Capacity::Lock));
    assert_eq!(look.last_token, two);
    let positions: Vec<_> = look.waiters.iter().map(|it| it.position).collect();
    assert_eq!(positions, [1, 2]);
    let first = &look.waiters[0].claim;
    assert_eq!((first.arrival, first.mode), (waiting, Mode::EXCLUSIVE));
    assert_eq!(first.owner, ClientInfo::new("host", 7, Some("case")));
    assert!(first.since <= look.at && first.deadline > look.at);
    assert!(!first.id_hint.contains(id(3).expose()));
}

/// An idle key has no holders and no waiters, and keeps its last token.
pub async fn inspect_idle_key_is_empty(fixture: &dyn Fixture) {
    let [a] = scene(fixture).await;
    let look = a.look().await;
    assert!(look.capacity.is_none() && look.holders.is_empty() && look.waiters.is_empty());
    let (_, token) = a.granted(1).await;
    a.release(1).await;
    let look = a.look().await;
    assert!(look.capacity.is_none() && look.holders.is_empty());
    assert_eq!(look.last_token, token);
}

/// Listing returns the keys that are held or waited for, by glob, sorted.
pub async fn list_finds_live_keys_by_pattern(fixture: &dyn Fixture) {
    let [a] = scene(fixture).await;
    for name in ["orders/2", "orders/1", "orders [x]", "other", "idle"] {
        a.at(name).granted(1).await;
    }
    a.at("idle").release(1).await;
    for (pattern, wanted) in [
        ("*", vec!["orders [x]", "orders/1", "orders/2", "other"]),
        ("orders/*", vec!["orders/1", "orders/2"]),
        ("orders/[2-9]", vec!["orders/2"]),
        ("orders \\[x\\]", vec!["orders [x]"]),
        ("o????", vec!["other"]),
        ("idle", vec![]),
    ] {
        let found = a.store.list(pattern).await.expect("a list");
        let names: Vec<_> = found.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(names, wanted, "{pattern}");
        assert!(found.iter().all(|(_, look)| look.holders.len() == 1));
    }
}

/// With more keys than one page, and idle keys between them, the pages contain each key in use
/// once.
pub async fn listing_finds_each_live_key_once(fixture: &dyn Fixture) {
    let [a] = scene(fixture).await;
    let mut live = Vec::new();
    for number in 0..400 {
        let name = format!("many/{number:03}");
        let a = a.at(&name);
        a.granted(1).await;
        if number % 4 == 0 {
            a.release(1).await;
        } else {
            live.push(key(&name));
        }
    }
    a.at("another").granted(1).await;
    let mut listing = a.store.listing("many/*");
    let mut found = Vec::new();
    // After an error the same piece comes again.
    while let Some(page) = a.answered(async || listing.next_page().await).await {
        assert!(page.skipped.is_empty(), "{:?}", page.skipped);
        found.extend(page.found.into_iter().map(|(key, _)| key));
    }
    assert!(listing.next_page().await.expect("the end").is_none());
    found.sort_unstable();
    assert_eq!(found, live);
}

/// A snapshot shows the current note of a claim, waiting or holding.
pub async fn note_is_shown(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    let note = |text: &str| Some(Note::new(text).expect("a short note"));
    let noted = |number: u128, text| number.with(|it| it.note = note(text));
    let longest = "ü".repeat(Note::MAX_BYTES / 2);
    a.granted(noted(1, "at [::1]:80\n\"✓\"")).await;
    if a.can().queueing {
        a.waiting(noted(2, &longest)).await;
        a.waiting(3).await;
    }
    let look = b.look().await;
    assert_eq!(look.holders[0].claim.note, note("at [::1]:80\n\"✓\""));
    if a.can().queueing {
        assert_eq!(look.waiters[0].claim.note, note(&longest));
        assert_eq!(look.waiters[1].claim.note, None);
    }
    let changed = renewing(1, |it| it.note = note("at [::2]:80"));
    a.change(&changed).await;
    a.renew(1, LONG).await;
    let look = b.look().await;
    assert_eq!(look.holders[0].claim.note, note("at [::2]:80"));
}
