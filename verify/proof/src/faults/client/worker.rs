//! One task: wants its key, works with it, gives it back, for ever.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::Mode;
use leasehold::core::Capacity;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::sleep;

use super::lock::{Held, Lock};
use super::{Spec, Task};
use crate::faults::gate::{Ask, What};
use crate::faults::history::{Event, Journal, Micros, Number, OpId, now};

/// How often a holder looks at its lease.
const LOOK: Duration = Duration::from_millis(10);

/// How much more validity is worth a line.
const WORTH_A_LINE: u64 = 1_000;

/// The numbers of a client's operations.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

pub(super) struct Worker {
    spec: Arc<Spec>,
    task: usize,
    locks: Arc<dyn Lock>,
    journal: Arc<Journal>,
    over: watch::Receiver<bool>,
    gate: BufReader<UnixStream>,
    random: fastrand::Rng,
}

impl Worker {
    pub(super) async fn new(
        spec: Arc<Spec>,
        task: usize,
        locks: Arc<dyn Lock>,
        journal: Arc<Journal>,
        over: watch::Receiver<bool>,
    ) -> io::Result<Self> {
        let gate = BufReader::new(UnixStream::connect(&spec.gate).await?);
        let random = fastrand::Rng::with_seed(spec.seed.wrapping_add(task as u64));
        Ok(Self {
            spec,
            task,
            locks,
            journal,
            over,
            gate,
            random,
        })
    }

    pub(super) async fn work(mut self) -> io::Result<()> {
        let mut over = self.over.clone();
        while !*self.over.borrow() {
            let pause = Duration::from_micros(self.random.u64(0..40_000));
            tokio::select! {
                () = sleep(pause) => {}
                _ = over.wait_for(|over| *over) => break,
            }
            self.turn().await?;
        }
        Ok(())
    }

    /// One operation from end to end.
    async fn turn(&mut self) -> io::Result<()> {
        let op = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let wish = self.wish();
        let invoked = Event::Invoked {
            task: self.task,
            wish: wish.clone(),
        };
        self.journal.write(op, invoked);
        let journal = Arc::clone(&self.journal);
        let queued = Box::new(move || journal.write(op, Event::Queued));
        let patience = self.patience();
        let locks = Arc::clone(&self.locks);
        let mut over = self.over.clone();
        let acquired = tokio::select! {
            acquired = locks.acquire(&wish, patience, queued) => acquired,
            _ = over.wait_for(|over| *over) => return Ok(()),
        };
        match acquired {
            Ok(lease) => self.hold(op, &wish, lease).await,
            Err(failure) => {
                let (kind, why) = (failure.kind, failure.why);
                let busy = kind == "busy" || kind == "timeout";
                self.journal.write(op, Event::Failed { kind, why });
                if !busy {
                    // A store that is down would only fill the history.
                    sleep(Duration::from_millis(self.random.u64(10..60))).await;
                }
                Ok(())
            }
        }
    }

    fn wish(&mut self) -> Task {
        let mut wish = self.spec.tasks[self.task].clone();
        if wish.mode == Mode::SHARED && self.random.u8(..) < 64 {
            wish.mode = Mode::EXCLUSIVE;
        }
        if let Capacity::Permits(of) = wish.mode.capacity() {
            let take = self.random.u32(1..=of);
            wish.mode = Mode::permits(of, take);
        }
        wish
    }

    fn patience(&mut self) -> Option<Duration> {
        match self.random.u8(0..10) {
            0 => Some(Duration::ZERO),
            1 | 2 => Some(Duration::from_millis(self.random.u64(20..1500))),
            _ => None,
        }
    }

    /// How long a task stays with its lease, and whether that is dropped in the end, instead of
    /// released.
    fn stay(&mut self) -> (Duration, bool) {
        let ttl = u64::try_from(self.spec.ttl.as_micros()).unwrap_or(u64::MAX);
        let lasts = match self.random.u8(0..40) {
            // Longer than a TTL: it takes renewals.
            0 | 1 => self.random.u64(ttl / 2..ttl * 3 / 2),
            2..=7 => self.random.u64(0..120_000),
            _ => self.random.u64(0..12_000),
        };
        (Duration::from_micros(lasts), self.random.u8(0..10) == 0)
    }

    async fn hold(&mut self, op: Number, wish: &Task, mut lease: Box<dyn Held>) -> io::Result<()> {
        let granted = now();
        let until = valid_until(&*lease).unwrap_or(granted);
        self.journal.write_at(
            granted,
            op,
            Event::Granted {
                token: lease.token(),
                until,
                rejoined: lease.rejoined(),
            },
        );
        let (lasts, dropped) = self.stay();
        self.ask(op, None, What::Served(granted)).await?;
        // Reads at once, writes at the end, thinks meanwhile.
        let writes = wish.mode == Mode::EXCLUSIVE;
        let token = lease.token().filter(|_| writes);
        let read = match (writes, token) {
            (false, _) => None,
            (true, None) => Some((None, self.ask(op, None, What::Read).await?)),
            (true, Some(_)) => {
                let fenced = self.ask(op, token, What::Read).await?;
                if fenced.is_none() {
                    self.journal.write(op, Event::Refused);
                }
                Some((fenced, self.ask(op, None, What::Read).await?))
            }
        };
        if !self.keep(op, &mut lease, granted, until, lasts).await {
            // As programs do that give back whatever they have got, in the end.
            if !dropped {
                lease.release().await;
            }
            return Ok(());
        }
        if let Some((fenced, unfenced)) = read {
            self.write(op, token, fenced).await?;
            self.write(op, None, unfenced).await?;
        }
        self.journal.write(op, Event::Releasing);
        if dropped {
            drop(lease);
        } else {
            let ours = lease.release().await;
            self.journal.write(op, Event::Released { ours });
        }
        Ok(())
    }

    /// Keeps the lease for so long; `false` if it is lost before.
    async fn keep(
        &self,
        op: Number,
        lease: &mut Box<dyn Held>,
        mut seen: u64,
        mut until: u64,
        lasts: Duration,
    ) -> bool {
        let end = now() + u64::try_from(lasts.as_micros()).unwrap_or(u64::MAX);
        loop {
            let left = Duration::from_micros(end.saturating_sub(now()));
            let lost = tokio::select! {
                biased;
                why = lease.lost() => Some(why),
                () = sleep(left.min(LOOK)) => None,
            };
            // While it is tended to, its holder works on, and believes what it said before.
            if lost.is_none() && lease.tend().await {
                seen = now().min(until);
            }
            let (looked, valid) = (now(), valid_until(&**lease));
            let valid = match (valid, lost) {
                (Some(valid), None) => valid,
                (_, why) => {
                    let why = why.unwrap_or_else(|| "its time is over".to_owned());
                    self.journal.write(op, Event::Lost { seen, why });
                    return false;
                }
            };
            seen = looked;
            if valid > until + WORTH_A_LINE {
                until = valid;
                self.journal.write(op, Event::Extended { until: valid });
            }
            if looked >= end {
                return true;
            }
        }
    }

    async fn write(&mut self, op: Number, token: Option<u64>, read: Option<u64>) -> io::Result<()> {
        let Some(read) = read else { return Ok(()) };
        let fenced = token.is_some();
        let taken = self.ask(op, token, What::Write(read + 1)).await?;
        let event = taken.map_or(Event::Refused, |_| Event::Wrote { fenced });
        self.journal.write(op, event);
        Ok(())
    }

    async fn ask(&mut self, op: Number, token: Option<u64>, what: What) -> io::Result<Option<u64>> {
        let (client, number) = (self.spec.client, op);
        let ask = Ask {
            op: OpId { client, number },
            task: self.task,
            key: self.spec.tasks[self.task].key.clone(),
            token,
            what,
        };
        let mut line = serde_json::to_vec(&ask)?;
        line.push(b'\n');
        self.gate.get_mut().write_all(&line).await?;
        let mut line = String::new();
        self.gate.read_line(&mut line).await?;
        Ok(serde_json::from_str(&line)?)
    }
}

/// Until when a lease is valid, if it is. The time is taken first, so that it is never too
/// late.
fn valid_until(lease: &dyn Held) -> Option<Micros> {
    let (asked, remaining) = (now(), lease.remaining());
    let micros = u64::try_from(remaining.as_micros()).unwrap_or(u64::MAX);
    (micros > 0).then(|| asked + micros)
}
