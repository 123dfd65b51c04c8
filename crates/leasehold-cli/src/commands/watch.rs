//! `leasehold ls --watch`: the table of `ls` again when it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal};
use std::time::Duration;

use jiff::Timestamp;
use leasehold::Client;
use rustix::termios::tcgetwinsize;
use tokio::time::{Instant, sleep_until};

use super::ls;
use crate::args::LsArgs;
use crate::exit;
use crate::failure::Failure;
use crate::load_limit::LoadLimit;
use crate::output::{Printer, escape};
use crate::signals::Signals;
use crate::view::{KeyView, same_claims, to_the_second};

/// Moves the cursor to the top of the screen.
const HOME: &str = "\x1b[H";
/// Has the terminal cut lines that are too long, and break them again.
const CUT: &str = "\x1b[?7l";
const BREAK: &str = "\x1b[?7h";
/// Clears what is behind the cursor: of a line, and of the screen.
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";

type Locks = BTreeMap<String, KeyView>;

/// Prints the locks and their changes until a signal comes, or nobody reads.
pub(super) async fn watch(
    client: &Client,
    args: &LsArgs,
    interval: Duration,
    printer: &Printer,
) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let mut load = LoadLimit::default();
    let mut before: Option<Locks> = None;
    let (mut failed, mut warned) = (false, BTreeSet::new());
    loop {
        let began = Instant::now();
        let locks = tokio::select! {
            _ = signals.next() => return Ok(exit::OK),
            locks = read(client, args, &mut load, &mut warned, printer) => locks,
        };
        match locks {
            Ok(locks) => {
                if std::mem::take(&mut failed) {
                    printer.notice("the store answers again");
                }
                if !print(&locks, before.as_ref(), args, printer)? {
                    return Ok(exit::OK);
                }
                before = Some(locks);
            }
            Err(failure) if before.is_none() || !failure.passing => return Err(failure),
            Err(failure) => {
                if !std::mem::replace(&mut failed, true) {
                    printer.warn(format!("{failure}; trying again"));
                }
            }
        }
        let next = (began + interval).max(Instant::now() + load.take_pause());
        tokio::select! {
            _ = signals.next() => return Ok(exit::OK),
            () = sleep_until(next) => {}
        }
    }
}

/// All locks at once.
async fn read(
    client: &Client,
    args: &LsArgs,
    load: &mut LoadLimit,
    warned: &mut BTreeSet<String>,
    printer: &Printer,
) -> Result<Locks, Failure> {
    load.measure_round_trip(client).await;
    let mut locks = Locks::new();
    let mut listing = client.listing(&args.keys.pattern);
    loop {
        let asked = Instant::now();
        let Some(part) = listing.next().await? else {
            return Ok(locks);
        };
        let trips = if part.keys.is_empty() { 1 } else { 2 };
        load.record(asked.elapsed(), trips);
        for skipped in part.skipped {
            if warned.insert(skipped.name.clone()) {
                ls::warn_of(&skipped, printer);
            }
        }
        let views = part.keys.iter().map(KeyView::from);
        locks.extend(views.map(|view| (view.key.clone(), view)));
    }
}

/// Prints what there is to print. Answers whether anybody still reads.
fn print(
    locks: &Locks,
    before: Option<&Locks>,
    args: &LsArgs,
    printer: &Printer,
) -> Result<bool, Failure> {
    let listed = |view: &KeyView| args.lists(view);
    if args.common.output.json {
        for view in changed(locks, before, listed) {
            if !printer.json(&view)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    let views: Vec<_> = locks
        .values()
        .filter(|view| listed(view))
        .cloned()
        .collect();
    if let Some(height) = height() {
        return printer.data(&screen(&views, height));
    }
    if before.is_some() && changed(locks, before, listed).is_empty() {
        return Ok(true);
    }
    let time = to_the_second(Timestamp::now());
    let end = if before.is_some() { "\n" } else { "" };
    printer.text(&format!("{end}{time}\n{}", table(&views)))
}

/// The locks that are others than before, and those that are not listed any more; what nobody uses
/// any more has no claims.
fn changed(
    locks: &Locks,
    before: Option<&Locks>,
    listed: impl Fn(&KeyView) -> bool,
) -> Vec<KeyView> {
    let empty = Locks::new();
    let before = before.unwrap_or(&empty);
    let was_listed = |key: &str| before.get(key).is_some_and(&listed);
    let same = |one: &KeyView, other: &KeyView| {
        one.permits == other.permits
            && same_claims(&one.holders, &other.holders)
            && same_claims(&one.waiters, &other.waiters)
    };
    let now = locks.values().filter(|view| {
        let last = before.get(&view.key).filter(|last| listed(last));
        match listed(view) {
            true => last.is_none_or(|last| !same(view, last)),
            false => last.is_some(),
        }
    });
    let gone = before
        .values()
        .filter(|view| was_listed(&view.key) && !locks.contains_key(&view.key));
    let free = gone.map(|view| KeyView {
        holders: vec![],
        waiters: vec![],
        permits: None,
        kind: "lock",
        ..view.clone()
    });
    now.cloned().chain(free).collect()
}

fn table(views: &[KeyView]) -> String {
    match views {
        [] => "no locks\n".to_owned(),
        views => ls::table_of(views),
    }
}

/// How many lines the terminal has, if the output is one that can be cleared.
fn height() -> Option<usize> {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let out = io::stdout();
    if dumb || !out.is_terminal() {
        return None;
    }
    let size = tcgetwinsize(&out).ok()?;
    (size.ws_row > 0).then_some(size.ws_row.into())
}

/// The table in place of what is on the screen, as far as it has room.
fn screen(views: &[KeyView], height: usize) -> String {
    let table = table(views);
    let lines: Vec<_> = table.lines().collect();
    // The last line is the cursor's.
    let room = height.saturating_sub(1).max(1);
    let (shown, more) = match lines.len() {
        all if all <= room => (all, 0),
        all => (room - 1, all - (room - 1)),
    };
    let shown = lines[..shown].iter().map(|line| escape(line).into_owned());
    let more = (more > 0).then(|| format!("and {more} more: see leasehold top"));
    let lines = shown.chain(more);
    let lines: String = lines.map(|line| line + REST_OF_LINE + "\r\n").collect();
    format!("{HOME}{CUT}{lines}{REST_OF_SCREEN}{BREAK}")
}
