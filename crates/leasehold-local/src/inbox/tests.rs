//! Letters, as they are written and read.

use std::time::Duration;

use leasehold_core::{Arrival, Capacity, ClaimId, Token};

use super::*;

fn events(inbox: &Inbox) -> Vec<Event> {
    let inbox = || inbox.clone();
    let arrival = Arrival(u64::MAX);
    let (token, at) = (Token(9), StoreTime(5_000_000));
    let id = || ClaimId::from_random(1);
    vec![
        Event::Granted {
            inbox: inbox(),
            arrival,
            id: id(),
            token,
            behind: None,
            deadline: at,
            waited: Duration::ZERO,
        },
        Event::Next {
            inbox: inbox(),
            arrival,
            blocked_until: at,
        },
        Event::Revoked {
            inbox: inbox(),
            arrival,
            id: id(),
        },
        Event::Adopted {
            inbox: inbox(),
            arrival,
            id: id(),
        },
        Event::Unfit {
            inbox: inbox(),
            arrival,
            id: id(),
            in_use: Capacity::Permits(u32::MAX),
        },
        Event::Changed { inbox: inbox() },
    ]
}

#[test]
fn a_letter_is_understood_as_it_was_meant() {
    let place = tempfile::tempdir().unwrap();
    let store = Inner::open(place.path().join("d"), Duration::from_secs(60), None).unwrap();
    let inbox = Inbox::new("me").unwrap();
    let name = socket(&file_name(inbox.as_str()));
    let socket = Socket::bind(socket_path(&store.directory, &name)).unwrap();
    let (at, epoch) = (StoreTime(2_000_000), 3);
    for name in ["k", "with space", "\u{1f512} \u{e9}", "1"] {
        let (key, events) = (Key::new(name).unwrap(), events(&inbox));
        notify(&store, &key, at, &events);
        let mut buffer = [0; 4096];
        let length = socket.recv(&mut buffer).unwrap();
        let meant: Vec<_> = events
            .iter()
            .map(|event| Push::of(event, &key, at, epoch))
            .collect();
        assert_eq!(understood(&buffer[..length], epoch), meant);
    }
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
