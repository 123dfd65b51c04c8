//! `leasehold init`: servers that are known to be new, and directories of local stores.

use leasehold::{Made, Marked, StoreError};

use crate::args::InitArgs;
use crate::connect::builder;
use crate::failure::Failure;
use crate::output::{Fields, Printer};
use crate::{duration, exit};

/// Marks the servers that have never been used, or makes the directory of a local store. A server
/// that is not new, or cannot be asked, makes it fail.
pub(crate) async fn init(args: &InitArgs, printer: &Printer) -> Result<u8, Failure> {
    let store = &args.common.store.settings;
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
    let alone = servers.len() == 1;
    let does = if alone { "grants" } else { "votes" };
    let mut status = exit::OK;
    for it in &servers {
        let (server, outcome) = (&it.server, &it.outcome);
        let (word, became) = became(outcome, does);
        if matches!(word, "not-new" | "error") {
            status = exit::UNAVAILABLE;
        }
        // What is left of its quarantine is zero if it votes, or grants.
        let left = outcome.as_ref().ok().map(|marked| marked.left());
        let error = outcome.as_ref().err().map(ToString::to_string);
        let line = Fields::default()
            .with("server", server)
            .with("outcome", word)
            .with("quarantine_ms", left.map(duration::millis))
            .with("error", error);
        let sentence = match (&it.made, outcome) {
            (Some(Made { what, users, .. }), Ok(Marked::New)) => {
                format!("{what} was made, {users}")
            }
            (Some(Made { what, users, .. }), Ok(_)) => format!("{what} was there already, {users}"),
            _ => format!("{server} {became}"),
        };
        printer.done(&line, &sentence)?;
    }
    Ok(status)
}

/// What became of a server: a word for programs, and the words for people.
fn became(outcome: &Result<Marked, StoreError>, does: &str) -> (&'static str, String) {
    let marked = match outcome {
        Ok(marked) => marked,
        Err(error) => return ("error", format!("was not marked: {error}")),
    };
    let spoken = duration::spoken(marked.left());
    match marked {
        Marked::New => ("new", format!("is marked as new, and {does}")),
        Marked::Already => ("already", format!("was marked before, and {does}")),
        Marked::Moved { .. } => (
            "moved",
            format!("belonged to other settings; it belongs to these now, and {does} in {spoken}"),
        ),
        _ => (
            "not-new",
            format!("was not marked: it is not new, and {does} in {spoken}"),
        ),
    }
}
