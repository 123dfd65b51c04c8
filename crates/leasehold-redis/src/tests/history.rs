//! Random histories for the replay tests: the next request, and its time.

use std::time::Duration;

use leasehold_core::*;
use leasehold_testkit::dice::Dice;

pub(super) const HEARD: [&str; 3] = ["inbox-a", "inbox-b", "c"];
/// The last cannot hear, and is not dead for that.
pub(super) const INBOXES: [&str; 7] = [
    "inbox-a", "inbox-b", "c", "dead-1", "dead-2", "dead-3", "-deaf",
];
pub(super) const START: u64 = 1_795_000_000_000_000;

fn an_inbox(dice: &mut Dice, inboxes: &[&str]) -> Option<Inbox> {
    match dice.roll(7) {
        6 => None,
        _ => Some(Inbox::new(dice.pick(inboxes)).unwrap()),
    }
}

fn an_owner(dice: &mut Dice) -> ClientInfo {
    let context = ClaimContext::from_random(7);
    ClientInfo::new("host é", 7, dice.one_in(2).then_some("a label"))
        .within(dice.one_in(4).then_some(context))
}

fn a_note(dice: &mut Dice) -> Note {
    let long = "é".repeat(Note::MAX_BYTES / 2);
    Note::new(dice.pick(&["", "a note", "another", &long])).unwrap()
}

/// What a history is drawn from.
#[derive(Clone)]
pub(super) struct Mix {
    pub(super) ids: u64,
    pub(super) modes: Vec<Mode>,
    pub(super) longest_pause: Duration,
    /// As clients do it mostly: fair, waiting, with settled releases. This is
    /// where the scripts have their short paths.
    pub(super) calm: bool,
    /// One claim or renewal in so many has more to it, for each thing that it may
    /// have: owners, notes, minimum holds, rotations; none if zero.
    pub(super) rare: u64,
    /// Whether claims propose their tokens, as at a member of a set.
    pub(super) votes: bool,
    /// Whose claims they are. The fewer they are, the longer are their runs.
    pub(super) inboxes: &'static [&'static str],
}

/// A claim as its client knows it.
#[derive(Clone)]
struct Known {
    id: ClaimId,
    version: u64,
    inbox: Option<Inbox>,
}

/// One history under way.
pub(super) struct History {
    pub(super) dice: Dice,
    pub(super) clock: StoreTime,
    mix: Mix,
    number: u64,
    standing: Vec<Known>,
    /// The last ones, to be asked again.
    rotations: Vec<Renew>,
}

pub(super) fn id(number: u64) -> ClaimId {
    // Some are short, and part of others: the search for released ids must not
    // be fooled.
    match number % 5 {
        0 => ClaimId::new(format!("{number}")).unwrap(),
        _ => ClaimId::from_random(number.into()),
    }
}

pub(super) fn release(id: ClaimId) -> Command {
    leave(id, true, false)
}

pub(super) fn leave(id: ClaimId, hand_off: bool, settled: bool) -> Command {
    Command::Release(Release {
        id,
        hand_off,
        settled,
        unused: false,
    })
}

impl History {
    pub(super) fn new(seed: u64, mix: &Mix) -> Self {
        let mut dice = Dice(seed);
        Self {
            clock: StoreTime(START + dice.roll(1_000_000_000)),
            dice,
            mix: mix.clone(),
            number: 0,
            standing: Vec::new(),
            rotations: Vec::new(),
        }
    }

    /// Whether something that is rare in this mix happens now.
    fn rarely(&mut self) -> bool {
        self.mix.rare > 0 && self.dice.one_in(self.mix.rare)
    }

    /// Any id: from a window that moves on, so that released ids stay released.
    fn any_id(&mut self) -> ClaimId {
        id(self.number + self.dice.roll(self.mix.ids))
    }

    /// One of the last that stand.
    fn known(&mut self) -> Option<Known> {
        let last = self.standing.len().saturating_sub(8);
        let last = &self.standing[last..];
        (!last.is_empty()).then(|| self.dice.pick(last).clone())
    }

    /// Mostly one that stands.
    fn some_id(&mut self) -> ClaimId {
        let any = self.any_id();
        match self.known() {
            Some(known) if !self.dice.one_in(5) => known.id,
            _ => any,
        }
    }

    pub(super) fn command(&mut self, queue: &Queue) -> Command {
        self.number += 1;
        let calm = self.mix.calm;
        let action = self.dice.roll(24);
        // Where nobody is known there is little else to do.
        let alone = self.standing.is_empty() && !self.dice.one_in(4);
        match if alone { 0 } else { action } {
            0..10 => Command::Claim(self.claim(queue)),
            10..14 => Command::Renew(self.renew()),
            14..23 if self.mix.votes && !self.dice.one_in(5) => Command::Void(self.void(queue)),
            14..20 => Command::Release(Release {
                id: self.some_id(),
                hand_off: calm || !self.dice.one_in(4),
                settled: calm || self.dice.one_in(3),
                unused: !calm && self.dice.one_in(3),
            }),
            20 if self.mix.rare > 0 && (!calm || self.dice.one_in(3)) => Command::Watch {
                inbox: Inbox::new(self.dice.pick(&INBOXES)).unwrap(),
                ttl: match self.dice.roll(6) {
                    0 => Duration::ZERO,
                    _ => self.dice.below(20 * self.mix.longest_pause),
                },
            },
            21..23 if self.mix.rare > 0 && self.mix.modes[0].capacity() != Capacity::Lock => {
                self.resize(queue)
            }
            23 if !calm && self.dice.one_in(3) => Command::Break {
                by: an_owner(&mut self.dice),
                only: self.dice.one_in(2).then(|| {
                    let holders = queue.look(self.clock).holders;
                    let held: Vec<_> = holders.iter().map(|holder| holder.token).collect();
                    match self.dice.one_in(4) || held.is_empty() {
                        true => Token::from(1),
                        false => *self.dice.pick(&held),
                    }
                }),
            },
            _ => leave(self.some_id(), true, calm),
        }
    }

    /// A claim that does what claims do; `queue` tells the capacity in use.
    pub(super) fn claim(&mut self, queue: &Queue) -> Claim {
        let calm = self.mix.calm;
        let known = self.known().filter(|_| self.dice.one_in(8));
        let (id, inbox) = match known {
            Some(known) => (known.id, known.inbox),
            None => (self.any_id(), an_inbox(&mut self.dice, self.mix.inboxes)),
        };
        let mut mode = *self.dice.pick(&self.mix.modes);
        if let (Capacity::Permits(_), Some(in_use @ Capacity::Permits(_))) =
            (mode.capacity(), queue.look(self.clock).capacity)
            && self.mix.rare > 0
            && !self.dice.one_in(3)
        {
            mode = Mode::new(in_use, mode.weight().min(in_use.units()));
        }
        if self.mix.votes {
            return Claim {
                inbox,
                wait: self.dice.one_in(2),
                owner: an_owner(&mut self.dice),
                note: self.rarely().then(|| a_note(&mut self.dice)),
                proposal: Some(Proposal {
                    token: self.token(queue),
                    ahead: self.dice.below(Duration::from_secs(10)),
                }),
                ..Claim::new(
                    id,
                    Mode::EXCLUSIVE,
                    self.dice.below(Duration::from_secs(30)),
                )
            };
        }
        Claim {
            lease_ttl: self.dice.below(Duration::from_secs(30)),
            waiter_ttl: self.dice.below(Duration::from_secs(10)),
            wait: calm || !self.dice.one_in(4),
            ahead: !calm && self.dice.one_in(5),
            inbox,
            owner: an_owner(&mut self.dice),
            secret: (self.rarely() || self.rarely())
                .then(|| OwnerSecret::from_random(self.dice.roll(2).into())),
            min_hold: if self.rarely() && self.dice.one_in(2) {
                self.dice.below(5 * self.mix.longest_pause)
            } else {
                Duration::ZERO
            },
            note: self.rarely().then(|| a_note(&mut self.dice)),
            runs: !self.dice.one_in(3),
            ..Claim::new(id, mode, Duration::ZERO)
        }
    }

    /// One near those that the key has had, or of now.
    fn token(&mut self, queue: &Queue) -> Token {
        let near = match self.dice.one_in(3) {
            true => self.clock.0 + self.dice.roll(12_000_000),
            false => queue.last_token().get(),
        };
        Token::from((near + self.dice.roll(4)).saturating_sub(1))
    }

    fn void(&mut self, queue: &Queue) -> Void {
        Void {
            up_to: match self.dice.one_in(4) {
                true => Token::NONE,
                false => self.token(queue),
            },
            whose: match self.dice.one_in(6) {
                true => Voided::Key {
                    by: an_owner(&mut self.dice),
                },
                false => Voided::Claim {
                    id: self.some_id(),
                    released: self.dice.one_in(2),
                },
            },
        }
    }

    fn renew(&mut self) -> Renew {
        if !self.rotations.is_empty() && self.rarely() {
            let mut again = self.dice.pick(&self.rotations).clone();
            if let Some(rotate) = &mut again.rotate {
                rotate.version += self.dice.roll(4) / 3;
            }
            return again;
        }
        let any = self.any_id();
        let known = self.known().filter(|_| !self.dice.one_in(5));
        let (renewed, version) = known.map_or((any, 0), |known| (known.id, known.version));
        let mut renew = Renew::new(renewed, self.dice.below(Duration::from_secs(30)));
        renew.downgrade = self.rarely();
        renew.note = self.rarely().then(|| a_note(&mut self.dice));
        if self.rarely() {
            renew.rotate = Some(Rotate {
                to: match self.dice.roll(8) {
                    0 => self.some_id(),
                    // Most likely one that was not used yet.
                    _ => id(self.number + self.mix.ids + self.dice.roll(self.mix.ids)),
                },
                version: version + self.dice.roll(6) / 5,
                adopt: (!self.dice.one_in(3)).then(|| Adopt {
                    inbox: an_inbox(&mut self.dice, self.mix.inboxes),
                    owner: an_owner(&mut self.dice),
                }),
            });
            self.rotations.push(renew.clone());
            let old = self.rotations.len().saturating_sub(3);
            self.rotations.drain(..old);
        }
        renew
    }

    fn resize(&mut self, queue: &Queue) -> Command {
        let wrong = 1 + u32::try_from(self.dice.roll(6)).unwrap();
        let from = match queue.look(self.clock).capacity {
            Some(Capacity::Permits(of)) if !self.dice.one_in(5) => of,
            _ => wrong,
        };
        let to = match self.dice.roll(2) {
            0 => 1 + u32::try_from(self.dice.roll(3)).unwrap(),
            _ => 5,
        };
        Command::Resize { from, to }
    }

    /// Takes in what was answered.
    pub(super) fn learn(&mut self, command: &Command, reply: Reply) {
        match (command, reply) {
            (Command::Claim(claim), Reply::Standing(_)) => self.learn_claim(claim),
            (Command::Renew(renew), Reply::Standing(_)) => {
                let Some(rotate) = &renew.rotate else {
                    return;
                };
                for known in &mut self.standing {
                    if known.id == renew.id {
                        known.id = rotate.to.clone();
                        known.version = rotate.version + 1;
                        if let Some(adopt) = &rotate.adopt {
                            known.inbox.clone_from(&adopt.inbox);
                        }
                    }
                }
            }
            (Command::Claim(Claim { id, .. }), Reply::Gone | Reply::Mismatch { .. })
            | (Command::Renew(Renew { id, .. }), Reply::Gone | Reply::Superseded)
            | (Command::Release(Release { id, .. }), _)
                // Some are asked about once more.
                if !self.dice.one_in(4) =>
            {
                self.standing.retain(|known| known.id != *id);
            }
            _ => {}
        }
    }

    pub(super) fn learn_claim(&mut self, claim: &Claim) {
        if self.standing.iter().all(|known| known.id != claim.id) {
            self.standing.push(Known {
                id: claim.id.clone(),
                version: 0,
                inbox: claim.inbox.clone(),
            });
        }
    }

    /// Lets time pass, or step back.
    pub(super) fn pause(&mut self, queue: &Queue) {
        let (dice, clock) = (&mut self.dice, self.clock);
        self.clock = match dice.roll(48) {
            0 => clock.before(dice.below(Duration::from_secs(100))),
            1 if dice.one_in(2) => clock + dice.below(Duration::from_secs(200)),
            2 if dice.one_in(4) => clock + dice.below(Duration::from_secs(20 * 3600)),
            3..12 => clock,
            // Up to a deadline, to the microsecond.
            12..15 => {
                let look = queue.look(clock);
                let holders = look.holders.iter().map(|holder| holder.claim.deadline);
                let waiters = look.waiters.iter().map(|waiter| waiter.claim.deadline);
                let deadlines: Vec<_> = holders.chain(waiters).collect();
                if deadlines.is_empty() {
                    return;
                }
                let deadline = dice.pick(&deadlines).before(look.at.since(look.clock));
                StoreTime(deadline.0 + dice.roll(3) - 1)
            }
            _ => clock + dice.below(self.mix.longest_pause),
        };
    }
}
