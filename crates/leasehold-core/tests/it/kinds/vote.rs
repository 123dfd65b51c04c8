//! The vote of a member of a set: claims that propose their token. What makes tokens void is in the
//! models of quorums.

use crate::kinds::cast::*;

const TTL: Duration = Duration::from_secs(10);
const AHEAD: Duration = Duration::from_secs(60);

fn at(second: u64) -> StoreTime {
    StoreTime(1_000_000_000 + second * 1_000_000)
}

fn id(number: u64) -> ClaimId {
    ClaimId::from_random(number.into())
}

fn inbox(number: u64) -> Inbox {
    Inbox::from_random(number)
}

fn propose(number: u64, token: u64) -> Command {
    let (token, ahead) = (Token::from(token), AHEAD);
    Command::Claim(Claim {
        inbox: Some(inbox(number)),
        proposal: Some(Proposal { token, ahead }),
        ..Claim::new(id(number), Mode::EXCLUSIVE, TTL)
    })
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

    /// It is accepted with the token that it proposes, and lives for a TTL from then on.
    #[track_caller]
    fn accepts(&mut self, number: u64, token: u64, second: u64) {
        let granted = standing(self.ask(&propose(number, token), second));
        let (token, deadline) = (Some(Token::from(token)), at(second) + TTL);
        assert_eq!((granted.token, granted.deadline), (token, deadline));
    }

    /// What has to be passed to be accepted, where a proposal is not.
    fn outbid(&mut self, number: u64, token: u64, second: u64) -> Option<u64> {
        match self.ask(&propose(number, token), second) {
            Reply::Outbid { highest, .. } => Some(highest.get()),
            _ => None,
        }
    }
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
