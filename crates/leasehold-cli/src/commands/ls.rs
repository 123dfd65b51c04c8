//! `leasehold ls`: the keys that somebody holds or waits for.

use std::io::{self, IsTerminal};
use std::time::Duration;

use leasehold::Skipped;
use tokio::time::Instant;

use super::watch;
use crate::args::LsArgs;
use crate::connect::connect;
use crate::exit;
use crate::failure::Failure;
use crate::output::{Column, Layout, Narrow, Printer, WHOLE, width};
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
    let mut listing = client.listing(&args.keys.pattern);
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
    Layout::new(COLUMNS, NARROW, &views.iter(), width()).text(views.iter(), true)
}

/// Keys that were found, and are printed some at a time: few of them as one sorted table.
struct Rows<'a> {
    json: bool,
    printer: &'a Printer,
    found: Vec<KeyView>,
    since: Instant,
    printed: bool,
    /// The columns of the rows before.
    layout: Option<Layout<KeyView>>,
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
            layout: None,
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
        let is_first = self.layout.is_none();
        let new = || Layout::new(COLUMNS, NARROW, &views.iter(), self.terminal);
        let layout = self.layout.get_or_insert_with(new);
        layout.text(views.iter(), is_first)
    }
}

const COLUMNS: &[Column<KeyView>] = &[
    ("KEY", |view| view.key.clone()),
    ("MODE", mode),
    ("HELD BY", |view| held_by(view, ClaimView::who)),
    ("SINCE", |view| of_first(view, ClaimView::began)),
    ("EXPIRES IN", |view| of_first(view, ClaimView::lapse)),
    ("WAITING", |view| view.waiters.len().to_string()),
    ("TOKEN", |view| {
        view.token()
            .map_or_else(|| "-".to_owned(), |token| token.to_string())
    }),
];

/// The same for a terminal that has no room for all of it.
const NARROW: &[Narrow<KeyView>] = &[
    (("KEY", |view| view.key.clone()), 0, 14),
    (("MODE", mode), 6, WHOLE),
    (
        ("HELD BY", |view| held_by(view, ClaimView::short_name)),
        1,
        12,
    ),
    (
        ("HELD FOR", |view| of_first(view, ClaimView::held_for)),
        4,
        WHOLE,
    ),
    (
        ("EXPIRES IN", |view| of_first(view, ClaimView::lapse)),
        4,
        WHOLE,
    ),
    (("WAITING", |view| view.waiters.len().to_string()), 2, WHOLE),
];

/// How the key is held; of a semaphore [`held_by`] says how much of it.
fn mode(view: &KeyView) -> String {
    let claim = view.holders.first().or_else(|| view.waiters.first());
    claim.map_or(String::new(), |claim| claim.mode.to_owned())
}

/// The holders in a cell of a table, each by its name: `deploy`, or `3/3 deploy and 2 more` of a
/// semaphore whose permits are all taken.
pub(super) fn held_by(view: &KeyView, name: fn(&ClaimView) -> String) -> String {
    let taken = view.taken().map_or(String::new(), |taken| taken + " ");
    let holders = match &*view.holders {
        [] => "-".to_owned(),
        [one] if one.kept_until.is_some() => format!("{} (finished)", name(one)),
        [one] => name(one),
        [first, more @ ..] => format!("{} and {} more", name(first), more.len()),
    };
    taken + &holders
}

fn of_first(view: &KeyView, says: fn(&ClaimView) -> String) -> String {
    view.holders.first().map(says).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::view::tests::claim;

    fn view(key: &str) -> KeyView {
        KeyView {
            key: key.to_owned(),
            kind: "lock",
            permits: None,
            last_token: 7,
            at: jiff::Timestamp::UNIX_EPOCH,
            holders: vec![claim(None)],
            waiters: vec![],
        }
    }

    /// Locks that take much room: with long names, and a semaphore whose permits are all taken.
    pub(in crate::commands) fn long() -> Vec<KeyView> {
        let waiter = |position| ClaimView {
            position: Some(position),
            ..claim(Some("a-label-that-never-ends"))
        };
        let permit = |token| ClaimView {
            mode: "permits",
            weight: Some(1),
            of: Some(3),
            token: Some(token),
            age: Some(Duration::from_secs(86_399)),
            ..claim(Some("a-label-that-never-ends"))
        };
        let mut pool = view("a-pool/with/many/parts/that/would/fill/the/line");
        (pool.kind, pool.permits) = ("semaphore", Some(3));
        pool.holders = (1..=3).map(permit).collect();
        pool.waiters = (1..=1234).map(waiter).collect();
        vec![pool, view("short")]
    }

    #[test]
    fn at_40_columns_key_holder_and_waiting_are_there() {
        let views = long();
        let text = |views: &[KeyView], room| {
            Layout::new(COLUMNS, NARROW, &views.iter(), room).text(views.iter(), true)
        };
        assert_eq!(
            text(&views, Some(40)),
            "KEY              HELD BY         WAITING\n\
             a-pool/with/ma…  3/3 a-label-t…  1234\n\
             short            build7 (pid 8…  0\n"
        );
        for room in 26..200 {
            let text = text(&views, Some(room));
            for heading in ["KEY", "HELD BY", "WAITING", "a-", "3/3", "1234"] {
                assert!(text.contains(heading), "{room}: {text}");
            }
            let widths = text.lines().map(unicode_width::UnicodeWidthStr::width);
            assert!(widths.max() <= Some(room.max(28)), "{room}: {text}");
        }
        let whole = text(&views, None);
        assert!(
            whole.contains(&views[0].key) && whole.contains("SINCE"),
            "{whole}"
        );
    }

    #[test]
    fn rows_that_come_later_have_no_heading() {
        let printer = Printer::default();
        let mut rows = Rows::new(false, &printer);
        let first = rows.text(&[view("a-long-key"), view("b")]);
        let second = rows.text(&[view("c")]);
        assert!(first.starts_with("KEY "), "{first}");
        let at = |text: &str| text.lines().last().and_then(|line| line.find("exclusive"));
        assert_eq!(second.lines().count(), 1, "{second}");
        assert_eq!(at(&first), at(&second), "{first}{second}");
    }
}
