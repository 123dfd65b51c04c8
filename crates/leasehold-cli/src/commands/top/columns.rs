//! Columns that give way: which of them a width has room for, and how wide each is.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

/// The space between two columns.
const GAP: usize = 2;

/// A column, and what it can do without.
pub(super) struct Column {
    pub(super) heading: &'static str,
    /// Those of a higher rank give way first.
    pub(super) rank: u8,
    /// It is cut down to this before another gives way.
    pub(super) least: usize,
    pub(super) cells: Vec<String>,
    pub(super) styles: Vec<Style>,
}

impl Column {
    pub(super) fn new(heading: &'static str, rank: u8, cells: Vec<String>) -> Self {
        Self {
            heading,
            rank,
            least: usize::MAX,
            cells,
            styles: Vec::new(),
        }
    }

    /// The same, which can be cut.
    pub(super) fn cut_to(self, least: usize) -> Self {
        Self { least, ..self }
    }

    /// How wide it has to be to be seen as a whole.
    fn widest(&self) -> usize {
        let cells = self.cells.iter().map(|cell| width(cell)).max();
        cells.unwrap_or_default().max(width(self.heading))
    }
}

/// How many cells of a screen it takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Draws the columns that have room, under their headings; empty ones not at all.
pub(super) fn draw(mut columns: Vec<Column>, heading: Style, area: Rect, buffer: &mut Buffer) {
    columns.retain(|column| column.cells.iter().any(|cell| !cell.is_empty()));
    let widths = fit(&mut columns, area.width.into());
    let mut x = area.x;
    for (column, wide) in columns.iter().zip(widths) {
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

/// Takes away the columns that have no room, and answers how wide the others are.
fn fit(columns: &mut Vec<Column>, room: usize) -> Vec<usize> {
    loop {
        let natural: Vec<_> = columns.iter().map(Column::widest).collect();
        let least = columns.iter().zip(&natural);
        let mut widths: Vec<_> = least
            .map(|(column, natural)| column.least.min(*natural))
            .collect();
        let taken = widths.iter().sum::<usize>() + GAP * columns.len().saturating_sub(1);
        let last = columns
            .iter()
            .enumerate()
            .max_by_key(|(_, column)| column.rank);
        match last.map(|(last, _)| last) {
            Some(last) if taken > room && columns.len() > 1 => drop(columns.remove(last)),
            _ => {
                // What is left goes to the narrowest of those that were cut.
                for _ in taken..room {
                    let cut = (0..widths.len()).filter(|&at| widths[at] < natural[at]);
                    let Some(narrowest) = cut.min_by_key(|&at| widths[at]) else {
                        break;
                    };
                    widths[narrowest] += 1;
                }
                return widths;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(room: usize) -> Vec<(&'static str, usize)> {
        let cell = |text: &str| vec![text.to_owned()];
        let mut columns = vec![
            Column::new("KEY", 0, cell(&"k".repeat(30))).cut_to(10),
            Column::new("WHO", 2, cell(&"w".repeat(14))).cut_to(8),
            Column::new("AGE", 3, cell("12 s")),
            Column::new("N", 1, cell("100")),
        ];
        let widths = fit(&mut columns, room);
        columns
            .iter()
            .map(|column| column.heading)
            .zip(widths)
            .collect()
    }

    #[test]
    fn columns_are_cut_and_then_give_way_by_rank() {
        assert_eq!(fitted(80), [("KEY", 30), ("WHO", 14), ("AGE", 4), ("N", 3)]);
        assert_eq!(fitted(40), [("KEY", 14), ("WHO", 13), ("AGE", 4), ("N", 3)]);
        assert_eq!(fitted(31), [("KEY", 10), ("WHO", 8), ("AGE", 4), ("N", 3)]);
        assert_eq!(fitted(30), [("KEY", 12), ("WHO", 11), ("N", 3)]);
        assert_eq!(fitted(24), [("KEY", 19), ("N", 3)]);
        assert_eq!(fitted(9), [("KEY", 10)]);
    }

    #[test]
    fn what_is_cut_shows_it() {
        let area = Rect::new(0, 0, 6, 1);
        let mut buffer = Buffer::empty(area);
        put("orders/42", 6, Style::new(), (0, 0), &mut buffer);
        assert_eq!(buffer, Buffer::with_lines(["order…"]));
        put("out of sight", 6, Style::new(), (6, 0), &mut buffer);
    }
}
