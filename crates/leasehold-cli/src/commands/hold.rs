//! `leasehold hold`: a lock without a command.

use std::ops::ControlFlow;

use leasehold::{Any, Client, Lease, Loss, MultiLease, Standpoint};
use serde::Serialize;

use crate::acquire::Patience;
use crate::cli::HoldArgs;
use crate::connect::connect_to_hold;
use crate::exit;
use crate::failure::Failure;
use crate::output::{Event, LeaseEnd, Measure, Printer, token_fields};
use crate::signals::Signals;
use crate::standing::{Trouble, tokens};
use crate::wanted::Wanted;

/// What `--json` prints.
#[derive(Serialize)]
struct Shown<'a> {
    key: &'a str,
    #[serde(flatten, serialize_with = "token_fields")]
    tokens: &'a [(String, Option<u64>)],
    store: &'a str,
}

/// Holds until a signal or the loss.
pub(crate) async fn hold(args: &HoldArgs, printer: &Printer) -> Result<u8, Failure> {
    let mut wanted = Wanted::of(&args.lock, &args.lease)?;
    wanted.deadlock_timeout = args.wait.deadlock_timeout;
    let patience = Patience::from(&args.wait);
    let (store, keys) = (&args.common.store, &wanted.keys);
    let connecting = connect_to_hold(store, &args.lease, patience.wait(), keys, printer);
    let connected = match connecting.await? {
        ControlFlow::Continue(connected) => connected,
        ControlFlow::Break(signal) => return Ok(exit::signalled(signal.as_raw())),
    };
    let conflict = args.wait.conflict_status();
    let keeping = async |client: &Client, held, signals: &mut Signals| {
        Ok((keep(client, held, signals, printer).await?, None))
    };
    let (status, _) = connected
        .hold(&wanted, patience, conflict, printer, keeping)
        .await?;
    Ok(status)
}

async fn keep(
    client: &Client,
    held: MultiLease<Any>,
    signals: &mut Signals,
    printer: &Printer,
) -> Result<u8, Failure> {
    show(client.store_url(), &tokens(&held), printer)?;
    tokio::select! {
        biased;
        reason = held.lost() => {
            let lost = |lease: &&Lease<Any>| lease.standpoint() == Standpoint::Lost(reason);
            let lost = held.parts().iter().find(lost);
            let key = lost.map_or_else(String::new, |lease| lease.key().to_string());
            printer.event(&Event::Lost(LeaseEnd {
                key: key.clone(),
                reason,
                remaining_ms: None,
                action: Measure::None,
                trouble: Trouble::of(&held, &key).filter(|_| reason == Loss::Unanswered),
            }));
            return Ok(exit::LOST);
        }
        _ = signals.next() => {}
    }
    if let Err(error) = held.release().await {
        printer.warn(error.to_string());
    }
    Ok(exit::OK)
}

fn show(store: &str, tokens: &[(String, Option<u64>)], printer: &Printer) -> Result<(), Failure> {
    let shown = Shown {
        key: tokens.first().map_or("", |(key, _)| key),
        tokens,
        store,
    };
    let line = |(key, token): &(String, Option<u64>)| {
        // A line says that it is held, also where there is no token.
        let token = token.map_or("-".to_owned(), |token| token.to_string());
        match tokens {
            [_] => format!("{token}\n"),
            _ => format!("{token} {key}\n"),
        }
    };
    printer.show(&shown, || tokens.iter().map(line).collect())?;
    Ok(())
}
