//! What must hold in every state, and how a state is told.

use super::server::What;
use super::{QuorumModel, State};
use crate::model::promise::Promise;

impl QuorumModel {
    pub(super) fn judge(&self, state: &mut State) {
        let valid = |number: &usize| {
            let held = state.clients[*number].held;
            held.is_some_and(|held| held.validity.until() > self.moment(state, *number))
        };
        let relied_on = (0..state.clients.len()).filter(valid).count();
        let alone = relied_on <= 1 || self.horizon.is_none();
        let orphan = self.has_orphan(state);
        state.broken.require(Promise::Exclusion, alone);
        state.broken.require(Promise::Orphan, !orphan);
    }

    /// Whether a server votes for a claim after it has confirmed that it left.
    fn has_orphan(&self, state: &State) -> bool {
        let leaving = state.clients.iter().flat_map(|client| &client.leaving);
        leaving.into_iter().any(|leaving| {
            let open: Vec<_> = leaving.farewell.unconfirmed().collect();
            let mut confirmed = (0..state.servers.len()).filter(|n| !open.contains(n));
            confirmed.any(|n| {
                let server = &state.servers[n];
                server.votes_for(&leaving.id, self.clock(state, n))
            })
        })
    }

    /// A renewal was completed though another bid was, with a higher token, before it
    /// was even sent.
    pub(super) fn judge_renewal(&self, state: &mut State, passed: bool) {
        let forgets = self.faults.losses > 0;
        state.broken.require(Promise::Ended, !passed || forgets);
    }

    /// A renewal says that the lease is gone, while it is valid.
    pub(super) fn judge_loss(&self, state: &mut State, valid: bool) {
        self.seen.note("gone");
        let excused = state.servers.iter().any(|server| server.restarted);
        let timed = self.horizon.is_some();
        let kept = !(valid && timed) || excused;
        state.broken.require(Promise::Kept, kept);
    }

    pub(super) fn story(&self, state: &State) -> String {
        let mut lines = vec![format!("  tick {}", state.ticks)];
        for (number, client) in state.clients.iter().enumerate() {
            let now = self.moment(state, number);
            let stage = match (client.held, &client.asking) {
                (None, None) => "is idle".to_owned(),
                (None, Some(bid)) => format!("bids {}", bid.round.token()),
                (Some(held), _) => {
                    let left = held.validity.remaining(now).as_secs_f64();
                    format!("holds {} for {left:.3} s", held.token)
                }
            };
            lines.push(format!("    client {number} {stage}"));
        }
        for (number, server) in state.servers.iter().enumerate() {
            let vote = match server.holder(self.clock(state, number)) {
                Some(holder) => format!(", votes for {} {}", holder.claim.id_hint, holder.token),
                None => String::new(),
            };
            let (run, last) = (server.run, server.queue.last_token());
            let accepted = format!("accepted {last}{vote}");
            lines.push(format!("    server {number} run {run}: {accepted}"));
        }
        for (at, message) in state.wire.iter().enumerate() {
            let what = match &*message.what {
                What::Ask(command) => format!("asks {command:?}"),
                What::Answer(reply, _) => format!("is answered {reply:?}"),
            };
            let (client, server) = (message.client, message.server);
            let between = format!("client {client} and server {server}");
            lines.push(format!("    under way {at}: {between}: {what}"));
        }
        if !state.broken.is_empty() {
            lines.push(format!("    BROKEN {:?}", state.broken));
        }
        lines.join("\n")
    }
}
