//! What `api/leasehold.txt` lists is used: by a test, an example or a page. What nobody shows how to use,
//! nobody would miss.

use std::collections::BTreeSet;
use std::fs;

use crate::{files, root};

/// What of a source shows how something is used: its examples, and the tests at its end.
fn examples_and_tests(source: &str) -> String {
    let (mut shown, mut in_example) = (String::new(), false);
    for line in source.lines() {
        let line = line.trim_start();
        let doc = line.strip_prefix("///");
        let doc = doc.or_else(|| line.strip_prefix("//!"));
        let fence = doc.is_some_and(|doc| doc.trim_start().starts_with("```"));
        in_example = doc.is_some() && in_example != fence;
        if in_example {
            shown.extend([line, "\n"]);
        }
    }
    let tests = source.find("#[cfg(test)]").map(|at| &source[at..]);
    shown + tests.unwrap_or_default()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The name that a line of the list is about: the last of its path.
fn name(line: &str) -> Option<&str> {
    let keywords = [
        "pub", "async", "const", "enum", "fn", "macro", "mod", "static", "struct", "trait", "type",
        "unsafe", "use",
    ];
    let item = line.split(' ').find(|word| !keywords.contains(word))?;
    let path = item.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    path.take(1)
        .find_map(|path| path.trim_end_matches(':').rsplit("::").next())
}

#[test]
fn what_is_public_is_shown_or_tested() {
    let mut shown = BTreeSet::new();
    let directories = "bindings crates docs examples verify/proof verify/testkit";
    for directory in directories.split(' ') {
        for path in files(&root().join(directory), &["rs", "md"]) {
            let text = fs::read_to_string(&path).unwrap();
            let is_product = path.components().any(|part| part.as_os_str() == "src")
                && directory == "crates"
                && !path.ends_with("tests.rs");
            let text = if is_product {
                examples_and_tests(&text)
            } else {
                text
            };
            shown.extend(words(&text).map(str::to_owned));
        }
    }
    let list = fs::read_to_string(root().join("api/leasehold.txt")).unwrap();
    let names = list.lines().filter_map(|line| Some((name(line)?, line)));
    let names: Vec<_> = names.collect();
    assert!(names.len() > 900, "{}", names.len());
    let hidden = names.iter().filter(|(name, _)| !shown.contains(*name));
    let hidden: Vec<_> = hidden.collect();
    assert!(hidden.is_empty(), "neither tested nor shown: {hidden:#?}");
}
