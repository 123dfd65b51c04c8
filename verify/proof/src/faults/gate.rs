//! The resources that the locks protect: two counters for each key.
//!
//! Both are incremented as careless programs do: read, think, write. One is behind
//! [`Guarded`], which compares tokens in the same step as it reads or writes; the other
//! compares nothing. Clients reach them by a Unix socket, on which no fault is injected:
//! what is on trial is the lock.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use leasehold::Token;
use leasehold::fence::Guarded;
use leasehold_store::sync::lock;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::history::{Micros, OpId, now};

/// What a client asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ask {
    /// For which operation.
    pub op: OpId,
    /// By which task.
    pub task: usize,
    /// Of which key's counters.
    pub key: String,
    /// With which token; without one, of the counter that compares nothing.
    pub token: Option<u64>,
    /// What.
    pub what: What,
}

/// A step of an increment.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum What {
    /// Only to say when the task got its key.
    Served(Micros),
    /// What the counter says.
    Read,
    /// To set it.
    Write(u64),
}

/// A write that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// When.
    pub at: Micros,
    /// On which key.
    pub key: String,
    /// By whom.
    pub op: OpId,
    /// Whether tokens are compared.
    pub fenced: bool,
    /// With which token; 0 where none is compared.
    pub token: u64,
    /// What was there before.
    pub before: u64,
    /// What is there now.
    pub value: u64,
}

impl Written {
    /// Whether it overwrote an increment that its writer had not seen.
    pub fn is_lost_update(&self) -> bool {
        self.value != self.before + 1
    }
}

/// When each task, by client and task, was last served.
pub type Served = BTreeMap<(usize, usize), Micros>;

/// The counters, and what has become of them.
#[derive(Debug, Default)]
pub struct Gate {
    fenced: Mutex<BTreeMap<String, Arc<Guarded<u64>>>>,
    unfenced: Mutex<BTreeMap<String, u64>>,
    log: Mutex<Vec<Written>>,
    served: watch::Sender<Served>,
}

impl Gate {
    /// Opens the gate at a path, for as long as this process lives.
    ///
    /// # Errors
    /// Why there can be no socket.
    pub fn open(path: &Path) -> io::Result<Arc<Self>> {
        let gate = Arc::new(Self::default());
        let listener = UnixListener::bind(path)?;
        let shared = Arc::clone(&gate);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let gate = Arc::clone(&shared);
                // Who breaks off in the middle of a line is dead, and says no more.
                thread::spawn(move || gate.attend(&stream));
            }
        });
        Ok(gate)
    }

    fn attend(&self, stream: &UnixStream) -> io::Result<()> {
        let mut writer = stream;
        for line in BufReader::new(stream).lines() {
            let answer = self.answer(&serde_json::from_str(&line?)?);
            let mut line = serde_json::to_vec(&answer)?;
            line.push(b'\n');
            writer.write_all(&line)?;
        }
        Ok(())
    }

    /// Answers one request: the value read or written; none if the token was too low.
    pub fn answer(&self, ask: &Ask) -> Option<u64> {
        match (ask.what, ask.token) {
            (What::Served(at), _) => {
                let who = (ask.op.client, ask.task);
                self.served.send_modify(|served| {
                    served.insert(who, at);
                });
                Some(0)
            }
            (what, Some(token)) => self.fenced(ask, what, token),
            (what, None) => {
                let mut values = lock(&self.unfenced);
                Some(self.step(ask, what, None, values.entry(ask.key.clone()).or_default()))
            }
        }
    }

    fn fenced(&self, ask: &Ask, what: What, token: u64) -> Option<u64> {
        let counter = Arc::clone(lock(&self.fenced).entry(ask.key.clone()).or_default());
        let step = |value: &mut u64| self.step(ask, what, Some(token), value);
        counter.update(Token::from(token), step).ok()
    }

    fn step(&self, ask: &Ask, what: What, token: Option<u64>, value: &mut u64) -> u64 {
        if let What::Write(new) = what {
            let before = std::mem::replace(value, new);
            lock(&self.log).push(Written {
                at: now(),
                key: ask.key.clone(),
                op: ask.op,
                fenced: token.is_some(),
                token: token.unwrap_or(0),
                before,
                value: new,
            });
        }
        *value
    }

    /// All writes so far, in their order.
    pub fn log(&self) -> Vec<Written> {
        lock(&self.log).clone()
    }

    /// Who was served when, as it changes.
    pub fn served(&self) -> watch::Receiver<Served> {
        self.served.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(gate: &Gate, token: Option<u64>, what: What) -> Option<u64> {
        let (key, client, number) = ("k".to_owned(), 1, 2);
        let op = OpId { client, number };
        gate.answer(&Ask {
            op,
            task: 3,
            key,
            token,
            what,
        })
    }

    #[test]
    fn the_one_compares_tokens_and_the_other_nothing() {
        let gate = Gate::default();
        assert_eq!(ask(&gate, Some(5), What::Read), Some(0));
        assert_eq!(ask(&gate, Some(4), What::Write(1)), None);
        assert_eq!(ask(&gate, Some(5), What::Write(1)), Some(1));
        assert_eq!(ask(&gate, None, What::Write(1)), Some(1));
        assert_eq!(ask(&gate, None, What::Write(1)), Some(1));
        let log = gate.log();
        let lost: Vec<_> = log.iter().map(Written::is_lost_update).collect();
        assert_eq!(lost, [false, false, true]);
        assert_eq!(log.iter().filter(|it| it.fenced).count(), 1);
    }

    #[test]
    fn who_was_served_is_told() {
        let gate = Gate::default();
        let served = gate.served();
        ask(&gate, None, What::Served(5));
        assert_eq!(served.borrow().get(&(1, 3)), Some(&5));
        assert_eq!(gate.log(), []);
    }
}
