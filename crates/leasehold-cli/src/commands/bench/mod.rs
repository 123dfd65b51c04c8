//! `leasehold bench`: what a lock costs here, beside the raw server.
//!
//! Times on a shared machine mean little; ratios to what the same server does
//! in the same run, through plain connections of its own, mean something.

mod figures;
mod handoff;
mod pairs;
mod report;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leasehold::store::{BareServer, BareWork, ServerCost, bare};
use leasehold::{Client, Lease};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, sleep, timeout};

use crate::args::BenchArgs;
use crate::connect::{Opening, connect};
use crate::exit::Status;
use crate::failure::Failure;
use crate::output::{Printer, takes_more};
use crate::session::leave;
use crate::signals::Signals;

use figures::{Figures, number};

/// How many tasks take uncontended locks at once.
const TASKS: [usize; 4] = [1, 16, 64, 256];

/// How many waiters pass one key on, where it can be seen that all of them wait.
const WAITERS: [usize; 3] = [2, 100, 1000];

/// How long it may take at the end to delete what was measured with.
const CLEAR_TIMEOUT: Duration = Duration::from_secs(2);

/// Two rounds of renewals at the default TTL: enough for every lease to be
/// renewed, and to be lost if it was not.
const KEPT_FOR: Duration = Duration::from_secs(20);

/// What is measured with.
struct Bench {
    client: Client,
    /// The server behind the client, where there is one.
    bare: Option<Arc<dyn BareServer>>,
    time: Duration,
    rounds: u8,
    waiters: &'static [usize],
    bar: ProgressBar,
}

/// Measures and prints; a signal ends it, and nothing is left at the server.
pub(crate) async fn bench(args: &BenchArgs, printer: &Printer) -> Result<Status, Failure> {
    let settings = &args.common.store.settings;
    let client = connect(settings).await?;
    let mut signals = Signals::listen()?;
    printer.write_beside();
    // Who may use locks need not have the rights for more.
    let opening = Opening::of(settings);
    let bare = bare(&opening.url, &opening.access()).await;
    let bare = bare.unwrap_or_else(|failure| {
        printer.warn(format!("only locks are measured: {failure}"));
        None
    });
    let queues = client.capabilities().queueing;
    if !queues {
        printer.warn("no hand-offs are measured: this store does not record who waits");
    }
    let waiters: &[usize] = if queues { &WAITERS } else { &[] };
    let steps = u64::from(args.rounds) * (TASKS.len() + waiters.len()) as u64;
    let bench = Bench {
        client,
        bare: bare.map(Arc::from),
        time: args.time,
        rounds: args.rounds,
        waiters,
        bar: bar(printer, steps),
    };
    printer.show_live(Some(bench.bar.clone()));
    let work = async {
        let findings = bench.run(args.leases).await?;
        printer.show_live(None);
        let store = bench.client.store_url();
        let text = || report::text(&findings, bench.works(), store, args.rounds);
        printer.beside(&printer.shown(&findings, text)?).await
    };
    let ended = tokio::select! {
        read = work => read.map(|_| Status::default()),
        signal = signals.next() => Err(Failure::ended_by(signal)),
    };
    printer.show_live(None);
    if let Some(bare) = &bench.bare {
        let left = match timeout(CLEAR_TIMEOUT, bare.clear()).await {
            Ok(cleared) => cleared.err().map(|error| error.to_string()),
            Err(_) => Some("no answer".to_owned()),
        };
        if let Some(why) = left {
            printer.warn(format!("what was measured with is still there: {why}"));
        }
    }
    leave(&bench.client).await;
    ended
}

impl Bench {
    /// A row for each kind of work and number of tasks, for each number of waiters, and for the
    /// leases that were held, if that was asked for.
    async fn run(&self, leases: Option<usize>) -> Result<Vec<Figures>, Failure> {
        let mut findings = Vec::new();
        for tasks in TASKS {
            let what = format!("uncontended locks, {tasks} tasks");
            let rounds = self.repeat(what, || pairs::round(self, tasks)).await?;
            findings.extend(pairs::medians(self, tasks, &rounds));
        }
        for &waiters in self.waiters {
            let what = format!("hand-off among {waiters} waiters");
            let rounds = self.repeat(what, || handoff::round(self, waiters)).await?;
            findings.push(handoff::medians(waiters, rounds));
        }
        if let Some(leases) = leases {
            self.say(|bar| bar.set_message(format!("{leases} leases, kept")));
            findings.push(keep(self, leases).await?);
        }
        Ok(findings)
    }

    /// Measures as often as was asked for.
    async fn repeat<T>(
        &self,
        what: String,
        mut round: impl AsyncFnMut() -> Result<T, Failure>,
    ) -> Result<Vec<T>, Failure> {
        self.say(|bar| bar.set_message(what));
        let mut rounds = Vec::new();
        for _ in 0..self.rounds {
            rounds.push(round().await?);
            self.say(|bar| bar.inc(1));
        }
        Ok(rounds)
    }

    /// Says how far it is, unless the terminal was stopped: that would hold up what is measured.
    fn say(&self, news: impl FnOnce(&ProgressBar)) {
        if takes_more(&io::stderr()) {
            news(&self.bar);
        }
    }

    /// What the bare server can do.
    fn works(&self) -> &'static [BareWork] {
        self.bare.as_ref().map_or(&[], |bare| bare.works())
    }

    /// What the server has spent so far, in calls as one of its works makes them or as locks do.
    async fn cost(&self, work: Option<usize>) -> Result<Option<ServerCost>, Failure> {
        match &self.bare {
            Some(bare) => Ok(bare.cost(work).await?),
            None => Ok(None),
        }
    }

    /// What it has spent since it had spent that.
    async fn spent_since(
        &self,
        then: Option<ServerCost>,
        work: Option<usize>,
    ) -> Result<Option<ServerCost>, Failure> {
        let now = self.cost(work).await?;
        Ok(now.zip(then).map(|(now, then)| now - then))
    }
}

fn bar(printer: &Printer, steps: u64) -> ProgressBar {
    if !printer.is_live() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Holds so many leases for a while.
async fn keep(bench: &Bench, leases: usize) -> Result<Figures, Failure> {
    let mut held = Vec::new();
    for n in 0..leases {
        let lock = bench.client.mutex(format!("bench/kept-{n}"))?;
        held.push(lock.lock().await?);
    }
    let before = bench.cost(None).await?;
    let (started, ours) = (Instant::now(), own_cpu());
    sleep(KEPT_FOR).await;
    let taken = started.elapsed().as_secs_f64();
    let client_cpu = own_cpu().saturating_sub(ours).as_secs_f64() / taken;
    let spent = bench.spent_since(before, None).await?;
    let lost = held.iter().filter(|lease| !lease.is_valid()).count();
    // Given back at once, not one by one.
    join_all(held.into_iter().map(Lease::release)).await;
    let renewals = spent.map(|spent| number(spent.calls) / taken);
    let server_cpu = spent.map(|spent| spent.cpu.as_secs_f64() / taken);
    Ok(Figures::of_measure("kept")
        .with("leases", leases)
        .with("renewals_per_second", renewals)
        .with("lost", lost)
        .with("client_cpu", client_cpu)
        .with("server_cpu", server_cpu))
}

/// Processor time of this process.
fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
