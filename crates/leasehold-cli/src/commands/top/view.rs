//! Draws the state of `top`: the table or the details of a key, the status, and the keys.

mod details;
mod table;
mod text;

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::columns::{put, width};
use super::model::{Model, Overlay, SortBy};
use crate::commands::break_key::question;
use crate::duration::spoken;
use crate::output::escape;

/// After so long without an answer the screen says so.
const PATIENCE: Duration = Duration::from_secs(2);

/// How the screen looks, and whose locks it shows.
pub(super) struct ViewOptions {
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
    "/        filter by key or part of it",
    "b        break it, after a question",
    "Ctrl-Z   suspend",
    "LEASE    what is left of it",
    "CHG/MIN  holder changes seen, a minute",
];

/// Draws all of it.
pub(super) fn draw(
    model: &mut Model,
    options: &ViewOptions,
    now: Duration,
    area: Rect,
    buffer: &mut Buffer,
) {
    let (said, style, most) = status(model, options, now, area.width.into());
    let said = text::wrapped(&said, area.width.into());
    let height = said.len().min(most);
    let [title, body, status, keys] = split(area, u16::try_from(height).unwrap_or(u16::MAX));
    // Without the headings.
    model.arrange(usize::from(body.height).saturating_sub(1), now);
    draw_title(model, options, title, buffer);
    match (&model.over, &model.details) {
        (Some(Overlay::Help), _) => text::draw_lines(HELP, Style::new(), body, buffer),
        (_, Some((key, first))) => details::draw(model, key, *first, options, now, body, buffer),
        (_, None) => table::draw(model, options, now, body, buffer),
    }
    text::draw_lines(&said, style, status, buffer);
    let known: &[_] = match &model.over {
        Some(Overlay::Filter(_)) => &[("Enter", "apply"), ("Esc", "leave it")],
        Some(Overlay::Confirm(_)) => &[("y", "break it"), ("n", "do not")],
        Some(Overlay::Help) => &[("Esc", "back")],
        None if model.details.is_some() => &DETAIL_KEYS,
        None => &KEYS,
    };
    draw_keys(known, keys, buffer);
}

/// What stands above the keys, and in how many lines at most.
fn status(
    model: &Model,
    options: &ViewOptions,
    now: Duration,
    wide: usize,
) -> (String, Style, usize) {
    match &model.over {
        Some(Overlay::Filter(filter)) => {
            let prompt = "filter: ";
            let room = wide.saturating_sub(width(prompt) + 1);
            let typed = escape(filter);
            // The end of what is typed stays in sight.
            let hidden = width(&typed).saturating_sub(room);
            let typed: String = typed.chars().skip(hidden).collect();
            (format!("{prompt}{typed}_"), BOLD, 1)
        }
        Some(Overlay::Confirm(view)) => {
            let question = question(view).unwrap_or_default();
            let style = options.coloured(BOLD, Color::Yellow);
            (escape(&question).into_owned(), style, usize::MAX)
        }
        Some(Overlay::Help) => (String::new(), BOLD, 1),
        None => {
            let (text, style) = state(model, options, now);
            (escape(&text).into_owned(), style, 3)
        }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

impl ViewOptions {
    fn coloured(&self, style: Style, colour: Color) -> Style {
        if self.colour { style.fg(colour) } else { style }
    }
}

/// Title, body, status and keys, from top to bottom. On a screen that is too low the first ones go.
fn split(area: Rect, of_status: u16) -> [Rect; 4] {
    let of_keys = area.height.min(1);
    let of_status = of_status.min(area.height - of_keys);
    let above = area.height - of_keys - of_status;
    let of_title = above.min(1);
    let mut y = area.y;
    [of_title, above - of_title, of_status, of_keys].map(|height| {
        let part = Rect { y, height, ..area };
        y += height;
        part
    })
}

fn draw_title(model: &Model, options: &ViewOptions, area: Rect, buffer: &mut Buffer) {
    let (locks, waiting) = model.totals();
    let locks = match locks {
        1 => "1 lock".to_owned(),
        locks => format!("{locks} locks"),
    };
    let by = match model.sort {
        SortBy::Waiters => "waiters",
        SortBy::Age => "age",
        SortBy::Rate => "rate",
    };
    let mut title = format!("{locks}, {waiting} waiting, by {by}");
    if model.pattern != "*" {
        title += &format!(", {}", escape(&model.pattern));
    }
    let room = usize::from(area.width);
    let store = escape(&options.store);
    if let Some(space) = room
        .checked_sub(width(&title) + width(&store))
        .filter(|&space| space > 1)
    {
        title += &" ".repeat(space);
        title += &store;
    }
    put(&title, room, BOLD, (area.x, area.y), buffer);
}

/// `12 s`, `5 min 3 s`: without parts of a second, which would change all the time.
fn whole_seconds(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ ..60 => format!("{seconds} s"),
        seconds => spoken(Duration::from_secs(seconds)),
    }
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
fn state(model: &Model, options: &ViewOptions, now: Duration) -> (String, Style) {
    let warning = options.coloured(BOLD, Color::Red);
    let age = model
        .data_age(now)
        .map(|age| format!("this is {} old", whole_seconds(age)));
    let age = age.unwrap_or_else(|| "no data yet".to_owned());
    let silent = model.unanswered(now).filter(|silent| *silent >= PATIENCE);
    if let Some(failure) = model.failure() {
        return (format!("{age}: {failure}; trying again"), warning);
    }
    if let Some(silent) = silent {
        let silent = whole_seconds(silent);
        return (
            format!("{age}: the store has not answered for {silent}"),
            warning,
        );
    }
    if let Some(notice) = model.notice(now) {
        return (notice.to_owned(), BOLD);
    }
    if let Some(deadlock) = model.deadlock() {
        return (deadlock, warning);
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
        (_, _, _, Some(cycle)) if cycle > 2 * options.interval => plain(format!(
            "these are read every {}, all locks every {}",
            spoken(options.interval),
            spoken(cycle)
        )),
        _ => plain(String::new()),
    }
}
