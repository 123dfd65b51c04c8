//! Tests: what a majority reports about a key.

use std::time::Duration;

use leasehold_core::quorum::QuorumSize;
use leasehold_core::*;

use super::super::look::{view, void_up_to};

const NOW: StoreTime = StoreTime(1_000_000);

/// A member for which this claim holds, whose note it knows so; or nobody.
fn member(holder: Option<(u64, &str)>) -> Snapshot {
    let holder = holder.map(|(number, note)| Holder {
        claim: ClaimView {
            arrival: Arrival(number),
            mode: Mode::EXCLUSIVE,
            owner: ClientInfo::new("host", 1, None),
            since: NOW,
            deadline: NOW + Duration::from_secs(10),
            id_hint: number.to_string(),
            note: Some(Note::new(note).unwrap()),
            kept: false,
            renewed: None,
        },
        token: Token::from(number),
    });
    Snapshot {
        capacity: holder.is_some().then_some(Capacity::Lock),
        last_token: Token::NONE,
        at: NOW,
        clock: NOW,
        holders: holder.into_iter().collect(),
        waiters: Vec::new(),
    }
}

#[test]
fn who_has_most_votes_is_shown_with_what_most_know() {
    let (old, new) = (Some((1, "old")), Some((1, "new")));
    let (a, b) = (Some((1, "a")), Some((2, "b")));
    for (members, note) in [
        (vec![old, old, new, new, new], Some("new")),
        (vec![old, new, new], Some("new")),
        (vec![a, b, b, None, b], Some("b")),
        // Each may have the votes of the two that are silent.
        (vec![a, b, b], Some("b")),
        // Nobody has enough of them.
        (vec![a, b, b, None, None], None),
    ] {
        let seen: Vec<_> = members.into_iter().map(member).collect();
        let snapshot = view(QuorumSize::new(5, None).unwrap(), &seen, NOW);
        let holder = snapshot.holders.first();
        let shown = holder.and_then(|holder| holder.claim.note.as_ref());
        assert_eq!(shown.map(|note| note.as_str()), note, "{seen:?}");
    }
}

#[test]
fn a_break_by_a_clock_that_is_ahead_leaves_tokens_to_claims() {
    let (ahead, year) = (Duration::from_secs(60), Duration::from_secs(31_536_000));
    let mut seen = member(None);
    for (wall, up_to) in [
        (NOW, NOW),
        (NOW + ahead, NOW + ahead),
        (NOW + year, NOW + ahead),
    ] {
        assert_eq!(void_up_to(&seen, wall, ahead), Token::from(up_to.0));
    }
    // What was granted is void in any case.
    seen.last_token = Token::from((NOW + year).0);
    let above = Token::from((NOW + year).0 + 1);
    assert_eq!(void_up_to(&seen, NOW, ahead), above);
}
