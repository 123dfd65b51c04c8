//! The details of one key: its holders, and its waiters in their order.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;

use super::{BOLD, ViewOptions};
use crate::commands::show;
use crate::commands::top::columns::{Column, draw as draw_columns, put};
use crate::commands::top::model::Model;
use crate::duration::millis;
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
        options.coloured(BOLD, Color::Cyan),
        area,
        buffer,
    );
}
