//! Draws the state of `top`: the table or the details of a key, the status, and the keys.

use std::time::Duration;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Constraint::{Fill, Length};
use ratatui::layout::{Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Widget, Wrap};
use tokio::time::Instant;
use unicode_width::UnicodeWidthStr;

use super::TopOptions;
use super::columns::{Column, draw as draw_columns};
use super::model::{Model, Overlay};
use crate::breaking::question;
use crate::duration::{millis, spoken};
use crate::escape::escape;
use crate::history::EntryView;
use crate::lock_table::{Lock, SortBy};
use crate::table::{WHOLE, cut};
use crate::tables::{CLAIMS, heading, held_by};
use crate::view::ClaimView;

/// After so long without an answer the screen says so.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many cells the bar of a lease has, without its brackets.
const BAR: usize = 8;
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

impl TopOptions {
    fn coloured(&self, style: Style, colour: Color) -> Style {
        if self.colour { style.fg(colour) } else { style }
    }
}

/// The keys, each with what it does; the first ones stay on the narrowest screen.
const KEYS: &str = "q quit  ? help  Enter details  / filter  b break  w waiters  a age  r rate";
const DETAIL_KEYS: &str = "q quit  ? help  Esc back  b break";

/// So short that the smallest screen has room for it.
const HELP: &str = include_str!("help.txt");

/// Draws all of it.
pub(super) fn draw(model: &mut Model, options: &TopOptions, now: Instant, frame: &mut Frame<'_>) {
    let (area, buffer) = (frame.area(), frame.buffer_mut());
    let (said, style, most) = status(model, options, now, area.width.into());
    let said = Paragraph::new(said).style(style).wrap(Wrap { trim: true });
    // How many lines it takes on this screen, at least one.
    let mut scratch = Buffer::empty(area);
    (&said).render(area, &mut scratch);
    let mut lines = scratch.content.chunks(usize::from(area.width).max(1));
    let last = lines.rposition(|line| line.iter().any(|cell| cell.symbol() != " "));
    let of_status = u16::try_from(last.unwrap_or_default() + 1).unwrap_or(u16::MAX);
    // From top to bottom. On a screen that is too low the first ones go.
    let of_keys = area.height.min(1);
    let of_status = of_status.min(most).min(area.height - of_keys);
    let above = area.height - of_keys - of_status;
    let of_title = above.min(1);
    let heights = [of_title, above - of_title, of_status, of_keys];
    let parts = Layout::vertical(heights.map(Length));
    let [title, body, status, keys] = parts.areas(area);
    // Without the headings.
    model.arrange(usize::from(body.height).saturating_sub(1), now);
    draw_title(model, options, title, buffer);
    match (&model.over, &model.details) {
        (Some(Overlay::Help), _) => Text::raw(HELP).render(body, buffer),
        (_, Some(_)) => draw_claims(model, options, now, body, buffer),
        (_, None) => draw_table(model, options, now, body, buffer),
    }
    said.render(status, buffer);
    let known = match &model.over {
        Some(Overlay::Filter(_)) => "Enter apply  Esc leave it",
        Some(Overlay::Confirm(_)) => "y break it  n do not",
        Some(Overlay::Help) => "Esc back",
        None if model.details.is_some() => DETAIL_KEYS,
        None => KEYS,
    };
    // The keys with what they do, as many as have room.
    let (mut spans, mut used) = (Vec::new(), 0);
    for entry in known.split("  ") {
        let (key, does) = entry.split_once(' ').unwrap_or((entry, ""));
        if used + entry.width() > keys.width.into() {
            break;
        }
        used += entry.width() + 2;
        spans.extend([Span::styled(key, BOLD), format!(" {does}  ").into()]);
    }
    Line::from(spans).render(keys, buffer);
}

/// What stands above the keys, and in how many lines at most.
fn status(model: &Model, options: &TopOptions, now: Instant, wide: usize) -> (String, Style, u16) {
    match &model.over {
        Some(Overlay::Filter(filter)) => {
            let prompt = "filter: ";
            let room = wide.saturating_sub(prompt.width() + 1);
            let typed = escape(filter);
            // The end of what is typed stays in sight.
            let hidden = typed.width().saturating_sub(room);
            let typed: String = typed.chars().skip(hidden).collect();
            (format!("{prompt}{typed}_"), BOLD, 1)
        }
        Some(Overlay::Confirm(view)) => {
            let question = question(view).unwrap_or_default();
            let style = options.coloured(BOLD, Color::Yellow);
            (escape(&question).into_owned(), style, u16::MAX)
        }
        Some(Overlay::Help) => (String::new(), BOLD, 1),
        None => {
            let (text, style) = state(model, options, now);
            (escape(&text).into_owned(), style, 3)
        }
    }
}

/// What there is to say of the store and of what is shown.
fn state(model: &Model, options: &TopOptions, now: Instant) -> (String, Style) {
    let table = &model.table;
    let warning = options.coloured(BOLD, Color::Red);
    let age = match table.data_age(now) {
        Some(age) => format!("this is {} old", whole_seconds(age)),
        None => "no data yet".to_owned(),
    };
    if let Some(failure) = &table.failure {
        return (format!("{age}: {failure}; trying again"), warning);
    }
    if let Some(silent) = table.unanswered(now).filter(|silent| *silent >= PATIENCE) {
        let silent = whole_seconds(silent);
        let text = format!("{age}: the store has not answered for {silent}");
        return (text, warning);
    }
    if let Some(notice) = model.notice(now) {
        return (notice.to_owned(), BOLD);
    }
    if let Some(deadlock) = model.deadlock() {
        return (deadlock, warning);
    }
    let is_empty = table.locks().next().is_none();
    let text = match (&*model.pattern, table.unreadable.len(), table.cycle) {
        _ if !table.complete => "reading".to_owned(),
        (_, unreadable @ 1.., _) => format!("{unreadable} cannot be read: leasehold ls names them"),
        ("*", ..) if is_empty => "no locks".to_owned(),
        (pattern, ..) if is_empty && !pattern.contains(['*', '?', '[']) => {
            format!("no lock {pattern}; for all that begin so: {pattern}*")
        }
        (pattern, ..) if is_empty => format!("no locks match {pattern}"),
        (_, _, Some(cycle)) if cycle > 2 * options.interval => format!(
            "these are read every {}, all locks every {}",
            spoken(options.interval),
            spoken(cycle)
        ),
        _ => String::new(),
    };
    (text, Style::new())
}

fn draw_title(model: &Model, options: &TopOptions, area: Rect, buffer: &mut Buffer) {
    let locks = match model.table.locks().count() {
        1 => "1 lock".to_owned(),
        locks => format!("{locks} locks"),
    };
    let waiting: usize = model.table.locks().map(|lock| lock.waiting).sum();
    let by = format!("{:?}", model.sort).to_lowercase();
    let mut title = format!("{locks}, {waiting} waiting, by {by}");
    if model.pattern != "*" {
        title += &format!(", {}", escape(&model.pattern));
    }
    let room = usize::from(area.width);
    let store = escape(&options.store);
    if title.width() + store.width() + 1 < room {
        let store = Line::styled(store, BOLD);
        store.right_aligned().render(area, buffer);
    }
    line(&title, BOLD, room).render(area, buffer);
}

/// A line of that width at most; one that is longer ends in `…`.
fn line(text: &str, style: Style, room: usize) -> Line<'static> {
    Line::styled(cut(text, room), style)
}

/// `12 s`, `5 min 3 s`: without parts of a second, which would change all the time.
fn whole_seconds(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ ..60 => format!("{seconds} s"),
        seconds => spoken(Duration::from_secs(seconds)),
    }
}

/// Draws the locks that are on the screen, one a line.
fn draw_table(model: &Model, options: &TopOptions, now: Instant, area: Rect, buffer: &mut Buffer) {
    let locks: Vec<_> = model.lines().collect();
    // What it is sorted by stays beside these three.
    let rank = |sort: SortBy, rank: u8| if model.sort == sort { 3 } else { rank };
    let column = |heading, rank, least, cell: &dyn Fn(&Lock) -> String| {
        let cells = locks.iter().map(|(lock, _)| cell(lock));
        let cells = cells.map(|cell| (escape(&cell).into_owned(), Style::new()));
        Column {
            heading,
            rank,
            least,
            cells: cells.collect(),
        }
    };
    let age = |lock: &Lock| lock.age(now).map(whole_seconds).unwrap_or_default();
    let mut lease = column("LEASE", 4, WHOLE, &|lock| {
        lock.left(now).map(bar).unwrap_or_default()
    });
    for ((_, style), (lock, _)) in lease.cells.iter_mut().zip(&locks) {
        *style = urgency(lock.left(now), options);
    }
    let columns = vec![
        column("KEY", 0, 14, &|lock| lock.view.key.clone()),
        column("HELD BY", 1, 12, &|lock| {
            held_by(&lock.view, ClaimView::short_name)
        }),
        column("HELD FOR", rank(SortBy::Age, 5), 16, &age),
        column("WAITING", 2, WHOLE, &|lock| lock.waiting.to_string()),
        lease,
        column("EXPIRES IN", 7, WHOLE, &|lock| expires_in(lock, now)),
        column("CHG/MIN", rank(SortBy::Rate, 6), WHOLE, &|lock| {
            format!("{:.1}", lock.rate(now))
        }),
    ];
    let chosen = locks.iter().position(|(_, chosen)| *chosen);
    draw_columns(columns, BOLD, chosen, area, buffer);
}

/// The less is left of a lease, the more it is to be seen.
fn urgency(left: Option<(Duration, f64)>, options: &TopOptions) -> Style {
    let colour = match left {
        None => return Style::new(),
        Some((_, share)) if share < 0.2 => Color::Red,
        Some((_, share)) if share < 0.5 => Color::Yellow,
        Some(_) => Color::Green,
    };
    options.coloured(Style::new(), colour)
}

/// `[||||    ]`: what is left of a lease.
fn bar((_, share): (Duration, f64)) -> String {
    // At most BAR: a share is at most 1.
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!("[{:BAR$}]", "|".repeat(full))
}

fn expires_in(lock: &Lock, now: Instant) -> String {
    match (lock.left(now), lock.view.holders.first()) {
        (Some((left, _)), _) => whole_seconds(left),
        (None, Some(holder)) => holder.lapse(),
        (None, None) => String::new(),
    }
}

/// Draws the claims of the key whose details are shown, from the first one on, and its history.
fn draw_claims(model: &Model, options: &TopOptions, now: Instant, area: Rect, buffer: &mut Buffer) {
    let Some((key, first)) = &model.details else {
        return;
    };
    let lock = model.table.lock(key);
    let title = match (model.table.unreadable.get(key), lock) {
        (_, Some(lock)) => heading(&lock.view),
        (Some(why), None) => format!("{key} cannot be read: {why}"),
        (None, None) => format!("{key}: free"),
    };
    let history = history(model, key, area.width.into());
    let of_history = u16::try_from(history.lines.len()).unwrap_or(u16::MAX);
    let of_history = of_history.min(area.height.saturating_sub(1) / 2);
    let parts = [Length(1), Fill(1), Length(of_history)];
    let [above, area, below] = Layout::vertical(parts).areas(area);
    line(&escape(&title), BOLD, above.width.into()).render(above, buffer);
    history.render(below, buffer);
    let Some(lock) = lock else { return };
    let view = &lock.view;
    let claims = view.holders.iter().chain(&view.waiters).skip(*first);
    let since = millis(now - lock.seen);
    let aged = |claim: &ClaimView| ClaimView {
        expires_in_ms: claim.expires_in_ms.map(|left| left.saturating_sub(since)),
        ..claim.clone()
    };
    let claims: Vec<_> = claims.take(area.height.into()).map(aged).collect();
    let columns = CLAIMS.iter().map(|(heading, cell)| {
        let (rank, least) = match *heading {
            "STATE" => (0, WHOLE),
            "HOST" => (1, 8),
            "PID" => (2, WHOLE),
            "LABEL" => (3, 8),
            "TOKEN" => (4, WHOLE),
            "NOTE" => (5, 10),
            "EXPIRES IN" => (6, WHOLE),
            "SINCE" => (7, WHOLE),
            _ => (8, WHOLE),
        };
        let cells = claims.iter();
        let cells = cells.map(|claim| (escape(&cell(claim)).into_owned(), Style::new()));
        Column {
            heading,
            rank,
            least,
            cells: cells.collect(),
        }
    });
    let heading = options.coloured(BOLD, Color::Cyan);
    draw_columns(columns.collect(), heading, None, area, buffer);
}

/// What the audit log says of the key, the newest entry first.
fn history(model: &Model, key: &str, room: usize) -> Text<'static> {
    let known = model.history.as_ref().filter(|(of, _)| of == key);
    let said: Vec<_> = match known.and_then(|(_, known)| known.borrow().clone()) {
        None => Vec::new(),
        Some(Ok(entries)) => entries.iter().map(EntryView::without_key).collect(),
        Some(Err(why)) => vec![escape(&why).into_owned()],
    };
    let title = (!said.is_empty()).then(|| line("history, the newest first", BOLD, room));
    let lines = said.iter().map(|said| line(said, Style::new(), room));
    title.into_iter().chain(lines).collect()
}
