//! The process that a server is, and the replica that may take its place.

use std::hash::{Hash, Hasher};

use leasehold_core::{Closed, Marker, Now, Queue, SetTerms, StoreTime};

use super::wire::What;
use super::{ClientsModel, START, State};

/// What a server is besides its queue.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Site {
    marker: Option<Marker>,
    /// Its run id.
    run: u8,
    /// What the replica has.
    replica: (Queue, Option<Marker>),
}

impl Site {
    /// The data goes, and the marker with it.
    pub(super) fn forget(&mut self) {
        self.marker = None;
    }

    /// Whether it has ever granted nothing for a while.
    pub(super) fn was_closed(&self) -> bool {
        let marker = self.marker.as_ref();
        marker.is_some_and(|marker| marker.until > StoreTime(START))
    }

    pub(super) fn hash_all<H: Hasher>(&self, clock: StoreTime, state: &mut H) {
        (&self.marker, self.run, &self.replica.1).hash(state);
        self.replica.0.hash_essence(clock, state);
    }
}

impl ClientsModel {
    fn terms(&self) -> Option<SetTerms> {
        Some(SetTerms {
            set: "server".to_owned(),
            quarantine: self.quarantine?,
        })
    }

    /// A server that is known to be new, and a replica that knows as much.
    pub(super) fn site(&self) -> Site {
        let mut marker = None;
        if let Some(terms) = self.terms() {
            Marker::init(&mut marker, "0", &terms, StoreTime(START));
        }
        Site {
            replica: (Queue::default(), marker.clone()),
            marker,
            run: 0,
        }
    }

    /// The time of a step, and whether the server grants anything.
    pub(super) fn now(&self, state: &mut State) -> Now {
        let clock = state.clock;
        let Some(terms) = self.terms() else {
            return clock.into();
        };
        let run = state.site.run.to_string();
        match Marker::admit(&mut state.site.marker, &run, &terms, clock) {
            Err(Closed::Quarantined { left }) => {
                self.seen.note("quarantined");
                Now {
                    closed: left,
                    ..Now::from(clock)
                }
            }
            _ => clock.into(),
        }
    }

    pub(super) fn restart(&self, state: &mut State) {
        state.left.restarts -= 1;
        state.site.run += 1;
        Self::break_connections(state);
    }

    pub(super) fn copy(&self, state: &mut State) {
        state.left.copies -= 1;
        state.site.replica = (state.queue.clone(), state.site.marker.clone());
    }

    /// What the replica does not have is forgotten. The former primary takes no more
    /// steps: that is for the settings around it to see to.
    pub(super) fn fail_over(&self, state: &mut State) {
        state.left.failovers -= 1;
        state.site.run += 1;
        (state.queue, state.site.marker) = state.site.replica.clone();
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
