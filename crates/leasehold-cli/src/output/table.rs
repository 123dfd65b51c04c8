//! Tables for people.

use std::io;

use comfy_table::presets::NOTHING;
use comfy_table::{ColumnConstraint, ContentArrangement, Table};
use rustix::termios::tcgetwinsize;

use super::escape;

/// The heading of a column, and what stands below it.
pub(crate) type Column<T> = (&'static str, fn(&T) -> String);

/// Columns without lines, and a row for each item. Text of others is escaped.
pub(crate) fn table<'a, T: 'a>(
    columns: &[Column<T>],
    items: impl IntoIterator<Item = &'a T>,
) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(columns.iter().map(|(heading, _)| heading));
    for item in items {
        table.add_row(
            columns
                .iter()
                .map(|(_, cell)| escape(&cell(item)).into_owned()),
        );
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// The table with the columns `wide`, or with `narrow` where a terminal of that width has no room
/// for it. Then the `flexible` columns are cut, so that a row is one line.
pub(crate) fn fitted<'a, T: 'a>(
    wide: &[Column<T>],
    narrow: &[Column<T>],
    flexible: &[&str],
    items: impl IntoIterator<Item = &'a T, IntoIter: Clone>,
    width: Option<usize>,
) -> Table {
    let items = items.into_iter();
    let all = table(wide, items.clone());
    let Some(width) = width.filter(|width| natural_width(&all) > *width) else {
        return all;
    };
    let mut fitted = table(narrow, items);
    fitted
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(u16::try_from(width).unwrap_or(u16::MAX))
        .set_truncation_indicator("…");
    for (column, (heading, _)) in fitted.column_iter_mut().zip(narrow) {
        if !flexible.contains(heading) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    for row in fitted.row_iter_mut() {
        row.max_height(1);
    }
    fitted
}

/// How wide the table is without being cut, but for the space behind the last column.
fn natural_width(table: &Table) -> usize {
    let widths = table.column_max_content_widths();
    let columns: usize = widths.iter().map(|width| usize::from(*width) + 2).sum();
    columns.saturating_sub(2)
}

/// How many columns the terminal has that standard output is, if it is one.
pub(crate) fn width() -> Option<usize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}
