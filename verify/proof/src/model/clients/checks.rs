//! What must hold in every state, and how a state is told.

use leasehold_core::{ClaimMachine, Phase};

use super::wire::What;
use super::{ClientsModel, State};
use crate::model::promise::Promise;
use crate::model::queue::fit;

impl ClientsModel {
    /// "While a lease is valid by its client's clock, nobody else's is."
    pub(super) fn judge(&self, state: &mut State) {
        let mut relied_on = Vec::new();
        for (number, client) in state.clients.iter().enumerate() {
            let claim = self.claim(state, number).filter(|_| !client.adopted);
            let until = claim.map(ClaimMachine::valid_until);
            if until.is_some_and(|until| until > self.moment(state, number)) {
                relied_on.push(self.mode(state, number));
            }
        }
        if relied_on.len() > 1 {
            self.seen.note("two hold together");
        }
        if self.promises.contains(&Promise::Exclusion) {
            // All want the same kind of key.
            let capacity = relied_on.first().map(|mode| mode.capacity());
            let fits = fit(&relied_on, capacity);
            state.broken.require(Promise::Exclusion, fits);
        }
    }

    pub(super) fn story(&self, state: &State) -> String {
        let mut lines = vec![format!("  tick {}", state.ticks)];
        for (number, client) in state.clients.iter().enumerate() {
            let now = self.moment(state, number);
            let stage = match self.claim(state, number) {
                _ if client.dead => "is dead".to_owned(),
                None => "is idle".to_owned(),
                Some(claim) if claim.phase() != Phase::Held => match claim.behind() {
                    Some(ahead) => format!("waits behind {ahead}"),
                    None => "waits".to_owned(),
                },
                Some(claim) => {
                    let left = claim.valid_until().since(now).as_secs_f64();
                    let token = claim.token().unwrap_or_default();
                    format!("holds {token} for {left:.3} s")
                }
            };
            lines.push(format!("    client {number} {stage}"));
        }
        let seen = state.queue.look(state.clock);
        for holder in seen.holders {
            let left = holder.claim.deadline.since(seen.at).as_secs_f64();
            let whose = holder.claim.owner.pid;
            let token = holder.token;
            lines.push(format!("    server: {whose} holds {token} for {left:.3} s"));
        }
        for (at, message) in state.wire.iter().enumerate() {
            let what = match &*message.what {
                What::Request(_, command) => format!("asks {command:?}"),
                What::Answer(_, reply, _) => format!("is answered {reply:?}"),
                What::Push(event, _) => format!("is told {event:?}"),
            };
            let client = message.client;
            lines.push(format!("    under way {at}: client {client} {what}"));
        }
        if !state.broken.is_empty() {
            lines.push(format!("    BROKEN {:?}", state.broken));
        }
        lines.join("\n")
    }
}
