//! A machine: its clock, its process, and whether the process gets to run.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use leasehold_store::sync::lock;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, advance, sleep_until};

use super::here::{Here, Rate, Source};

/// tokio's timers tick so.
const TICK: Duration = Duration::from_millis(1);
const NANO: Duration = Duration::from_nanos(1);

/// What is whole ticks of a span.
fn ticks(span: Duration) -> Duration {
    let whole = span.as_millis() * TICK.as_nanos();
    Duration::from_nanos(u64::try_from(whole).unwrap_or(u64::MAX))
}

/// A machine.
#[derive(Default)]
pub(crate) struct Host {
    id: usize,
    rate: Rate,
    /// By how much its time of day is ahead, in microseconds.
    pub(crate) wall: i64,
    process: Option<Process>,
    /// Until when its process is stopped.
    stopped_until: Option<Duration>,
    /// For how long the machine has slept since its process began: timers have not run
    /// meanwhile.
    slept: Duration,
    /// By how much its clock is late, which it should not be.
    lag: Duration,
    /// Whether its clock stands still in sleep: it should not.
    pub(crate) clock_sleeps: bool,
    /// Whether it sleeps, rather than that the process is stopped.
    asleep: bool,
}

/// A process: a runtime with a clock that moves when it is told to.
struct Process {
    runtime: Runtime,
    /// The runtime's time when it began, and the host's.
    base: Instant,
    began: Duration,
    idle: Arc<Idle>,
}

/// Woken whenever the runtime has nothing left to do.
#[derive(Default)]
struct Idle(Mutex<Option<Waker>>);

impl Idle {
    /// Waits until every task waits.
    async fn reached(&self) {
        let mut waits = false;
        poll_fn(|context| {
            if std::mem::replace(&mut waits, true) {
                return Poll::Ready(());
            }
            *lock(&self.0) = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Process {
    fn start(began: Duration) -> std::io::Result<Self> {
        let idle = Arc::new(Idle::default());
        let parked = Arc::clone(&idle);
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            // After each task it looks whether it is to stop.
            .event_interval(1)
            .on_thread_park(move || {
                if let Some(waker) = lock(&parked.0).take() {
                    waker.wake();
                }
            })
            .build()?;
        let base = {
            let _context = runtime.enter();
            Instant::now()
        };
        Ok(Self {
            runtime,
            base,
            began,
            idle,
        })
    }

    /// Lets the tasks run up to `end` after the base: timers in between in their order,
    /// each at its own time.
    fn run(&self, end: Duration) {
        self.runtime.block_on(async {
            self.idle.reached().await;
            // Left alone, tokio goes from timer to timer by whole ticks: from a time
            // between two of them it would go too far.
            self.advance_to(ticks(self.passed() + TICK - NANO).min(end))
                .await;
            let last = ticks(end);
            if self.passed() < last {
                sleep_until(self.base + last).await;
                self.idle.reached().await;
            }
            self.advance_to(end).await;
        });
    }

    async fn advance_to(&self, end: Duration) {
        let rest = end.saturating_sub(self.passed());
        if !rest.is_zero() {
            advance(rest).await;
            self.idle.reached().await;
        }
    }

    /// Since the base.
    fn passed(&self) -> Duration {
        Instant::now().duration_since(self.base)
    }

    /// Lets so many tasks run once, and no more: what else is ready stays so.
    fn run_some(&self, tasks: u32) {
        self.runtime.block_on(async {
            for _ in 0..tasks {
                tokio::task::yield_now().await;
            }
        });
    }

    /// The clock jumps: what was due in between is late.
    fn jump(&self, end: Duration) {
        self.runtime.block_on(async {
            advance(end.saturating_sub(self.passed())).await;
        });
    }
}

impl Host {
    pub(crate) fn new(id: usize, rate: Rate, wall: i64) -> Self {
        Self {
            id,
            rate,
            wall,
            ..Self::default()
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Whether its process gets to run.
    pub(crate) fn runs(&self) -> bool {
        self.is_up() && self.stopped_until.is_none()
    }

    /// Starts a process; `main` is called in it.
    pub(crate) fn start(&mut self, now: Duration, main: impl FnOnce()) -> std::io::Result<()> {
        let process = Process::start(self.rate.local(now))?;
        self.slept = Duration::ZERO;
        self.stopped_until = None;
        self.process = Some(process);
        self.inside(|_| main());
        Ok(())
    }

    /// Ends the process as a kill does: what it was doing is dropped where it stands.
    pub(crate) fn kill(&mut self, now: Duration) {
        let here = self.seen_at(now);
        if let Some(process) = self.process.take() {
            let _entered = here.enter();
            drop(process.runtime);
        }
        self.stopped_until = None;
    }

    /// Stops the process, or puts the machine to sleep, in the middle of what it does:
    /// so many tasks still run.
    pub(crate) fn stop(&mut self, until: Duration, asleep: bool, tasks: u32) {
        self.inside(|process| process.run_some(tasks));
        self.stopped_until = Some(until);
        self.asleep = asleep;
    }

    /// Lets the process run again from now on.
    pub(crate) fn wake(&mut self) {
        if self.stopped_until.is_some() {
            self.stopped_until = Some(Duration::ZERO);
        }
    }

    /// Lets the process run until the world's time `end`.
    pub(crate) fn run_to(&mut self, now: Duration, end: Duration) {
        let woken = match self.stopped_until {
            Some(until) if until > now => {
                if self.asleep {
                    let slept = self.rate.local(end) - self.rate.local(now);
                    self.slept += slept;
                    if self.clock_sleeps {
                        self.lag += slept;
                    }
                }
                return;
            }
            stopped => {
                self.stopped_until = None;
                stopped.is_some()
            }
        };
        let (local, slept, rate) = (self.rate.local(end), self.slept, self.rate);
        self.inside(|process| {
            let own = |local: Duration| local.saturating_sub(process.began + slept);
            if woken {
                process.jump(own(rate.local(now)));
            }
            process.run(own(local));
        });
    }

    fn inside<T>(&self, act: impl FnOnce(&Process) -> T) -> Option<T> {
        let process = self.process.as_ref()?;
        let (base, from) = (process.base, process.began + self.slept);
        let _context = process.runtime.enter();
        let _entered = self.here(Source::Runtime { base, from }).enter();
        Some(act(process))
    }

    /// As it is seen from outside.
    pub(crate) fn seen_at(&self, now: Duration) -> Here {
        self.here(Source::Fixed(self.rate.local(now)))
    }

    fn here(&self, source: Source) -> Here {
        Here {
            host: self.id,
            rate: self.rate,
            wall: self.wall,
            source,
            lag: self.lag,
        }
    }

    /// How long a span of the host's time is in the world.
    pub(crate) fn in_world(&self, local: Duration) -> Duration {
        self.rate.world(local)
    }

    /// How many tasks its process has.
    pub(crate) fn tasks(&self) -> usize {
        let alive = |process: &Process| process.runtime.metrics().num_alive_tasks();
        self.process.as_ref().map_or(0, alive)
    }

    /// Starts a task in its process.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> bool {
        self.inside(|_| drop(tokio::spawn(task))).is_some()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    /// What a process does is judged at the end of each window.
    #[test]
    fn a_process_runs_to_the_end_of_its_window_and_no_further() {
        for ppm in [0, 4_000, -4_000] {
            let mut host = Host::new(0, Rate { ppm }, 0);
            let times: Arc<Mutex<Vec<Duration>>> = Arc::default();
            host.start(Duration::ZERO, || {
                for first in [3_000, 700, 1_999] {
                    let times = Arc::clone(&times);
                    tokio::spawn(async move {
                        let mut pause = Duration::from_micros(first);
                        loop {
                            sleep(pause).await;
                            pause += Duration::from_micros(13);
                            times.lock().unwrap().push(super::super::now());
                        }
                    });
                }
            })
            .unwrap();
            let mut now = Duration::ZERO;
            for window in (50..4_000).step_by(7) {
                let end = now + Duration::from_nanos(window * 1_001);
                host.run_to(now, end);
                let late = std::mem::take(&mut *times.lock().unwrap());
                assert!(late.iter().all(|at| *at <= end), "{late:?} after {end:?}");
                let in_time = late.iter().all(|at| *at + NANO * 10 >= now);
                assert!(in_time, "{late:?} before {now:?}");
                now = end;
            }
        }
    }
}
