//! Servers are alike: which of them has done what says nothing. So a state is hashed as
//! the clients, and as a set of servers, each with what was heard of it and what is under
//! way there.

use std::hash::{Hash, Hasher};

use super::{Client, State};
use crate::model::checker::{hash_of, hasher};

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.ticks, self.left, &self.completed, self.broken).hash(state);
        for client in &self.clients {
            client.hash_own(state);
        }
        let servers = (0..self.servers.len()).map(|server| self.hash_of_server(server));
        servers.fold(0_u64, u64::wrapping_add).hash(state);
    }
}

impl State {
    fn hash_of_server(&self, server: usize) -> u64 {
        let mut hasher = hasher();
        let it = &self.servers[server];
        (it.run, it.ahead, it.restarted, &it.marker).hash(&mut hasher);
        it.queue.hash_votes(&mut hasher);
        for client in &self.clients {
            client.hash_heard(server, &mut hasher);
        }
        // In which order messages were sent says nothing either.
        let here = self.wire.iter().filter(|message| message.server == server);
        let each = here.map(|it| hash_of(&(it.client, it.run, it.tag, &it.what)));
        each.fold(0_u64, u64::wrapping_add).hash(&mut hasher);
        hasher.finish()
    }
}

impl Client {
    /// All but what single servers have said.
    fn hash_own<H: Hasher>(&self, state: &mut H) {
        (self.attempts, self.begun, self.number, self.seen).hash(state);
        let held = self.held.map(|held| (held.token, held.validity));
        (held, self.asking.is_some()).hash(state);
        if let Some(asking) = &self.asking {
            (asking.sent, asking.floor, asking.round.verdict()).hash(state);
            if held.is_none() {
                let bid = &asking.round;
                (bid.token(), bid.seen(), bid.poll_timeout()).hash(state);
                (asking.rounds, asking.proposed).hash(state);
            }
        }
        for leaving in &self.leaving {
            (leaving.attempt, leaving.up_to).hash(state);
        }
    }

    /// What one server has said.
    fn hash_heard<H: Hasher>(&self, server: usize, state: &mut H) {
        let asking = self.asking.as_ref();
        asking.map(|asking| asking.heard[server]).hash(state);
        for leaving in &self.leaving {
            let open = leaving.farewell.unconfirmed().any(|open| open == server);
            open.hash(state);
        }
    }
}
