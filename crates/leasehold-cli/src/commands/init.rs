//! `leasehold init`: servers that are known to be new.

use std::time::Duration;

use leasehold::store::redis::{RedisStore, RedlockStore};
use serde::Serialize;

use crate::cli::InitArgs;
use crate::connect::{Markable, markable};
use crate::duration;
use crate::exit;
use crate::failure::Failure;
use crate::output::Printer;

/// What `--json` prints, a line a server.
#[derive(Serialize)]
struct Marked<'a> {
    server: &'a str,
    /// What is left of its quarantine; zero if it votes, or grants.
    quarantine_ms: Option<u64>,
    error: Option<String>,
}

/// Marks the servers that have never been used.
pub(crate) async fn init(args: &InitArgs, printer: &Printer) -> Result<u8, Failure> {
    let options = match markable(&args.store)? {
        Markable::One(options) => {
            let name = options.redacted_url();
            let left = RedisStore::initialise(*options).await;
            say(
                args,
                printer,
                (&name, "grants"),
                Ok(left.map_err(Failure::from)?),
            )?;
            return Ok(exit::OK);
        }
        Markable::Several(options) => options,
    };
    let marked = RedlockStore::initialise(options).await;
    let mut status = exit::OK;
    for server in marked.map_err(Failure::from)? {
        let outcome = server.outcome.map_err(|error| error.to_string());
        if outcome.is_err() {
            status = exit::UNAVAILABLE;
        }
        say(args, printer, (&server.server, "votes"), outcome)?;
    }
    Ok(status)
}

/// Says what came of it, and what the server does when it is marked.
fn say(
    args: &InitArgs,
    printer: &Printer,
    (server, does): (&str, &str),
    outcome: Result<Duration, String>,
) -> Result<(), Failure> {
    if args.json {
        printer.json(&Marked {
            server,
            quarantine_ms: outcome.as_ref().ok().copied().map(duration::millis),
            error: outcome.as_ref().err().cloned(),
        })?;
    }
    printer.notice(&match outcome {
        Ok(left) if left.is_zero() => format!("{server} {does}"),
        Ok(left) => {
            let left = duration::spoken(left);
            format!("{server} is not new, and {does} in {left}")
        }
        Err(error) => format!("{server} was not marked: {error}"),
    });
    Ok(())
}
