//! A few clients at one key, each with one claim at a time; and what the tests of all kinds import.

pub(crate) use proptest::prelude::*;

pub(crate) use crate::common::*;

pub(crate) const CLIENTS: usize = 6;
pub(crate) const LEASE: Duration = Duration::from_secs(10);

pub(crate) fn config() -> ProptestConfig {
    crate::common::config(300, 0x1ea5_e401d)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Join,
    Renew,
    Release,
    /// The client dies, and the store knows.
    Die,
    Downgrade,
    Note,
    Rotate,
    /// The next client takes the claim over.
    GiveAway,
    Break,
    /// Of a semaphore, to so many.
    Resize(u32),
    /// Nobody listens at the client's inbox.
    Unheard,
    /// This client also wants to hear of the first holder.
    Watch,
}

/// So many of these.
macro_rules! verbs {
    ($($verb:ident $(($to:expr))?)*) => { &[$(Verb::$verb $(($to))?),*] };
}
pub(crate) use verbs;

#[derive(Debug, Clone)]
pub(crate) struct Move {
    pub(crate) who: usize,
    pub(crate) verb: Verb,
    /// How long nothing happens before.
    pause: Duration,
}

/// Scripts of these verbs; one that is named twice happens twice as often.
pub(crate) fn script(verbs: &[Verb]) -> impl Strategy<Value = Vec<Move>> + use<> {
    let pause = prop_oneof![2 => Just(0), 4 => 1_u64..1_500, 1 => 1_500_u64..12_000];
    let verb = prop::sample::select(verbs.to_vec());
    let one = (0..CLIENTS, verb, pause).prop_map(|(who, verb, pause)| Move {
        who,
        verb,
        pause: Duration::from_millis(pause),
    });
    prop::collection::vec(one, 1..60)
}

pub(crate) fn id(n: usize) -> ClaimId {
    ClaimId::new(format!("c{n:05}secret")).unwrap()
}

pub(crate) fn inbox(n: usize) -> Inbox {
    Inbox::from_random(n as u64)
}

/// A claim of client `n` by that id, which waits.
pub(crate) fn claim(n: usize, id: ClaimId, mode: Mode) -> Claim {
    Claim {
        inbox: Some(inbox(n)),
        owner: ClientInfo::new("host", u32::try_from(n).unwrap(), None),
        ..Claim::new(id, mode, LEASE)
    }
}

pub(crate) fn renew(id: ClaimId) -> Command {
    Command::Renew(Renew::new(id, LEASE))
}

pub(crate) fn rotate(id: ClaimId, to: ClaimId, version: u64, adopt: Option<Adopt>) -> Command {
    Command::Renew(Renew {
        rotate: Some(Rotate { to, version, adopt }),
        ..Renew::new(id, LEASE)
    })
}

pub(crate) fn adopt(n: usize) -> Adopt {
    Adopt {
        inbox: Some(inbox(n)),
        owner: ClientInfo::new("host", u32::try_from(n).unwrap(), None),
    }
}

/// The claim that a client thinks it has.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) id: ClaimId,
    pub(crate) version: u64,
}

pub(crate) struct Cast {
    pub(crate) queue: Queue,
    pub(crate) clock: StoreTime,
    pub(crate) parts: Vec<Option<Part>>,
    /// What a client asks for.
    wants: fn(usize) -> Claim,
    made: usize,
}

impl Cast {
    pub(crate) fn new(wants: fn(usize) -> Claim) -> Self {
        Self {
            queue: Queue::default(),
            clock: StoreTime(1_700_000_000_000_000),
            parts: vec![None; CLIENTS],
            wants,
            made: 0,
        }
    }

    pub(crate) fn look(&self) -> Snapshot {
        self.queue.look(self.clock)
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.clock = self.clock + time;
    }

    pub(crate) fn apply(&mut self, command: &Command) -> Outcome {
        self.queue.apply(command, self.clock)
    }

    /// A claim that does not wait, of somebody who is not of the cast.
    pub(crate) fn stranger() -> Command {
        Command::Claim(Claim {
            wait: false,
            ..Claim::new(ClaimId::from_random(u128::MAX), Mode::EXCLUSIVE, LEASE)
        })
    }

    /// Whether somebody else would be granted at once.
    pub(crate) fn is_free(&self) -> bool {
        let mut probed = self.queue.clone();
        probed.apply(&Self::stranger(), self.clock).reply.is_grant()
    }

    /// The command of a move, if the client can make it.
    pub(crate) fn command(&mut self, step: &Move) -> Option<Command> {
        self.pass(step.pause);
        let who = step.who;
        Some(match step.verb {
            Verb::Break => break_all(),
            Verb::Die => Command::Bury {
                inboxes: vec![inbox(who)],
            },
            Verb::Resize(to) => match self.look().capacity? {
                Capacity::Permits(from) => Command::Resize { from, to },
                Capacity::Lock => return None,
            },
            Verb::Unheard => {
                let holders = self.look().holders.into_iter();
                let granted = holders.map(|h| (h.claim.arrival, Duration::ZERO));
                Command::Unheard {
                    silent: vec![inbox(who)],
                    granted: granted.collect(),
                    passed: Vec::new(),
                }
            }
            Verb::Watch => Command::Watch {
                inbox: inbox(who),
                ttl: 2 * LEASE,
            },
            _ => return self.command_of_claim(step),
        })
    }

    /// The same of a move of the client's claim.
    fn command_of_claim(&mut self, step: &Move) -> Option<Command> {
        let who = step.who;
        let Some(part) = self.parts[who].clone() else {
            return (step.verb == Verb::Join).then(|| {
                let id = self.fresh();
                self.parts[who] = Some(Part {
                    id: id.clone(),
                    version: 0,
                });
                Command::Claim(but((self.wants)(who), |it| it.id = id))
            });
        };
        let next = (who + 1) % CLIENTS;
        let plain = Renew::new(part.id.clone(), LEASE);
        Some(match step.verb {
            Verb::Renew => Command::Renew(plain),
            Verb::Release => release(part.id),
            Verb::Note => Command::Renew(Renew {
                note: Some(Note::new(format!("{}", self.made)).unwrap()),
                ..plain
            }),
            // Nobody asks for it before holding.
            Verb::Downgrade if self.is_held(&part.id) => Command::Renew(Renew {
                downgrade: true,
                ..plain
            }),
            Verb::Rotate => rotate(part.id, self.fresh(), part.version, None),
            Verb::GiveAway if self.parts[next].is_none() => {
                rotate(part.id, self.fresh(), part.version, Some(adopt(next)))
            }
            _ => return None,
        })
    }

    /// Makes a move, and lets the client learn from the answer.
    pub(crate) fn play(&mut self, step: &Move) -> Option<(Command, Outcome)> {
        let command = self.command(step)?;
        let outcome = self.apply(&command);
        self.learn(step, &command, &outcome.reply);
        Some((command, outcome))
    }

    pub(crate) fn learn(&mut self, step: &Move, command: &Command, reply: &Reply) {
        let who = step.who;
        match (command, reply) {
            (Command::Renew(renew), Reply::Standing(_)) => {
                if let Some(rotate) = &renew.rotate {
                    self.parts[who] = None;
                    let holder = (who + usize::from(rotate.adopt.is_some())) % CLIENTS;
                    self.parts[holder] = Some(Part {
                        id: rotate.to.clone(),
                        version: rotate.version + 1,
                    });
                }
            }
            (Command::Claim(_), Reply::Standing(_)) => {}
            (Command::Claim(_) | Command::Renew(_) | Command::Release(_), _)
            | (Command::Bury { .. }, _) => self.parts[who] = None,
            _ => {}
        }
    }

    fn fresh(&mut self) -> ClaimId {
        self.made += 1;
        id(self.made)
    }

    /// Whether the claim with this id holds.
    pub(crate) fn is_held(&self, id: &ClaimId) -> bool {
        let (hint, holders) = (id.to_string(), self.look().holders);
        holders.iter().any(|h| h.claim.id_hint == hint)
    }
}
