//! Contract cases of inspection and listing.

use crate::ErrorKind;
use crate::{ListPage, Listing};
use leasehold_core::{Capacity, Claim, ClientInfo, Mode, Note, Renew};

use super::actor::{Actor, key, knows_all_kinds, scene};
use super::{Fixture, LONG};

/// A snapshot shows holders and waiters in order, without whole claim ids.
pub async fn inspect_shows_holders_and_waiters(fixture: &dyn Fixture) {
    if !knows_all_kinds(fixture).await {
        return;
    }
    let ([a, b], key) = scene(fixture).await;
    let (_, one) = a.granted(&key, &a.want_shared(1)).await;
    let (_, two) = a.granted(&key, &a.want_shared(2)).await;
    let waiting = b.waiting(&key, &b.want(3)).await;
    b.waiting(&key, &b.want_shared(4)).await;
    let look = b.look(&key).await;
    assert_eq!(look.capacity, Some(Capacity::Lock));
    assert_eq!(look.last_token, two);
    assert_eq!(
        look.holders.iter().map(|h| h.token).collect::<Vec<_>>(),
        [one, two]
    );
    assert_eq!(
        look.waiters.iter().map(|w| w.position).collect::<Vec<_>>(),
        [1, 2]
    );
    let first = &look.waiters[0].claim;
    assert_eq!(
        (first.arrival, first.mode),
        (waiting.arrival, Mode::EXCLUSIVE)
    );
    assert_eq!(first.owner, ClientInfo::new("host", 7, Some("case")));
    assert!(first.since <= look.at && first.deadline > look.at);
    assert!(!first.id_hint.contains(b.want(3).id.expose()));
}

/// An idle key has no holders and no waiters, and keeps its last token.
pub async fn inspect_idle_key_is_empty(fixture: &dyn Fixture) {
    let ([a], key) = scene(fixture).await;
    let look = a.look(&key).await;
    assert!(look.capacity.is_none() && look.holders.is_empty() && look.waiters.is_empty());
    let (_, token) = a.granted(&key, &a.want(1)).await;
    a.release(&key, &a.want(1)).await;
    let look = a.look(&key).await;
    assert!(look.capacity.is_none() && look.holders.is_empty());
    assert_eq!(look.last_token, token);
}

/// Listing returns the keys that are held or waited for, by glob, sorted.
pub async fn list_finds_live_keys_by_pattern(fixture: &dyn Fixture) {
    let a = Actor::new(fixture).await;
    for name in ["orders/2", "orders/1", "orders [x]", "other", "idle"] {
        a.granted(&key(name), &a.want(1)).await;
    }
    a.release(&key("idle"), &a.want(1)).await;
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
    let a = Actor::new(fixture).await;
    let mut live = Vec::new();
    for number in 0..400 {
        let name = format!("many/{number:03}");
        a.granted(&key(&name), &a.want(1)).await;
        if number % 4 == 0 {
            a.release(&key(&name), &a.want(1)).await;
        } else {
            live.push(name);
        }
    }
    a.granted(&key("another"), &a.want(1)).await;
    let mut listing = a.store.listing("many/*");
    let mut found = Vec::new();
    while let Some(page) = page(&a, &mut *listing).await {
        assert!(page.skipped.is_empty(), "{:?}", page.skipped);
        found.extend(page.found.into_iter().map(|(key, _)| key.to_string()));
    }
    assert!(listing.next_page().await.expect("the end").is_none());
    found.sort_unstable();
    assert_eq!(found, live);
}

/// A snapshot shows the current note of a claim, waiting or holding.
pub async fn note_is_shown(fixture: &dyn Fixture) {
    let ([a, b], key) = scene(fixture).await;
    if !a.store.capabilities().owners {
        return;
    }
    let note = |text: &str| Some(Note::new(text).expect("a short note"));
    let noted = |claim, text| Claim {
        note: note(text),
        ..claim
    };
    let longest = "ü".repeat(Note::MAX_BYTES / 2);
    a.granted(&key, &noted(a.want(1), "at [::1]:80\n\"✓\""))
        .await;
    if a.queues() {
        a.waiting(&key, &noted(a.want(2), &longest)).await;
        a.waiting(&key, &a.want(3)).await;
    }
    let look = b.look(&key).await;
    assert_eq!(look.holders[0].claim.note, note("at [::1]:80\n\"✓\""));
    if a.queues() {
        assert_eq!(look.waiters[0].claim.note, note(&longest));
        assert_eq!(look.waiters[1].claim.note, None);
    }
    let changed = Renew {
        note: note("at [::2]:80"),
        ..Renew::new(a.want(1).id, LONG)
    };
    a.change(&key, &changed).await;
    a.renew(&key, &a.want(1), LONG).await;
    let look = b.look(&key).await;
    assert_eq!(look.holders[0].claim.note, note("at [::2]:80"));
}

/// The next page; of a quorum, the first that there is: after an error the same piece comes again.
async fn page(actor: &Actor, listing: &mut dyn Listing) -> Option<ListPage> {
    for _ in 0..20 {
        match listing.next_page().await {
            Err(error) if error.kind() == ErrorKind::Unavailable && !actor.queues() => {}
            page => return page.expect("a page"),
        }
    }
    listing.next_page().await.expect("a page")
}
