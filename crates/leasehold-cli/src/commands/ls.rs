//! `leasehold ls`: the keys that somebody holds or waits for.

use std::io::{self, IsTerminal};
use std::time::Duration;

use comfy_table::{ColumnConstraint, Width};
use tokio::time::Instant;

use crate::cli::LsArgs;
use crate::connect::connect;
use crate::exit;
use crate::failure::Failure;
use crate::output::{Printer, escape, table};
use crate::view::{ClaimView, KeyView, to_the_second};

/// How many keys are printed at once, sorted, and for how long they are waited for.
const MOST: usize = 1000;
const LONGEST: Duration = Duration::from_secs(1);

/// Lists keys, as they are found.
pub(crate) async fn ls(args: &LsArgs, printer: &Printer) -> Result<u8, Failure> {
    let client = connect(&args.common.store).await?;
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
            printer.warn(format!("passed over {}: {}", skipped.name, skipped.error));
        }
        rows.found.extend(part.keys.iter().map(KeyView::from));
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

/// Keys that were found, and are printed some at a time: few of them as one sorted table.
struct Rows<'a> {
    json: bool,
    printer: &'a Printer,
    found: Vec<KeyView>,
    since: Instant,
    printed: bool,
    /// How wide the columns are so far.
    widths: Vec<u16>,
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
        let read = match self.json {
            true => self.print_json(&found)?,
            false => {
                let text = self.text(&found);
                self.printer.text(&text)?
            }
        };
        self.printed = true;
        Ok(read)
    }

    fn print_json(&self, found: &[KeyView]) -> Result<bool, Failure> {
        for view in found {
            if !self.printer.json(view)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The rows, under the columns of those before.
    fn text(&mut self, views: &[KeyView]) -> String {
        let mut rows = table(&[
            "KEY",
            "MODE",
            "HELD BY",
            "SINCE",
            "EXPIRES IN",
            "WAITING",
            "LAST TOKEN",
        ]);
        for view in views {
            rows.add_row(row(view));
        }
        for (column, width) in rows.column_iter_mut().zip(&self.widths) {
            // With the space behind it.
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width + 2)));
        }
        let widths = rows.column_max_content_widths();
        let before = self.widths.iter().copied().chain(std::iter::repeat(0));
        self.widths = widths
            .into_iter()
            .zip(before)
            .map(|(a, b)| a.max(b))
            .collect();
        let text = rows.trim_fmt() + "\n";
        match self.printed {
            true => text
                .split_once('\n')
                .map_or(text.as_str(), |(_, rows)| rows)
                .to_owned(),
            false => text,
        }
    }
}

fn row(view: &KeyView) -> Vec<String> {
    let first = view.holders.first();
    let claim = first.or_else(|| view.waiters.first());
    let who = match (first, view.holders.len()) {
        (None, _) => "-".to_owned(),
        (Some(first), 1) if first.kept_until.is_some() => format!("{} (finished)", first.who()),
        (Some(first), 1) => first.who(),
        (Some(first), all) => format!("{} and {} more", first.who(), all - 1),
    };
    vec![
        escape(&view.key).into_owned(),
        claim.map(ClaimView::mode).unwrap_or_default(),
        escape(&who).into_owned(),
        first
            .and_then(|first| first.since.as_deref().map(to_the_second))
            .unwrap_or_default(),
        first.map(ClaimView::lapse).unwrap_or_default(),
        view.waiters.len().to_string(),
        match view.last_token {
            0 => "-".to_owned(),
            token => token.to_string(),
        },
    ]
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
            at: String::new(),
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
