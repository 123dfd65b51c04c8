//! A simulated member: with the rules of the core, or with broken ones.

use crate::common::*;
use crate::quorum::climate::Broken;

/// The reply and its time; also the token that the server gave, where servers count.
pub(crate) type Answer = (Reply, StoreTime, Token);

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) queue: Queue,
    marker: Option<ServerMarker>,
    terms: SetTerms,
    /// How often it was started: who is connected to a process talks to no other.
    pub(crate) generation: u64,
    /// Its clock: how much is added, and how fast it runs, in millionths.
    offset: i64,
    rate: i64,
    broken: Broken,
    /// The highest token that was voided, where that counts as accepted.
    floor: Token,
}

impl Server {
    pub(crate) fn new(quarantine: Duration, offset: i64, rate: i64, broken: Broken) -> Self {
        let mut server = Self {
            queue: Queue::default(),
            marker: None,
            terms: SetTerms {
                set: "set".to_owned(),
                quarantine,
            },
            generation: 0,
            offset,
            rate,
            broken,
            floor: Token::NONE,
        };
        // It is known to be new.
        ServerMarker::init(&mut server.marker, "0", &server.terms, StoreTime(0));
        server
    }

    pub(crate) fn clock(&self, now: u64) -> StoreTime {
        let now = i64::try_from(now).unwrap();
        let shown = now + now / 1_000_000 * self.rate + self.offset;
        StoreTime(u64::try_from(shown).unwrap())
    }

    pub(crate) fn restart(&mut self, lose: bool) {
        self.generation += 1;
        if lose {
            self.queue = Queue::default();
            self.floor = Token::NONE;
            self.marker = None;
        }
    }

    /// One step.
    pub(crate) fn take(&mut self, command: &Command, renews: bool, now: u64) -> Answer {
        let (at, run) = (self.clock(now), self.generation.to_string());
        let admitted = ServerMarker::admit(&mut self.marker, &run, &self.terms, at);
        let now = Now {
            closed: match admitted {
                Err(Closed::Quarantined { left }) if self.broken != Broken::NoQuarantine => left,
                _ => Duration::ZERO,
            },
            ..Now::from(at)
        };
        match command {
            Command::Claim(claim) => self.claim(claim, renews, now),
            Command::Void(void) => (self.void(void, now), at, void.up_to),
            other => (self.queue.apply(other, now).reply, at, Token::NONE),
        }
    }

    fn claim(&mut self, claim: &Claim, renews: bool, now: Now) -> Answer {
        let mut claim = claim.clone();
        let mut proposal = claim.proposal.unwrap();
        let asked = proposal.token;
        let look = self.queue.look(now.clock);
        match self.broken {
            Broken::OneRegister if asked <= self.floor => {
                let (highest, most) = (self.floor, Token::from(u64::MAX));
                let held = look.holders.iter().any(|holder| holder.token == asked);
                if renews && asked < self.floor || !held {
                    return (Reply::Outbid { highest, most }, now.clock, asked);
                }
            }
            Broken::Resurrect if renews => self.queue = Queue::default(),
            Broken::ServersCount => {
                let hint = claim.id.to_string();
                let mut ours = look
                    .holders
                    .iter()
                    .filter(|holder| holder.claim.id_hint == hint);
                // It knows the claim by its id.
                proposal.token = match ours.next() {
                    Some(holder) => holder.token,
                    None if renews => return (Reply::Gone, now.clock, asked),
                    None => Token::from(look.last_token.get() + 1),
                };
            }
            _ => {}
        }
        claim.proposal = Some(proposal);
        let mut outcome = self.queue.apply(&Command::Claim(claim), now);
        if let Reply::Standing(standing) = &mut outcome.reply {
            standing.token = Some(asked);
        }
        (outcome.reply, outcome.at, proposal.token)
    }

    fn void(&mut self, void: &Void, now: Now) -> Reply {
        let mut void = void.clone();
        match (self.broken, &mut void.whose) {
            (Broken::NoTombstone, Voided::Claim { released, .. }) => {
                (void.up_to, *released) = (Token::NONE, false);
            }
            (Broken::OneRegister, _) => {
                self.floor = self.floor.max(void.up_to);
                void.up_to = Token::NONE;
            }
            _ => {}
        }
        self.queue.apply(&Command::Void(void), now).reply
    }
}
