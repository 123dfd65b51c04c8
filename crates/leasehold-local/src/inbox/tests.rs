//! Letters, as they are written and read.

use std::time::Duration;

use leasehold_core::{Arrival, Capacity, ClaimId, Token};
use leasehold_store::Records;

use super::*;
use crate::LocalStore;
use crate::tests::{Place, claim, key, take};

fn events(inbox: &Inbox) -> Vec<Event> {
    let (inbox, id, arrival) = (inbox.clone(), ClaimId::from_random(1), Arrival(u64::MAX));
    let at = StoreTime(5_000_000);
    vec![
        Event::Granted {
            inbox: inbox.clone(),
            arrival,
            id: id.clone(),
            token: Token::from(9),
            behind: None,
            deadline: at,
            waited: Duration::ZERO,
        },
        Event::Next {
            inbox: inbox.clone(),
            arrival,
            blocked_until: at,
        },
        Event::Revoked {
            inbox: inbox.clone(),
            arrival,
            id: id.clone(),
        },
        Event::Adopted {
            inbox: inbox.clone(),
            arrival,
            id: id.clone(),
        },
        Event::Unfit {
            inbox: inbox.clone(),
            arrival,
            id,
            in_use: Capacity::Permits(u32::MAX),
        },
        Event::Changed { inbox },
    ]
}

#[test]
fn a_letter_is_understood_as_it_was_meant() {
    let place = Place::new();
    let store = place.store();
    let inbox = Inbox::new("me").unwrap();
    let name = socket(&file_name(inbox.as_str()));
    let socket = Socket::bind(socket_path(&store.directory, &name)).unwrap();
    let (at, epoch) = (StoreTime(2_000_000), 3);
    for name in ["k", "with space", "\u{1f512} \u{e9}", "1"] {
        let (key, events) = (Key::new(name).unwrap(), events(&inbox));
        notify(&store, &key, at, &events);
        let mut buffer = [0; 4096];
        let length = socket.recv(&mut buffer).unwrap();
        let meant = events.iter().map(|event| Push::of(event, &key, at, epoch));
        assert!(understood(&buffer[..length], epoch).into_iter().eq(meant));
    }
}

struct Ignored;

impl PushSink for Ignored {
    fn push(&self, _push: Push) {}
}

#[tokio::test]
async fn a_socket_that_was_removed_with_its_directory_is_bound_again() {
    let place = Place::new();
    let store = LocalStore::of(place.store());
    let _inbox = store.listen(Arc::new(Ignored)).await.unwrap();
    for part in ["sessions", "inbox"] {
        std::fs::remove_dir_all(place.at(part)).unwrap();
    }
    take(&store.inner, &key("k"), &claim(1));
    assert_eq!(place.names("inbox").len(), 1);
}

/// Of another version, or from somebody who is up to something.
#[test]
fn what_is_not_understood_is_left() {
    for (letter, pushes) in [
        (&b""[..], 0),
        (b"2 k\nC", 0),
        (b"[3]", 0),
        (b"[4,[{\"Changed\":{\"key\":\"k\"}}]]", 0),
        (b"[3,[{\"Changed\":{\"key\":\"\"}}]]", 0),
        (b"[3,[{\"Strange\":{\"key\":\"k\"}}]]", 0),
        (b"[3,[{\"Changed\":{\"key\":\"k\"}}]", 0),
        (b"[3,[{\"Changed\":{\"key\":\"k\"}}]]\xff", 0),
        (b"[3,[{\"Changed\":{\"key\":\"k\"}}]]", 1),
    ] {
        assert_eq!(understood(letter, 1).len(), pushes, "{letter:?}");
    }
}
