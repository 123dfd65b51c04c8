use std::hash::{Hash, Hasher};
use std::sync::Arc;

use leasehold_core::{Command, Event, Reply, StoreTime};

use super::{ClientsModel, State};
use crate::model::checker::hash_of;

/// Something under way between a client and the server.
#[derive(Debug, Clone, PartialEq, Hash)]
pub(super) struct Message {
    pub(super) client: usize,
    pub(super) epoch: u64,
    pub(super) what: Arc<What>,
}

#[derive(Debug, PartialEq, Hash)]
pub(super) enum What {
    /// What the client asks; the number of the request, unless nobody waits for an answer.
    Request(Option<u8>, Command),
    /// An answer, to which request, and the server's time of the step.
    Answer(u8, Reply, StoreTime),
    /// A push, and the server's time of the step.
    Push(Event, StoreTime),
}

/// The order in which messages were sent says nothing: any may come next.
pub(super) fn hash_all<H: Hasher>(wire: &[Message], state: &mut H) {
    let each = wire.iter().map(hash_of);
    each.fold(0_u64, u64::wrapping_add).hash(state);
}

impl State {
    pub(super) fn put_on_wire(&mut self, client: usize, epoch: u64, what: What) {
        self.wire.push(Message {
            client,
            epoch,
            what: Arc::new(what),
        });
    }
}

impl ClientsModel {
    /// Drops what would change nothing wherever it arrives.
    pub(super) fn prune(&self, state: &mut State) {
        let clients = &state.clients;
        state.wire.retain(|message| {
            let client = &clients[message.client];
            let idle = client.is_idle();
            match *message.what {
                What::Request(..) => true,
                What::Answer(serial, ..) => {
                    let pending = client.pending.iter().any(|p| p.serial == serial);
                    let mut leaving = client.departures.iter();
                    let waited_for = pending || leaving.any(|of| of.serial == serial);
                    waited_for && message.epoch == client.epoch && !client.dead
                }
                What::Push(..) => !client.dead && (!idle || client.attempts > 0),
            }
        });
    }
}
