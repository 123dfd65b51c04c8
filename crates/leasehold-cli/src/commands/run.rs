//! `leasehold run`: a command under a lock.

use std::ops::ControlFlow;
use std::time::Duration;

use leasehold::{Any, Client, MultiLease};

use crate::acquire::{self, Outcome, Patience};
use crate::child::OnLost;
use crate::cli::{LeaseArgs, RunArgs};
use crate::connect::{connect_to_hold, leave};
use crate::failure::Failure;
use crate::guarded::{Guarded, Status, conclude, ended_by};
use crate::output::Printer;
use crate::recovery::Recovery;
use crate::retries::Retries;
use crate::signals::Signals;
use crate::wanted::Wanted;
use crate::{exit, place};

/// The most that a period is cut by: two starts of a scheduler are never exactly one apart.
const LONGEST_CUT: Duration = Duration::from_secs(30);

/// Runs the command; answers the exit status.
pub(crate) async fn run(args: &RunArgs) -> u8 {
    let printer = Printer::new(&args.output, args.json);
    conclude(guarded(args, &printer).await, &printer)
}

async fn guarded(args: &RunArgs, printer: &Printer) -> Result<Status, Failure> {
    let mut wanted = Wanted::of(&args.lock, &args.lease)?;
    let (patience, conflict_status) = match args.every {
        None => (Patience::from(&args.wait), args.wait.conflict_status()),
        Some(period) => {
            let least = period.saturating_sub((period / 10).min(LONGEST_CUT));
            wanted.min_hold = Some(least);
            let skipped = args.wait.conflict_exit_code.unwrap_or(exit::OK);
            (Patience::Once { least }, skipped)
        }
    };
    let lease = LeaseArgs {
        ttl: wanted.ttl(&args.lease),
        ..args.lease.clone()
    };
    let command = Guarded::check(
        &args.command,
        &args.guard,
        &args.store,
        lease.ttl,
        wanted.max_hold,
    )?;
    if args.guard.on_lost != OnLost::Ignore {
        // The command is ended then, and the lease kept until it has: it need not obey.
        wanted.max_hold = None;
    }

    place::say_if_elsewhere(&args.store, printer);
    if args.every.is_some() {
        place::say_if_every_machine_runs_it(&args.store, printer);
    }
    let mut signals = Signals::listen()?;
    let mut retries = Retries::new(patience.wait(), &wanted.keys, printer);
    let connected = connect_to_hold(&args.store, &lease, &mut retries, &mut signals);
    let client = match connected.await? {
        ControlFlow::Continue(client) => client,
        ControlFlow::Break(signal) => return Ok(ended_by(signal)),
    };
    let recovery = match &args.recover_as {
        None => None,
        Some(name) => Some(Recovery::begin(name, &client, &mut wanted, printer).await?),
    };
    let acquired = acquire::acquire(
        &client,
        &wanted,
        patience,
        &mut retries,
        &mut signals,
        printer,
    );
    let status = match acquired.await {
        Ok(Outcome::Granted(held)) => {
            under(
                &client,
                &wanted,
                held,
                recovery,
                &command,
                &mut signals,
                printer,
            )
            .await
        }
        Ok(Outcome::Conflict) => Ok((conflict_status, None)),
        Ok(Outcome::Signalled(signal)) => Ok(ended_by(signal)),
        Err(failure) => Err(failure),
    };
    leave(&client).await;
    status
}

async fn under(
    client: &Client,
    wanted: &Wanted,
    held: MultiLease<Any>,
    recovery: Option<Recovery>,
    command: &Guarded<'_>,
    signals: &mut Signals,
    printer: &Printer,
) -> Result<Status, Failure> {
    let kept = recovery.and_then(|recovery| recovery.keep(&held, printer));
    let lifeline = kept.as_ref().map(|kept| kept.lifeline());
    let done = command.run(client, wanted, held, lifeline, signals, printer);
    let done = done.await?;
    if let Some(kept) = kept.filter(|_| done.settled) {
        kept.clear(printer);
    }
    let status = if done.lost { exit::LOST } else { done.status };
    Ok((status, done.signal))
}
