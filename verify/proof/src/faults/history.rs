//! What happened, as each process saw it.
//!
//! Every client writes a line per event, at once and without a buffer, so that one that
//! is killed leaves all it has seen. All stamps are of one clock of one machine,
//! `CLOCK_BOOTTIME`, which is also the clock that leases are believed in by: what two
//! processes wrote can be compared.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use leasehold::Mode;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::client::Task;

/// A moment, in microseconds since the machine was started.
pub type Micros = u64;

/// The time now.
pub fn now() -> Micros {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000;
    seconds * 1_000_000 + micros
}

/// Which operation of a client; no two of its operations have the same.
pub type Number = u64;

/// A line of a client's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// When.
    pub at: Micros,
    /// Of which operation.
    pub op: Number,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened to an operation: one claim, from the wish for it to the end of its lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// About to ask for the key.
    Invoked {
        /// Which task of the client.
        task: usize,
        /// What for.
        #[serde(flatten)]
        wish: Task,
    },
    /// The store has it in its queue.
    Queued,
    /// Handed to its caller.
    Granted {
        /// The number of the grant, if the lock has such a thing.
        token: Option<u64>,
        /// Until when the lease is valid, as it says itself.
        until: Micros,
        /// How often it lost its place before.
        rejoined: u32,
    },
    /// The lease says that it is valid for longer.
    Extended {
        /// Until when.
        until: Micros,
    },
    /// The lease says that it is lost.
    Lost {
        /// When it last said that it was valid.
        seen: Micros,
        /// Why it was lost.
        why: String,
    },
    /// About to give it back: nothing is believed from here on.
    Releasing,
    /// It was given back.
    Released {
        /// Whether it was still ours; `None` if nobody answered.
        ours: Option<bool>,
    },
    /// A request to release this key has failed, of any operation: it is sent again, and may have been
    /// carried out.
    Unanswered {
        /// Which key.
        key: String,
    },
    /// Its client may not have heard of its turn, at any operation that waits.
    Deaf,
    /// It was not obtained.
    Failed {
        /// The kind of failure, `busy` among them.
        kind: String,
        /// In words.
        why: String,
    },
    /// A resource has taken an increment.
    Wrote {
        /// Whether the resource compares tokens.
        fenced: bool,
    },
    /// A resource has refused a write for its token.
    Refused,
}

/// A history being written.
#[derive(Debug)]
pub struct Journal(File);

impl Journal {
    /// Begins a history.
    ///
    /// # Errors
    /// Why the file cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create_new(true).append(true).open(path);
        file.map(Self)
    }

    /// Writes a line, with the time now. What befalls the client as a whole is of no operation: 0.
    pub fn write(&self, op: Number, event: Event) {
        self.write_at(now(), op, event);
    }

    /// Writes a line. One that cannot be written ends the process: what is not in its
    /// history must not happen.
    pub fn write_at(&self, at: Micros, op: Number, event: Event) {
        let mut line = serde_json::to_vec(&Line { at, op, event }).unwrap_or_default();
        line.push(b'\n');
        if (&self.0).write_all(&line).is_err() {
            std::process::abort();
        }
    }
}

/// Reads the history of one client. A last line that its death cut short is left out.
///
/// # Errors
/// Why the file cannot be read, or what in it makes no sense.
pub fn read(path: &Path) -> io::Result<Vec<Line>> {
    let text = std::fs::read_to_string(path)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().map(serde_json::from_str);
    Ok(lines.collect::<Result<_, _>>()?)
}

/// Whose operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OpId {
    /// Which client process; one that was started in place of a dead one is another.
    pub client: usize,
    /// Which of its operations.
    pub number: Number,
}

/// One claim from end to end, put together from a client's lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    /// Whose.
    pub id: OpId,
    /// Which task of the client.
    pub task: usize,
    /// What was claimed.
    pub key: String,
    /// How.
    pub mode: Mode,
    /// Whether it keeps to the order of arrival.
    pub fair: bool,
    /// When it was about to be asked for.
    pub invoked: Micros,
    /// From when on it certainly stood in the queue.
    pub queued: Option<Micros>,
    /// Its grant.
    pub grant: Option<Grant>,
    /// Why there was none, if that is known.
    pub failed: Option<String>,
    /// How many fenced writes were taken, and how many refused.
    pub fenced: (u64, u64),
}

/// A lease, as its holder saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grant {
    /// When its caller had it.
    pub at: Micros,
    /// Its number.
    pub token: Option<u64>,
    /// Until when it was certainly believed in: the first of its release, its death, the
    /// last moment at which it was seen valid before it was lost, and its validity.
    pub until: Micros,
    /// How often it lost its place before.
    pub rejoined: u32,
    /// When its release was sent.
    pub releasing: Option<Micros>,
    /// Whether it may have been sent more than once.
    pub resent: bool,
    /// When that was answered, and whether it was ours.
    pub released: Option<(Micros, bool)>,
    /// Whether its holder was told that it was lost.
    pub lost: Option<String>,
}

/// Puts a client's lines together. `died` is when the client was killed, if it was.
pub fn assemble(client: usize, lines: &[Line], died: Option<Micros>) -> Vec<Op> {
    let mut ops: BTreeMap<Number, Op> = BTreeMap::new();
    for line in lines {
        if let Event::Invoked { task, wish } = &line.event {
            let number = line.op;
            let op = Op {
                task: *task,
                fair: wish.fair,
                ..Op::new(OpId { client, number }, line.at, &wish.key, wish.mode)
            };
            ops.insert(line.op, op);
        } else if line.event == Event::Deaf {
            for op in ops.values_mut() {
                op.was_deaf(line.at);
            }
        } else if let Event::Unanswered { key } = &line.event {
            let ops = ops.values_mut().filter(|op| op.key == *key);
            for grant in ops.filter_map(|op| op.grant.as_mut()) {
                grant.resent |= grant.releasing.is_some() && grant.released.is_none();
            }
        } else if let Some(op) = ops.get_mut(&line.op) {
            op.add(line);
        }
    }
    if let Some(died) = died {
        for grant in ops.values_mut().filter_map(|op| op.grant.as_mut()) {
            grant.until = grant.until.min(died);
        }
    }
    ops.into_values().collect()
}

/// The answer that tells of a grant can be sooner than the end of the silence before it.
const BEFORE: Micros = 2_000_000;

impl Op {
    /// A fair claim of the first task of a client, which is about to be asked for.
    pub(crate) fn new(id: OpId, invoked: Micros, key: &str, mode: Mode) -> Self {
        Self {
            id,
            task: 0,
            key: key.to_owned(),
            mode,
            fair: true,
            invoked,
            queued: None,
            grant: None,
            failed: None,
            fenced: (0, 0),
        }
    }

    /// It does not certainly stand where it stood.
    fn was_deaf(&mut self, at: Micros) {
        let granted = self.grant.as_ref().map(|grant| grant.at);
        if granted.is_none_or(|granted| granted + BEFORE > at) {
            self.queued = None;
        }
    }

    fn add(&mut self, line: &Line) {
        let at = line.at;
        match (&line.event, &mut self.grant) {
            (Event::Invoked { .. } | Event::Deaf | Event::Unanswered { .. }, _) => {}
            (Event::Queued, _) => {
                self.queued.get_or_insert(at);
            }
            (
                Event::Granted {
                    token,
                    until,
                    rejoined,
                },
                grant,
            ) => {
                *grant = Some(Grant {
                    at,
                    token: *token,
                    until: *until,
                    rejoined: *rejoined,
                    ..Grant::default()
                });
            }
            (Event::Failed { kind, .. }, _) => self.failed = Some(kind.clone()),
            (Event::Wrote { fenced }, _) => self.fenced.0 += u64::from(*fenced),
            (Event::Refused, _) => self.fenced.1 += 1,
            (Event::Extended { until }, Some(grant)) => grant.until = grant.until.max(*until),
            (Event::Lost { seen, why }, Some(grant)) => {
                grant.until = grant.until.min(*seen);
                grant.lost = Some(why.clone());
            }
            (Event::Releasing, Some(grant)) => {
                grant.until = grant.until.min(at);
                grant.releasing = Some(at);
            }
            (Event::Released { ours }, Some(grant)) => {
                grant.released = ours.map(|ours| (at, ours));
            }
            (Event::Extended { .. } | Event::Lost { .. }, None) => {}
            (Event::Releasing | Event::Released { .. }, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at: Micros, event: Event) -> Line {
        Line { at, op: 1, event }
    }

    fn invoked() -> Event {
        let (key, mode, fair) = ("k".to_owned(), Mode::EXCLUSIVE, true);
        let wish = Task { key, mode, fair };
        Event::Invoked { task: 0, wish }
    }

    fn granted(until: Micros) -> Event {
        Event::Granted {
            token: Some(7),
            until,
            rejoined: 0,
        }
    }

    fn until(events: &[Line], died: Option<Micros>) -> Micros {
        let ops = assemble(3, events, died);
        let (client, number) = (3, 1);
        assert_eq!(ops[0].id, OpId { client, number });
        ops[0].grant.as_ref().unwrap().until
    }

    #[test]
    fn a_lease_is_believed_in_until_the_first_thing_that_ends_it() {
        let held = || {
            vec![
                line(1, invoked()),
                line(5, granted(100)),
                line(40, Event::Extended { until: 140 }),
            ]
        };
        let and = |event| [held(), vec![event]].concat();
        assert_eq!(until(&held(), None), 140);
        assert_eq!(until(&held(), Some(60)), 60);
        assert_eq!(until(&and(line(90, Event::Releasing)), None), 90);
        let why = String::new();
        let lost = line(95, Event::Lost { seen: 80, why });
        assert_eq!(until(&and(lost), None), 80);
    }

    #[test]
    fn a_release_is_sent_again_where_one_of_its_key_failed_meanwhile() {
        let resent = |at, key: &str| {
            let key = key.to_owned();
            let mut lines = vec![
                line(1, invoked()),
                line(5, granted(100)),
                line(40, Event::Releasing),
                line(60, Event::Released { ours: Some(true) }),
                line(at, Event::Unanswered { key }),
            ];
            lines.sort_by_key(|line| line.at);
            assemble(3, &lines, None)[0].grant.as_ref().unwrap().resent
        };
        assert!(resent(50, "k"));
        assert!(!resent(50, "other") && !resent(30, "k") && !resent(70, "k"));
    }

    #[test]
    fn a_line_cut_short_is_left_out_and_a_broken_one_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("h");
        let journal = Journal::create(&path).unwrap();
        journal.write_at(1, 1, invoked());
        journal.write_at(2, 1, granted(9));
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(read(&path).unwrap().len(), 2);
        std::fs::write(&path, &text[..text.len() - 4]).unwrap();
        assert_eq!(read(&path).unwrap(), [line(1, invoked())]);
        std::fs::write(&path, text.replacen('{', "", 1)).unwrap();
        assert!(read(&path).is_err());
    }
}
