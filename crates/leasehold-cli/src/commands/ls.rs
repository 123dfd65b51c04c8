//! `leasehold ls`: the keys that somebody holds or waits for.

use std::io::{self, IsTerminal};
use std::time::Duration;

use comfy_table::{ColumnConstraint, Width};
use leasehold::Skipped;
use tokio::time::Instant;

use super::watch;
use crate::cli::LsArgs;
use crate::connect::connect;
use crate::exit;
use crate::failure::Failure;
use crate::output::{Column, Printer, fitted, width};
use crate::view::{ClaimView, KeyView};

/// How many keys are printed at once, sorted, and for how long they are waited for.
const MOST: usize = 1000;
const LONGEST: Duration = Duration::from_secs(1);

/// Lists keys, as they are found.
pub(crate) async fn ls(args: &LsArgs, printer: &Printer) -> Result<u8, Failure> {
    let client = connect(&args.common.store).await?;
    if let Some(interval) = args.watch {
        return watch::watch(&client, args, interval, printer).await;
    }
    let mut listing = client.listing(&args.pattern);
    let mut rows = Rows::new(args.common.output.json, printer);
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
            warn_of(&skipped, printer);
        }
        let views = part.keys.iter().map(KeyView::from);
        rows.found.extend(views.filter(|view| args.lists(view)));
        if rows.are_due() && !rows.print()? {
            return Ok(exit::OK);
        }
    }
    rows.print()?;
    if !rows.printed && !args.common.output.json && io::stderr().is_terminal() {
        printer.notice("no locks");
    }
    Ok(exit::OK)
}

/// Says that a name is not listed, and why.
pub(super) fn warn_of(skipped: &Skipped, printer: &Printer) {
    printer.warn(format!("skipped {}: {}", skipped.name, skipped.error));
}

/// Locks as a table.
pub(super) fn table_of(views: &[KeyView]) -> String {
    fitted(COLUMNS, NARROW, &FLEXIBLE, views, width()).trim_fmt() + "\n"
}

/// Keys that were found, and are printed some at a time: few of them as one sorted table.
struct Rows<'a> {
    json: bool,
    printer: &'a Printer,
    found: Vec<KeyView>,
    since: Instant,
    printed: bool,
    /// How wide the columns are so far.
    widths: Vec<u16>,
    /// The terminal's width.
    terminal: Option<usize>,
}

impl<'a> Rows<'a> {
    fn new(json: bool, printer: &'a Printer) -> Self {
        Self {
            json,
            printer,
            found: Vec::new(),
            since: Instant::now(),
            printed: false,
            widths: Vec::new(),
            terminal: width(),
        }
    }

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
        let mut read = true;
        if self.json {
            for view in &found {
                read = read && self.printer.json(view)?;
            }
        } else {
            let text = self.text(&found);
            read = self.printer.text(&text)?;
        }
        self.printed = true;
        Ok(read)
    }

    /// The rows, under the columns of those before.
    fn text(&mut self, views: &[KeyView]) -> String {
        let mut rows = fitted(COLUMNS, NARROW, &FLEXIBLE, views, self.terminal);
        for (column, width) in rows.column_iter_mut().zip(&self.widths) {
            // With the space behind it.
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width + 2)));
        }
        let widths = rows.column_max_content_widths();
        self.widths.resize(widths.len(), 0);
        for (widest, width) in self.widths.iter_mut().zip(widths) {
            *widest = width.max(*widest);
        }
        let text = rows.trim_fmt() + "\n";
        match text.split_once('\n') {
            Some((_heading, rows)) if self.printed => rows.to_owned(),
            _ => text,
        }
    }
}

const COLUMNS: &[Column<KeyView>] = &[
    ("KEY", |view| view.key.clone()),
    ("MODE", |view| {
        let claim = view.holders.first().or_else(|| view.waiters.first());
        claim.map(ClaimView::mode).unwrap_or_default()
    }),
    ("HELD BY", |view| held_by(view, ClaimView::who)),
    ("SINCE", |view| of_first(view, ClaimView::began)),
    ("EXPIRES IN", |view| of_first(view, ClaimView::lapse)),
    ("WAITING", |view| view.waiters.len().to_string()),
    ("LAST TOKEN", |view| match view.last_token {
        0 => "-".to_owned(),
        token => token.to_string(),
    }),
];

/// The same for a terminal that has no room for all of it.
const NARROW: &[Column<KeyView>] = &[
    ("KEY", |view| view.key.clone()),
    ("MODE", |view| {
        let claim = view.holders.first().or_else(|| view.waiters.first());
        claim.map(ClaimView::mode).unwrap_or_default()
    }),
    ("HELD BY", |view| held_by(view, ClaimView::short_name)),
    ("FOR", |view| of_first(view, ClaimView::held_for)),
    ("ENDS IN", |view| of_first(view, ClaimView::lapse)),
    ("WAIT", |view| view.waiters.len().to_string()),
];

/// The columns that are cut first.
const FLEXIBLE: [&str; 2] = ["KEY", "HELD BY"];

/// The holders in a cell of a table, each by its name.
pub(super) fn held_by(view: &KeyView, name: fn(&ClaimView) -> String) -> String {
    match &*view.holders {
        [] => "-".to_owned(),
        [one] if one.kept_until.is_some() => format!("{} (finished)", name(one)),
        [one] => name(one),
        [first, more @ ..] => format!("{} and {} more", name(first), more.len()),
    }
}

fn of_first(view: &KeyView, says: fn(&ClaimView) -> String) -> String {
    view.holders.first().map(says).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(key: &str) -> KeyView {
        KeyView {
            key: key.to_owned(),
            kind: "lock",
            permits: None,
            last_token: 7,
            at: jiff::Timestamp::UNIX_EPOCH,
            holders: vec![crate::view::tests::claim(None)],
            waiters: vec![],
        }
    }

    #[test]
    fn rows_that_come_later_stand_under_the_same_columns() {
        let printer = Printer::default();
        let mut rows = Rows::new(false, &printer);
        let first = rows.text(&[view("a-long-key"), view("b")]);
        rows.printed = true;
        let second = rows.text(&[view("c")]);
        let columns = |line: &str| (line.find("exclusive"), line.find("build7"), line.find(" 7"));
        let lines: Vec<_> = first.lines().chain(second.lines()).collect();
        assert!(lines[0].starts_with("KEY "), "{lines:?}");
        assert_eq!(lines.len(), 4, "one heading: {lines:?}");
        assert_eq!(columns(lines[1]), columns(lines[2]), "{lines:?}");
        assert_eq!(columns(lines[1]), columns(lines[3]), "{lines:?}");
    }
}
