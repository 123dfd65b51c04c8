//! Contract cases of watches.

use std::time::Duration;

use leasehold_core::Note;

use super::actor::{Actor, renewing, scene};
use super::{Fixture, LONG};
use crate::Push;

async fn hears_of_a_change(watcher: &Actor, why: &str) {
    let key = watcher.key.clone();
    assert_eq!(watcher.hears().await, Push::Changed { key }, "{why}");
}

/// What one inbox hears it hears in order: a change elsewhere comes, and none
/// of what was watched before it.
async fn nothing_new(watcher: &Actor, other: &Actor, why: &str) {
    let watcher = watcher.at(why);
    watcher.watch(LONG).await;
    other.at(why).granted(1).await;
    hears_of_a_change(&watcher, why).await;
}

/// A watcher is notified when the first holder or its note changes, and not of waiters and
/// renewals.
pub async fn watcher_hears_of_holders_and_notes(fixture: &dyn Fixture) {
    let [watcher, a, b] = scene(fixture).await;
    watcher.watch(LONG).await;
    a.granted(1).await;
    hears_of_a_change(&watcher, "somebody holds").await;

    b.waiting(2).await;
    a.renew(1, LONG).await;
    nothing_new(&watcher, &a, "others wait, and it renews").await;

    let note = Note::new("elsewhere").expect("a short note");
    let noting = renewing(1, |it| it.note = Some(note));
    a.change(&noting).await;
    hears_of_a_change(&watcher, "it has a note").await;
    a.change(&noting).await;
    nothing_new(&watcher, &a, "the same note").await;

    a.release(1).await;
    hears_of_a_change(&watcher, "another holds").await;
    b.breaks(None).await;
    hears_of_a_change(&watcher, "nobody holds").await;
}

/// A watch ends when it is cancelled, and when its time is over.
pub async fn watch_ends(fixture: &dyn Fixture) {
    let [watcher, a] = scene(fixture).await;
    watcher.watch(LONG).await;
    watcher.watch(Duration::ZERO).await;
    a.granted(1).await;
    nothing_new(&watcher, &a, "told to end").await;

    watcher.watch(fixture.short()).await;
    fixture.pass(2 * fixture.short()).await;
    a.release(1).await;
    nothing_new(&watcher, &a, "over").await;
}
