//! Tables for people.

use comfy_table::Table;
use comfy_table::presets::NOTHING;

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
