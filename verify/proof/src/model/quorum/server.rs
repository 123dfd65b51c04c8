//! The servers, and the network before them.

use std::sync::Arc;

use leasehold_core::quorum::{Acquire, Extend, Node, Part, Vote};
use leasehold_core::{Marker, SetTerms, StoreTime};

use super::{QuorumModel, START, State};

/// What an answer belongs to: the number of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Tag {
    Bid(u8, leasehold_core::Token),
    Renewal(u8),
    /// Of which attempt.
    Farewell(u8),
}

#[derive(Debug, PartialEq, Hash)]
pub(super) enum What {
    Acquire(Acquire),
    Extend(Extend),
    Release(Part),
    Answer(Vote),
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
#[derive(Debug, Clone, PartialEq, Hash)]
pub(super) struct Server {
    pub(super) node: Node,
    marker: Option<Marker>,
    pub(super) run: u8,
    /// How far its clock has run on without time passing, in ticks.
    pub(super) ahead: u64,
    /// Whether it has ever lost its data or its connections.
    pub(super) restarted: bool,
}

impl Server {
    pub(super) fn new(model: &QuorumModel) -> Self {
        let mut server = Self {
            node: Node::default(),
            marker: None,
            run: 0,
            ahead: 0,
            restarted: false,
        };
        // It is known to be new.
        let run = server.run_id();
        Marker::init(&mut server.marker, &run, &terms(model), StoreTime(START));
        server
    }

    fn run_id(&self) -> String {
        self.run.to_string()
    }

    /// Whether a request could still change something: it is tried where nobody else has
    /// the vote, by the rules themselves. Bars only rise, so what they refuse then they
    /// refuse for good.
    fn may_accept(&self, ask: &Acquire) -> bool {
        let mut node = self.node.clone();
        node.hold = None;
        let before = node.clone();
        node.acquire(ask, StoreTime(START), |_, _| false);
        node != before
            || self
                .node
                .hold
                .as_ref()
                .is_some_and(|hold| hold.id == ask.id)
    }

    pub(super) fn restart(&mut self, lose: bool) {
        self.run += 1;
        self.restarted = true;
        if lose {
            self.node = Node::default();
            self.marker = None;
        }
    }
}

fn terms(model: &QuorumModel) -> SetTerms {
    SetTerms {
        set: "set".to_owned(),
        quarantine: model.quarantine,
    }
}

impl QuorumModel {
    pub(super) fn arrive(&self, state: &mut State, message: &Message) {
        let now = self.clock(state, message.server);
        let server = &mut state.servers[message.server];
        let vote = match &*message.what {
            What::Answer(vote) => {
                return self.hear(state, message.client, message.server, message.tag, *vote);
            }
            What::Acquire(ask) => match self.admit(server, now) {
                Ok(()) => server.node.acquire(ask, now, |_, _| false),
                Err(vote) => vote,
            },
            What::Extend(ask) => {
                let votes = server.node.votes_for(&ask.vote.id, ask.vote.token, now);
                match self.admit(server, now) {
                    Err(vote) if !votes => vote,
                    _ => server.node.extend(ask, now, |_, _| false),
                }
            }
            What::Release(part) => {
                let vote = server.node.release(part, now, |_, _| false);
                // Its answer changes nothing but what is checked, so it need not travel.
                return self.hear(state, message.client, message.server, message.tag, vote);
            }
        };
        if let Vote::Quarantined { .. } = vote {
            self.seen.note("quarantined");
        }
        let answer = Message {
            what: Arc::new(What::Answer(vote)),
            ..message.clone()
        };
        state.wire.push(answer);
    }

    fn admit(&self, server: &mut Server, now: StoreTime) -> Result<(), Vote> {
        let run = server.run_id();
        Marker::admit(&mut server.marker, &run, &terms(self), now).map_err(Vote::from)
    }

    /// Drops what would change nothing wherever it arrives.
    pub(super) fn prune(state: &mut State) {
        let (servers, clients) = (&state.servers, &state.clients);
        state.wire.retain(|message| {
            let server = &servers[message.server];
            let awaited = clients[message.client].awaits(message.server, message.tag);
            let counts = match &*message.what {
                What::Answer(_) => awaited,
                What::Acquire(ask) => awaited || server.may_accept(ask),
                What::Extend(ask) => awaited || server.may_accept(&ask.vote),
                What::Release(_) => true,
            };
            counts && server.run == message.run
        });
    }
}
