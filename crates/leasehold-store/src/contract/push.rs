//! Contract cases of pushes to inboxes.

use super::actor::{Actor, Wanted, id, scene, stands};
use super::{Fixture, LONG};
use crate::Push;

/// A grant is pushed to the inbox of its claim, and to no other.
pub async fn grant_is_pushed_to_its_inbox_only(fixture: &dyn Fixture) {
    let actors: [Actor; 3] = scene(fixture).await;
    let [a, b, c] = actors.map(|actor| actor.at("k {x} 🔒"));
    a.granted(1).await;
    let answer = b.ask(2).await;
    let waiting = stands(answer.reply).arrival;
    let last = c.waiting(3).await.arrival;
    a.release(1).await;
    let push = b.hears().await;
    let Push::Granted { epoch, .. } = push else {
        panic!("{push:?} where a grant was due");
    };
    assert_eq!(push.claim(), Some((&b.key, waiting)));
    assert_eq!(epoch, answer.epoch);
    assert_ne!(answer.epoch, 0);
    let proved = [1, 2, 3].map(|number| push.is_proved_by(&id(number)));
    assert_eq!(proved, [false, true, false], "by the id of the claim");
    b.release(2).await;
    c.hears_grant(last).await;
    assert!(!a.has_heard_of_a_grant() && !b.has_heard_of_a_grant());
}

/// The claim that becomes next is notified, with the time until the claim ahead can expire, if that
/// is before it renews its place by itself.
pub async fn next_in_line_is_told(fixture: &dyn Fixture) {
    let [a, b, c] = scene(fixture).await;
    a.granted(1).await;
    b.waiting(2.with(|it| it.waiter_ttl = LONG / 4)).await;
    let third = c.waiting(3).await.arrival;
    a.release(1).await;
    let push = c.hears().await;
    let is_hint = matches!(push, Push::Next { left, .. } if left <= LONG / 4);
    assert!(is_hint, "{push:?} where a hint was due");
    assert_eq!(push.claim(), Some((&c.key, third)));
}

/// A closed inbox receives nothing more, and its claims continue by polling.
pub async fn closed_inbox_hears_nothing(fixture: &dyn Fixture) {
    let [a, b] = scene(fixture).await;
    a.granted(1).await;
    b.waiting(2).await;
    b.close_inbox();
    a.release(1).await;
    b.granted(2).await;
    assert!(!b.has_heard_of_a_grant());
}
