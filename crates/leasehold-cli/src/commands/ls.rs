//! `leasehold ls`: the keys that somebody holds or waits for.

use std::time::Duration;

use leasehold_console::table::{Layout, width};
use leasehold_console::tables;
use tokio::time::Instant;

use super::watch;
use crate::args::LsArgs;
use crate::connect::connect;
use crate::exit;
use crate::failure::Failure;
use crate::output::Printer;
use crate::view::KeyView;

/// How many keys are printed at once, sorted, and for how long they are waited for.
const MOST: usize = 1000;
const LONGEST: Duration = Duration::from_secs(1);

/// Lists keys, as they are found.
pub(crate) async fn ls(args: &LsArgs, printer: &Printer) -> Result<u8, Failure> {
    let client = connect(&args.common.store.settings).await?;
    if let Some(interval) = args.watch {
        return watch::watch(client, args, interval, printer).await;
    }
    let mut listing = client.listing(&args.keys.pattern);
    let mut rows = Rows {
        printer,
        found: Vec::new(),
        since: Instant::now(),
        layout: None,
    };
    loop {
        let part = match listing.next().await {
            Ok(Some(part)) => part,
            Ok(None) => break,
            Err(error) => {
                rows.print()?;
                return Err(error.into());
            }
        };
        for skipped in part.skipped {
            printer.warn(format!("skipped {}: {}", skipped.name, skipped.error));
        }
        let views = part.keys.iter().map(KeyView::from);
        rows.found.extend(views.filter(|view| args.lists(view)));
        if rows.are_due() && !rows.print()? {
            return Ok(exit::OK);
        }
    }
    rows.print()?;
    if rows.layout.is_none() {
        printer.nothing("no locks");
    }
    Ok(exit::OK)
}

/// Keys that were found, and are printed some at a time: few of them as one sorted table.
struct Rows<'a> {
    printer: &'a Printer,
    found: Vec<KeyView>,
    since: Instant,
    /// The columns of the rows before.
    layout: Option<Layout<KeyView>>,
}

impl Rows<'_> {
    fn are_due(&self) -> bool {
        self.found.len() >= MOST || self.since.elapsed() >= LONGEST
    }

    /// Prints what was found since the last time. Answers whether anybody still reads.
    fn print(&mut self) -> Result<bool, Failure> {
        self.since = Instant::now();
        let mut found = std::mem::take(&mut self.found);
        if found.is_empty() {
            return Ok(true);
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        let rows = self.printer.shown(&found, || {
            let is_first = self.layout.is_none();
            let new = || tables::of_locks(&found, width());
            let layout = self.layout.get_or_insert_with(new);
            layout.text(found.iter(), is_first)
        });
        self.printer.data(&rows?)
    }
}
