//! `leasehold init`: servers that are known to be new, and directories of local stores.

use std::time::Duration;

use leasehold::{Initialised, Made, Marked};

use crate::args::InitArgs;
use crate::connect::builder;
use crate::failure::Failure;
use crate::output::{Fields, Printer};
use crate::{duration, exit};

/// Marks the servers that have never been used, or makes the directory of a local store. A server
/// that is not new, or cannot be asked, makes it fail.
pub(crate) async fn init(args: &InitArgs, printer: &Printer) -> Result<u8, Failure> {
    let store = &args.common.settings;
    if !store.is_named() {
        let hint = "name the servers that are new, with -S or LEASEHOLD_STORE, or a directory that \
                    a group shall share: -S 'local:/some/dir?group=NAME'";
        return Err(Failure::usage("no store is named: there is nothing to make").hint(hint));
    }
    if args.dry_run {
        let text = builder(store).initialisation()?.ok_or_else(|| {
            Failure::usage("init sends no SQL to this store: there is none to print")
                .hint("name a postgres:// store, or leave out --dry-run")
        })?;
        printer.data(&text)?;
        return Ok(exit::OK);
    }
    let servers = builder(store).initialise().await?;
    // One grants by itself; several have a vote each.
    let does = match servers.len() {
        1 => "grants",
        _ => "votes",
    };
    let mut status = exit::OK;
    for initialised in &servers {
        let Initialised {
            server,
            made,
            outcome,
            ..
        } = initialised;
        let left = outcome
            .as_ref()
            .map_or(Duration::ZERO, |marked| marked.left());
        let outcome_name = name_of(outcome.as_ref().ok());
        if matches!(outcome_name, "not-new" | "error") {
            status = exit::UNAVAILABLE;
        }
        // What is left of its quarantine is zero if it votes, or grants.
        let quarantine_ms = outcome.is_ok().then(|| duration::millis(left));
        let error = outcome.as_ref().err().map(ToString::to_string);
        let line = Fields::default()
            .with("server", server)
            .with("outcome", outcome_name)
            .with("quarantine_ms", quarantine_ms)
            .with("error", error);
        let sentence = match (made, outcome) {
            (Some(Made { what, users, .. }), Ok(Marked::New)) => {
                format!("{what} was made, {users}")
            }
            (Some(Made { what, users, .. }), Ok(_)) => format!("{what} was there already, {users}"),
            (None, Ok(marked)) => format!("{server} {}", became(marked, does)),
            (_, Err(error)) => format!("{server} was not marked: {error}"),
        };
        printer.done(&line, &sentence)?;
    }
    Ok(status)
}

/// The word for what became of it; nothing came of an error.
fn name_of(outcome: Option<&Marked>) -> &'static str {
    match outcome {
        None => "error",
        Some(Marked::New) => "new",
        Some(Marked::Already) => "already",
        Some(Marked::Moved { .. }) => "moved",
        Some(_) => "not-new",
    }
}

/// What became of a server.
fn became(marked: &Marked, does: &str) -> String {
    let spoken = duration::spoken(marked.left());
    match marked {
        Marked::New => format!("is marked as new, and {does}"),
        Marked::Already => format!("was marked before, and {does}"),
        Marked::Moved { .. } => {
            format!("belonged to other settings; it belongs to these now, and {does} in {spoken}")
        }
        _ => format!("was not marked: it is not new, and {does} in {spoken}"),
    }
}
