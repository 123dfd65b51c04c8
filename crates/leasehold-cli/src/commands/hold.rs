//! `leasehold hold`: a lock without a command.

use std::fmt::Write;
use std::ops::ControlFlow;

use leasehold::{Any, Client, Lease, Loss, MultiLease, Standpoint};
use serde::Serialize;

use crate::acquire::{self, Outcome, Patience};
use crate::cli::HoldArgs;
use crate::connect::{connect_to_hold, leave};
use crate::failure::Failure;
use crate::output::{ByKey, Event, Measure, Printer};
use crate::retries::Retries;
use crate::signals::Signals;
use crate::standing::{Trouble, tokens};
use crate::wanted::Wanted;
use crate::{exit, place};

/// What `--json` prints.
#[derive(Serialize)]
struct Shown<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<ByKey<'a>>,
    store: &'a str,
}

/// Holds until a signal or the loss.
pub(crate) async fn hold(args: &HoldArgs, printer: &Printer) -> Result<u8, Failure> {
    let wanted = Wanted::of(&args.lock, &args.lease)?;
    place::say_if_elsewhere(&args.store, printer);
    let mut signals = Signals::listen()?;
    let patience = Patience::from(&args.wait);
    let mut retries = Retries::new(patience.wait(), &wanted.keys, printer);
    let connected = connect_to_hold(&args.store, &args.lease, &mut retries, &mut signals);
    let client = match connected.await? {
        ControlFlow::Continue(client) => client,
        ControlFlow::Break(signal) => return Ok(exit::signalled(signal.as_raw())),
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
        Ok(Outcome::Granted(held)) => keep(&client, held, args, &mut signals, printer).await,
        Ok(Outcome::Conflict) => Ok(args.wait.conflict_status()),
        Ok(Outcome::Signalled(signal)) => Ok(exit::signalled(signal.as_raw())),
        Err(failure) => Err(failure),
    };
    leave(&client).await;
    status
}

async fn keep(
    client: &Client,
    held: MultiLease<Any>,
    args: &HoldArgs,
    signals: &mut Signals,
    printer: &Printer,
) -> Result<u8, Failure> {
    show(client, &tokens(&held), args, printer)?;
    tokio::select! {
        biased;
        reason = held.lost() => {
            let lost = |lease: &&Lease<Any>| lease.standpoint() == Standpoint::Lost(reason);
            let lost = held.parts().iter().find(lost);
            let key = lost.map_or_else(String::new, |lease| lease.key().to_string());
            let trouble = Trouble::of(&held, &key).filter(|_| reason == Loss::Unanswered);
            printer.event(&Event::Lost { key, reason, action: Measure::None, trouble });
            return Ok(exit::LOST);
        }
        _ = signals.next() => {}
    }
    if let Err(error) = held.release().await {
        printer.warn(error.to_string());
    }
    Ok(exit::OK)
}

fn show(
    client: &Client,
    tokens: &[(String, Option<u64>)],
    args: &HoldArgs,
    printer: &Printer,
) -> Result<(), Failure> {
    let (several, first) = (tokens.len() > 1, tokens.first());
    if let (true, Some((key, token))) = (args.json, first) {
        printer.json(&Shown {
            key,
            token: *token,
            tokens: (several && token.is_some()).then_some(ByKey(tokens)),
            store: client.store_url(),
        })?;
        return Ok(());
    }
    let mut text = String::new();
    for (key, token) in tokens {
        // A line says that it is held, also where there is no token.
        let token = token.map_or("-".to_owned(), |token| token.to_string());
        // Writing to a string does not fail.
        let _ = match several {
            true => writeln!(text, "{token} {key}"),
            false => writeln!(text, "{token}"),
        };
    }
    printer.text(&text)?;
    Ok(())
}
