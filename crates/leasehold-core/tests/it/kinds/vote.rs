//! The vote of a member of a set: claims that propose their token, and what makes tokens void.

use crate::kinds::cast::*;

const TTL: Duration = Duration::from_secs(10);
const AHEAD: Duration = Duration::from_secs(60);
const RELEASED: Reply = Reply::Released { held: true };

fn at(second: u64) -> StoreTime {
    StoreTime(1_000_000_000 + second * 1_000_000)
}

fn id(number: u64) -> ClaimId {
    ClaimId::from_random(number.into())
}

fn inbox(number: u64) -> Inbox {
    Inbox::from_random(number)
}

fn proposal(number: u64, token: u64) -> Claim {
    let (token, ahead) = (Token::from(token), AHEAD);
    Claim {
        inbox: Some(inbox(number)),
        proposal: Some(Proposal { token, ahead }),
        ..Claim::new(id(number), Mode::EXCLUSIVE, TTL)
    }
}

fn propose(number: u64, token: u64) -> Command {
    Command::Claim(proposal(number, token))
}

fn void(number: u64, up_to: u64, released: bool) -> Command {
    let whose = Voided::Claim {
        id: id(number),
        released,
    };
    let up_to = Token::from(up_to);
    Command::Void(Void { up_to, whose })
}

/// One server, which is asked at these seconds.
#[derive(Default)]
struct Server(Queue);

impl Server {
    fn apply(&mut self, command: &Command, second: u64) -> Outcome {
        self.0.apply(command, at(second))
    }

    fn ask(&mut self, command: &Command, second: u64) -> Reply {
        self.apply(command, second).reply
    }

    /// The token of a claim, and until when it lives.
    fn granted(&mut self, number: u64, token: u64, second: u64) -> Option<(u64, StoreTime)> {
        match self.ask(&propose(number, token), second) {
            Reply::Standing(standing) => Some((standing.token?.get(), standing.deadline)),
            _ => None,
        }
    }

    /// It is accepted with the token that it proposes, and lives for a TTL from then on.
    #[track_caller]
    fn accepts(&mut self, number: u64, token: u64, second: u64) {
        let granted = self.granted(number, token, second);
        assert_eq!(granted, Some((token, at(second) + TTL)));
    }

    /// What has to be passed to be accepted, where a proposal is not.
    fn outbid(&mut self, number: u64, token: u64, second: u64) -> Option<u64> {
        match self.ask(&propose(number, token), second) {
            Reply::Outbid { highest, .. } => Some(highest.get()),
            _ => None,
        }
    }

    fn renewed(&mut self, number: u64, second: u64) -> Reply {
        self.ask(&Command::Renew(Renew::new(id(number), TTL)), second)
    }

    fn holders(&self, second: u64) -> Vec<u64> {
        let holders = self.0.look(at(second)).holders;
        holders.iter().map(|holder| holder.token.get()).collect()
    }
}

#[test]
fn a_token_is_accepted_from_one_claim_and_only_above_all_others() {
    let mut server = Server::default();
    server.accepts(1, 50, 0);
    // Asking again raises.
    server.accepts(1, 50, 1);
    let blocked_until = at(11);
    let busy = Reply::Busy { blocked_until };
    assert_eq!(server.ask(&propose(2, 60), 1), busy);
    // Its lease is over, and its token is not to be had again.
    for token in [49, 50] {
        assert_eq!(server.outbid(2, token, 20), Some(50));
    }
    server.accepts(2, 51, 20);
    // Upgraded in place.
    server.accepts(2, 52, 20);
    assert_eq!(server.outbid(2, 51, 20), Some(52), "and not downgraded");
    assert_eq!(server.holders(20), [52]);
}

#[test]
fn what_comes_after_its_own_release_is_refused() {
    let mut server = Server::default();
    // It gives up this proposal, which is still under way.
    assert_eq!(server.ask(&void(1, 50, false), 0), Reply::Absent);
    assert_eq!(server.outbid(1, 50, 0), Some(50));
    assert_eq!(server.renewed(1, 0), Reply::Gone);
    server.accepts(1, 51, 0);
    assert_eq!(server.ask(&void(1, 51, true), 0), RELEASED);
    assert_eq!(server.ask(&void(1, 51, true), 0), Reply::Absent);
    // The id stays released, whatever it proposes.
    assert_eq!(server.ask(&propose(1, 60), 0), Reply::Gone);
    assert_eq!(server.outbid(2, 51, 0), Some(51));
}

#[test]
fn a_contender_that_gives_up_does_not_disturb_the_holder() {
    let mut server = Server::default();
    server.ask(&propose(1, 50), 0);
    server.ask(&propose(2, 70), 1);
    assert_eq!(server.ask(&void(2, 70, false), 1), Reply::Absent);
    assert!(server.renewed(1, 2).is_grant());
    // A lost answer.
    server.accepts(1, 50, 3);
    assert_eq!(server.ask(&void(1, 50, true), 4), RELEASED);
    let outbid = server.outbid(3, 70, 4);
    assert_eq!(outbid, Some(70), "what was given up is void");
}

#[test]
fn a_renewal_brings_nothing_back() {
    let mut server = Server::default();
    server.ask(&propose(1, 50), 0);
    server.ask(&propose(2, 60), 11);
    assert_eq!(server.renewed(1, 12), Reply::Gone);
    let busy = server.ask(&propose(1, 50), 12);
    assert!(matches!(busy, Reply::Busy { .. }));
    server.ask(&void(2, 60, true), 13);
    assert_eq!(server.outbid(1, 50, 14), Some(60));
    // A server that lost its data takes the claim up again, if it is asked to.
    let mut empty = Server::default();
    assert_eq!(empty.renewed(1, 1), Reply::Gone);
    empty.accepts(1, 50, 1);
}

#[test]
fn a_clock_gone_mad_does_not_use_up_the_numbers() {
    let mut server = Server::default();
    let most = at(60).0;
    let outbid = Reply::Outbid {
        highest: Token::NONE,
        most: Token::from(most),
    };
    assert_eq!(server.ask(&propose(1, most + 1), 0), outbid);
    server.accepts(1, most, 0);
    server.ask(&void(1, most, true), 0);
    assert_eq!(server.outbid(2, most + 2, 0), Some(most));
    // The next one.
    server.accepts(2, most + 1, 0);
}

#[test]
fn an_id_of_another_client_is_taken() {
    let mut server = Server::default();
    server.ask(&propose(1, 50), 0);
    let thief = Command::Claim(but(proposal(1, 60), |it| it.inbox = Some(inbox(9))));
    assert_eq!(server.ask(&thief, 1), Reply::Taken);
    assert_eq!(server.holders(1), [50]);
}

#[test]
fn a_release_wakes_the_first_that_listens() {
    let mut server = Server::default();
    server.ask(&propose(1, 50), 0);
    for number in [2, 3, 4, 2] {
        server.ask(&propose(number, 60), 1);
    }
    let called = |number| Event::Changed {
        inbox: inbox(number),
    };
    let mut outcome = server.apply(&void(1, 50, true), 2);
    let mut told = Vec::new();
    server.0.deliver(&mut outcome, at(2), |event| {
        told.push(event.clone());
        *event.inbox() == inbox(3)
    });
    assert_eq!(told, [called(2), called(3)]);
    // Whoever has it does not wait, and who waits is forgotten after a while.
    server.accepts(4, 61, 2);
    assert_eq!(server.apply(&void(4, 61, true), 3).events, []);
    server.ask(&propose(5, 62), 3);
    server.ask(&propose(6, 63), 3);
    assert_eq!(server.apply(&void(5, 62, true), 7).events, []);
    // One that only gives up has not made it free.
    server.ask(&propose(7, 64), 7);
    server.ask(&propose(8, 65), 7);
    assert_eq!(server.apply(&void(8, 65, false), 8).events, []);
    assert_eq!(server.apply(&void(7, 64, true), 8).events, [called(8)]);
}

#[test]
fn breaking_fences_the_holder_and_tells_it() {
    let mut server = Server::default();
    server.ask(&propose(1, 50), 0);
    let breaks = |up_to| {
        let by = ClientInfo::default();
        let (up_to, whose) = (Token::from(up_to), Voided::Key { by });
        Command::Void(Void { up_to, whose })
    };
    let (holders, token) = (0, Token::from(49));
    assert_eq!(server.ask(&breaks(49), 0), Reply::Broken { holders, token });
    assert_eq!(server.holders(0), [50], "its token is not void");
    let outcome = server.apply(&breaks(80), 1);
    let (holders, token) = (1, Token::from(80));
    assert_eq!(outcome.reply, Reply::Broken { holders, token });
    let (arrival, inbox, id) = (Arrival(50), inbox(1), id(1));
    assert_eq!(outcome.events, [Event::Revoked { inbox, arrival, id }]);
    assert_eq!(server.renewed(1, 2), Reply::Gone);
    assert_ne!(server.granted(1, 50, 2), Some((50, at(12))));
    assert_eq!(server.outbid(2, 80, 2), Some(80));
    server.accepts(2, 81, 2);
}
