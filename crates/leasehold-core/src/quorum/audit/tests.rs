use super::*;

const TTL: u64 = 1_000;

fn key() -> Key {
    Key::new("k").unwrap()
}

/// A reader of three servers of which two have to agree.
fn reader() -> QuorumAudit {
    QuorumAudit::new(QuorumSize::new(3, None).unwrap())
}

fn note(at: u64, token: u64, event: VoteEvent) -> VoteNote {
    let hold = AuditedHold {
        token: Token(token),
        arrival: Arrival(token),
        claim: format!("{token}…"),
        mode: Mode::EXCLUSIVE,
        owner: ClientInfo::unknown(),
    };
    VoteNote {
        at: StoreTime(at),
        hold: Some(hold),
        event,
    }
}

fn vote(at: u64, token: u64) -> VoteNote {
    let until = StoreTime(at + TTL);
    note(at, token, VoteEvent::Given { until })
}

fn released(at: u64, token: u64, known: bool) -> VoteNote {
    let since = StoreTime(token);
    note(at, token, VoteEvent::Released { since, known })
}

fn lapsed(at: u64, token: u64, since: u64, until: u64) -> VoteNote {
    let event = VoteEvent::Lapsed {
        since: StoreTime(since),
        until: StoreTime(until),
        found_by: "other…".to_owned(),
    };
    note(at, token, event)
}

fn broken(at: u64, up_to: u64) -> VoteNote {
    let event = VoteEvent::Broken {
        by: ClientInfo::new("ops", 1, None),
        up_to: Token(up_to),
    };
    let hold = None;
    let at = StoreTime(at);
    VoteNote { at, hold, event }
}

/// What is decided after two rounds, of which the second brings nothing.
fn read(reader: &mut QuorumAudit, notes: &[(usize, VoteNote)]) -> Vec<(u64, u64, AuditEvent)> {
    for (server, note) in notes {
        reader.add(*server, &key(), note.clone());
    }
    let first = reader.settle(true);
    assert_eq!(first, [], "nothing is decided at once");
    let entries = reader.settle(true);
    assert!(!reader.is_unsettled());
    let shown = |(_, entry): (Key, AuditEntry)| {
        let token = entry.hold.unwrap().token;
        (entry.at.0, token.0, entry.event)
    };
    entries.into_iter().map(shown).collect()
}

fn granted(at: u64) -> AuditEvent {
    AuditEvent::Granted {
        asked: StoreTime(at),
        behind: None,
    }
}

fn was_released(since: u64) -> AuditEvent {
    AuditEvent::Released {
        since: StoreTime(since),
        kept_until: None,
    }
}

#[test]
fn a_quorum_of_votes_is_a_grant_and_a_minority_is_nothing() {
    let mut reader = reader();
    assert_eq!(read(&mut reader, &[(0, vote(10, 5))]), []);
    assert_eq!(
        read(&mut reader, &[(2, vote(12, 5))]),
        [(12, 5, granted(12))]
    );
    assert_eq!(read(&mut reader, &[(1, vote(11, 5))]), []);
    assert_eq!(
        read(&mut reader, &[(1, released(20, 5, true))]),
        [(20, 5, was_released(12))]
    );
    assert_eq!(read(&mut reader, &[(0, released(19, 5, true))]), []);
}

/// The first had been given up, or had lapsed, before the second was given.
#[test]
fn votes_that_did_not_stand_together_are_no_grant() {
    let given_up = note(11, 5, VoteEvent::GivenUp);
    let notes = [(0, vote(10, 5)), (0, given_up), (1, vote(12, 5))];
    assert_eq!(read(&mut reader(), &notes), []);
    let notes = [(0, vote(10, 5)), (1, vote(10 + TTL, 5))];
    assert_eq!(read(&mut reader(), &notes), []);
    let notes = [(0, vote(10, 5)), (0, broken(11, 7)), (1, vote(12, 5))];
    assert_eq!(read(&mut reader(), &notes), []);
    // Two claims may propose one token, at different servers.
    let mut other = vote(10, 5);
    other.hold.as_mut().unwrap().claim = "other…".to_owned();
    assert_eq!(read(&mut reader(), &[(0, vote(10, 5)), (1, other)]), []);
}

/// Whoever reads while the votes stand sees a grant. Afterwards nobody could tell by the clocks
/// whether they did.
#[test]
fn a_grant_that_its_client_did_not_hear_of_is_returned_or_left_out() {
    let given_up = |at| note(at, 5, VoteEvent::GivenUp);
    let votes = [(0, vote(10, 5)), (1, vote(12, 5))];
    let ends = [(0, given_up(15)), (1, given_up(14))];
    let mut following = reader();
    assert_eq!(read(&mut following, &votes), [(12, 5, granted(12))]);
    let returned = [(14, 5, AuditEvent::Returned)];
    assert_eq!(read(&mut following, &ends), returned);
    assert_eq!(read(&mut reader(), &[votes, ends].concat()), []);
}

#[test]
fn a_release_proves_what_other_servers_have_lost() {
    let notes = [(1, released(20, 5, true))];
    let entries = [(5, 5, granted(5)), (20, 5, was_released(5))];
    assert_eq!(read(&mut reader(), &notes), entries);
    // Another process, which knows the claim id, has not counted.
    assert_eq!(read(&mut reader(), &[(1, released(20, 5, false))]), []);
    let clocks_apart = [
        (0, vote(10, 5)),
        (1, vote(10 + 2 * TTL, 5)),
        (0, released(20, 5, true)),
    ];
    let at = 10 + 2 * TTL;
    let entries = [(at, 5, granted(at)), (at, 5, was_released(at))];
    assert_eq!(read(&mut reader(), &clocks_apart), entries);
}

/// One server whose vote has lapsed proves nothing: the others may vote on.
#[test]
fn a_hold_has_expired_when_no_quorum_is_left_or_the_next_is_granted() {
    let mut first = reader();
    let votes: Vec<_> = (0..3).map(|server| (server, vote(10, 5))).collect();
    assert_eq!(read(&mut first, &votes), [(10, 5, granted(10))]);
    let mut next = first.clone();
    let expired = AuditEvent::Expired {
        since: StoreTime(10),
        deadline: StoreTime(10 + TTL),
        found_by: "other…".to_owned(),
    };
    assert_eq!(read(&mut first, &[(0, lapsed(1_020, 5, 10, 10 + TTL))]), []);
    let found = read(&mut first, &[(1, lapsed(1_030, 5, 10, 10 + TTL))]);
    assert_eq!(found, [(1_030, 5, expired.clone())]);

    let notes = [
        (0, lapsed(1_020, 5, 10, 10 + TTL)),
        (0, vote(1_020, 9)),
        (1, vote(1_025, 9)),
    ];
    let entries = [(1_025, 5, expired), (1_025, 9, granted(1_025))];
    assert_eq!(read(&mut next, &notes), entries);
}

#[test]
fn a_key_that_is_broken_counts_at_servers_without_a_vote_too() {
    let mut reader = reader();
    let notes = [(0, vote(10, 5)), (1, vote(10, 5))];
    assert_eq!(read(&mut reader, &notes), [(10, 5, granted(10))]);
    assert_eq!(read(&mut reader, &[(0, broken(20, 7))]), []);
    let by = ClientInfo::new("ops", 1, None);
    let since = StoreTime(10);
    let event = AuditEvent::Broken { since, by };
    assert_eq!(read(&mut reader, &[(2, broken(21, 7))]), [(21, 5, event)]);
    // The next is granted above it.
    let notes = [(0, vote(30, 9)), (2, vote(31, 9))];
    assert_eq!(read(&mut reader, &notes), [(31, 9, granted(31))]);
}

/// The log of a server is read before that of another, in which the next step is noted.
#[test]
fn nothing_is_decided_before_a_round_brings_nothing_new() {
    let mut reader = reader();
    for server in [0, 1] {
        reader.add(server, &key(), vote(10, 5));
    }
    assert_eq!(reader.settle(true), []);
    reader.add(0, &key(), note(9, 5, VoteEvent::GivenUp));
    assert_eq!(reader.settle(true), []);
    assert_eq!(reader.settle(true), []);
    assert!(!reader.is_unsettled());
}

#[test]
fn what_a_silent_server_knows_comes_late() {
    let mut reader = reader();
    reader.add(0, &key(), vote(10, 5));
    reader.add(0, &key(), released(20, 5, false));
    reader.add(0, &key(), vote(30, 9));
    reader.add(1, &key(), vote(30, 9));
    assert_eq!(reader.settle(false), []);
    let tokens = |entries: Vec<(Key, AuditEntry)>| {
        let token = |(_, entry): (Key, AuditEntry)| entry.hold.unwrap().token.0;
        entries.into_iter().map(token).collect::<Vec<_>>()
    };
    assert_eq!(tokens(reader.settle(false)), [9]);
    reader.add(2, &key(), vote(11, 5));
    assert_eq!(reader.settle(true), []);
    assert_eq!(tokens(reader.settle(true)), [5, 5]);
    // All that came before the last grant is settled by now.
    reader.add(1, &key(), vote(12, 5));
    assert!(!reader.is_unsettled());
}
