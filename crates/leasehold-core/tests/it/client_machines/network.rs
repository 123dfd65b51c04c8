//! The store, and the network between it and the clients.

use leasehold_core::{Arrival, Command, Event, Now, Queue, Reply, StoreTime, Token};

use crate::client_machines::climate::MS;
use crate::client_machines::world::{Client, Sent, What, World};
use crate::queue_properties::world::granted_in;

impl World {
    pub(crate) fn reach(&mut self, sent: Sent, command: &Command, answered: bool) {
        let (client, request) = (sent.client, sent.request);
        let (reply, at) = self.apply(command, Some(client));
        self.tell(|| {
            format!(
                "client {client} request {request} {command:?}\n{:>11} -> {reply:?}",
                ""
            )
        });
        let process = &self.clients[client];
        if answered && process.connected && process.epoch == sent.epoch {
            let due = self.now + self.delay();
            let due = due.max(self.clients[client].last_back);
            self.clients[client].last_back = due;
            self.plan(due, What::Answer(sent, reply, at));
        }
    }

    pub(crate) fn apply(&mut self, command: &Command, actor: Option<usize>) -> (Reply, StoreTime) {
        let clock = Now {
            // Some of the clients say so.
            listens: actor.is_some_and(|client| client % 2 == 1),
            ..Now::from(self.clock())
        };
        let mut outcome = self.queue.apply(command, clock);
        let mut granted = Vec::new();
        if let (Reply::Standing(standing), Some(client)) = (&outcome.reply, actor)
            && let Some(token) = standing.token
        {
            granted.push((token, standing.arrival, client));
        }
        granted.extend(self.told_granted(&outcome.events));
        granted.sort();
        let adopts = matches!(command, Command::Renew(renew)
            if renew.rotate.as_ref().is_some_and(|rotate| rotate.adopt.is_some()));
        for (token, arrival, client) in granted {
            if adopts && self.grants.get(&arrival).is_some_and(|(c, _)| *c != client) {
                // Another client's now, under a token of its own.
                self.grants.remove(&arrival);
                self.had.add("adoptions", 1);
            }
            self.granted(arrival, token, client);
        }
        let (clients, knows) = (&self.clients, self.climate.knows_deaf);
        let mut pushes = Vec::new();
        let mut queue = std::mem::take(&mut self.queue);
        let mut before = queue.clone();
        let applied = queue.deliver(&mut outcome, clock, |event| {
            let client = self.reader(event);
            if clients[client].connected {
                pushes.push((client, event.clone()));
            }
            clients[client].connected || !knows
        });
        self.queue = queue;
        for unheard in applied {
            self.pass_over(&mut before, &unheard, clock);
        }
        for (client, event) in pushes {
            let mut due = self.now + self.delay();
            if !self.climate.pushes_apart {
                due = due.max(self.clients[client].last_back);
                self.clients[client].last_back = due;
            }
            let epoch = self.clients[client].epoch;
            self.plan(due, What::Push(client, epoch, event, outcome.at));
        }
        (outcome.reply, outcome.at)
    }

    fn told_granted(&self, events: &[Event]) -> Vec<(Token, Arrival, usize)> {
        let granted = events.iter().filter_map(|event| match event {
            Event::Granted { arrival, token, .. } => {
                let told = self.grants.contains_key(arrival);
                self.require(!told, || format!("granted twice: {event:?}"));
                Some((*token, *arrival, self.reader(event)))
            }
            _ => None,
        });
        granted.collect()
    }

    /// Who did not hear of its grant may have lost it in the same step, and others have it.
    fn pass_over(&mut self, queue: &mut Queue, unheard: &Command, clock: Now) {
        let outcome = queue.apply(unheard, clock);
        if let Command::Unheard { granted, .. } = unheard {
            let left = granted_in(queue);
            for (arrival, _) in granted {
                let stays = self.grants.get(arrival).map(|(_, token)| token) == left.get(arrival);
                if !stays {
                    self.grants.remove(arrival);
                    self.had.add("grants not heard", 1);
                }
            }
        }
        let mut granted = self.told_granted(&outcome.events);
        granted.sort();
        for (token, arrival, client) in granted {
            self.granted(arrival, token, client);
        }
    }

    /// Whose inbox it is.
    pub(crate) fn reader(&self, event: &Event) -> usize {
        let theirs = |client: &Client| client.inbox == *event.inbox();
        self.clients.iter().position(theirs).unwrap()
    }

    pub(crate) fn granted(&mut self, arrival: Arrival, token: Token, client: usize) {
        if let Some(known) = self.grants.get(&arrival) {
            let same = *known == (client, token);
            self.require(same, || format!("{arrival:?} is {known:?}, not {token:?}"));
            return;
        }
        let highest = self.highest;
        self.require(token > highest, || format!("{token:?} after {highest:?}"));
        self.highest = token;
        self.grants.insert(arrival, (client, token));
    }

    pub(crate) fn delay(&mut self) -> u64 {
        let (low, high) = if self.healed {
            (50, 2 * MS)
        } else {
            self.climate.delay
        };
        self.dice.between(low, high)
    }

    /// Sends a command; what the client gets to know of it comes by itself.
    pub(crate) fn send(&mut self, client: usize, request: u64, command: Command) {
        let climate = self.climate.clone();
        if !self.clients[client].connected {
            return;
        }
        let lost = !self.healed && self.dice.chance(climate.lost);
        let answered = self.healed || !self.dice.chance(climate.unanswered);
        let mut due = self.now + self.delay();
        if !self.healed && self.dice.chance(climate.slow) {
            due += self.dice.between(0, climate.slow_for);
        }
        // A connection delivers in order; a later one does not wait for it.
        let due = due.max(self.clients[client].last_there);
        self.clients[client].last_there = due;
        if lost {
            return;
        }
        let epoch = self.clients[client].epoch;
        let sent = Sent {
            client,
            epoch,
            request,
        };
        self.plan(due, What::Reach(sent, command, answered));
    }

    pub(crate) fn cut(&mut self, client: usize) {
        self.tell(|| format!("client {client} is cut off"));
        if self.clients[client].connected {
            self.clients[client].connected = false;
            let attempt = self.clients[client].attempt.as_ref();
            let pending = attempt.into_iter().flat_map(|attempt| &attempt.pending);
            let requests: Vec<_> = pending.map(|pending| pending.request).collect();
            for request in requests {
                // The client notices at once, or by its time-out.
                if self.dice.chance(700) {
                    self.plan(self.now, What::Overdue(client, request));
                }
            }
            let back = self.dice.between(1, self.climate.lease_micros());
            self.plan(self.now + back, What::Connect(client));
        }
        let next = self.dice.between(1, self.climate.cut_every * 2);
        self.plan(self.now + next, What::Cut(client));
    }

    pub(crate) fn connect(&mut self, client: usize) {
        let now = self.moment(client);
        let process = &mut self.clients[client];
        if process.connected {
            return;
        }
        process.connected = true;
        process.epoch += 1;
        process.last_there = 0;
        process.last_back = 0;
        process.causes.push(self.now);
        if let Some(attempt) = &mut process.attempt {
            attempt.machine.handle_reset(now);
        }
        self.tell(|| format!("client {client} is back"));
        self.drive(client);
    }
}
