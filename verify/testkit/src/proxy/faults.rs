//! What a test has asked of the network, and what becomes of what passes: decisions, no sockets.

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::resp::{self, Piece, Reply, Splitter};
use super::{Command, Counts, Direction, End, Peers};

/// What all connections of a proxy share.
#[derive(Default)]
pub(super) struct Shared {
    faults: Mutex<Faults>,
    pub(super) counts: watch::Sender<Counts>,
}

impl Shared {
    pub(super) fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().expect("no predicate has panicked")
    }
}

/// What the test has asked for.
#[derive(Default)]
pub(super) struct Faults {
    /// By [`Direction`].
    lanes: [Lane; 2],
    pub(super) isolated: Isolated,
    pub(super) rules: Vec<Rule>,
}

impl Faults {
    pub(super) fn lane(&mut self, direction: Direction) -> &mut Lane {
        &mut self.lanes[direction as usize]
    }

    /// Forgets everything; what is held goes on.
    pub(super) fn clear(&mut self) {
        self.lanes.iter_mut().for_each(Lane::resume);
        *self = Self::default();
    }

    /// Shows a command to all rules and returns what those ask for whose time has come.
    fn consult(&mut self, command: &Command) -> Vec<(Action, Gate)> {
        for rule in &mut self.rules {
            rule.left -= u64::from((rule.matches)(command));
        }
        let due = self.rules.extract_if(.., |rule| rule.left == 0);
        due.map(|rule| (rule.action, rule.trigger)).collect()
    }
}

/// Peers that are out of reach.
#[derive(Clone, Debug, Default)]
pub(super) struct Isolated {
    pub(super) all: bool,
    some: HashSet<IpAddr>,
}

impl Isolated {
    pub(super) fn all() -> Self {
        Self {
            all: true,
            ..Self::default()
        }
    }

    pub(super) fn has(&self, peer: IpAddr) -> bool {
        self.all || self.some.contains(&peer)
    }

    pub(super) fn add(&mut self, peers: Peers) {
        match peers {
            Peers::All => self.all = true,
            Peers::At(peer) => drop(self.some.insert(peer)),
        }
    }

    /// Takes them out, and returns those of them that were in.
    pub(super) fn remove(&mut self, peers: Peers) -> Self {
        match peers {
            Peers::All => std::mem::take(self),
            Peers::At(peer) => Self {
                all: false,
                some: self.some.take(&peer).into_iter().collect(),
            },
        }
    }
}

/// The state of the network in one direction.
#[derive(Default)]
pub(super) struct Lane {
    pub(super) delay: Duration,
    pub(super) black: bool,
    /// What comes from now on is held behind this.
    hold: Option<Gate>,
    /// Everything that something is held behind.
    pub(super) closed: Vec<Gate>,
}

impl Lane {
    pub(super) fn hold(&mut self) {
        if self.hold.is_none() {
            let gate = Gate::default();
            self.hold = Some(gate.clone());
            self.closed.push(gate);
        }
    }

    pub(super) fn resume(&mut self) {
        self.hold = None;
        self.closed.drain(..).for_each(|gate| gate.open());
    }
}

/// Something that bytes wait behind, or a test, until it is opened, once and for all.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(pub(super) Arc<watch::Sender<bool>>);

impl Gate {
    pub(super) fn open(&self) {
        self.0.send_replace(true);
    }

    pub(super) async fn passed(&self) {
        let opened = self.0.subscribe().wait_for(|open| *open).await.map(drop);
        opened.expect("the gate is held by who waits");
    }
}

/// "When the n-th command like this passes, do that."
pub(super) struct Rule {
    pub(super) matches: Box<dyn FnMut(&Command) -> bool + Send>,
    /// How many such commands are still to come, the n-th among them.
    pub(super) left: u64,
    pub(super) action: Action,
    /// Opened when it is done.
    pub(super) trigger: Gate,
}

/// What a rule does to the command that it fits.
pub(super) enum Action {
    /// Nothing.
    Watch,
    /// Holds it, and what follows on the connection, on the way to the server.
    Hold(Gate),
    /// Loses the answers to it and to the following ones, so many in all, then the connection.
    SwallowReplies(u64),
    /// Loses it, then the connection.
    SwallowRequest,
}

/// Something on its way to one end of a connection.
pub(super) struct Parcel {
    pub(super) load: Load,
    pub(super) due: Option<Instant>,
    pub(super) gate: Option<Gate>,
}

/// What a parcel holds.
pub(super) enum Load {
    /// Bytes to deliver.
    Bytes(Vec<u8>),
    /// The other end has closed.
    Close,
}

/// The connection has come to its end.
pub(super) struct Over;

/// What one connection has carried so far, and what is to become of the rest.
pub(super) struct Conversation {
    peer: IpAddr,
    shared: Arc<Shared>,
    /// By [`Direction`].
    to: [mpsc::UnboundedSender<Parcel>; 2],
    /// By the [`End`] that speaks.
    heard: [Splitter; 2],
    /// By [`Direction`]: bytes have been lost on that way, and what comes later cannot be read.
    torn: [bool; 2],
    /// How many commands have been passed on.
    asked: u64,
    /// Those without their answer.
    unanswered: VecDeque<Unanswered>,
    subscriber: bool,
    /// Nothing that the client still sends is passed on.
    deaf: bool,
    loss: Option<Loss>,
    /// To be closed, and the event to tell, as soon as nothing is unanswered.
    closing: Option<Gate>,
}

/// A command that has been passed on.
struct Unanswered {
    number: u64,
    /// How many frames answer it: one, unless it subscribes to several channels.
    frames: usize,
    subscription: bool,
}

/// Answers to be lost: to these commands of the connection.
struct Loss {
    first: u64,
    last: u64,
    trigger: Gate,
}

impl Conversation {
    pub(super) fn new(
        peer: IpAddr,
        shared: Arc<Shared>,
        to: [mpsc::UnboundedSender<Parcel>; 2],
    ) -> Self {
        Self {
            peer,
            shared,
            to,
            heard: [End::Client, End::Server].map(Splitter::new),
            torn: [false; 2],
            asked: 0,
            unanswered: VecDeque::new(),
            subscriber: false,
            deaf: false,
            loss: None,
            closing: None,
        }
    }

    /// Bytes have come from one end.
    pub(super) fn came(&mut self, from: End, bytes: &[u8]) {
        let pieces = self.heard[from as usize].split(bytes);
        // Under one lock, so that a fault that begins on an event (which happens in here) affects
        // nothing that has come before.
        let shared = Arc::clone(&self.shared);
        let faults = &mut *shared.faults();
        for piece in pieces {
            match (piece, from) {
                (Piece::Frame(frame), End::Client) => self.request(faults, frame),
                (Piece::Frame(frame), End::Server) => self.reply(faults, frame),
                (Piece::Raw(bytes), _) => {
                    self.send(faults, from.speaks(), Load::Bytes(bytes), None);
                }
            }
        }
    }

    /// One end has closed. Without another end to tell, the connection is over.
    pub(super) fn closed(&mut self, from: End) -> Result<(), Over> {
        if self.to[from.speaks() as usize].is_closed() {
            return Err(Over);
        }
        let shared = Arc::clone(&self.shared);
        self.send(&mut shared.faults(), from.speaks(), Load::Close, None);
        Ok(())
    }

    fn request(&mut self, faults: &mut Faults, frame: Vec<u8>) {
        let command = Command {
            arguments: resp::strings(&frame),
        };
        if self.deaf {
            return;
        }
        // A server takes an empty command for nothing, and answers nothing.
        let Some(name) = command.arguments.first() else {
            return self.send(faults, Direction::ToServer, Load::Bytes(frame), None);
        };
        let number = self.asked;
        if self.loss.as_ref().is_some_and(|loss| number > loss.last) {
            self.deaf = true;
            return;
        }

        self.shared.counts.send_modify(|it| it.requests += 1);
        let mut gate = None;
        for (action, trigger) in faults.consult(&command) {
            match action {
                Action::Watch => trigger.open(),
                Action::Hold(closed) => {
                    gate = Some(closed);
                    trigger.open();
                }
                Action::SwallowReplies(count) => {
                    self.loss = Some(Loss {
                        first: number,
                        last: number + count - 1,
                        trigger,
                    });
                }
                Action::SwallowRequest => {
                    self.deaf = true;
                    self.closing = Some(trigger);
                    return self.close_when_answered(faults);
                }
            }
        }

        // The data of a server is announced like a string, and does not end like one.
        if command.is("PSYNC") || command.is("SYNC") {
            self.heard[End::Server as usize].opaque = true;
        }
        let subscription = resp::is_subscription(name);
        let channels = command.arguments.len() - 1;
        let frames = if subscription { channels.max(1) } else { 1 };
        self.subscriber |= subscription;
        self.asked += 1;
        self.unanswered.push_back(Unanswered {
            number,
            frames,
            subscription,
        });
        self.send(faults, Direction::ToServer, Load::Bytes(frame), gate);
    }

    fn reply(&mut self, faults: &mut Faults, frame: Vec<u8>) {
        let answered = self.answered(Reply::of(&frame, self.subscriber));
        let Some(Loss { first, last, .. }) = self.loss else {
            self.send(faults, Direction::ToClient, Load::Bytes(frame), None);
            return self.close_when_answered(faults);
        };
        // Answers that come before those to be lost are still owed; so are pushes among them.
        let oldest = self.unanswered.front();
        let oldest = oldest.map_or(self.asked, |oldest| oldest.number);
        let lost = answered.is_some_and(|number| number >= first);
        if !lost && oldest <= first {
            self.send(faults, Direction::ToClient, Load::Bytes(frame), None);
        }
        if answered == Some(last) {
            self.send(faults, Direction::ToClient, Load::Close, None);
            self.deaf = true;
            if let Some(loss) = self.loss.take() {
                loss.trigger.open();
            }
        }
        self.close_when_answered(faults);
    }

    /// Which command a frame answers, if any.
    fn answered(&mut self, reply: Reply) -> Option<u64> {
        let oldest = self.unanswered.front_mut()?;
        let number = oldest.number;
        let fits = match reply {
            Reply::Push => false,
            Reply::Confirmation => oldest.subscription,
            Reply::Answer => !oldest.subscription,
            Reply::Error => {
                oldest.frames = 1;
                true
            }
        };
        if !fits {
            return None;
        }
        oldest.frames -= 1;
        if oldest.frames == 0 {
            self.unanswered.pop_front();
            self.shared.counts.send_modify(|counts| counts.answers += 1);
        }
        Some(number)
    }

    fn close_when_answered(&mut self, faults: &mut Faults) {
        if self.unanswered.is_empty()
            && let Some(trigger) = self.closing.take()
        {
            self.send(faults, Direction::ToClient, Load::Close, None);
            trigger.open();
        }
    }

    fn send(&mut self, faults: &mut Faults, direction: Direction, load: Load, gate: Option<Gate>) {
        let way = direction as usize;
        let (parcels, torn) = (&self.to[way], &mut self.torn[way]);
        let isolated = faults.isolated.has(self.peer);
        let lane = faults.lane(direction);
        let black = lane.black || isolated;
        *torn |= black;
        if black || (*torn && matches!(load, Load::Bytes(_))) {
            return;
        }
        let due = (!lane.delay.is_zero()).then(|| Instant::now() + lane.delay);
        let gate = gate.or_else(|| lane.hold.clone());
        // An end that is gone receives nothing any more.
        let _ = parcels.send(Parcel { load, due, gate });
    }
}
