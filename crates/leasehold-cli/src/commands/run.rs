//! `leasehold run`: a command under a lock.

use std::ops::ControlFlow;
use std::time::Duration;

use leasehold::{Any, Client, MultiLease};

use crate::acquire::Patience;
use crate::child::OnLost;
use crate::cli::{LeaseArgs, RunArgs};
use crate::connect::{Asking, connect_to_hold};
use crate::exit::{self, Status};
use crate::failure::Failure;
use crate::guarded::{Again, Guarded, ended_by};
use crate::output::Printer;
use crate::place;
use crate::recovery::Recovery;
use crate::signals::Signals;
use crate::wanted::Wanted;

/// The most that a period is cut by: two starts of a scheduler are never exactly one apart.
const LONGEST_CUT: Duration = Duration::from_secs(30);

/// Runs the command; answers the exit status.
pub(crate) async fn run(args: &RunArgs, printer: &Printer) -> Result<Status, Failure> {
    let store = &args.common.store;
    let mut wanted = Wanted::of(&args.lock, &args.lease)?;
    wanted.deadlock_timeout = args.wait.deadlock_timeout;
    let (patience, conflict) = match args.every {
        None => (Patience::from(&args.wait), args.wait.conflict_status()),
        Some(period) => {
            let least = period.saturating_sub((period / 10).min(LONGEST_CUT));
            wanted.min_hold = Some(least);
            let skipped = args.wait.conflict_exit_code.unwrap_or(exit::OK);
            (Patience::Once { least }, skipped)
        }
    };
    let (ttl, max_hold) = (wanted.ttl(&args.lease), wanted.max_hold);
    let command = args.command();
    let command = Guarded::check(&command, &args.guard, store, &ttl, max_hold, Again::Never)?;
    let lease = LeaseArgs {
        ttl: Some(ttl),
        ..args.lease.clone()
    };
    if args.guard.on_lost != OnLost::Ignore {
        // The command is ended then, and the lease kept until it has: it need not obey.
        wanted.max_hold = None;
    }
    if args.every.is_some() {
        place::say_if_every_machine_runs_it(store, printer);
    }
    let asking = Asking {
        keys: &wanted.keys,
        wait: patience.wait(),
        retry_for: args.wait.retry.limit(),
    };
    let connecting = connect_to_hold(store, &lease, asking, printer);
    let connected = match connecting.await? {
        ControlFlow::Continue(connected) => connected,
        ControlFlow::Break(signal) => return Ok(ended_by(signal)),
    };
    let recovery = match &args.recover_as {
        None => None,
        Some(name) => Some(Recovery::begin(name, &connected.client, &mut wanted, printer).await?),
    };
    let work = async |client: &Client, held: MultiLease<Any>, signals: &mut Signals| {
        let kept = recovery.and_then(|recovery| recovery.keep(&held, printer));
        let lifeline = kept.as_ref().map(|kept| kept.lifeline());
        let done = command.run(client, &wanted, held, lifeline, signals, printer);
        let done = done.await?;
        if let Some(kept) = kept.filter(|_| done.settled) {
            kept.clear(printer);
        }
        Ok(done.outcome())
    };
    let held = connected.hold(&wanted, patience, conflict, printer, work);
    held.await
}
