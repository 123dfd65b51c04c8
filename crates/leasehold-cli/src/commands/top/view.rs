//! Draws the state of `top`: the table or the details of a key, the status, and the keys.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::columns::{Column, draw as draw_columns, put, width};
use super::model::{Model, Over, Sort};
use super::row::Row;
use crate::commands::break_key::question;
use crate::commands::{ls, show};
use crate::duration::{millis, spoken};
use crate::output::escape;
use crate::view::ClaimView;

/// How many cells the bar of a lease has, without its brackets.
const BAR: usize = 8;
/// After so long without an answer the screen says so.
const PATIENCE: Duration = Duration::from_secs(2);

/// How the screen looks, and whose locks it shows.
pub(super) struct Look {
    pub(super) store: String,
    /// Whether colours may be used.
    pub(super) colour: bool,
    pub(super) interval: Duration,
}

/// The keys, with what they do; the first ones stay on the narrowest screen.
const KEYS: [(&str, &str); 8] = [
    ("q", "quit"),
    ("?", "help"),
    ("Enter", "details"),
    ("/", "filter"),
    ("b", "break"),
    ("w", "waiters"),
    ("a", "age"),
    ("r", "rate"),
];

const DETAIL_KEYS: [(&str, &str); 4] = [
    ("q", "quit"),
    ("?", "help"),
    ("Esc", "back"),
    ("b", "break"),
];

/// So short that the smallest screen has room for it.
const HELP: &[&str] = &[
    "q        quit",
    "Up Down  choose a lock (also k, j)",
    "Enter    its details; Esc leads back",
    "w a r    sort by waiters, age, rate",
    "/        filter by key, e.g. orders/*",
    "b        break it, after a question",
    "Ctrl-Z   suspend",
    "LEASE    what is left of it",
    "CHG/MIN  holder changes seen, a minute",
];

/// Draws all of it.
pub(super) fn draw(model: &mut Model, look: &Look, now: Duration, area: Rect, buffer: &mut Buffer) {
    let [title, body, status, keys] = split(area);
    // Without the headings.
    model.arrange(usize::from(body.height).saturating_sub(1), now);
    draw_title(model, look, title, buffer);
    match (&model.over, &model.details) {
        (Some(Over::Help), _) => draw_lines(HELP, Style::new(), body, buffer),
        (_, Some((key, first))) => draw_details(model, key, *first, look, now, body, buffer),
        (_, None) => draw_table(model, look, now, body, buffer),
    }
    match &model.over {
        Some(Over::Filter(filter)) => {
            let prompt = "filter: ";
            put(prompt, width(prompt), BOLD, (status.x, status.y), buffer);
            let room = usize::from(status.width).saturating_sub(width(prompt) + 1);
            let typed = escape(filter);
            // The end of what is typed stays in sight.
            let hidden = width(&typed).saturating_sub(room);
            let typed: String = typed.chars().skip(hidden).collect();
            let line = format!("{prompt}{typed}_");
            put(
                &line,
                status.width.into(),
                BOLD,
                (status.x, status.y),
                buffer,
            );
            draw_keys(&[("Enter", "apply"), ("Esc", "leave it")], keys, buffer);
        }
        Some(Over::Confirm(view)) => {
            let question = question(view).unwrap_or_default();
            let style = look.coloured(BOLD, Color::Yellow);
            draw_above_keys(&question, usize::MAX, style, area, buffer);
            draw_keys(&[("y", "break it"), ("n", "do not")], keys, buffer);
        }
        Some(Over::Help) => draw_keys(&[("Esc", "back")], keys, buffer),
        None => {
            let (text, style) = state(model, look, now);
            draw_above_keys(&text, 3, style, area, buffer);
            let known = if model.details.is_some() {
                &DETAIL_KEYS[..]
            } else {
                &KEYS
            };
            draw_keys(known, keys, buffer);
        }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

impl Look {
    fn coloured(&self, style: Style, colour: Color) -> Style {
        if self.colour { style.fg(colour) } else { style }
    }
}

/// Title, body, status and keys, from top to bottom. On a screen that is too low the first ones go.
fn split(area: Rect) -> [Rect; 4] {
    let line = |from_below: u16| {
        let y = area.bottom().saturating_sub(from_below).max(area.y);
        Rect {
            y,
            height: area.height.min(1),
            ..area
        }
    };
    let title = Rect {
        height: area.height.min(1),
        ..area
    };
    let body = Rect {
        y: (area.y + 1).min(area.bottom()),
        height: area.height.saturating_sub(3),
        ..area
    };
    [title, body, line(2), line(1)]
}

fn draw_title(model: &Model, look: &Look, area: Rect, buffer: &mut Buffer) {
    let (locks, waiting) = model.totals();
    let locks = match locks {
        1 => "1 lock".to_owned(),
        locks => format!("{locks} locks"),
    };
    let by = match model.sort {
        Sort::Waiters => "waiters",
        Sort::Age => "age",
        Sort::Rate => "rate",
    };
    let mut title = format!("{locks}, {waiting} waiting, by {by}");
    if model.pattern != "*" {
        title += &format!(", {}", escape(&model.pattern));
    }
    let room = usize::from(area.width);
    let store = escape(&look.store);
    if let Some(space) = room
        .checked_sub(width(&title) + width(&store))
        .filter(|&space| space > 1)
    {
        title += &" ".repeat(space);
        title += &store;
    }
    put(&title, room, BOLD, (area.x, area.y), buffer);
}

fn draw_table(model: &Model, look: &Look, now: Duration, area: Rect, buffer: &mut Buffer) {
    let rows: Vec<_> = model.lines().collect();
    let cells = |cell: &dyn Fn(&Row) -> String| {
        let cells = rows.iter().map(|(row, _)| escape(&cell(row)).into_owned());
        cells.collect::<Vec<_>>()
    };
    let left = |row: &Row| row.left(now);
    // What it is sorted by stays.
    let rank = |sort: Sort, rank: u8| if model.sort == sort { 1 } else { rank };
    let mut lease = Column::new(
        "LEASE",
        3,
        cells(&|row| left(row).map(bar).unwrap_or_default()),
    );
    let urgency = rows.iter().map(|(row, _)| match left(row) {
        Some((_, share)) if share < 0.2 => look.coloured(Style::new(), Color::Red),
        Some((_, share)) if share < 0.5 => look.coloured(Style::new(), Color::Yellow),
        Some(_) => look.coloured(Style::new(), Color::Green),
        None => Style::new(),
    });
    lease.styles = urgency.collect();
    let columns = vec![
        Column::new("KEY", 0, cells(&|row| row.view.key.clone())).cut_to(14),
        Column::new(
            "HELD BY",
            2,
            cells(&|row| ls::held_by(&row.view, ClaimView::name)),
        )
        .cut_to(12),
        Column::new(
            "AGE",
            rank(Sort::Age, 4),
            cells(&|row| row.age(now).map(whole).unwrap_or_default()),
        ),
        Column::new("WAITING", 1, cells(&|row| row.waiting().to_string())),
        lease,
        Column::new("EXPIRES IN", 6, cells(&|row| expires_in(row, now))),
        Column::new(
            "CHG/MIN",
            rank(Sort::Rate, 5),
            cells(&|row| format!("{:.1}", row.rate(now))),
        ),
    ];
    draw_columns(columns, BOLD, area, buffer);
    let chosen = rows.iter().zip(area.top() + 1..area.bottom());
    for ((_, chosen), y) in chosen {
        if *chosen {
            buffer.set_style(
                Rect {
                    y,
                    height: 1,
                    ..area
                },
                REVERSED,
            );
        }
    }
}

/// `[||||    ]`: what is left of a lease.
fn bar((_, share): (Duration, f64)) -> String {
    // At most BAR: a share is at most 1.
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!("[{:BAR$}]", "|".repeat(full))
}

fn expires_in(row: &Row, now: Duration) -> String {
    match (row.left(now), row.view.holders.first()) {
        (Some((left, _)), _) => whole(left),
        (None, Some(holder)) => holder.lapse(),
        (None, None) => String::new(),
    }
}

/// `12 s`, `5 min 3 s`: without parts of a second, which would change all the time.
fn whole(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ ..60 => format!("{seconds} s"),
        seconds => spoken(Duration::from_secs(seconds)),
    }
}

fn draw_details(
    model: &Model,
    key: &str,
    first: usize,
    look: &Look,
    now: Duration,
    area: Rect,
    buffer: &mut Buffer,
) {
    let wide = usize::from(area.width);
    let Some(row) = model.row(key) else {
        let text = format!("{}: free", escape(key));
        return put(&text, wide, BOLD, (area.x, area.y), buffer);
    };
    let heading = show::heading(&row.view);
    put(&escape(&heading), wide, BOLD, (area.x, area.y), buffer);
    let area = Rect {
        y: (area.y + 1).min(area.bottom()),
        height: area.height.saturating_sub(1),
        ..area
    };
    let claims = row.view.holders.iter().chain(&row.view.waiters).skip(first);
    let since = millis(now.saturating_sub(row.seen));
    let aged = |claim: &ClaimView| ClaimView {
        expires_in_ms: claim.expires_in_ms.map(|left| left.saturating_sub(since)),
        ..claim.clone()
    };
    let claims: Vec<_> = claims.take(area.height.into()).map(aged).collect();
    let columns = show::COLUMNS.iter().map(|(heading, cell)| {
        let cells = claims.iter().map(|claim| escape(&cell(claim)).into_owned());
        let (rank, least) = match *heading {
            "STATE" => (0, usize::MAX),
            "HOST" => (1, 8),
            "PID" => (2, usize::MAX),
            "LABEL" => (3, 8),
            "TOKEN" => (4, usize::MAX),
            "NOTE" => (5, 10),
            "EXPIRES IN" => (6, usize::MAX),
            "SINCE" => (7, usize::MAX),
            _ => (8, usize::MAX),
        };
        Column::new(heading, rank, cells.collect()).cut_to(least)
    });
    draw_columns(
        columns.collect(),
        look.coloured(BOLD, Color::Cyan),
        area,
        buffer,
    );
}

/// A text in the line above the keys, and if it is long in lines above that, over the table.
fn draw_above_keys(text: &str, most: usize, style: Style, area: Rect, buffer: &mut Buffer) {
    let lines = wrapped(&escape(text), area.width.into());
    let height = u16::try_from(lines.len().min(most)).unwrap_or(u16::MAX);
    let height = height.min(area.height.saturating_sub(1));
    let y = area.bottom().saturating_sub(height + 1).max(area.y);
    let below = Rect { y, height, ..area };
    for position in below.positions() {
        buffer[position].reset();
    }
    draw_lines(&lines, style, below, buffer);
}

fn draw_lines(lines: &[impl AsRef<str>], style: Style, area: Rect, buffer: &mut Buffer) {
    for (y, line) in (area.top()..area.bottom()).zip(lines) {
        put(line.as_ref(), area.width.into(), style, (area.x, y), buffer);
    }
}

/// The text in lines of that width at most, broken at spaces where there are some.
fn wrapped(text: &str, wide: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        for piece in pieces(word, wide.max(1)) {
            let Some(line) = lines.last_mut() else { break };
            match width(line) {
                0 => *line = piece,
                used if used + 1 + width(&piece) <= wide => *line += &format!(" {piece}"),
                _ => lines.push(piece),
            }
        }
    }
    lines
}

/// A word, cut where it is too wide for a line.
fn pieces(word: &str, wide: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for c in word.chars() {
        if pieces
            .last()
            .is_some_and(|piece| width(piece) + width(c.encode_utf8(&mut [0; 4])) > wide)
        {
            pieces.push(String::new());
        }
        if let Some(piece) = pieces.last_mut() {
            piece.push(c);
        }
    }
    pieces
}

/// The keys with what they do, as many as have room.
fn draw_keys(keys: &[(&str, &str)], area: Rect, buffer: &mut Buffer) {
    let mut x = area.x;
    for (key, does) in keys {
        let wide = width(key) + 1 + width(does);
        if usize::from(area.right().saturating_sub(x)) < wide {
            break;
        }
        put(
            &format!("{key} {does}"),
            wide,
            Style::new(),
            (x, area.y),
            buffer,
        );
        put(key, wide, BOLD, (x, area.y), buffer);
        x += u16::try_from(wide + 2).unwrap_or(u16::MAX);
    }
}

/// What there is to say of the store and of what is shown.
fn state(model: &Model, look: &Look, now: Duration) -> (String, Style) {
    let warning = look.coloured(BOLD, Color::Red);
    let age = model
        .data_age(now)
        .map(|age| format!("this is {} old", whole(age)));
    let age = age.unwrap_or_else(|| "nothing was read yet".to_owned());
    let silent = model.unanswered(now).filter(|silent| *silent >= PATIENCE);
    if let Some(failure) = model.failure() {
        return (format!("{age}: {failure}; trying again"), warning);
    }
    if let Some(silent) = silent {
        let silent = whole(silent);
        return (
            format!("{age}: the store has not answered for {silent}"),
            warning,
        );
    }
    if let Some(notice) = model.notice(now) {
        return (notice.to_owned(), BOLD);
    }
    let plain = |text: String| (text, Style::new());
    if !model.complete {
        return plain("reading".to_owned());
    }
    match (
        model.totals().0,
        &*model.pattern,
        model.unreadable,
        model.cycle,
    ) {
        (0, "*", 0, _) => plain("no locks".to_owned()),
        (0, pattern, 0, _) if !pattern.contains(['*', '?', '[']) => plain(format!(
            "no lock {pattern}; for all that begin so: {pattern}*"
        )),
        (0, pattern, 0, _) => plain(format!("no locks match {pattern}")),
        (_, _, unreadable @ 1.., _) => plain(format!(
            "{unreadable} cannot be read: leasehold ls names them"
        )),
        (_, _, _, Some(cycle)) if cycle > 2 * look.interval => plain(format!(
            "these are read every {}, all locks every {}",
            spoken(look.interval),
            spoken(cycle)
        )),
        _ => plain(String::new()),
    }
}
