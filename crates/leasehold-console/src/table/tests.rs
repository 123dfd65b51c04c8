use std::path::Path;

use super::*;

#[test]
fn columns_are_cut_and_then_give_way_by_rank() {
    let column = |rank, least, natural| Flexible {
        rank,
        least,
        natural,
    };
    let columns = [
        column(0, 10, 30),
        column(2, 8, 14),
        column(4, WHOLE, 4),
        column(1, WHOLE, 3),
    ];
    let (whole, gone) = (Some(3), None);
    for (room, widths) in [
        (80, [Some(30), Some(14), Some(4), whole]),
        (40, [Some(14), Some(13), Some(4), whole]),
        (31, [Some(10), Some(8), Some(4), whole]),
        (30, [Some(12), Some(11), gone, whole]),
        (24, [Some(9), Some(8), gone, whole]),
        (16, [Some(5), Some(4), gone, whole]),
        (15, [Some(10), gone, gone, whole]),
        (4, [Some(5), gone, gone, gone]),
    ] {
        assert_eq!(fit(&columns, room), widths, "{room}");
    }
}

#[test]
fn what_is_cut_shows_it() {
    assert_eq!(cut("orders/42", 6), "order…");
    assert_eq!(cut("日本語", 4), "日…");
    assert_eq!(cut("abc", 3), "abc");
}

#[test]
fn rows_that_come_later_stand_under_the_same_columns() {
    const COLUMNS: &[Column<&str>] = &[("KEY", |key| (*key).to_owned()), ("N", |_| "1".to_owned())];
    let (first, second) = (["a-long-key", "b"], ["c", "one-that-is-longer"]);
    let mut layout = Layout::new(COLUMNS, &[], &first.iter(), None);
    let table = "KEY         N\na-long-key  1\nb           1\n";
    assert_eq!(layout.text(first.iter(), true), table);
    let later = "c                   1\none-that-is-longer  1\n";
    assert_eq!(layout.text(second.iter(), false), later);
    let narrow = [(COLUMNS[0], 0, 5), (COLUMNS[1], 1, WHOLE)];
    let mut layout = Layout::new(COLUMNS, &narrow, &first.iter(), Some(9));
    layout.text(first.iter(), true);
    assert_eq!(layout.text(second.iter(), false), "c       1\none-t…  1\n");
}

/// As the keys that a holder of very many waits for: a format can be no wider than 65535.
#[test]
fn no_cell_is_too_long_for_those_below_it() {
    const COLUMNS: &[Column<String>] = &[("KEYS", String::clone), ("N", |_| "1".to_owned())];
    let items = ["k".repeat(70_000), "k".to_owned()];
    let text = table(COLUMNS, &items);
    let widths: Vec<_> = text.lines().map(str::len).collect();
    assert_eq!(widths, [70_003; 3]);
}

/// Each file that has a table is one whose tests show it at 40 columns, or says here why not.
#[test]
fn every_table_is_seen_at_40_columns() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut with_tables = Vec::new();
    let mut folders = ["src", "../leasehold-cli/src/commands"]
        .map(|it| source.join(it))
        .to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if text.contains(": &[Column<") || text.contains("draw_columns(") {
                let name = path.strip_prefix(source).unwrap();
                with_tables.push(name.to_str().unwrap().to_owned());
            }
        }
    }
    with_tables.sort();
    let known = [
        // Not of locks: a value that is cut would mislead, so a terminal may wrap these.
        "../leasehold-cli/src/commands/bench/report.rs",
        "../leasehold-cli/src/commands/config.rs",
        // Here.
        "src/table/mod.rs",
        "src/table/tests.rs",
        // `at_40_columns_key_holder_and_waiting_are_there`, also of `top`.
        "src/tables.rs",
        "src/top/view.rs",
    ];
    assert_eq!(
        with_tables, known,
        "a table of locks: show it at 40 columns in a test"
    );
}
