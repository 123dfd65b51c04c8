//! The servers, and the network before them.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Claim, ClaimId, Closed, Command, Holder, Now, Outcome, Queue, Reply, ServerMarker, SetTerms,
    StoreTime, Token,
};

use super::{QuorumModel, START, State};

/// What an answer belongs to: the number of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Tag {
    Asking(u8, Token),
    /// Of which attempt.
    Farewell(u8),
}

#[derive(Debug, PartialEq, Hash)]
pub(super) enum What {
    Ask(Command),
    /// And the server's time.
    Answer(Reply, StoreTime),
}

/// Something under way between a client and a process of a server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    pub(super) client: usize,
    pub(super) server: usize,
    /// A connection does not outlive the process.
    pub(super) run: u8,
    pub(super) tag: Tag,
    pub(super) what: Arc<What>,
}

/// One server: the core's rules, and its process.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Server {
    pub(super) queue: Queue,
    pub(super) marker: Option<ServerMarker>,
    pub(super) run: u8,
    /// How far its clock has run on without time passing, in ticks.
    pub(super) ahead: u64,
    /// Whether it has ever lost its data or its connections.
    pub(super) restarted: bool,
}

impl Server {
    pub(super) fn new(model: &QuorumModel) -> Self {
        let mut server = Self::default();
        // It is known to be new.
        let run = server.run_id();
        ServerMarker::init(&mut server.marker, &run, &terms(model), StoreTime(START));
        server
    }

    fn run_id(&self) -> String {
        self.run.to_string()
    }

    /// Whom it votes for.
    pub(super) fn holder(&self, clock: StoreTime) -> Option<Holder> {
        self.queue.look(clock).holders.into_iter().next()
    }

    pub(super) fn votes_for(&self, id: &ClaimId, clock: StoreTime) -> bool {
        let holder = self.holder(clock);
        holder.is_some_and(|holder| holder.claim.id_hint == id.to_string())
    }

    /// Whether a request could still change something: it is tried where nobody else has
    /// the vote, by the rules themselves. Bars only rise, so what they refuse then they
    /// refuse for good.
    fn may_accept(&self, claim: &Claim, clock: StoreTime) -> bool {
        // By then whoever holds has lapsed.
        let later = clock + Duration::from_secs(1 << 20);
        let asked = Command::Claim(claim.clone());
        let tried = self.queue.clone().apply(&asked, later);
        tried.reply.has_token() || self.votes_for(&claim.id, clock)
    }

    pub(super) fn restart(&mut self, lose: bool) {
        self.run += 1;
        self.restarted = true;
        if lose {
            self.queue = Queue::default();
            self.marker = None;
        }
    }
}

fn terms(model: &QuorumModel) -> SetTerms {
    let (set, quarantine) = ("set".to_owned(), model.quarantine);
    SetTerms { set, quarantine }
}

impl QuorumModel {
    pub(super) fn arrive(&self, state: &mut State, message: &Message) {
        let server = message.server;
        let command = match &*message.what {
            What::Ask(command) => command,
            What::Answer(reply, at) => return self.hear(state, message, *reply, *at),
        };
        let (now, it) = (self.clock(state, server), &mut state.servers[server]);
        let closed = self.admit(it, now);
        let now = Now {
            closed,
            ..Now::from(now)
        };
        let lacked = it.holder(now.clock).is_none();
        let Outcome { reply, at, .. } = it.queue.apply(command, now);
        if let Tag::Farewell(_) = message.tag {
            // Its answer changes nothing but what is checked, so it need not travel.
            return self.hear(state, message, reply, at);
        }
        if let Reply::Quarantined { .. } = reply {
            self.seen.note("quarantined");
        }
        let client = &state.clients[message.client];
        let renews = client.held.is_some() && client.awaits(server, message.tag);
        if renews && lacked && reply.has_token() {
            self.seen.note("repaired");
        }
        let answer = Message {
            what: Arc::new(What::Answer(reply, at)),
            ..message.clone()
        };
        state.wire.push(answer);
    }

    /// For how long it grants nothing.
    fn admit(&self, server: &mut Server, now: StoreTime) -> Duration {
        let run = server.run_id();
        match ServerMarker::admit(&mut server.marker, &run, &terms(self), now) {
            Err(Closed::Quarantined { left }) => left,
            _ => Duration::ZERO,
        }
    }

    /// Drops what would change nothing wherever it arrives.
    pub(super) fn prune(&self, state: &mut State) {
        let clocks: Vec<_> = (0..state.servers.len())
            .map(|n| self.clock(state, n))
            .collect();
        let (servers, clients) = (&state.servers, &state.clients);
        state.wire.retain(|message| {
            let server = &servers[message.server];
            let awaited = clients[message.client].awaits(message.server, message.tag);
            let counts = match &*message.what {
                What::Answer(..) => awaited,
                What::Ask(Command::Claim(claim)) => {
                    awaited || server.may_accept(claim, clocks[message.server])
                }
                What::Ask(_) => true,
            };
            counts && server.run == message.run
        });
    }
}
