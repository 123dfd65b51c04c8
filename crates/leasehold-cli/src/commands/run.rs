//! `leasehold run`: a command under a lock.

use std::time::Duration;

use leasehold::{Client, Lease, Released};

use crate::acquire::{self, Outcome};
use crate::child::{self, End, Ended, Guard, Start, Supervision};
use crate::cli::RunArgs;
use crate::connect::{connect_to_hold, leave};
use crate::failure::Failure;
use crate::output::{Event, Printer};
use crate::signals::Signals;
use crate::{duration, env, exit};

/// The longest grace time that nobody asked for.
const LONGEST_GRACE: Duration = Duration::from_secs(5);

/// Runs the command; answers the exit status.
pub(crate) async fn run(args: &RunArgs) -> u8 {
    let printer = Printer::new(&args.output, args.json);
    let status = guarded(args, &printer).await.unwrap_or_else(|failure| {
        printer.failure(&failure);
        (failure.status, None)
    });
    let (status, signal) = status;
    printer.event(&Event::Exit { status, signal });
    status
}

type Status = (u8, Option<i32>);

async fn guarded(args: &RunArgs, printer: &Printer) -> Result<Status, Failure> {
    let grace = grace(args)?;
    acquire::check(&args.key, &args.acquire)?;
    let Some(program) = args.command.first() else {
        return Err(Failure::usage("there is no command").hint("write it after --"));
    };
    child::check(program)?;

    let mut signals = Signals::listen()?;
    let client = tokio::select! {
        client = connect_to_hold(&args.store, &args.acquire) => client?,
        signal = signals.next() => {
            return Ok((exit::signalled(signal.as_raw()), Some(signal.as_raw())));
        }
    };
    let acquired = acquire::acquire(&client, &args.key, &args.acquire, &mut signals, printer);
    let status = match acquired.await {
        Ok(Outcome::Granted(lease)) => {
            under(&client, lease, args, grace, &mut signals, printer).await
        }
        Ok(Outcome::Conflict) => Ok((args.acquire.conflict_exit_code, None)),
        Ok(Outcome::Signalled(signal)) => {
            Ok((exit::signalled(signal.as_raw()), Some(signal.as_raw())))
        }
        Err(failure) => Err(failure),
    };
    leave(&client).await;
    status
}

/// Runs the command to its end, and gives the lock back.
async fn under(
    client: &Client,
    lease: Lease,
    args: &RunArgs,
    grace: Duration,
    signals: &mut Signals,
    printer: &Printer,
) -> Result<Status, Failure> {
    let start = Start {
        program: &args.command[0],
        arguments: &args.command[1..],
        given: vec![
            (env::KEY, args.key.clone()),
            (env::TOKEN, lease.token().to_string()),
            (env::STORE, client.store_url().to_owned()),
        ],
        withheld: vec![env::PASSWORD],
        lifelines: client.lifelines(),
    };
    let guard = Guard::new(args.on_lost, grace, args.acquire.ttl);
    let supervision = Supervision::begin(printer, &args.key, signals)?;
    let ended = supervision.run(start, &lease, guard).await;
    let lost = match ended {
        // Whatever is left of it is given back while we leave.
        Ok(Ended { lost: true, .. }) => {
            drop(lease);
            true
        }
        _ => give_back(lease, args, printer).await == Some(Released::AlreadyGone),
    };
    let Ended { end, .. } = ended?;
    let (status, signal) = match end {
        End::Exited(code) => (u8::try_from(code).unwrap_or(u8::MAX), None),
        End::Signalled(signal) => (exit::signalled(signal), Some(signal)),
    };
    Ok((if lost { exit::LOST } else { status }, signal))
}

/// A release that fails changes nothing about what the command did. One that comes too late does:
/// the lock was lost under the command, and nobody had noticed.
async fn give_back(lease: Lease, args: &RunArgs, printer: &Printer) -> Option<Released> {
    match lease.release().await {
        Ok(released) => {
            let still_ours = released == Released::StillOurs;
            printer.event(&Event::Released {
                key: args.key.clone(),
                still_ours,
            });
            Some(released)
        }
        Err(error) => {
            printer.warn(error.to_string());
            None
        }
    }
}

/// How long the command has to stop by itself.
fn grace(args: &RunArgs) -> Result<Duration, Failure> {
    let ttl = args.acquire.ttl;
    match args.grace {
        None => Ok((ttl / 4).min(LONGEST_GRACE)),
        Some(grace) if grace > ttl / 2 => Err(Failure::usage(format!(
            "a grace time of {} is too long for a TTL of {}",
            duration::spoken(grace),
            duration::spoken(ttl)
        ))
        .hint("choose at most half of the TTL, or a longer TTL")),
        Some(grace) => Ok(grace),
    }
}
