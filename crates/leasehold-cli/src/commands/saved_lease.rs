//! `leasehold renew` and `leasehold release`: a lease that `hold --save` has written.

use std::fs;
use std::path::Path;

use leasehold::{Client, ErrorKind, Released, Settings};
use serde::Serialize;

use crate::cli::{ReleaseArgs, RenewArgs, StoreArgs};
use crate::connect::connect;
use crate::duration::{millis, spoken};
use crate::exit;
use crate::failure::Failure;
use crate::output::Printer;
use crate::saved::SavedLease;

/// What `--json` prints, a line for each key.
#[derive(Serialize)]
struct Done<'a> {
    key: &'a str,
    /// Whether the lease was still there.
    held: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
}

/// Renews each lease of the file.
pub(crate) async fn renew(args: &RenewArgs, printer: &Printer) -> Result<u8, Failure> {
    let (saved, client) = open(&args.file, &args.common.store).await?;
    let ttl = args.ttl.unwrap_or_else(|| saved.ttl());
    Settings::default().with_ttl(ttl).check()?;
    let mut status = exit::OK;
    for lease in &saved.leases {
        let key = lease.key().as_str();
        let (held, sentence) = match client.renew_by_parts(lease, ttl).await {
            Ok(()) => (true, format!("renewed {key} for {}", spoken(ttl))),
            Err(error) if error.kind() == ErrorKind::Lost => {
                status = exit::LOST;
                (false, error.to_string())
            }
            Err(error) => return Err(error.into()),
        };
        let ttl_ms = held.then(|| millis(ttl));
        let done = Done { key, held, ttl_ms };
        say(&done, &sentence, printer)?;
    }
    Ok(status)
}

/// Releases each lease of the file, and removes the file.
pub(crate) async fn release(args: &ReleaseArgs, printer: &Printer) -> Result<u8, Failure> {
    let (saved, client) = open(&args.file, &args.common.store).await?;
    let mut status = exit::OK;
    for lease in &saved.leases {
        let key = lease.key().as_str();
        let (held, sentence) = match client.release_by_parts(lease).await? {
            Released::StillOurs => (true, format!("released {key}")),
            _ => {
                status = exit::LOST;
                let ended = "the lease had ended before; another may have held it since";
                (false, format!("{key} was not held: {ended}"))
            }
        };
        let ttl_ms = None;
        let done = Done { key, held, ttl_ms };
        say(&done, &sentence, printer)?;
    }
    fs::remove_file(&args.file).map_err(|error| {
        let message = format!("cannot remove {}: {error}", args.file.display());
        Failure::new(exit::OUTPUT, message)
    })?;
    Ok(status)
}

/// The lease, and a client of its store, or of another that was named.
async fn open(file: &Path, store: &StoreArgs) -> Result<(SavedLease, Client), Failure> {
    let saved = SavedLease::read(file)?;
    let client = connect(&store.or_saved(&saved.store)).await?;
    Ok((saved, client))
}

/// A lease that is gone is said with `-q`, too.
fn say(done: &Done<'_>, sentence: &str, printer: &Printer) -> Result<(), Failure> {
    if done.held {
        return printer.done(done, sentence);
    }
    printer.failure(&Failure::new(exit::LOST, sentence));
    printer.data_line_of_json(done)
}
