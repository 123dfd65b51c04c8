//! A simulated client of a set: acquires, renews, releases, dies.

use leasehold_core::quorum::{Proposed, QuorumRelease, QuorumRound, RoundConfig, RoundVerdict};
use leasehold_core::*;

use crate::quorum::checks::{Checks, Fault};
use crate::quorum::climate::{Broken, Climate, MAX_TTL};
use crate::quorum::server::Answer;
use crate::simulation::Dice;

/// What an answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    Bid(u64, Token),
    Extension(u64, Token),
    Farewell(u64),
}

/// A request between a client and a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) client: usize,
    pub(crate) server: usize,
    pub(crate) tag: Tag,
}

/// What a client goes on with: the time, and where it draws, reports and sends.
pub(crate) struct Turn<'a> {
    pub(crate) now: u64,
    /// The time of day, as the client has it.
    pub(crate) wall: u64,
    pub(crate) dice: &'a mut Dice,
    pub(crate) checks: &'a mut Checks,
    /// Requests, and to which servers.
    pub(crate) out: Vec<(usize, Tag, Command)>,
}

#[derive(Debug)]
enum State {
    Idle { until: u64 },
    Bidding(Bidding),
    Held(Held),
}

#[derive(Debug)]
struct Bidding {
    bid: QuorumRound,
    number: u64,
    id: ClaimId,
    began: u64,
    sent: Moment,
    /// The highest token that a server gave, where servers count.
    counted: Token,
}

#[derive(Debug)]
struct Held {
    id: ClaimId,
    token: Token,
    validity: Validity,
    renew_at: u64,
    release_at: u64,
    extension: Option<(QuorumRound, u64, Moment)>,
}

#[derive(Debug)]
struct Leaving {
    number: u64,
    farewell: QuorumRelease,
    id: ClaimId,
    void: Void,
}

#[derive(Debug)]
pub(crate) struct Client {
    number: usize,
    climate: Climate,
    rate: i64,
    state: State,
    leaving: Vec<Leaving>,
    seen: Token,
    counter: u64,
    /// It begins nothing new.
    pub(crate) retired: bool,
}

impl Client {
    pub(crate) fn new(number: usize, climate: &Climate, rate: i64) -> Self {
        Self {
            number,
            climate: climate.clone(),
            rate,
            state: State::Idle { until: 0 },
            leaving: Vec::new(),
            seen: Token::NONE,
            counter: 0,
            retired: false,
        }
    }

    // ---- its clocks ----

    pub(crate) fn moment(&self, now: u64) -> Moment {
        let now = i64::try_from(now).unwrap();
        Moment(u64::try_from(now + now / 1_000_000 * self.rate).unwrap())
    }

    /// When that moment is, in the world's time.
    fn real(&self, moment: Moment) -> u64 {
        let (mut low, mut high) = (0, 2 * moment.0 + 1);
        while low < high {
            let middle = u64::midpoint(low, high);
            if self.moment(middle) < moment {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    // ---- what it does ----

    fn number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn claim(&self, id: &ClaimId, token: Token) -> Command {
        let ahead = MAX_TTL;
        Command::Claim(Claim {
            inbox: Some(Inbox::from_random(self.number as u64)),
            wait: false,
            proposal: Some(Proposal { token, ahead }),
            ..Claim::new(id.clone(), Mode::EXCLUSIVE, self.climate.ttl)
        })
    }

    fn config(&self) -> RoundConfig {
        RoundConfig {
            size: self.climate.size,
            ttl: self.climate.ttl,
            patience: self.climate.ttl / 5,
        }
    }

    /// Goes on as far as it can now.
    pub(crate) fn go_on(&mut self, turn: &mut Turn<'_>) {
        let moment = self.moment(turn.now);
        loop {
            let state = std::mem::replace(&mut self.state, State::Idle { until: turn.now });
            let (next, again) = self.step(state, turn);
            self.state = next;
            if !again {
                break;
            }
        }
        for leaving in &mut self.leaving {
            while let Some(server) = leaving.farewell.poll_transmit(moment) {
                let (tag, void) = (Tag::Farewell(leaving.number), leaving.void.clone());
                turn.out.push((server, tag, Command::Void(void)));
            }
        }
    }

    fn step(&mut self, state: State, turn: &mut Turn<'_>) -> (State, bool) {
        let (now, moment) = (turn.now, self.moment(turn.now));
        match state {
            State::Idle { until } if now < until || self.retired => (State::Idle { until }, false),
            State::Idle { .. } => {
                let wall = self.counts_from(turn.wall);
                if self.climate.broken == Broken::CountersOnly || turn.dice.chance(300) {
                    // Another process takes its place.
                    self.seen = Token::NONE;
                }
                let number = self.number();
                let bid = QuorumRound::new(self.config(), self.seen, wall, moment);
                // What is shown of an id are its first characters.
                let id = (self.number as u128) << 120 | u128::from(number) << 104;
                let bidding = Bidding {
                    bid,
                    number,
                    id: ClaimId::from_random(id),
                    began: now,
                    sent: moment,
                    counted: Token::NONE,
                };
                (State::Bidding(bidding), true)
            }
            State::Bidding(mut it) => {
                it.bid.handle_timeout(moment);
                let first = it.bid.token();
                while let Some((server, token)) = it.bid.poll_transmit() {
                    let (tag, claim) = (Tag::Bid(it.number, token), self.claim(&it.id, token));
                    turn.out.push((server, tag, claim));
                }
                debug_assert_eq!(first, it.bid.token());
                self.seen = self.seen.max(it.bid.seen());
                match it.bid.verdict() {
                    Some(verdict) => self.after_bid(verdict, it, turn),
                    None => (State::Bidding(it), false),
                }
            }
            State::Held(mut it) => {
                let valid = !it.validity.remaining(moment).is_zero();
                if !valid || now >= it.release_at || self.retired {
                    turn.checks.ends(self.number);
                    if !turn.dice.chance(self.climate.deaths) {
                        self.leave(it.id, it.token, true, valid, turn);
                    }
                    return (self.pause(turn), false);
                }
                if let Some((asked, _, _)) = &mut it.extension {
                    asked.handle_timeout(moment);
                }
                let asked = it.extension.as_ref();
                let ended = asked.and_then(|(e, _, sent)| Some((e.verdict()?, *sent)));
                match ended {
                    Some((RoundVerdict::Held { .. }, sent)) => {
                        it.validity.confirm(sent, self.climate.ttl);
                        turn.checks.had.add("renewals", 1);
                        let until = self.real(it.validity.until());
                        turn.checks.believes(self.number, it.token, now, until);
                        it.renew_at = now + turn.dice.up_to(self.climate.ttl / 2);
                        it.extension = None;
                    }
                    Some((RoundVerdict::Unanswered, _)) => {
                        it.renew_at = now + turn.dice.up_to(self.climate.ttl / 10);
                        it.extension = None;
                    }
                    Some(_) => {
                        if self.climate.restarts.is_none() {
                            let what = format!("{:?} at {now}", it.token);
                            turn.checks.faults.push((Fault::LostForNothing, what));
                        }
                        turn.checks.ends(self.number);
                        self.leave(it.id, it.token, true, false, turn);
                        return (self.pause(turn), false);
                    }
                    None => {}
                }
                if it.extension.is_none() && now >= it.renew_at {
                    let number = self.number();
                    let (token, at, held) = (it.token, moment, true);
                    let before = Proposed { token, at, held };
                    let mut asked = QuorumRound::again(self.config(), before, 0, moment);
                    while let Some((server, token)) = asked.poll_transmit() {
                        let command = match self.climate.repair {
                            true => self.claim(&it.id, token),
                            false => Command::Renew(Renew::new(it.id.clone(), self.climate.ttl)),
                        };
                        turn.out
                            .push((server, Tag::Extension(number, token), command));
                    }
                    it.extension = Some((asked, number, moment));
                }
                (State::Held(it), false)
            }
        }
    }

    /// Where tokens begin: at the time of day, unless that rule is broken.
    fn counts_from(&self, wall: u64) -> u64 {
        match self.climate.broken {
            Broken::CountersOnly => 0,
            _ => wall,
        }
    }

    fn after_bid(
        &mut self,
        verdict: RoundVerdict,
        it: Bidding,
        turn: &mut Turn<'_>,
    ) -> (State, bool) {
        let (now, moment) = (turn.now, self.moment(turn.now));
        match verdict {
            RoundVerdict::Held { token } => {
                let token = match self.climate.broken {
                    Broken::ServersCount => {
                        self.seen = self.seen.max(it.counted);
                        it.counted
                    }
                    _ => token,
                };
                let mut validity = Validity::default();
                validity.confirm(it.sent, self.climate.ttl);
                turn.checks.completed(it.began, now, token);
                turn.checks
                    .believes(self.number, token, now, self.real(validity.until()));
                let held = Held {
                    id: it.id,
                    token,
                    validity,
                    renew_at: now + turn.dice.up_to(self.climate.ttl / 2),
                    release_at: now + turn.dice.up_to(4 * self.climate.ttl),
                    extension: None,
                };
                return (State::Held(held), true);
            }
            RoundVerdict::Busy { .. } => turn.checks.had.add("busy bids", 1),
            RoundVerdict::Unanswered => {
                turn.checks.had.add("bids without an answer", 1);
                if turn.dice.chance(500) && !self.retired {
                    let (token, at, held) = (it.bid.token(), self.moment(it.began), false);
                    let before = Proposed { token, at, held };
                    let wall = self.counts_from(turn.wall);
                    let again = Bidding {
                        bid: QuorumRound::again(self.config(), before, wall, moment),
                        number: self.number(),
                        sent: moment,
                        ..it
                    };
                    return (State::Bidding(again), true);
                }
            }
            RoundVerdict::Taken | RoundVerdict::Gone | RoundVerdict::Refused { .. } => {}
        }
        let token = match self.climate.broken {
            Broken::ServersCount => it.counted,
            _ => it.bid.token(),
        };
        self.leave(it.id, token, false, false, turn);
        (self.pause(turn), false)
    }

    fn pause(&self, turn: &mut Turn<'_>) -> State {
        State::Idle {
            until: turn.now + turn.dice.up_to(self.climate.ttl / 2),
        }
    }

    /// `held`, and whether it still does by its own clock.
    fn leave(&mut self, id: ClaimId, token: Token, held: bool, valid: bool, turn: &mut Turn<'_>) {
        let (number, now) = (self.number(), self.moment(turn.now));
        let until = now + 20 * self.climate.ttl;
        let (size, seed) = (self.climate.size, turn.dice.roll(u64::MAX));
        let farewell = QuorumRelease::new(size, now, until, valid, seed);
        self.leaving.push(Leaving {
            number,
            farewell,
            void: Void {
                up_to: token,
                whose: Voided::Claim {
                    id: id.clone(),
                    released: held,
                },
            },
            id,
        });
    }

    /// An answer.
    pub(crate) fn hear(&mut self, now: u64, call: Call, answer: Answer, checks: &mut Checks) {
        let (server, (reply, at, given)) = (call.server, answer);
        let moment = self.moment(now);
        if matches!(reply, Reply::Quarantined { .. }) {
            checks.had.add("quarantined votes", 1);
        }
        match call.tag {
            Tag::Bid(number, token) => {
                if let State::Bidding(it) = &mut self.state
                    && it.number == number
                {
                    let before = it.bid.token();
                    if reply.has_token() && it.bid.verdict().is_none() {
                        it.counted = it.counted.max(given);
                    }
                    it.bid.handle_reply(moment, server, token, reply, at);
                    if it.bid.token() != before {
                        checks.had.add("further proposals", 1);
                    }
                }
            }
            Tag::Extension(number, token) => {
                if let State::Held(it) = &mut self.state
                    && let Some((extension, asked, _)) = &mut it.extension
                    && *asked == number
                {
                    extension.handle_reply(moment, server, token, reply, at);
                }
            }
            Tag::Farewell(number) => {
                for leaving in &mut self.leaving {
                    if leaving.number == number {
                        let held = reply == Reply::Released { held: true };
                        leaving.farewell.handle_released(server, held);
                    }
                }
            }
        }
    }

    /// A request for a farewell went unanswered for long.
    pub(crate) fn give_up(&mut self, now: u64, call: Call) {
        let moment = self.moment(now);
        if let Tag::Farewell(number) = call.tag {
            for leaving in &mut self.leaving {
                if leaving.number == number {
                    leaving.farewell.handle_silence(moment, call.server);
                }
            }
        }
    }

    /// The claims that every server has confirmed to have left.
    pub(crate) fn departed(&self) -> impl Iterator<Item = &ClaimId> {
        let gone = |l: &&Leaving| l.farewell.unconfirmed().next().is_none();
        self.leaving.iter().filter(gone).map(|leaving| &leaving.id)
    }

    /// When it wants to go on.
    pub(crate) fn wake_at(&self, now: u64) -> u64 {
        let of_state = match &self.state {
            State::Idle { until } if !self.retired => Some(*until),
            State::Idle { .. } => None,
            State::Bidding(it) => it.bid.poll_timeout().map(|at| self.real(at)),
            State::Held(it) => {
                let asked = it.extension.as_ref();
                let asked = asked.and_then(|(e, _, _)| e.poll_timeout());
                let next = asked.map_or(it.renew_at, |at| self.real(at));
                Some(next.min(it.release_at).min(self.real(it.validity.until())))
            }
        };
        let due = |leaving: &Leaving| leaving.farewell.poll_timeout(self.moment(now));
        let leaving = self.leaving.iter().filter_map(due).min();
        let leaving = leaving.map(|at| self.real(at));
        let wakes = of_state.into_iter().chain(leaving);
        wakes.min().unwrap_or(u64::MAX)
    }
}
