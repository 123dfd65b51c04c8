//! `leasehold hold`: a lock without a command.

use leasehold::{Client, Lease};
use serde::Serialize;

use crate::acquire::{self, Outcome};
use crate::cli::HoldArgs;
use crate::connect::{connect_to_hold, leave};
use crate::exit;
use crate::failure::Failure;
use crate::output::{Event, Measure, Printer};
use crate::signals::Signals;

/// What `--json` prints.
#[derive(Serialize)]
struct Held<'a> {
    key: &'a str,
    token: u64,
    store: &'a str,
}

/// Holds until a signal or the loss.
pub(crate) async fn hold(args: &HoldArgs, printer: &Printer) -> Result<u8, Failure> {
    acquire::check(&args.key, &args.acquire)?;
    let mut signals = Signals::listen()?;
    let client = tokio::select! {
        client = connect_to_hold(&args.store, &args.acquire) => client?,
        signal = signals.next() => return Ok(exit::signalled(signal.as_raw())),
    };
    let acquired = acquire::acquire(&client, &args.key, &args.acquire, &mut signals, printer);
    let status = match acquired.await {
        Ok(Outcome::Granted(lease)) => keep(&client, lease, args, &mut signals, printer).await,
        Ok(Outcome::Conflict) => Ok(args.acquire.conflict_exit_code),
        Ok(Outcome::Signalled(signal)) => Ok(exit::signalled(signal.as_raw())),
        Err(failure) => Err(failure),
    };
    leave(&client).await;
    status
}

async fn keep(
    client: &Client,
    lease: Lease,
    args: &HoldArgs,
    signals: &mut Signals,
    printer: &Printer,
) -> Result<u8, Failure> {
    let (key, token) = (&*args.key, lease.token().get());
    if args.json {
        printer.json(&Held {
            key,
            token,
            store: client.store_url(),
        })?;
    } else {
        printer.data(&format!("{token}\n"))?;
    }
    tokio::select! {
        biased;
        reason = lease.lost() => {
            let key = args.key.clone();
            printer.event(&Event::Lost { key, reason, action: Measure::None });
            Ok(exit::LOST)
        }
        _ = signals.next() => {
            if let Err(error) = lease.release().await {
                printer.warn(error.to_string());
            }
            Ok(exit::OK)
        }
    }
}
