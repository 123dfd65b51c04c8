//! Tasks that take locks again and again, for a time.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use serde_json::{Value, json};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep};

use crate::locks::{Lock, Peer};
use crate::record::Records;
use crate::{Arguments, Failure, next_word, now, own_cpu, say};

const MEASURING: u8 = 1;
const OVER: u8 = 2;

/// A broken lock asks nobody for one waiter of so many.
const BROKEN_ONE_OF: usize = 8;

/// What the tasks of this process share.
struct Shared {
    records: Records,
    phase: AtomicU8,
    /// How many are between entering and leaving.
    inside: AtomicU64,
    acquired: AtomicU64,
    hold: Duration,
    pause: Duration,
    broken: bool,
    one_key: bool,
}

/// What a task has seen while it was measured.
#[derive(Default)]
struct Seen {
    grants: u64,
    handoffs: u64,
    held: u64,
    errors: u64,
    first_error: Option<String>,
    acquire: Histogram,
    handoff: Histogram,
}

/// Times by powers of two, each in 32 parts.
#[derive(Default)]
struct Histogram(Vec<u64>);

impl Histogram {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )]
    fn add(&mut self, nanos: u64) {
        let bucket = ((nanos.max(1) as f64).log2() * 32.0) as usize;
        if self.0.len() <= bucket {
            self.0.resize(bucket + 1, 0);
        }
        self.0[bucket] += 1;
    }

    fn merge(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (here, there) in self.0.iter_mut().zip(&other.0) {
            *here += there;
        }
    }

    fn shown(&self) -> Value {
        let some = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        json!(some.collect::<Vec<_>>())
    }
}

pub(crate) async fn run(arguments: &Arguments, peer: &Peer) -> Result<(), Failure> {
    let shared = Arc::new(Shared {
        records: Records::open(arguments)?,
        phase: AtomicU8::new(0),
        inside: AtomicU64::new(0),
        acquired: AtomicU64::new(0),
        hold: arguments.hold,
        pause: arguments.pause,
        broken: arguments.broken,
        one_key: arguments.work == "key",
    });
    let mut tasks = Vec::new();
    for task in 0..arguments.tasks {
        let key = if shared.one_key { 0 } else { task };
        let lock = peer.lock(&format!("bench-{key}"))?;
        tasks.push((lock, key, Arc::new(Mutex::new(Seen::default()))));
    }
    next_word()?;
    let mut all = Vec::new();
    for (task, (lock, slot, seen)) in tasks.into_iter().enumerate() {
        all.push(seen.clone());
        let who = arguments.first + task;
        tokio::spawn(take_turns(lock, slot, who, shared.clone(), seen));
    }
    sleep(arguments.warm).await;
    say(&json!({"event": "measuring"}))?;
    let (started, cpu) = (Instant::now(), own_cpu());
    shared.phase.store(MEASURING, SeqCst);
    sleep(arguments.measured).await;
    shared.phase.store(OVER, SeqCst);
    let (taken, cpu) = (started.elapsed(), own_cpu() - cpu);
    let patience = Instant::now() + Duration::from_secs(5);
    while shared.inside.load(SeqCst) > 0 && Instant::now() < patience {
        sleep(Duration::from_millis(1)).await;
    }
    let mut sum = Seen::default();
    let mut turns = Vec::new();
    for seen in &all {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        turns.push(seen.grants);
        sum.grants += seen.grants;
        sum.handoffs += seen.handoffs;
        sum.held += seen.held;
        sum.errors += seen.errors;
        sum.first_error = sum.first_error.or(seen.first_error.take());
        sum.acquire.merge(&seen.acquire);
        sum.handoff.merge(&seen.handoff);
    }
    say(&json!({
        "event": "result",
        "seconds": taken.as_secs_f64(),
        "cpu_ns": cpu,
        "acquired": shared.acquired.load(SeqCst),
        "grants": sum.grants,
        "handoffs": sum.handoffs,
        "held_ns": sum.held,
        "gave_up": 0,
        "errors": sum.errors,
        "first_error": sum.first_error,
        "turns": turns,
        "acquire": sum.acquire.shown(),
        "handoff": sum.handoff.shown(),
    }))
}

async fn take_turns(
    mut lock: Lock,
    slot: usize,
    who: usize,
    shared: Arc<Shared>,
    seen: Arc<Mutex<Seen>>,
) -> Result<(), Failure> {
    let timer = Timer::new()?;
    let asks = !(shared.broken && (who + 1).is_multiple_of(BROKEN_ONE_OF));
    while shared.phase.load(SeqCst) != OVER {
        let asked = now();
        if asks && let Err(error) = lock.acquire().await {
            fail(&seen, &error);
            timer.wait(Duration::from_millis(10)).await?;
            continue;
        }
        shared.inside.fetch_add(1, SeqCst);
        let phase = shared.phase.load(SeqCst);
        if phase == OVER {
            shared.inside.fetch_sub(1, SeqCst);
            break;
        }
        let inside = shared.records.enter(slot, who);
        if !shared.hold.is_zero() {
            timer.wait(shared.hold).await?;
        } else if shared.one_key {
            // Others of the same thread may come in here, if the lock lets them.
            tokio::task::yield_now().await;
        }
        let held = shared.records.leave(slot, who, &inside);
        shared.acquired.fetch_add(1, SeqCst);
        shared.inside.fetch_sub(1, SeqCst);
        if phase == MEASURING {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.grants += 1;
            seen.held += held;
            seen.acquire.add(inside.entered - asked);
            if let Some(since) = inside.handed_over {
                seen.handoffs += 1;
                seen.handoff.add(since);
            }
        }
        if asks && let Err(error) = lock.release().await {
            fail(&seen, &error);
        }
        if !shared.pause.is_zero() {
            timer.wait(shared.pause).await?;
        }
    }
    Ok(())
}

fn fail(seen: &Mutex<Seen>, error: &Failure) {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.errors += 1;
    seen.first_error.get_or_insert_with(|| error.to_string());
}

/// A timer of the kernel's: tokio's own round up to a whole millisecond.
struct Timer(AsyncFd<std::os::fd::OwnedFd>);

impl Timer {
    fn new() -> Result<Self, Failure> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: the descriptor is owned, is open as long as that, and is always the same.
        let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) };
        Ok(Self(timer.map_err(|error| error.to_string())?))
    }

    async fn wait(&self, time: Duration) -> Result<(), Failure> {
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: time.try_into()?,
        };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = self.0.readable().await?;
            let read = |fd: &AsyncFd<_>| Ok(rustix::io::read(fd.get_ref(), &mut [0; 8])?);
            if let Ok(done) = ready.try_io(read) {
                done?;
                return Ok(());
            }
        }
    }
}
