//! Tests: what a majority reports about a key.

use std::time::Duration;

use leasehold_core::quorum::{Body, Hold, Node, QuorumSize};
use leasehold_core::{ClaimId, ClientInfo, Inbox, Note, StoreTime, Token};

use super::super::look::view;

const NOW: StoreTime = StoreTime(1_000_000);

/// A server that votes for claim `id`, whose note it knows so.
fn voter(id: u8, note: &str) -> (StoreTime, Node) {
    let hold = Hold {
        id: ClaimId::from_random(id.into()),
        token: Token(u64::from(id)),
        until: NOW + Duration::from_secs(10),
        since: NOW,
        body: Body {
            inbox: Inbox::new("i1").unwrap(),
            owner: ClientInfo::new("host", 1, None),
            note: Some(Note::new(note).unwrap()),
        },
    };
    let node = Node {
        accepted: hold.token,
        hold: Some(hold),
        ..Node::default()
    };
    (NOW, node)
}

fn note_seen(seen: &[(StoreTime, Node)]) -> Option<String> {
    let (snapshot, _) = view(QuorumSize::new(5, None).unwrap(), seen);
    let holder = snapshot.holders.first()?;
    holder.claim.note.as_ref().map(|it| it.as_str().to_owned())
}

#[test]
fn what_most_know_of_a_claim_is_shown() {
    let (old, new) = (voter(1, "old"), voter(1, "new"));
    let all = [&old, &old, &new, &new, &new].map(Clone::clone);
    assert_eq!(note_seen(&all).as_deref(), Some("new"));
    let some = [old, new.clone(), new];
    assert_eq!(note_seen(&some).as_deref(), Some("new"));
}

#[test]
fn who_has_most_votes_is_shown() {
    let (a, b, free) = (voter(1, "a"), voter(2, "b"), (NOW, Node::default()));
    let split = [&a, &b, &b, &free, &b].map(Clone::clone);
    assert_eq!(note_seen(&split).as_deref(), Some("b"));
    // Each may have the votes of the two that are silent.
    let some = [a.clone(), b.clone(), b.clone()];
    assert_eq!(note_seen(&some).as_deref(), Some("b"));
    // Nobody has enough of them.
    let few = [a, b.clone(), b, free.clone(), free];
    assert_eq!(note_seen(&few), None);
}
