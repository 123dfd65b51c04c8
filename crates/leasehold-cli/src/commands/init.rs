//! `leasehold init`: servers that are known to be new.

use std::time::Duration;

use leasehold::Initialised;
use leasehold::Marked;
use serde::Serialize;

use crate::cli::InitArgs;
use crate::connect::initialise;
use crate::failure::Failure;
use crate::output::Printer;
use crate::{duration, exit};

/// What `--json` prints, a line a server.
#[derive(Serialize)]
struct Line<'a> {
    server: &'a str,
    /// What became of it.
    outcome: &'static str,
    /// What is left of its quarantine; zero if it votes, or grants.
    quarantine_ms: Option<u64>,
    error: Option<String>,
}

/// Marks the servers that have never been used. A server that is not new, or cannot be
/// asked, makes it fail.
pub(crate) async fn init(args: &InitArgs, printer: &Printer) -> Result<u8, Failure> {
    let servers = initialise(&args.common.store).await?;
    // One grants by itself; several have a vote each.
    let does = match servers.len() {
        1 => "grants",
        _ => "votes",
    };
    let mut status = exit::OK;
    for Initialised { server, outcome } in &servers {
        let left = outcome
            .as_ref()
            .map_or(Duration::ZERO, |marked| marked.left());
        let spoken = duration::spoken(left);
        let (outcome_name, became) = match outcome {
            Ok(Marked::New) => ("new", format!("is marked as new, and {does}")),
            Ok(Marked::Already) => ("already", format!("was marked before, and {does}")),
            Ok(Marked::Moved { .. }) => (
                "moved",
                format!(
                    "belonged to other settings; it belongs to these now, and {does} in {spoken}"
                ),
            ),
            Ok(_) => (
                "not-new",
                format!("was not marked: it is not new, and {does} in {spoken}"),
            ),
            Err(error) => ("error", format!("was not marked: {error}")),
        };
        if matches!(outcome_name, "not-new" | "error") {
            status = exit::UNAVAILABLE;
        }
        let line = Line {
            server,
            outcome: outcome_name,
            quarantine_ms: outcome.is_ok().then(|| duration::millis(left)),
            error: outcome.as_ref().err().map(ToString::to_string),
        };
        printer.done(&line, &format!("{server} {became}"))?;
    }
    Ok(status)
}
