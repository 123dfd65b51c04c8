//! Columns on the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use crate::output::{Flexible, GAP, WHOLE, fit};

/// A column, and what it can do without: see [`Flexible`].
pub(super) struct Column {
    heading: &'static str,
    rank: u8,
    least: usize,
    cells: Vec<String>,
    pub(super) styles: Vec<Style>,
}

impl Column {
    pub(super) fn new(heading: &'static str, rank: u8, cells: Vec<String>) -> Self {
        Self {
            heading,
            rank,
            least: WHOLE,
            cells,
            styles: Vec::new(),
        }
    }

    /// The same, which can be cut.
    pub(super) fn cut_to(self, least: usize) -> Self {
        Self { least, ..self }
    }

    fn flexible(&self) -> Flexible {
        let cells = self.cells.iter().map(|cell| width(cell)).max();
        Flexible {
            rank: self.rank,
            least: self.least,
            natural: cells.unwrap_or_default().max(width(self.heading)),
        }
    }
}

/// How many cells of a screen it takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Draws the columns that have room, under their headings; empty ones not at all.
pub(super) fn draw(mut columns: Vec<Column>, heading: Style, area: Rect, buffer: &mut Buffer) {
    columns.retain(|column| column.cells.iter().any(|cell| !cell.is_empty()));
    let flexible: Vec<_> = columns.iter().map(Column::flexible).collect();
    let widths = fit(&flexible, area.width.into());
    let mut x = area.x;
    for (column, wide) in columns.iter().zip(widths) {
        let Some(wide) = wide else { continue };
        let headed = std::iter::once((column.heading, heading));
        let plain = std::iter::repeat(Style::new());
        let styles = column.styles.iter().copied().chain(plain);
        let cells = column.cells.iter().map(String::as_str).zip(styles);
        for (y, (text, style)) in (area.top()..area.bottom()).zip(headed.chain(cells)) {
            put(text, wide, style, (x, y), buffer);
        }
        x = x.saturating_add(u16::try_from(wide + GAP).unwrap_or(u16::MAX));
    }
}

/// Writes a text; one that is wider ends in `…`.
pub(super) fn put(text: &str, wide: usize, style: Style, at: (u16, u16), buffer: &mut Buffer) {
    if !buffer.area.contains(at.into()) {
        return;
    }
    if width(text) <= wide {
        buffer.set_stringn(at.0, at.1, text, wide, style);
    } else if let Some(most) = wide.checked_sub(1) {
        let (x, y) = buffer.set_stringn(at.0, at.1, text, most, style);
        buffer.set_stringn(x, y, "…", 1, style);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_shows_it() {
        let area = Rect::new(0, 0, 6, 1);
        let mut buffer = Buffer::empty(area);
        put("orders/42", 6, Style::new(), (0, 0), &mut buffer);
        assert_eq!(buffer, Buffer::with_lines(["order…"]));
        put("out of sight", 6, Style::new(), (6, 0), &mut buffer);
    }
}
