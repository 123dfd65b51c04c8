//! Tables for people.

use std::io;

use rustix::termios::tcgetwinsize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::escape::escape;

/// The heading of a column, and what stands below it.
pub type Column<T> = (&'static str, fn(&T) -> String);

/// A column of a table that has to be narrow: its rank, and down to which width it is cut.
pub type Narrow<T> = (Column<T>, u8, usize);

/// The rank and the width of a column that is never cut.
pub const WHOLE: usize = usize::MAX;

/// The space between two columns.
pub const GAP: usize = 2;

/// Columns up to this rank are what a table is about: they are cut to half of their least width
/// before one of them gives way.
const ESSENTIAL: u8 = 3;

/// A column that gives way.
#[derive(Debug, Clone, Copy)]
pub struct Flexible {
    /// Those of a higher rank give way first.
    pub rank: u8,
    /// It is cut down to this before another gives way.
    pub least: usize,
    /// How wide it has to be to be seen as a whole.
    pub natural: usize,
}

/// How wide each column is, and which of them have no room at all.
pub fn fit(columns: &[Flexible], room: usize) -> Vec<Option<usize>> {
    let least = |column: &Flexible| Some(column.least.min(column.natural));
    let mut widths: Vec<_> = columns.iter().map(least).collect();
    give_way(columns, &mut widths, room, ESSENTIAL + 1);
    if taken(&widths) > room {
        for (column, width) in columns.iter().zip(&mut widths) {
            *width = width.map(|width| width.min(column.least / 2));
        }
        give_way(columns, &mut widths, room, 0);
    }
    // What is left goes to the narrowest of those that were cut.
    for _ in taken(&widths)..room {
        let shown = columns.iter().zip(&mut widths);
        let cut = shown.filter_map(|(column, width)| {
            let width = width.as_mut()?;
            (*width < column.natural).then_some(width)
        });
        let Some(narrowest) = cut.min_by_key(|width| **width) else {
            break;
        };
        *narrowest += 1;
    }
    widths
}

/// Takes away columns from that rank on until the others have room, but for one.
fn give_way(columns: &[Flexible], widths: &mut [Option<usize>], room: usize, from: u8) {
    while taken(widths) > room && widths.iter().flatten().count() > 1 {
        let shown = (0..columns.len()).filter(|at| widths[*at].is_some());
        let last = shown.max_by_key(|at| columns[*at].rank);
        match last.filter(|at| columns[*at].rank >= from) {
            Some(last) => widths[last] = None,
            None => break,
        }
    }
}

fn taken(widths: &[Option<usize>]) -> usize {
    let all: usize = widths.iter().flatten().map(|width| width + GAP).sum();
    all.saturating_sub(GAP)
}

/// Which columns a table has, and how wide they are.
#[derive(Debug)]
pub struct Layout<T: 'static> {
    columns: Vec<Column<T>>,
    widths: Vec<usize>,
    is_cut: bool,
}

impl<T> Layout<T> {
    /// The `wide` columns, or if these items with them have no room, those of the `narrow` ones that
    /// have.
    pub fn new<'a>(
        wide: &[Column<T>],
        narrow: &[Narrow<T>],
        items: &(impl Iterator<Item = &'a T> + Clone),
        room: Option<usize>,
    ) -> Self {
        let natural = |column: &Column<T>| {
            let cells = items.clone().map(|item| cell(column, item).width());
            cells.fold(column.0.width(), usize::max)
        };
        let widths: Vec<_> = wide.iter().map(natural).collect();
        let all = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let room = room.filter(|room| all > *room && !narrow.is_empty());
        let Some(room) = room else {
            return Self {
                columns: wide.to_vec(),
                widths,
                is_cut: false,
            };
        };
        let flexible = |(column, rank, least): &Narrow<T>| Flexible {
            rank: *rank,
            least: *least,
            natural: natural(column),
        };
        let flexible: Vec<_> = narrow.iter().map(flexible).collect();
        let widths = fit(&flexible, room);
        let shown = narrow.iter().zip(&widths);
        let shown = shown.filter(|(_, width)| width.is_some());
        Self {
            columns: shown.map(|((column, ..), _)| *column).collect(),
            widths: widths.into_iter().flatten().collect(),
            is_cut: true,
        }
    }

    /// A line for each item, of a heading before them if there is to be one. Text of others is
    /// escaped.
    pub fn text<'a>(
        &mut self,
        items: impl Iterator<Item = &'a T> + Clone,
        heading: bool,
    ) -> String {
        let columns = &self.columns;
        let row = |item| columns.iter().map(|column| cell(column, item)).collect();
        let headings = || columns.iter().map(|(heading, _)| (*heading).to_owned());
        let headings = heading.then(|| headings().collect());
        let rows: Vec<Vec<_>> = headings.into_iter().chain(items.map(row)).collect();
        if !self.is_cut {
            for row in &rows {
                for (width, cell) in self.widths.iter_mut().zip(row) {
                    *width = cell.width().max(*width);
                }
            }
        }
        let mut text = String::new();
        for row in &rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&self.widths) {
                let cell = cut(cell, *width);
                let space = width.saturating_sub(cell.width()) + GAP;
                line.extend([cell, " ".repeat(space)]);
            }
            text += &format!("{}\n", line.trim_end());
        }
        text
    }
}

fn cell<T>(column: &Column<T>, item: &T) -> String {
    escape(&column.1(item)).into_owned()
}

/// A table whose columns are as wide as they are.
pub fn table<'a, T: 'static>(
    columns: &[Column<T>],
    items: impl IntoIterator<Item = &'a T, IntoIter: Clone>,
) -> String {
    let items = items.into_iter();
    Layout::new(columns, &[], &items, None).text(items, true)
}

/// The beginning of the text, with a mark where something is missing.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut used = 1;
    let kept = text.chars().take_while(|c| {
        used += c.width().unwrap_or_default();
        used <= width
    });
    kept.chain(['…']).collect()
}

/// How many columns the terminal has that standard output is, if it is one.
pub fn width() -> Option<usize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

#[cfg(test)]
mod tests;
