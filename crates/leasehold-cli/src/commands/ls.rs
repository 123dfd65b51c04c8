//! `leasehold ls`: the keys that somebody holds or waits for; `--watch`: again when they change.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal};
use std::time::Duration;

use jiff::Timestamp;
use leasehold::Client;
use leasehold_console::feed::{self, Load};
use leasehold_console::lock_table::{LockTable, Update};
use leasehold_console::table::{Layout, width};
use leasehold_console::tables;
use rustix::termios::tcgetwinsize;
use tokio::time::Instant;

use crate::args::LsArgs;
use crate::connect::connect;
use crate::exit;
use crate::failure::Failure;
use crate::output::{Printer, escape, is_anothers, reader_gone};
use crate::signals::Signals;
use crate::store_warnings::say_if_it_is_a_url;
use crate::view::{KeyView, to_the_second};

/// How many keys are printed at once, sorted, and for how long they are waited for.
const MOST: usize = 1000;
const LONGEST: Duration = Duration::from_secs(1);

/// Moves the cursor to the top of the screen.
const HOME: &str = "\x1b[H";
/// Has the terminal cut lines that are too long, and break them again.
const CUT: &str = "\x1b[?7l";
const BREAK: &str = "\x1b[?7h";
/// Clears what is behind the cursor: of a line, and of the screen.
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";

type Locks = BTreeMap<String, KeyView>;

/// Lists keys as they are found, some at a time: few of them as one sorted table.
pub(crate) async fn ls(args: &LsArgs, printer: &Printer) -> Result<u8, Failure> {
    let store = &args.common.store.settings;
    say_if_it_is_a_url(&args.keys.pattern, store, printer);
    let client = connect(store).await?;
    if let Some(interval) = args.watch {
        return watch(client, args, interval, printer).await;
    }
    let mut listing = client.listing(&args.keys.pattern);
    let mut found: Vec<KeyView> = Vec::new();
    let mut since = Instant::now();
    // The columns of the rows before.
    let mut layout: Option<Layout<KeyView>> = None;
    loop {
        let part = listing.next().await;
        for part in part.iter().flatten() {
            for skipped in &part.skipped {
                printer.warn(format!("skipped {}: {}", skipped.name, skipped.error));
            }
            let views = part.keys.iter().map(KeyView::from);
            found.extend(views.filter(|view| args.lists(view)));
        }
        let is_last = !matches!(part, Ok(Some(_)));
        if is_last || found.len() >= MOST || since.elapsed() >= LONGEST {
            since = Instant::now();
            found.sort_by(|a, b| a.key.cmp(&b.key));
            let text = || {
                let is_first = layout.is_none();
                let layout = layout.get_or_insert_with(|| tables::of_locks(&found, width()));
                layout.text(found.iter(), is_first)
            };
            if !found.is_empty() && !printer.data(&printer.shown(&found, text)?)? {
                part?;
                return Ok(exit::OK);
            }
            found.clear();
        }
        if part?.is_none() {
            break;
        }
    }
    if layout.is_none() {
        printer.nothing("no locks");
    }
    Ok(exit::OK)
}

/// Prints the locks and their changes until a signal comes, or nobody reads.
async fn watch(
    client: Client,
    args: &LsArgs,
    interval: Duration,
    printer: &Printer,
) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    signals.end_with(reader_gone());
    printer.write_beside();
    let (load, pattern) = (Load::default(), &args.keys.pattern);
    let mut updates = feed::begin(client, interval, load, pattern, None);
    let mut table = LockTable::default();
    let mut before = None;
    let (mut failed, mut warned) = (false, BTreeSet::new());
    loop {
        let update = tokio::select! {
            _ = signals.next() => return Ok(exit::OK),
            told = updates.recv() => match told {
                Some(update) => update,
                None => return Ok(exit::OK),
            },
        };
        match &update {
            Update::Page(_, skipped) => {
                let skipped = skipped.iter();
                let said = skipped.map(|it| format!("skipped {}: {}", it.0, it.1));
                for said in said.filter(|said| warned.insert(said.clone())) {
                    printer.warn(said);
                }
            }
            Update::Failed(error) => {
                let failure = Failure::from(error.clone());
                if before.is_none() || !failure.passing {
                    return Err(failure);
                }
                if !std::mem::replace(&mut failed, true) {
                    printer.warn(format!("{failure}; trying again"));
                }
            }
            _ => {}
        }
        let is_pass = matches!(update, Update::Ended(_));
        table.take(update, Instant::now());
        if !is_pass {
            continue;
        }
        if std::mem::take(&mut failed) {
            printer.notice("the store answers again");
        }
        let locks = listed(&table, before.as_ref(), args);
        let text = text(&table, &locks, before.as_ref(), args, printer)?;
        if !signals.while_writing(printer.beside(&text)).await? {
            return Ok(exit::OK);
        }
        before = Some(locks);
    }
}

/// The locks that are asked for; of one that cannot be read now, what was seen last: it is not free.
fn listed(table: &LockTable, before: Option<&Locks>, args: &LsArgs) -> Locks {
    let now = table.locks().map(|lock| &lock.view);
    let now = now.filter(|view| args.lists(view));
    let last = before.into_iter().flat_map(Locks::values);
    let last = last.filter(|view| table.unreadable.contains_key(&view.key));
    let all = last.chain(now);
    all.map(|view| (view.key.clone(), view.clone())).collect()
}

/// What there is to print, if anything.
fn text(
    table: &LockTable,
    locks: &Locks,
    before: Option<&Locks>,
    args: &LsArgs,
    printer: &Printer,
) -> Result<String, Failure> {
    let is_read = |view: &&KeyView| !table.unreadable.contains_key(&view.key);
    let read = || locks.values().filter(is_read).cloned();
    let listed = || match &*read().collect::<Vec<_>>() {
        [] => "no locks\n".to_owned(),
        views => tables::of_locks(views, width()).text(views.iter(), true),
    };
    if let Some(height) = height().filter(|_| !args.common.output.json) {
        // A warning would be gone with the next table.
        let skipped = table.unreadable.iter();
        let skipped = skipped.map(|(key, why)| format!("skipped {key}: {why}"));
        let skipped = skipped.map(|said| escape(&said).into_owned() + "\n");
        return Ok(screen(&(skipped.collect::<String>() + &listed()), height));
    }
    let changed = changed(table, locks, before);
    if before.is_some() && changed.is_empty() {
        return Ok(String::new());
    }
    printer.shown(&changed, || {
        let time = to_the_second(Timestamp::now());
        let end = before.map_or("", |_| "\n");
        format!("{end}{time}\n{}", listed())
    })
}

/// The locks that are others than before, and those that are not listed any more; what nobody uses
/// any more has no claims.
fn changed(table: &LockTable, locks: &Locks, before: Option<&Locks>) -> Vec<KeyView> {
    let before: BTreeMap<_, _> = before.into_iter().flatten().collect();
    let is_other = |view: &&KeyView| before.get(&view.key).is_none_or(|last| last != view);
    let gone = before.iter().filter(|(key, _)| !locks.contains_key(**key));
    let gone = gone.map(|(key, last)| match table.lock(key) {
        Some(lock) => lock.view.clone(),
        None => KeyView {
            holders: vec![],
            waiters: vec![],
            permits: None,
            kind: "lock",
            ..(*last).clone()
        },
    });
    let now = locks.values().filter(is_other).cloned();
    now.chain(gone).collect()
}

/// How many lines the terminal has, if the output is one that can be cleared, and is ours.
fn height() -> Option<usize> {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let out = io::stdout();
    if dumb || !out.is_terminal() || is_anothers(&out) {
        return None;
    }
    let size = tcgetwinsize(&out).ok()?;
    (size.ws_row > 0).then_some(size.ws_row.into())
}

/// The text in place of what is on the screen, as far as it has room.
fn screen(text: &str, height: usize) -> String {
    let all = text.lines().count();
    // The last line is the cursor's.
    let room = height.saturating_sub(1).max(1);
    let more = if all > room { all - (room - 1) } else { 0 };
    let shown = text.lines().take(all - more);
    let shown = shown.map(|line| escape(line).into_owned());
    let more = (more > 0).then(|| format!("and {more} more: see leasehold top"));
    let lines = shown.chain(more);
    let lines: String = lines.map(|line| line + REST_OF_LINE + "\r\n").collect();
    format!("{HOME}{CUT}{lines}{REST_OF_SCREEN}{BREAK}")
}
