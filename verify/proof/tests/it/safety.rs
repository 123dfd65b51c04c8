//! `SAFETY.md` points to tests. They exist, and nothing promised there is without one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    fs::read_to_string(root().join("SAFETY.md")).expect("the page is there")
}

/// The marks in a text, as in `[^mark]`.
fn marks(text: &str) -> impl Iterator<Item = &str> {
    let after = text.split("[^").skip(1);
    after.filter_map(|rest| rest.split_once(']').map(|(mark, _)| mark))
}

/// What each mark stands for.
fn definitions(page: &str) -> BTreeMap<&str, &str> {
    page.lines()
        .filter_map(|line| line.strip_prefix("[^")?.split_once("]: "))
        .collect()
}

/// The page without its list of tests.
fn prose(page: &str) -> &str {
    page.split_once("\n## The tests\n")
        .expect("a list of tests")
        .0
}

#[test]
fn each_mark_is_defined_and_each_definition_used() {
    let page = page();
    let used: BTreeSet<_> = marks(prose(&page)).collect();
    let defined: BTreeSet<_> = definitions(&page).into_keys().collect();
    assert_eq!(used, defined);
    let lines = page.lines().filter(|line| line.starts_with("[^"));
    assert_eq!(lines.count(), defined.len(), "each is defined once");
}

#[test]
fn the_tests_that_are_named_exist() {
    let page = page();
    for (mark, definition) in definitions(&page) {
        for place in definition.split("; ") {
            let (link, tests) = place.split_once("): ").unwrap_or((place, ""));
            let (shown, path) = link
                .trim_start_matches('[')
                .trim_end_matches(')')
                .split_once("](")
                .unwrap_or_else(|| panic!("[^{mark}]: {place:?} is no link"));
            assert!(path.ends_with(shown), "[^{mark}] shows another path");
            let text = fs::read_to_string(root().join(path))
                .unwrap_or_else(|error| panic!("[^{mark}]: {path}: {error}"));
            let names = tests.split_whitespace().map(|name| name.trim_matches('`'));
            for name in names {
                assert!(
                    text.contains(&format!("fn {name}(")),
                    "[^{mark}]: there is no {name} in {path}"
                );
            }
        }
    }
}

/// Every promise of a deployment, every kind and every line of the rest.
#[test]
fn nothing_is_promised_without_a_test() {
    let page = page();
    let mut items = Vec::new();
    let mut promises = false;
    for line in prose(&page).lines() {
        match line {
            "Promised:" | "Also promised:" => promises = true,
            "## The command" | "## Giving a lease away" | "## Order of waiters" => promises = true,
            _ if line.starts_with('#') => promises = false,
            _ if promises && line.starts_with("- ") => items.push(line.to_owned()),
            _ if promises && line.starts_with("  ") => {
                let item = items.last_mut().expect("an item goes on");
                item.push_str(line);
            }
            _ => {}
        }
    }
    assert!(items.len() > 25, "{items:#?}");
    for item in &items {
        assert!(marks(item).next().is_some(), "{item:?} points to no test");
    }
}
