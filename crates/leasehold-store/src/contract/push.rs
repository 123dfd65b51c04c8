//! Contract cases of pushes to inboxes.

use crate::Push;
use leasehold_core::ClaimReply;

use super::actor::{id, keeps_a_queue, key, scene};
use super::{Fixture, LONG};

/// A grant is pushed to the inbox of its claim, and to no other.
pub async fn grant_is_pushed_to_its_inbox_only(fixture: &dyn Fixture) {
    if !keeps_a_queue(fixture).await {
        return;
    }
    let ([a, b, c], _) = scene(fixture).await;
    if !a.is_pushed_to() {
        return;
    }
    let key = key("k {x} 🔒");
    a.granted(&key, &a.want(1)).await;
    let waiting = b.ask(&key, &b.want(2)).await;
    let ClaimReply::Standing(standing) = waiting.reply else {
        panic!("it waits")
    };
    c.waiting(&key, &c.want(3)).await;
    a.release(&key, &a.want(1)).await;
    let push = b.hears().await;
    let proved = [1, 2, 3].map(|number| push.is_proved_by(&id(number)));
    match push {
        Push::Granted {
            epoch,
            key: pushed,
            arrival,
            ..
        } => {
            assert_eq!(
                (epoch, pushed, arrival),
                (waiting.epoch, key.clone(), standing.arrival)
            );
            assert_ne!(epoch, 0);
            assert_eq!(proved, [false, true, false], "by the id of the claim");
        }
        other => panic!("{other:?} where a grant was due"),
    }
    b.release(&key, &b.want(2)).await;
    c.hears_grant().await;
    assert!(!a.has_heard(|push| matches!(push, Push::Granted { .. })));
    assert!(!b.has_heard(|push| matches!(push, Push::Granted { .. })));
}

/// The claim that becomes next is notified, with the time until the claim ahead can expire.
pub async fn next_in_line_is_told(fixture: &dyn Fixture) {
    if !keeps_a_queue(fixture).await {
        return;
    }
    let ([a, b, c], key) = scene(fixture).await;
    if !a.is_pushed_to() {
        return;
    }
    a.granted(&key, &a.want(1)).await;
    b.waiting(&key, &b.want(2)).await;
    let third = c.waiting(&key, &c.want(3)).await;
    a.release(&key, &a.want(1)).await;
    match c.hears().await {
        Push::Next {
            key: pushed,
            arrival,
            left,
        } => {
            assert_eq!((pushed, arrival), (key, third.arrival));
            assert!(left <= LONG);
        }
        other => panic!("{other:?} where a hint was due"),
    }
}

/// A closed inbox receives nothing more, and its claims continue by polling.
pub async fn closed_inbox_hears_nothing(fixture: &dyn Fixture) {
    if !keeps_a_queue(fixture).await {
        return;
    }
    let ([a, mut b], key) = scene(fixture).await;
    a.granted(&key, &a.want(1)).await;
    b.waiting(&key, &b.want(2)).await;
    b.inbox = None;
    a.release(&key, &a.want(1)).await;
    b.granted(&key, &b.want(2)).await;
    assert!(!b.has_heard(|push| matches!(push, Push::Granted { .. })));
}
