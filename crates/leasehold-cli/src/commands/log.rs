//! `leasehold log`: what the audit log says.

use std::pin::pin;
use std::time::{Duration, SystemTime};

use leasehold::audit::AuditLog;
use tokio::time::timeout;

use crate::args::LogArgs;
use crate::connect::connect;
use crate::exit;
use crate::failure::Failure;
use crate::history::EntryView;
use crate::output::{Printer, reader_gone};
use crate::store_warnings::say_if_it_is_a_url;

/// How often a log that is followed is asked for more.
const PAUSE: Duration = Duration::from_millis(500);

/// Prints the entries that are there, sorted by time, and with `--follow` those that come, sorted as
/// far as they are read at once.
pub(crate) async fn log(args: &LogArgs, printer: &Printer) -> Result<u8, Failure> {
    let store = &args.common.store.settings;
    let since = args.since.unwrap_or(SystemTime::UNIX_EPOCH);
    if args.until.is_some_and(|until| until < since) {
        let message = "there are no entries: --until is before --since";
        return Err(Failure::usage(message));
    }
    if let Some(key) = &args.key {
        say_if_it_is_a_url(key, store, printer);
    }
    let client = connect(store).await?;
    let mut log = client.audit_log(args.key.as_deref(), since)?;
    let mut found = Vec::new();
    read(args, &mut log, &mut found).await?;
    if found.is_empty() {
        // No log at all is worth a word, whoever reads it.
        let mut all = client.audit_log(None, SystemTime::UNIX_EPOCH)?;
        if all.next().await?.is_empty() {
            printer.notice("the audit log of this store is empty");
            printer.notice(
                "hint: clients write the log if they open the store with audit, as in \
                 redis://host/?audit=10000",
            );
        } else if !args.follow {
            printer.nothing("no entries match");
        }
    }
    let older = found.len().saturating_sub(args.lines.unwrap_or(usize::MAX));
    found.drain(..older);
    let mut failed = false;
    let mut gone = pin!(reader_gone());
    let mut read_on: Result<(), Failure> = Ok(());
    loop {
        for entry in found {
            if !printer.show(&entry, || format!("{entry}\n"))? {
                return Ok(exit::OK);
            }
        }
        read_on?;
        if !args.follow || timeout(PAUSE, &mut gone).await.is_ok() {
            return Ok(exit::OK);
        }
        found = Vec::new();
        // It goes on when the store answers again, behind what was read by then.
        read_on = match read(args, &mut log, &mut found).await {
            Err(failure) if failure.passing => {
                if !std::mem::replace(&mut failed, true) {
                    printer.warn(format!("{failure}; trying again"));
                }
                Ok(())
            }
            ended => {
                if ended.is_ok() && std::mem::take(&mut failed) {
                    printer.notice("the store answers again");
                }
                ended
            }
        };
    }
}

/// Reads all entries that are there now and were not read yet, and sorts what it got of them: each
/// server has a log of its own.
async fn read(
    args: &LogArgs,
    log: &mut AuditLog<'_>,
    found: &mut Vec<EntryView>,
) -> Result<(), Failure> {
    let ended = loop {
        let page = match log.next().await {
            Ok(page) if !page.is_empty() => page,
            ended => break ended,
        };
        let entries = page.iter().map(EntryView::from);
        found.extend(entries.filter(|entry| {
            let owner = args.owner.as_deref();
            let until = args.until.map(crate::view::time);
            owner.is_none_or(|owner| entry.is_of(owner))
                && until.is_none_or(|until| entry.at <= until)
        }));
    };
    found.sort_by_key(|entry| entry.at);
    Ok(ended.map(drop)?)
}
