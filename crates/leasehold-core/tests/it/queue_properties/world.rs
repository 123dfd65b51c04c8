//! A key under test, its reference, and the state of its clients.

use serde_json::Value;

use crate::common::*;
use crate::queue_properties::audited::Audited;
use crate::queue_properties::histories::{Act, INBOXES, Op, Tick, inbox};
use crate::queue_properties::reference::{Expected, Reference};
use crate::queue_properties::{invariants, told};

#[derive(Default)]
pub(crate) struct World {
    pub(crate) queue: Queue,
    pub(crate) reference: Reference,
    clock: StoreTime,
    /// From when on the store grants, by its clock.
    opens: StoreTime,
    listens: bool,
    /// Those who are passed over in this step.
    passed: BTreeSet<Inbox>,
    /// How far the clock may step back: not behind the last loss.
    floor: StoreTime,
    /// What clients take for the semaphore's size; 0 is a lock.
    permits: u32,
    sent: Vec<Command>,
    audited: Audited,
    pub(crate) highest_token: Token,
    /// Those who have held, and the highest of their tokens.
    pub(crate) held: BTreeSet<Arrival>,
    pub(crate) highest_held: Token,
    pub(crate) highest_arrival: Arrival,
    /// The token of each grant that was seen, whenever.
    pub(crate) grants: BTreeMap<Arrival, Token>,
}

/// What one step did, for the invariants.
pub(crate) struct Taken<'a> {
    pub(crate) command: &'a Command,
    pub(crate) clock: StoreTime,
    pub(crate) now: Now,
    pub(crate) before: &'a Queue,
    pub(crate) outcome: &'a Outcome,
    pub(crate) expected: Expected,
    pub(crate) seen_before: Snapshot,
    pub(crate) seen_after: Snapshot,
}

impl World {
    pub(crate) fn new(permits: u32) -> Self {
        Self {
            clock: StoreTime(1_700_000_000_000_000),
            permits,
            ..Self::default()
        }
    }

    pub(crate) fn act(&mut self, act: &Act) {
        self.listens = act.listens;
        match act.tick {
            Tick::Still => {}
            Tick::Forward(by) => self.clock = self.clock + Duration::from_micros(by),
            Tick::Back(by) => {
                self.clock = self.clock.before(Duration::from_micros(by)).max(self.floor);
            }
        }
        let command = match act.op {
            Op::Again(back) => self.sent.iter().rev().nth(back - 1).cloned(),
            Op::Lose => return self.lose(),
            Op::Close(lasts) => {
                self.opens = self.clock + lasts;
                return;
            }
            ref op => op.command(self.permits, &self.reference),
        };
        if let Some(command) = command {
            self.sent.push(command.clone());
            self.step(&command, act.deaf);
        }
        if let Some(Capacity::Permits(n)) = self.reference.capacity()
            && self.permits > 0
        {
            self.permits = n;
        }
    }

    fn lose(&mut self) {
        self.queue = Queue::default();
        self.reference.forget();
        self.audited.lose();
        // "As long as the clock did not step back further than the loss":
        // it has passed the highest number that was ever given.
        let passed = self.highest_token.get().max(self.highest_arrival.0) + 1;
        self.floor = StoreTime(passed);
        self.clock = self.clock.max(self.floor);
    }

    fn now(&self) -> Now {
        Now {
            closed: self.opens.since(self.clock),
            audited: true,
            listens: self.listens,
            ..Now::from(self.clock)
        }
    }

    fn step(&mut self, command: &Command, deaf: u8) {
        let outcome = self.take(command);
        self.deliver(command, outcome, deaf);
    }

    /// Who has just come may not listen yet, unless it has said that it does.
    fn only_who_listened_or_came_early_is_passed(&mut self, unheard: &Command) {
        let Command::Unheard {
            granted, passed, ..
        } = unheard
        else {
            panic!("{unheard:?}")
        };
        for (arrival, waited) in granted {
            let mut claims = self.reference.claims.iter();
            let claim = claims.find(|claim| claim.arrival == *arrival).unwrap();
            if (claim.listens || *waited >= UNHEARD_CUT) && self.reference.behind(claim).is_none() {
                self.passed.extend(claim.inbox.clone());
            }
        }
        assert!(passed.iter().all(|inbox| self.passed.contains(inbox)));
        // The last time nobody is.
        assert!(passed.len() == self.passed.len() || passed.is_empty());
    }

    /// Answers what came of it.
    fn take(&mut self, command: &Command) -> Outcome {
        let (clock, now) = (self.clock, self.now());
        let before = self.queue.clone();
        let seen_before = before.look(clock);
        let watching = self.reference.watchers.clone();
        let outcome = self.queue.apply(command, now);
        let followers = followers_in(&before);
        let reference = &mut self.reference;
        let expected = reference.apply(command, now, &outcome.reply, &followers);
        let taken = Taken {
            command,
            clock,
            now,
            before: &before,
            outcome: &outcome,
            expected,
            seen_before,
            seen_after: self.queue.look(clock),
        };
        invariants::hold(self, &taken);
        told::what_it_should(self, &taken, &watching);
        if matches!(command, Command::Watch { .. }) && self.queue == Queue::default() {
            // Who has watched a key that nobody uses leaves nothing, not even its time.
            let last = self.reference.last_token;
            assert_eq!(last, Token::NONE, "of a key that was used");
            assert_eq!(outcome.events, [], "there is nobody");
            self.reference.forget();
        }
        self.audited.add(&outcome.audit, &self.queue);
        outcome
    }

    /// Design 3: claims of an inbox that did not hear are cut, and others are granted and told;
    /// it ends, and never sends a hint to a claim that is gone. Each of its steps is one like
    /// any other.
    fn deliver(&mut self, command: &Command, mut outcome: Outcome, deaf: u8) {
        let (at, now) = (self.now(), self.reference.now);
        // It tells the first in line that the key is vacant, and looks no further.
        let vacant = matches!(command, Command::Release(release) if !release.hand_off);
        let sent = outcome.events.len();
        outcome.audit.clear();
        let (mut calls, mut told) = (0_usize, self.queue.clone());
        let reference = &self.reference;
        let applied = told.deliver(&mut outcome, at, |event| {
            calls += 1;
            let alive = reference.claims.iter().any(|claim| {
                Some(claim.arrival) == event.arrival()
                    && claim.inbox.as_ref() == Some(event.inbox())
                    && claim.deadline > now
            });
            let hint = matches!(event, Event::Granted { .. } | Event::Next { .. });
            assert!(alive || !hint || vacant, "{event:?} to the dead");
            (0..INBOXES).all(|n| deaf & (1 << n) == 0 || *event.inbox() != inbox(n))
        });
        assert!(calls <= sent + 64, "{calls} pushes");
        let mut noted = Vec::new();
        self.passed.clear();
        for unheard in &applied {
            self.only_who_listened_or_came_early_is_passed(unheard);
            noted.extend(self.take(unheard).audit);
        }
        assert_eq!(outcome.audit, noted, "what is noted of it");
        assert_eq!(self.queue, told, "{applied:?}");
    }
}

pub(crate) fn claim_id(command: &Command) -> Option<&ClaimId> {
    match command {
        Command::Claim(claim) => Some(&claim.id),
        Command::Renew(renew) => Some(&renew.id),
        Command::Release(release) => Some(&release.id),
        _ => None,
    }
}

/// Whether it hands a claim to another client.
pub(crate) fn adopts(command: &Command) -> bool {
    matches!(command, Command::Renew(renew)
        if renew.rotate.as_ref().is_some_and(|rotate| rotate.adopt.is_some()))
}

/// All that are granted, those in runs and the dead as well, as they are written down.
pub(crate) fn granted(queue: &Queue) -> Vec<(Token, Value)> {
    let mut record = serde_json::to_value(queue).unwrap();
    serde_json::from_value(record["granted"].take()).unwrap()
}

pub(crate) fn arrival(entry: &Value) -> Arrival {
    Arrival(entry["arrival"].as_u64().unwrap())
}

pub(crate) fn granted_in(queue: &Queue) -> BTreeMap<Arrival, Token> {
    let granted = granted(queue).into_iter();
    let granted = granted.map(|(token, entry)| (arrival(&entry), token));
    granted.collect()
}

/// Those that are granted behind others, as far as the queue has looked.
pub(crate) fn followers_in(queue: &Queue) -> BTreeSet<Arrival> {
    let exclusive = serde_json::to_value(Mode::EXCLUSIVE).unwrap();
    let granted = granted(queue);
    let first = granted.first().map(|(token, _)| *token);
    let behind = granted
        .iter()
        .filter(|(token, entry)| Some(*token) != first && entry["mode"] == exclusive);
    behind.map(|(_, entry)| arrival(entry)).collect()
}

/// Every claim that is in the record, dead or alive.
pub(crate) fn in_the_record(queue: &Queue) -> usize {
    let record = serde_json::to_value(queue).unwrap();
    let count = |part: &str| record[part].as_array().unwrap().len();
    count("granted") + count("waiting")
}
