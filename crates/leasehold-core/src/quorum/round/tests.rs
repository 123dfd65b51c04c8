use super::*;
use crate::{Arrival, Standing, drift_allowance};

const TTL: Duration = Duration::from_secs(10);
const WALL: u64 = 1_000_000;
const AT: StoreTime = StoreTime(5_000_000);

fn config(servers: usize, quorum: Option<usize>) -> RoundConfig {
    RoundConfig {
        size: QuorumSize::new(servers, quorum).unwrap(),
        ttl: TTL,
        patience: Duration::from_millis(100),
    }
}

fn ask(round: &mut QuorumRound) -> usize {
    std::iter::from_fn(|| round.poll_transmit()).count()
}

/// A round of which everybody was asked.
fn round(servers: usize) -> QuorumRound {
    let mut round = QuorumRound::new(config(servers, None), Token(0), WALL, Moment(0));
    ask(&mut round);
    round
}

/// One of a claim that holds with the token 9.
fn renewal() -> QuorumRound {
    let mut round = QuorumRound::again(config(3, None), proposed(true), 0, Moment(0));
    ask(&mut round);
    round
}

fn proposed(held: bool) -> Proposed {
    let (token, at) = (Token(9), Moment(0));
    Proposed { token, at, held }
}

fn yes(token: Token) -> Reply {
    Reply::Standing(Standing {
        arrival: Arrival(token.0),
        token: Some(token),
        behind: None,
        position: 0,
        deadline: AT + TTL,
        blocked_until: None,
    })
}

fn busy(millis: u64) -> Reply {
    let blocked_until = AT + Duration::from_millis(millis);
    Reply::Busy { blocked_until }
}

fn quarantined(secs: u64) -> Reply {
    let until = AT + Duration::from_secs(secs);
    Reply::Quarantined { until }
}

/// It has seen a higher token.
fn stale(highest: u64) -> Reply {
    let (highest, most) = (Token(highest), Token(u64::MAX));
    Reply::Outbid { highest, most }
}

fn vote(round: &mut QuorumRound, server: usize, reply: Reply) {
    round.handle_reply(Moment(1), server, round.token(), reply, AT);
}

/// Its verdict after these answers, one of each server in turn; `None`: it is silent.
fn verdict(mut round: QuorumRound, answers: &[Option<Reply>]) -> Option<RoundVerdict> {
    for (server, answer) in answers.iter().enumerate() {
        match answer {
            Some(reply) => vote(&mut round, server, *reply),
            None => round.handle_silence(Moment(1), server, round.token()),
        }
    }
    round.verdict()
}

#[test]
fn the_answers_make_a_verdict() {
    use RoundVerdict::{Busy, Gone, Held, Refused, Taken, Unanswered};
    let [ours, old] = [WALL, WALL - 1].map(|token| Some(yes(Token(token))));
    let [soon, later, last] = [10, 20, 30].map(|millis| Some(busy(millis)));
    let [two, three] = [2, 3].map(|secs| Some(quarantined(secs)));
    // Its clock is far off.
    let (highest, most) = (Token(1), Token(2));
    let off = Some(Reply::Outbid { highest, most });
    let (taken, gone) = (Some(Reply::Taken), Some(Reply::Gone));
    let held = Held { token: Token(WALL) };
    let busy_for = |millis| {
        let left = Duration::from_millis(millis);
        Some(Busy { left })
    };
    let refused_for = |secs: Option<u64>| {
        let left = secs.map(Duration::from_secs);
        Some(Refused { left })
    };
    for (servers, answers, expected) in [
        (5, &[ours, ours][..], None),
        (5, &[ours, ours, ours], Some(held)),
        // A vote for another token of the claim does not count.
        (3, &[ours, old, old], Some(Gone)),
        (5, &[last, soon, later], busy_for(10)),
        (3, &[last, None, ours], busy_for(30)),
        (3, &[last, None], None),
        (5, &[ours, ours, None, None, None], Some(Unanswered)),
        (3, &[three, ours, two], refused_for(Some(2))),
        (3, &[off, off], None),
        (3, &[off, off, ours], refused_for(None)),
        (3, &[taken], None),
        (3, &[taken, taken], Some(Taken)),
        (3, &[gone, ours, gone], Some(Gone)),
    ] {
        assert_eq!(verdict(round(servers), answers), expected, "{answers:?}");
    }
    let mut four = QuorumRound::new(config(5, Some(4)), Token(WALL), WALL, Moment(0));
    assert_eq!((ask(&mut four), four.token()), (5, Token(WALL + 1)));
    assert_eq!(verdict(four, &[Some(yes(Token(WALL + 1))); 3]), None);
}

#[test]
fn who_held_before_finds_that_hold_or_none() {
    use RoundVerdict::{Gone, Held, Unanswered};
    let (ours, token) = (Some(yes(Token(9))), Token(9));
    let (taken, gone) = (Some(Reply::Taken), Some(Reply::Gone));
    for (answers, expected) in [
        (&[ours, None, ours][..], Some(Held { token })),
        // Another may have come to one server first.
        (&[taken, ours], None),
        (&[taken, ours, ours], Some(Held { token })),
        (&[Some(stale(10)); 2], Some(Gone)),
        (&[gone, ours, Some(busy(1))], Some(Gone)),
        (&[gone, ours, None], Some(Unanswered)),
        (&[None, Some(quarantined(1))], Some(Unanswered)),
    ] {
        assert_eq!(verdict(renewal(), answers), expected, "{answers:?}");
    }
}

#[test]
fn a_server_that_has_seen_more_gets_another_proposal() {
    let mut round = round(3);
    let (first, second) = (Token(WALL), Token(WALL + 51));
    vote(&mut round, 0, yes(first));
    vote(&mut round, 1, stale(WALL + 50));
    assert_eq!((round.token(), round.verdict()), (first, None));
    vote(&mut round, 2, stale(WALL + 50));
    assert_eq!(round.token(), second);
    assert_eq!(ask(&mut round), 3, "also who has voted");
    // An answer to the old proposal counts for nothing.
    round.handle_reply(Moment(1), 0, first, yes(first), AT);
    vote(&mut round, 0, yes(second));
    assert_eq!(round.verdict(), None);
    vote(&mut round, 1, yes(second));
    assert_eq!(round.verdict(), Some(RoundVerdict::Held { token: second }));
}

#[test]
fn rivals_do_not_outbid_each_other_forever() {
    let mut round = round(3);
    for number in 1..=PROPOSALS {
        let token = round.token();
        for server in 0..2 {
            round.handle_reply(Moment(1), server, token, stale(token.0 + 5), AT);
        }
        assert_eq!(round.token() > token, number < PROPOSALS);
        ask(&mut round);
    }
    assert_eq!(round.verdict(), None, "the third may vote for another");
    round.handle_silence(Moment(1), 2, round.token());
    let left = Duration::ZERO;
    assert_eq!(round.verdict(), Some(RoundVerdict::Busy { left }));
}

#[test]
fn who_is_late_is_silent() {
    let mut early = round(5);
    vote(&mut early, 0, yes(Token(WALL)));
    early.handle_timeout(Moment(99_999));
    assert_eq!(early.verdict(), None);
    assert_eq!(early.poll_timeout(), Some(Moment(100_000)));
    early.handle_timeout(Moment(100_000));
    assert_eq!(early.verdict(), Some(RoundVerdict::Unanswered));
    assert_eq!((early.poll_transmit(), early.poll_timeout()), (None, None));
    // A quorum that comes too late is none.
    let mut late = round(3);
    vote(&mut late, 0, yes(Token(WALL)));
    let end = (Moment(0) + TTL).before(drift_allowance(TTL));
    late.handle_reply(end, 1, late.token(), yes(Token(WALL)), AT);
    assert_eq!(late.verdict(), Some(RoundVerdict::Unanswered));
}

/// Servers that have forgotten would take an old token, below those of others meanwhile.
#[test]
fn what_was_proposed_long_ago_is_not_proposed_again() {
    let config = config(3, None);
    let again = |held, micros| {
        let now = Moment(0) + Duration::from_micros(micros);
        QuorumRound::again(config, proposed(held), 100, now).token()
    };
    let half = u64::try_from(config.ttl.as_micros() / 2).unwrap();
    assert_eq!(again(false, half - 1), Token(9));
    assert_eq!(again(false, half), Token(100));
    assert_eq!(again(true, half), Token(9), "another would be another hold");
}

/// There is no higher one to propose.
#[test]
fn the_highest_token_that_there_is_ends_a_round() {
    let mut round = round(3);
    for _ in 0..PROPOSALS {
        for server in 0..3 {
            vote(&mut round, server, stale(u64::MAX));
        }
        ask(&mut round);
    }
    assert!(round.verdict().is_some());
}
