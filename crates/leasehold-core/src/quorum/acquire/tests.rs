use super::*;

const TTL: Duration = Duration::from_secs(10);
const WALL: u64 = 1_000_000;

fn config(servers: usize, quorum: Option<usize>) -> AcquireConfig {
    AcquireConfig {
        size: QuorumSize::new(servers, quorum).unwrap(),
        ttl: TTL,
        patience: Duration::from_millis(100),
    }
}

fn bid(servers: usize) -> QuorumAcquire {
    let mut bid = QuorumAcquire::new(config(servers, None), Token(0), WALL, Moment(0));
    ask(&mut bid);
    bid
}

fn ask(bid: &mut QuorumAcquire) -> usize {
    std::iter::from_fn(|| bid.poll_transmit()).count()
}

fn vote(bid: &mut QuorumAcquire, server: usize, vote: Vote) {
    bid.handle_vote(Moment(1), server, bid.token(), vote);
}

fn busy(millis: u64) -> Vote {
    Vote::Busy {
        left: Duration::from_millis(millis),
        highest: Token(7),
    }
}

#[test]
fn a_quorum_of_votes_decides_at_once() {
    let mut bid = bid(5);
    vote(&mut bid, 3, Vote::Yes);
    vote(&mut bid, 0, Vote::Yes);
    assert_eq!(bid.verdict(), None);
    vote(&mut bid, 1, Vote::Yes);
    let token = Token(WALL);
    assert_eq!(bid.verdict(), Some(AcquireVerdict::Held { token }));
    let mut four = QuorumAcquire::new(config(5, Some(4)), Token(WALL), WALL, Moment(0));
    assert_eq!((ask(&mut four), four.token()), (5, Token(WALL + 1)));
    for server in 0..3 {
        vote(&mut four, server, Vote::Yes);
    }
    assert_eq!(four.verdict(), None);
}

#[test]
fn a_server_that_has_seen_more_gets_another_proposal() {
    let mut bid = bid(3);
    vote(&mut bid, 0, Vote::Yes);
    let highest = Token(WALL + 50);
    vote(&mut bid, 1, Vote::Stale { highest });
    assert_eq!((bid.token(), bid.verdict()), (Token(WALL), None));
    vote(&mut bid, 2, Vote::Stale { highest });
    assert_eq!(bid.token(), Token(WALL + 51));
    assert_eq!(ask(&mut bid), 3, "also who has voted");
    // An answer to the old proposal counts for nothing.
    bid.handle_vote(Moment(1), 0, Token(WALL), Vote::Yes);
    vote(&mut bid, 0, Vote::Yes);
    assert_eq!(bid.verdict(), None);
    vote(&mut bid, 1, Vote::Yes);
    assert!(matches!(bid.verdict(), Some(AcquireVerdict::Held { token }) if token.0 == WALL + 51));
}

#[test]
fn rivals_do_not_outbid_each_other_forever() {
    let mut bid = bid(3);
    for round in 1..=ROUNDS {
        let token = bid.token();
        for server in 0..2 {
            let highest = Token(token.0 + 5);
            bid.handle_vote(Moment(1), server, token, Vote::Stale { highest });
        }
        assert_eq!(bid.token() > token, round < ROUNDS);
        ask(&mut bid);
    }
    assert_eq!(bid.verdict(), None, "the third may vote for another");
    bid.handle_silence(Moment(1), 2, bid.token());
    assert_eq!(
        bid.verdict(),
        Some(AcquireVerdict::Busy {
            left: Duration::ZERO
        })
    );
}

#[test]
fn busy_says_when_enough_votes_lapse() {
    let mut bid = bid(5);
    for (server, millis) in [(0, 30), (1, 10), (2, 20)] {
        vote(&mut bid, server, busy(millis));
    }
    let left = Duration::from_millis(10);
    assert_eq!(bid.verdict(), Some(AcquireVerdict::Busy { left }));
    let mut bid = self::bid(3);
    vote(&mut bid, 0, busy(30));
    bid.handle_silence(Moment(1), 1, bid.token());
    assert_eq!(bid.verdict(), None);
    vote(&mut bid, 2, Vote::Yes);
    assert_eq!(
        bid.verdict(),
        Some(AcquireVerdict::Busy {
            left: Duration::from_millis(30)
        })
    );
}

#[test]
fn too_many_silent_servers_are_no_answer() {
    let mut bid = bid(5);
    for server in 0..2 {
        vote(&mut bid, server, Vote::Yes);
    }
    bid.handle_timeout(Moment(99_999));
    assert_eq!(bid.verdict(), None);
    assert_eq!(bid.poll_timeout(), Some(Moment(100_000)));
    bid.handle_timeout(Moment(100_000));
    assert_eq!(bid.verdict(), Some(AcquireVerdict::Unanswered));
    assert_eq!((bid.poll_transmit(), bid.poll_timeout()), (None, None));
}

#[test]
fn a_quorum_that_comes_too_late_is_none() {
    let mut bid = bid(3);
    vote(&mut bid, 0, Vote::Yes);
    let late = (Moment(0) + TTL).before(drift_allowance(TTL));
    bid.handle_vote(late, 1, bid.token(), Vote::Yes);
    assert_eq!(bid.verdict(), Some(AcquireVerdict::Unanswered));
}

#[test]
fn a_quarantine_says_when_to_come_back() {
    let mut bid = bid(3);
    for (server, secs) in [(0, 3), (2, 2)] {
        let left = Duration::from_secs(secs);
        vote(&mut bid, server, Vote::Quarantined { left });
    }
    vote(&mut bid, 1, Vote::Yes);
    let left = Some(Duration::from_secs(2));
    assert_eq!(bid.verdict(), Some(AcquireVerdict::Refused { left }));
    let mut bid = self::bid(3);
    vote(&mut bid, 0, Vote::Foreign);
    vote(&mut bid, 1, Vote::Foreign);
    assert_eq!(bid.verdict(), None, "the third may vote for another");
    vote(&mut bid, 2, Vote::Yes);
    assert_eq!(bid.verdict(), Some(AcquireVerdict::Refused { left: None }));
}

fn proposed(held: bool) -> Proposal {
    Proposal {
        token: Token(9),
        at: Moment(0),
        held,
    }
}

/// Servers that have forgotten would take an old token, below those of others meanwhile.
#[test]
fn what_was_proposed_long_ago_is_not_proposed_again() {
    let config = config(3, None);
    let again = |held, micros| {
        let now = Moment(0) + Duration::from_micros(micros);
        QuorumAcquire::again(config, proposed(held), Token(7), 100, now).token()
    };
    let half = u64::try_from(config.ttl.as_micros() / 2).unwrap();
    assert_eq!(again(false, half - 1), Token(9));
    assert_eq!(again(false, half), Token(100));
    assert_eq!(again(true, half), Token(9), "another would be another hold");
}

#[test]
fn who_held_before_finds_that_hold_or_none() {
    let again = || {
        let mut bid = QuorumAcquire::again(config(3, None), proposed(true), Token(9), 0, Moment(0));
        ask(&mut bid);
        bid
    };
    let mut bid = again();
    vote(&mut bid, 0, Vote::Yes);
    vote(&mut bid, 1, Vote::Yes);
    assert_eq!(
        bid.verdict(),
        Some(AcquireVerdict::Held { token: Token(9) })
    );
    let mut bid = again();
    let highest = Token(10);
    vote(&mut bid, 0, Vote::Stale { highest });
    vote(&mut bid, 1, Vote::Stale { highest });
    assert_eq!(bid.verdict(), Some(AcquireVerdict::Gone));
}

#[test]
fn an_id_of_another_is_taken() {
    let mut bid = bid(3);
    vote(&mut bid, 2, Vote::Taken);
    assert_eq!(bid.verdict(), None);
    vote(&mut bid, 0, Vote::Taken);
    assert_eq!(bid.verdict(), Some(AcquireVerdict::Taken));
}

/// Another may have come to one server first.
#[test]
fn one_server_does_not_take_an_id_from_who_has_a_quorum() {
    let mut bid = QuorumAcquire::again(config(3, None), proposed(true), Token(9), 0, Moment(0));
    ask(&mut bid);
    vote(&mut bid, 2, Vote::Taken);
    vote(&mut bid, 0, Vote::Yes);
    assert_eq!(bid.verdict(), None);
    vote(&mut bid, 1, Vote::Yes);
    assert_eq!(
        bid.verdict(),
        Some(AcquireVerdict::Held { token: Token(9) })
    );
}
