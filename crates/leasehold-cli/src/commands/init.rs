//! `leasehold init`: servers that are known to be new.

use serde::Serialize;

use crate::cli::InitArgs;
use crate::connect::redlock_options;
use crate::duration;
use crate::exit;
use crate::failure::Failure;
use crate::output::Printer;

/// What `--json` prints, a line a server.
#[derive(Serialize)]
struct Marked<'a> {
    server: &'a str,
    /// What is left of its quarantine; zero if it votes.
    quarantine_ms: Option<u64>,
    error: Option<String>,
}

/// Marks the servers of a set that have never been used.
pub(crate) async fn init(args: &InitArgs, printer: &Printer) -> Result<u8, Failure> {
    let options = redlock_options(&args.store)?;
    let marked = leasehold::store::redis::RedlockStore::initialise(options).await;
    let mut status = exit::OK;
    for server in marked.map_err(Failure::from)? {
        let name = &*server.server;
        let (left, error) = match &server.outcome {
            Ok(left) => (Some(*left), None),
            Err(error) => (None, Some(error.to_string())),
        };
        if args.json {
            printer.json(&Marked {
                server: name,
                quarantine_ms: left.map(duration::millis),
                error: error.clone(),
            })?;
        }
        printer.notice(&match (left, error) {
            (Some(left), _) if left.is_zero() => format!("{name} votes"),
            (Some(left), _) => {
                format!("{name} is not new, and votes in {}", duration::spoken(left))
            }
            (None, error) => {
                status = exit::UNAVAILABLE;
                format!("{name} was not marked: {}", error.unwrap_or_default())
            }
        });
    }
    Ok(status)
}
