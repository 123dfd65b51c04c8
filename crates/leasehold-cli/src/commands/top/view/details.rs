//! The details of one key: its holders, and its waiters in their order.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};

use super::text::draw_lines;
use super::{BOLD, ViewOptions};
use crate::commands::show;
use crate::commands::top::columns::{Column, draw as draw_columns, put};
use crate::commands::top::model::Model;
use crate::duration::millis;
use crate::history::EntryView;
use crate::output::escape;
use crate::view::ClaimView;

/// Draws the claims of the key, from that one on.
pub(super) fn draw(
    model: &Model,
    key: &str,
    first: usize,
    options: &ViewOptions,
    now: Duration,
    area: Rect,
    buffer: &mut Buffer,
) {
    let wide = usize::from(area.width);
    let row = model.row(key);
    let heading = row.map(|row| show::heading(&row.view));
    let heading = heading.unwrap_or_else(|| format!("{key}: free"));
    put(&escape(&heading), wide, BOLD, (area.x, area.y), buffer);
    let area = Rect {
        y: (area.y + 1).min(area.bottom()),
        height: area.height.saturating_sub(1),
        ..area
    };
    let area = draw_history(model, key, area, buffer);
    let Some(row) = row else { return };
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
        options.coloured(BOLD, Color::Cyan),
        area,
        buffer,
    );
}

/// Draws what the audit log says of the key into the lower half, the newest entry first. Answers
/// the area that is left.
fn draw_history(model: &Model, key: &str, area: Rect, buffer: &mut Buffer) -> Rect {
    let lines = match model.history(key) {
        None => return area,
        Some(Ok(entries)) if entries.is_empty() => return area,
        Some(Ok(entries)) => entries.iter().map(EntryView::without_key).collect(),
        Some(Err(why)) => vec![escape(why).into_owned()],
    };
    let height = u16::try_from(lines.len() + 1).unwrap_or(u16::MAX);
    let height = height.min(area.height / 2);
    let [above, below] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(height)]).areas(area);
    let wide = usize::from(below.width);
    put(
        "history, the newest first",
        wide,
        BOLD,
        (below.x, below.y),
        buffer,
    );
    let lines_area = Rect {
        y: below.y + 1,
        height: below.height.saturating_sub(1),
        ..below
    };
    draw_lines(&lines, Style::new(), lines_area, buffer);
    above
}
