//! Texts in lines.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::commands::top::columns::{put, width};

pub(super) fn draw_lines(lines: &[impl AsRef<str>], style: Style, area: Rect, buffer: &mut Buffer) {
    for (y, line) in (area.top()..area.bottom()).zip(lines) {
        put(line.as_ref(), area.width.into(), style, (area.x, y), buffer);
    }
}

/// The text in lines of that width at most, broken at spaces where there are some.
pub(super) fn wrapped(text: &str, wide: usize) -> Vec<String> {
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
