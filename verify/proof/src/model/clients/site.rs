//! The process that a server is, and the replica that may take its place.

use std::hash::{Hash, Hasher};

use leasehold_core::{Closed, Now, Queue, ServerMarker, SetTerms, StoreTime, Token};

use super::wire::What;
use super::{ClientsModel, START, State};

/// What a server is besides its queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Site {
    marker: Option<ServerMarker>,
    /// Its run id.
    run: u8,
    /// The last token of all keys, where the server keeps one and drops what is idle.
    last: Option<Token>,
    /// What the replica has.
    replica: (Queue, Option<ServerMarker>, Option<Token>),
}

impl Site {
    /// The data goes, and the marker with it.
    pub(super) fn forget(&mut self) {
        self.marker = None;
        self.last = self.last.map(|_| Token::NONE);
    }

    /// Whether it has ever granted nothing for a while.
    pub(super) fn was_closed(&self) -> bool {
        let marker = self.marker.as_ref();
        marker.is_some_and(|marker| marker.until > StoreTime(START))
    }

    pub(super) fn hash_all<H: Hasher>(&self, clock: StoreTime, state: &mut H) {
        let last = |last: Option<Token>| last.map(|last| last.get().saturating_sub(clock.0));
        (&self.marker, self.run, &self.replica.1).hash(state);
        (last(self.last), last(self.replica.2)).hash(state);
        self.replica.0.canonical_hash(clock, state);
    }
}

impl ClientsModel {
    fn terms(&self) -> Option<SetTerms> {
        let (set, quarantine) = ("server".to_owned(), self.quarantine?);
        Some(SetTerms { set, quarantine })
    }

    /// A server that is known to be new, and a replica that knows as much.
    pub(super) fn site(&self) -> Site {
        let mut marker = None;
        if let Some(terms) = self.terms() {
            ServerMarker::init(&mut marker, "0", &terms, StoreTime(START));
        }
        let last = self.counts_all.then_some(Token::NONE);
        Site {
            replica: (Queue::default(), marker.clone(), last),
            marker,
            run: 0,
            last,
        }
    }

    /// The time of a step, and whether the server grants anything.
    pub(super) fn now(&self, state: &mut State) -> Now {
        let clock = state.clock;
        let open = Now {
            last_token: state.site.last,
            ..Now::from(clock)
        };
        let Some(terms) = self.terms() else {
            return open;
        };
        let run = state.site.run.to_string();
        match ServerMarker::admit(&mut state.site.marker, &run, &terms, clock) {
            Err(Closed::Quarantined { left }) => {
                self.seen.note("quarantined");
                Now {
                    closed: left,
                    ..open
                }
            }
            _ => open,
        }
    }

    /// What the server keeps after a step.
    pub(super) fn keep(state: &mut State) {
        let Some(last) = &mut state.site.last else {
            return;
        };
        *last = (*last).max(state.queue.last_token());
        if state.queue.is_spent() {
            state.queue = Queue::default();
        }
    }

    pub(super) fn restart(&self, state: &mut State) {
        state.site.run += 1;
        Self::break_connections(state);
    }

    pub(super) fn copy(&self, state: &mut State) {
        let Site { marker, last, .. } = &state.site;
        state.site.replica = (state.queue.clone(), marker.clone(), *last);
    }

    /// What the replica does not have is forgotten. The former primary takes no more
    /// steps: that is for the settings around it to see to.
    pub(super) fn fail_over(&self, state: &mut State) {
        state.site.run += 1;
        (state.queue, state.site.marker, state.site.last) = state.site.replica.clone();
        Self::break_connections(state);
        // It is not promoted in the moment in which the primary ends.
        self.pass(state);
    }

    /// What was under way to the former process does not reach the new one.
    fn break_connections(state: &mut State) {
        for client in &mut state.clients {
            client.connected = false;
        }
        let reaches = |what: &What| !matches!(what, What::Request(..));
        state.wire.retain(|message| reaches(&message.what));
    }
}
