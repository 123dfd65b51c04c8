//! Contract cases of watches.

use std::time::Duration;

use crate::{Push, Verbs as _};
use leasehold_core::{Key, Note, Renew};

use super::actor::{Actor, keeps_a_queue, key as named, scene};
use super::{Fixture, LONG};

fn changed(key: &Key) -> Push {
    Push::Changed { key: key.clone() }
}

/// A watcher is notified when the first holder or its note changes, and not of waiters and
/// renewals.
pub async fn watcher_hears_of_holders_and_notes(fixture: &dyn Fixture) {
    if !keeps_a_queue(fixture).await {
        return;
    }
    let ([watcher, a, b], key) = scene(fixture).await;
    if !watcher.is_pushed_to() {
        return;
    }
    watcher.watch(&key, LONG).await;
    a.granted(&key, &a.want(1)).await;
    assert_eq!(watcher.hears().await, changed(&key), "somebody holds");

    b.waiting(&key, &b.want(2)).await;
    a.renew(&key, &a.want(1), LONG).await;
    nothing_new(&watcher, &a, "others wait, and it renews").await;

    let note = Note::new("elsewhere").expect("a short note");
    let noting = Renew {
        note: Some(note),
        ..Renew::new(a.want(1).id, LONG)
    };
    a.change(&key, &noting).await;
    assert_eq!(watcher.hears().await, changed(&key), "it has a note");
    a.change(&key, &noting).await;
    nothing_new(&watcher, &a, "the same note").await;

    a.release(&key, &a.want(1)).await;
    assert_eq!(watcher.hears().await, changed(&key), "another holds");
    b.store
        .break_key(&key, &leasehold_core::ClientInfo::unknown())
        .await
        .expect("an answer");
    assert_eq!(watcher.hears().await, changed(&key), "nobody holds");
}

/// What one inbox hears it hears in order: a change elsewhere comes, and none
/// of what was watched before it.
async fn nothing_new(watcher: &Actor, other: &Actor, why: &str) {
    let key = named(why);
    watcher.watch(&key, LONG).await;
    other.granted(&key, &other.want(1)).await;
    assert_eq!(watcher.hears().await, changed(&key), "{why}");
}

/// A watch ends when it is cancelled, and when its time is over.
pub async fn watch_ends(fixture: &dyn Fixture) {
    if !keeps_a_queue(fixture).await {
        return;
    }
    let ([watcher, a], key) = scene(fixture).await;
    if !watcher.is_pushed_to() {
        return;
    }
    watcher.watch(&key, LONG).await;
    watcher.watch(&key, Duration::ZERO).await;
    a.granted(&key, &a.want(1)).await;
    nothing_new(&watcher, &a, "told to end").await;

    watcher.watch(&key, fixture.short()).await;
    fixture.pass(fixture.short() + fixture.short()).await;
    a.release(&key, &a.want(1)).await;
    nothing_new(&watcher, &a, "over").await;
}
