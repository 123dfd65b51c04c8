//! The blocking face has all that the async one has, by the source of both.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::sources::{at, files_in};

/// What only one of them has, and why.
const ON_PURPOSE: &[(&str, &str)] = &[
    ("run", "a thread cannot be stopped from outside"),
    ("try_run", "as run"),
    ("lost_within", "a future is dropped instead"),
    ("lease", "what is borrowed is of the async face: as_async"),
    ("leases", "as lease"),
];

/// What the types of a face have, and what its macros write: methods, and calls of macros as
/// `options!`.
type Methods = BTreeMap<String, BTreeSet<String>>;

fn name(text: &str) -> Option<String> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let end = text.find(|letter| !is_part(letter)).unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}

/// The items of a file, with all of their lines.
fn items(text: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    for line in text.lines() {
        let begins = line.starts_with(|first: char| first.is_alphabetic());
        match items.last_mut().filter(|_| !begins) {
            Some(item) => *item += &format!("\n{line}"),
            None => items.push(line.to_owned()),
        }
    }
    items
}

/// The type of `impl<K: Kind> Type<K> {`, and the macro of `macro_rules!`; none for what
/// implements a trait.
fn owner(item: &str) -> Option<String> {
    let item = item.strip_prefix("face! { ").unwrap_or(item);
    if let Some(rest) = item.strip_prefix("macro_rules! ") {
        return name(rest).map(|name| format!("{name}!"));
    }
    let rest = item.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generic) => &generic[generic.find('>')? + 1..],
        None => rest,
    };
    let header = rest.lines().next()?;
    (!header.contains(" for ")).then(|| name(rest.trim_start()))?
}

fn method(line: &str) -> Option<String> {
    let line = line.trim_start();
    let mut starts = "pub async fn |pub const fn |pub fn |wait fn |now fn ".split('|');
    starts.find_map(|start| name(line.strip_prefix(start)?))
}

/// The macro that is the table of the kinds, for both faces.
const TABLE: &str = "kinds!";

/// The macros that write methods.
const WRITING: &str = "setters options single_key fairness kinds locking adopting losing holding";

/// The verbs of a kind that is locked in one way: they stand in the table once.
const LOCKS: &str = "lock try_lock lock_within lock_opts with_lock with_lock_within with_try_lock \
    try_with_lock";

/// Calls of the macros that write methods, and the names that are given to one.
fn calls(text: &str) -> impl Iterator<Item = (String, String)> {
    WRITING.split(' ').flat_map(move |called| {
        let call = format!("{called}!");
        let found = text.match_indices(&call);
        let found: Vec<_> = found.map(|(at, it)| at + it.len()).collect();
        found.into_iter().filter_map(move |at| {
            let inner = text[at..].trim_start().strip_prefix(['(', '{'])?;
            let mut open = 1;
            let end = inner.find(|letter| {
                open += i32::from("({".contains(letter)) - i32::from(")}".contains(letter));
                open == 0
            })?;
            Some((format!("{called}!"), inner[..end].trim().to_owned()))
        })
    })
}

fn add(methods: &mut Methods, to: &str, (called, inner): (String, String)) {
    let to = methods.entry(to.to_owned()).or_default();
    if called == "setters!" {
        // `name(value: type): field = …`
        let lines = inner.lines().map(str::trim_start);
        to.extend(lines.filter(|line| line.contains("): ")).filter_map(name));
    } else if called == "locking!" {
        // What gets a lease; what runs work under one.
        let names = inner.rsplit(';').take(2).flat_map(|names| names.split(','));
        to.extend(names.filter_map(|it| name(it.trim())));
    } else if called == TABLE {
        to.extend(LOCKS.split(' ').map(str::to_owned));
    } else {
        to.insert(called);
    }
}

/// Adds what the calls in an item give to the types that they name.
fn add_calls(methods: &mut Methods, item: &str) {
    for (called, inner) in calls(item) {
        if let Some(of) = name(&inner) {
            add(methods, &of, (called, inner));
        }
    }
}

/// Reads the files of a face; the blocking one has a directory in that of the other.
fn read(directory: &Path, methods: &mut Methods) {
    for path in files_in(directory, "rs") {
        let file = path.strip_prefix(directory).unwrap();
        if file.starts_with("blocking") {
            continue;
        }
        for item in items(&fs::read_to_string(&path).unwrap()) {
            if let Some(owner) = owner(&item).filter(|owner| owner != TABLE) {
                let found = methods.entry(owner.clone()).or_default();
                found.extend(item.lines().filter_map(method));
                if owner.ends_with('!') {
                    calls(&item).for_each(|call| add(methods, &owner, call));
                }
            } else {
                add_calls(methods, &item);
            }
        }
    }
}

/// All that a type has, with what the macros write.
fn all(methods: &Methods, of: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for one in methods.get(of).into_iter().flatten() {
        if one.ends_with('!') {
            found.extend(all(methods, one));
        } else {
            found.insert(one.clone());
        }
    }
    found
}

#[test]
fn the_two_faces_have_the_same() {
    let source = at("crates/leasehold/src");
    let (mut future, mut blocking) = (Methods::new(), Methods::new());
    read(&source, &mut future);
    read(&source.join("blocking"), &mut blocking);
    let verbs = items(&fs::read_to_string(source.join("verbs.rs")).unwrap());
    let is_table = |item: &&String| owner(item).is_some_and(|owner| owner == TABLE);
    add_calls(&mut blocking, verbs.iter().find(is_table).unwrap());
    let mut differ = Vec::new();
    let mut excused = BTreeSet::new();
    for of in blocking.keys().filter(|of| !of.ends_with('!')) {
        let (one, other) = (all(&future, of), all(&blocking, of));
        for method in one.symmetric_difference(&other) {
            match ON_PURPOSE.iter().find(|(name, _)| name == method) {
                Some((name, _)) => _ = excused.insert(*name),
                None => differ.push(format!("{of}::{method}")),
            }
        }
    }
    assert!(differ.is_empty(), "only one face has {differ:?}");
    // They have been read, and each reason is needed.
    assert!(all(&blocking, "RwLock").contains("with_try_read"));
    assert!(all(&future, "Mutex").len() > 20);
    assert!(ON_PURPOSE.iter().all(|(name, _)| excused.contains(name)));
}
