//! `leasehold init`: servers that are known to be new.

use leasehold::Initialised;
use leasehold::Marked;
use serde::Serialize;

use crate::cli::InitArgs;
use crate::connect::initialise;
use crate::duration;
use crate::exit;
use crate::failure::Failure;
use crate::output::Printer;

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
    let servers = initialise(&args.store).await?;
    // One grants by itself; several have a vote each.
    let does = if servers.len() == 1 {
        "grants"
    } else {
        "votes"
    };
    let mut status = exit::OK;
    for server in &servers {
        if !matches!(
            server.outcome,
            Ok(Marked::New | Marked::Already | Marked::Moved { .. })
        ) {
            status = exit::UNAVAILABLE;
        }
        if args.json {
            printer.json(&line(server))?;
        }
        printer.notice(&sentence(server, does));
    }
    Ok(status)
}

fn line(server: &Initialised) -> Line<'_> {
    let left = |marked: &Marked| duration::millis(marked.left());
    Line {
        server: &server.server,
        outcome: match &server.outcome {
            Ok(Marked::New) => "new",
            Ok(Marked::Already) => "already",
            Ok(Marked::Moved { .. }) => "moved",
            Ok(_) => "not-new",
            Err(_) => "error",
        },
        quarantine_ms: server.outcome.as_ref().ok().map(left),
        error: server.outcome.as_ref().err().map(ToString::to_string),
    }
}

/// What became of a server, and what it does when it is marked.
fn sentence(server: &Initialised, does: &str) -> String {
    let name = &server.server;
    match &server.outcome {
        Ok(Marked::New) => format!("{name} is marked as new, and {does}"),
        Ok(Marked::Already) => format!("{name} was marked before, and {does}"),
        Ok(Marked::Moved { left }) => {
            let left = duration::spoken(*left);
            format!(
                "{name} belonged to other settings; it belongs to these now, and {does} in {left}"
            )
        }
        Ok(not_new) => {
            let left = duration::spoken(not_new.left());
            format!("{name} was not marked: it is not new, and {does} in {left}")
        }
        Err(error) => format!("{name} was not marked: {error}"),
    }
}
