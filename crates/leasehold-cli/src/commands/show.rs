//! `leasehold show`: one key, its holders and its queue.

use std::time::Duration;

use leasehold::{Client, Error, Inspection, Key};
use leasehold_console::table::width;
use leasehold_console::tables;
use tokio::time::timeout;

use crate::args::ShowArgs;
use crate::connect::connect;
use crate::duration::spoken;
use crate::exit;
use crate::failure::Failure;
use crate::output::Printer;
use crate::store_warnings::say_if_it_is_a_url;
use crate::view::KeyView;

/// How long it may take to find out what the holders wait for.
const WAITS_LIMIT: Duration = Duration::from_secs(1);

/// Shows who holds the key and who waits for it.
pub(crate) async fn show(args: &ShowArgs, printer: &Printer) -> Result<u8, Failure> {
    Key::new(&args.key)?;
    say_if_it_is_a_url(&args.key, &args.common.store.settings, printer);
    let client = connect(&args.common.store.settings).await?;
    let seen = client.inspect(&args.key).await?;
    let mut view = KeyView::from(&seen);
    if !(args.exit_code && args.common.output.quiet) {
        let added = timeout(WAITS_LIMIT, add_waits(&client, &seen, &mut view)).await;
        let failed = match added {
            Ok(added) => added.err().map(|error| error.to_string()),
            Err(_) => Some(format!("no answer within {}", spoken(WAITS_LIMIT))),
        };
        // The key itself is known.
        if let Some(why) = failed {
            printer.warn(format!("could not find what the holders wait for: {why}"));
        }
        printer.show(&view, || tables::of_key(&view, width()))?;
    }
    let is_held = args.exit_code && !view.holders.is_empty();
    Ok(if is_held { exit::HELD } else { exit::OK })
}

/// Adds what the holders wait for elsewhere. All keys are read, if a holder has told which piece of
/// work it belongs to, and the store knows who waits.
async fn add_waits(client: &Client, seen: &Inspection, view: &mut KeyView) -> Result<(), Error> {
    let contexts = seen.holders.iter().zip(&mut view.holders);
    let mut contexts: Vec<_> = contexts
        .filter_map(|(holder, view)| Some((holder.owner.context.as_ref()?, view)))
        .collect();
    if contexts.is_empty() || !client.capabilities().queueing {
        return Ok(());
    }
    let mut listing = client.listing("*");
    while let Some(part) = listing.next().await? {
        for other in part.keys {
            let waiters = other.waiters.iter();
            let waiting: Vec<_> = waiters.filter_map(|it| it.owner.context.as_ref()).collect();
            for (context, view) in &mut contexts {
                if waiting.iter().any(|waiting| context.covers(waiting)) {
                    view.waits_for.push(other.key.to_string());
                }
            }
        }
    }
    for (_, view) in contexts {
        view.waits_for.sort();
    }
    Ok(())
}
