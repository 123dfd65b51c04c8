//! The table of locks.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::{BOLD, ViewOptions, whole_seconds};
use crate::commands::ls;
use crate::commands::top::columns::{Column, draw as draw_columns};
use crate::commands::top::model::{Model, SortBy};
use crate::commands::top::row::Row;
use crate::output::escape;
use crate::view::ClaimView;

/// How many cells the bar of a lease has, without its brackets.
const BAR: usize = 8;
const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws the locks that are on the screen, one a line.
pub(super) fn draw(
    model: &Model,
    options: &ViewOptions,
    now: Duration,
    area: Rect,
    buffer: &mut Buffer,
) {
    let rows: Vec<_> = model.lines().collect();
    let cells = |cell: &dyn Fn(&Row) -> String| {
        let cells = rows.iter().map(|(row, _)| escape(&cell(row)).into_owned());
        cells.collect::<Vec<_>>()
    };
    let left = |row: &Row| row.left(now);
    // What it is sorted by stays beside these three.
    let rank = |sort: SortBy, rank: u8| if model.sort == sort { 3 } else { rank };
    let mut lease = Column::new(
        "LEASE",
        4,
        cells(&|row| left(row).map(bar).unwrap_or_default()),
    );
    let urgency = rows.iter().map(|(row, _)| urgency(left(row), options));
    lease.styles = urgency.collect();
    let columns = vec![
        Column::new("KEY", 0, cells(&|row| row.view.key.clone())).cut_to(14),
        Column::new(
            "HELD BY",
            1,
            cells(&|row| ls::held_by(&row.view, ClaimView::short_name)),
        )
        .cut_to(12),
        Column::new(
            "HELD FOR",
            rank(SortBy::Age, 5),
            cells(&|row| row.age(now).map(whole_seconds).unwrap_or_default()),
        )
        .cut_to(16),
        Column::new("WAITING", 2, cells(&|row| row.waiting().to_string())),
        lease,
        Column::new("EXPIRES IN", 7, cells(&|row| expires_in(row, now))),
        Column::new(
            "CHG/MIN",
            rank(SortBy::Rate, 6),
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

/// The less is left of a lease, the more it is to be seen.
fn urgency(left: Option<(Duration, f64)>, options: &ViewOptions) -> Style {
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

fn expires_in(row: &Row, now: Duration) -> String {
    match (row.left(now), row.view.holders.first()) {
        (Some((left, _)), _) => whole_seconds(left),
        (None, Some(holder)) => holder.lapse(),
        (None, None) => String::new(),
    }
}
