//! Columns on the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Cell, Row, StatefulWidget, Table, TableState};
use unicode_width::UnicodeWidthStr;

use crate::table::{Flexible, GAP, cut, fit};

/// A column, and what it can do without: see [`Flexible`].
pub(super) struct Column {
    pub(super) heading: &'static str,
    pub(super) rank: u8,
    pub(super) least: usize,
    pub(super) cells: Vec<(String, Style)>,
}

/// Draws the columns that have room, under their headings; empty ones not at all. The chosen line is
/// marked.
pub(super) fn draw(
    mut columns: Vec<Column>,
    heading: Style,
    chosen: Option<usize>,
    area: Rect,
    buffer: &mut Buffer,
) {
    columns.retain(|column| column.cells.iter().any(|(cell, _)| !cell.is_empty()));
    let flexible = |column: &Column| {
        let widths = column.cells.iter().map(|(cell, _)| cell.width());
        Flexible {
            rank: column.rank,
            least: column.least,
            natural: widths.fold(column.heading.width(), usize::max),
        }
    };
    let flexible: Vec<_> = columns.iter().map(flexible).collect();
    let widths = fit(&flexible, area.width.into());
    let shown = columns.iter().zip(widths);
    let shown = shown.filter_map(|(column, width)| Some((column, width?)));
    let shown: Vec<_> = shown.collect();
    let lines = columns.first().map_or(0, |column| column.cells.len());
    let row = |line: usize| {
        let cells = shown.iter().map(|(column, width)| {
            let (text, style) = &column.cells[line];
            Cell::new(cut(text, *width)).style(*style)
        });
        Row::new(cells)
    };
    let headings = shown.iter();
    let headings = headings.map(|(column, width)| Cell::new(cut(column.heading, *width)));
    let length = |width: usize| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX));
    let widths = shown.iter().map(|(_, width)| length(*width));
    let table = Table::new((0..lines).map(row), widths)
        .header(Row::new(headings).style(heading))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .column_spacing(GAP as u16);
    let mut state = TableState::new().with_selected(chosen);
    table.render(area, buffer, &mut state);
}
