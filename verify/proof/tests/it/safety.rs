//! `docs/proof/promises.md` points to tests. They exist, its words stand on the pages that it names,
//! and nothing is promised in `SAFETY.md` without a test.

use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

const PROMISES: &str = "docs/proof/promises.md";

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Where a link of the page of promises leads to.
fn beside(link: &str) -> PathBuf {
    root().join(PROMISES).with_file_name(link)
}

/// However its lines are broken.
fn flowing(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A row of the page: words of a promise, on the page of the heading above, and its tests.
struct Row {
    page: PathBuf,
    words: String,
    tests: String,
}

fn rows() -> Vec<Row> {
    let (mut page, mut rows) = (None, Vec::new());
    for line in read(&root().join(PROMISES)).lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let link = heading.split_once("](").expect("a heading is a link").1;
            page = Some(beside(link.trim_end_matches(')')));
        }
        let cells = line.trim_matches('|').split_once(" | ");
        let (true, Some((words, tests))) = (line.starts_with("| "), cells) else {
            continue;
        };
        if words.trim() != "promise" {
            rows.push(Row {
                page: page.clone().expect("a table has a heading"),
                words: words.trim().to_owned(),
                tests: tests.trim().to_owned(),
            });
        }
    }
    rows
}

#[test]
fn the_words_stand_on_the_page_that_is_named() {
    let rows = rows();
    assert!(rows.len() > 100, "rows are found: {}", rows.len());
    for Row { page, words, .. } in &rows {
        let text = flowing(&read(page));
        let page = page.display();
        assert!(text.contains(words), "{page} does not say: {words}");
    }
}

#[test]
fn the_tests_that_are_named_exist() {
    for Row { words, tests, .. } in rows() {
        for place in tests.split("; ") {
            let (link, names) = place.split_once("): ").unwrap_or((place, ""));
            let (shown, path) = link
                .trim_start_matches('[')
                .trim_end_matches(')')
                .split_once("](")
                .unwrap_or_else(|| panic!("{words}: {place:?} is no link"));
            assert!(path.ends_with(shown), "{words}: shows another path");
            let text = read(&beside(path));
            let names = names.split_whitespace().map(|name| name.trim_matches('`'));
            for name in names {
                let there = text.contains(&format!("fn {name}("));
                assert!(there, "{words}: there is no {name} in {path}");
            }
        }
    }
}

/// Every point of a list, but for what is never promised, begins with what it is about in bold.
#[test]
fn nothing_is_promised_without_a_test() {
    let page = root().join("SAFETY.md");
    let mut items: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in read(&page).lines() {
        match line {
            _ if line.starts_with("- **") => items.push(line.to_owned()),
            _ if goes_on && line.starts_with("  ") => {
                items.last_mut().expect("an item goes on").push_str(line);
            }
            _ => {}
        }
        goes_on = line.starts_with("- **") || goes_on && line.starts_with("  ");
    }
    assert!(items.len() > 25, "{items:#?}");
    let rows = rows();
    for item in items.iter().map(|item| flowing(item)) {
        let tested = rows.iter().any(|row| item.contains(&row.words));
        assert!(tested, "no row of {PROMISES} is about {item:?}");
    }
}
