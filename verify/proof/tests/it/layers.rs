//! The rooms of each crate: modules beside each other do not import each other in a circle. Parent
//! and child may.
//!
//! A path counts as an import of the module that has the item, also where a module on the way
//! re-exports that by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};

use crate::{files, root};

const CRATES: &str = "leasehold leasehold-cli leasehold-console leasehold-core leasehold-local \
    leasehold-postgres leasehold-zookeeper leasehold-redis leasehold-store";

/// Imports that still close a circle: the crate, the module in which both rooms are (if it is not the
/// crate), and the rooms. Each has to be one: the table can only get shorter.
const STILL: &str = "\
leasehold : lock -> reentrant
leasehold-redis codec: script -> call
leasehold-redis connection: acked_writer -> multiplexed
leasehold-redis connection: batch -> multiplexed
leasehold-redis connection: handshake -> endpoint
leasehold-redis connection: multiplexed -> manager
leasehold-redis connection: primary -> endpoint
leasehold-redis connection: primary -> manager
leasehold-redis connection: rights -> endpoint
leasehold-redis options: sentinels -> url";

/// The folders of `leasehold-redis`, from the lowest up: each imports only from those before it, and
/// those in one row know nothing of each other.
const REDIS: [&[&str]; 9] = [
    &["std_ext"],
    &["errors", "options", "claim_table"],
    &["codec"],
    &["connection"],
    &["routing"],
    &["queue", "classic"],
    &["quorum"],
    &["doctor", "bare"],
    &["scheme"],
];

/// The names that lead from the root of a crate to a module.
type Module = Vec<String>;

/// Who imports whom in one module, and where.
type Rooms = BTreeMap<(String, String), String>;

/// A word or sign of the code, and where it is.
type Token = (String, Span);

/// A path, and the name by which its end is known where it stands.
type Named = (Vec<String>, String);

fn source(name: &str) -> PathBuf {
    root().join("crates").join(name).join("src")
}

/// All tokens in a row, but those of the tests, which know all.
fn tokens(stream: TokenStream, all: &mut Vec<Token>) {
    for tree in stream {
        let place = tree.span();
        let of_tests =
            || matches!(&all[..], [.., (one, _), (other, _)] if one == "mod" && other == "tests");
        match tree {
            TokenTree::Group(_) if of_tests() => {}
            TokenTree::Group(group) => {
                let braces = group.delimiter() == Delimiter::Brace;
                all.push((if braces { "{" } else { "(" }.to_owned(), place));
                tokens(group.stream(), all);
                all.push((if braces { "}" } else { ")" }.to_owned(), place));
            }
            TokenTree::Literal(_) => all.push(("_".to_owned(), place)),
            tree => all.push((tree.to_string(), place)),
        }
    }
}

/// The paths that begin here, as `a::{b, c as d}` has two; and what comes behind them.
fn paths(mut rest: &[Token]) -> (Vec<Named>, &[Token]) {
    let is = |rest: &[Token], at: usize, sign: &str| rest.get(at).is_some_and(|it| it.0 == sign);
    let mut path = Vec::new();
    loop {
        let (word, _) = &rest[0];
        rest = &rest[1..];
        if word == "{" {
            let mut all = Vec::new();
            while !is(rest, 0, "}") {
                let (ends, behind) = paths(rest);
                all.extend(ends.into_iter().map(|(mut end, mut name)| {
                    // `a::{self}` is `a`.
                    if end == ["self"] {
                        end.clear();
                    }
                    if name == "self" {
                        name.clone_from(path.last().unwrap());
                    }
                    ([&path[..], &end].concat(), name)
                }));
                rest = &behind[usize::from(is(behind, 0, ","))..];
            }
            return (all, &rest[1..]);
        }
        path.push(word.clone());
        if !is(rest, 0, ":") || !is(rest, 1, ":") || is(rest, 2, "<") {
            break;
        }
        rest = &rest[2..];
    }
    let mut name = path.last().unwrap().clone();
    if is(rest, 0, "as") {
        name.clone_from(&rest[1].0);
        rest = &rest[2..];
    }
    (vec![(path, name)], rest)
}

/// Where a path leads that stands in a module, from the root of the crate; `None`: elsewhere.
fn absolute(modules: &BTreeSet<Module>, module: &Module, path: &[String]) -> Option<Vec<String>> {
    let mut base = module.clone();
    let child =
        |name: &String| modules.contains(&[&module[..], std::slice::from_ref(name)].concat());
    match &*path[0] {
        "crate" => base.clear(),
        "self" | "super" => {}
        _ if child(&path[0]) => return Some([base, path.to_vec()].concat()),
        _ => return None,
    }
    let up = path.iter().take_while(|name| *name == "super").count();
    base.truncate(base.len() - up);
    base.extend_from_slice(&path[up.max(1)..]);
    Some(base)
}

/// Who imports whom in a crate, by the module in which both are.
fn imports(name: &str) -> BTreeMap<Module, Rooms> {
    let root = source(name);
    let mut sources = BTreeMap::new();
    for file in files(&root, &["rs"]) {
        let inside = file.strip_prefix(&root).unwrap().with_extension("");
        let names = inside.iter().map(|name| name.to_str().unwrap().to_owned());
        let mut module: Module = names.collect();
        module.pop_if(|last| ["mod", "lib", "main"].contains(&&**last));
        if !module.iter().any(|it| it == "tests" || it == "fuzzing") {
            let mut all = Vec::new();
            let text = fs::read_to_string(&file).unwrap();
            tokens(text.parse().unwrap(), &mut all);
            sources.insert(module, (format!("{name}/src/{}", inside.display()), all));
        }
    }
    let modules: BTreeSet<_> = sources.keys().cloned().collect();
    let (mut named, mut known) = (Vec::new(), BTreeMap::new());
    for (module, (file, tokens)) in &sources {
        let mut rest = &tokens[..];
        while !rest.is_empty() {
            let before = &tokens[..tokens.len() - rest.len()];
            let goes_on = matches!(before, [.., (one, _), (two, _)] if one == ":" && two == ":");
            let begins = matches!(rest, [_, (one, _), (two, _), ..] if one == ":" && two == ":");
            if goes_on || !begins {
                rest = &rest[1..];
                continue;
            }
            let start = rest[0].1;
            let (all, behind) = paths(rest);
            for (path, name) in all {
                if let Some(target) = absolute(&modules, module, &path) {
                    let line = start.start().line;
                    let place = format!("{file}.rs:{line} ({})", path.join("::"));
                    named.push((module, target.clone(), place));
                    if before.last().is_some_and(|last| last.0 == "use") {
                        known.insert([&module[..], &[name]].concat(), target);
                    }
                }
            }
            rest = behind;
        }
    }
    let mut all: BTreeMap<Module, Rooms> = BTreeMap::new();
    for (from, mut target, place) in named {
        // Follows re-exports to the module that has the item.
        let to = loop {
            let is_module = |length: &usize| modules.contains(&target[..*length]);
            let length = (0..=target.len()).rev().find(is_module).unwrap();
            match target.get(..=length).and_then(|item| known.get(item)) {
                Some(further) if *further != target => {
                    target = [&further[..], &target[length + 1..]].concat();
                }
                _ => break &target[..length],
            }
        };
        let pairs = from.iter().zip(to);
        let both = pairs.take_while(|(one, other)| one == other).count();
        if let (Some(one), Some(other)) = (from.get(both), to.get(both)) {
            let rooms = all.entry(to[..both].to_vec()).or_default();
            rooms.entry((one.clone(), other.clone())).or_insert(place);
        }
    }
    all
}

/// The rooms through which one room imports another one, on a shortest way.
fn way<'a>(rooms: &'a Rooms, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    let mut ways = vec![vec![from]];
    let mut seen = BTreeSet::from([from]);
    let mut next = 0;
    while let Some(way) = ways.get(next).cloned() {
        let last = way[way.len() - 1];
        if last == to {
            return Some(way);
        }
        for (_, room) in rooms.keys().filter(|(one, _)| one == last) {
            if seen.insert(room) {
                ways.push([&way[..], &[room]].concat());
            }
        }
        next += 1;
    }
    None
}

#[test]
fn rooms_beside_each_other_import_each_other_in_no_circle() {
    let mut wrong = Vec::new();
    for name in CRATES.split(' ') {
        let all = imports(name);
        assert!(all.values().map(Rooms::len).sum::<usize>() > 10, "{name}");
        for (module, mut rooms) in all {
            let module = module.join("::");
            let here = format!("{name} {module}: ");
            for import in STILL.lines().filter_map(|it| it.strip_prefix(&here)) {
                let (from, to) = import.split_once(" -> ").unwrap();
                let rooms_of_it = (from.to_owned(), to.to_owned());
                if way(&rooms, to, from).is_none() || rooms.remove(&rooms_of_it).is_none() {
                    wrong.push(format!("{here}{import} closes no circle any more"));
                }
            }
            let mut circles = BTreeSet::new();
            for (from, to) in rooms.keys() {
                let Some(mut circle) = way(&rooms, to, from) else {
                    continue;
                };
                circle.insert(0, from);
                if circles.insert(BTreeSet::from_iter(circle.clone())) {
                    let place = |two: &[&str]| {
                        let import = (two[0].to_owned(), two[1].to_owned());
                        format!("\n    {}", rooms[&import])
                    };
                    let places: String = circle.windows(2).map(place).collect();
                    let circle = circle.join(" -> ");
                    wrong.push(format!("{here}{circle}{places}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_folders_of_redis_import_from_lower_ones_only() {
    let layer = |name: &String| REDIS.iter().position(|row| row.contains(&&**name));
    let rooms = imports("leasehold-redis").remove(&Module::new()).unwrap();
    for ((from, to), place) in &rooms {
        let lower = layer(from) > layer(to) && layer(to).is_some();
        assert!(lower, "{from} imports {to}: {place}");
    }
    assert!(rooms.len() > 20, "only {} imports were seen", rooms.len());
}

/// A process may fork while one of its threads makes such a value: then a child that needs it waits
/// for a thread that it does not have. `leasehold_store::fork::Lazy` waits for nobody.
#[test]
fn the_library_has_no_value_that_one_thread_makes_while_others_wait() {
    let crates = CRATES.split(' ');
    let libraries = crates.filter(|name| !matches!(*name, "leasehold-cli" | "leasehold-console"));
    let mut seen = 0;
    for name in libraries {
        for path in files(&source(name), &["rs"]) {
            let text = fs::read_to_string(&path).unwrap();
            let mut words = Vec::new();
            tokens(text.parse().unwrap(), &mut words);
            let is_lazy = |(word, _): &Token| word == "LazyLock";
            assert!(!words.iter().any(is_lazy), "{}", path.display());
            seen += usize::from(words.iter().any(|(word, _)| word == "Lazy"));
        }
    }
    assert!(seen > 5, "only {seen} files with such values were seen");
}
