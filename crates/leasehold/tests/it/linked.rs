//! What is public is called by these tests: what nobody calls, the linker leaves out.
#![cfg(all(
    target_os = "linux",
    debug_assertions,
    feature = "local",
    feature = "metrics",
    feature = "postgres",
    feature = "redis",
    feature = "testing"
))]

use std::collections::BTreeSet;
use std::fs;

use object::{Object as _, ObjectSymbol as _};

use crate::sources;

/// Whether it is of the blocking face, the type that it is of, if any, and its name.
type Function = (bool, String, String);

/// Reads a path, in the old and in the new way of naming symbols: `leasehold::lease::Lease<K>::renew`,
/// `leasehold::client::<impl leasehold::client::Client>::list::{{closure}}`,
/// `<leasehold::lease::Lease<_>>::renew::{closure#0}`.
fn function(path: &str) -> Option<Function> {
    let path = path.split("::{").next()?;
    let path = match path.ends_with('>') {
        true => &path[..path.rfind("::<")?],
        false => path,
    };
    let (of, name) = path.rsplit_once("::")?;
    let of = of.rsplit("<impl ").next()?.trim_start_matches('<');
    let of = of.split(" as ").next()?;
    let of = of.split(['<', '>']).next()?;
    // Modules are private: what is in them is public elsewhere.
    let last = of.rsplit("::").next()?;
    let is_type = last.starts_with(char::is_uppercase);
    let last = if is_type { last } else { "" };
    Some((of.contains("::blocking"), last.to_owned(), name.to_owned()))
}

/// What is linked into this program: what it calls, and what is called then. The linker leaves out the
/// rest.
fn linked() -> BTreeSet<Function> {
    let program = fs::read(std::env::current_exe().unwrap()).unwrap();
    let program = object::File::parse(&*program).unwrap();
    let names = program.symbols().filter_map(|symbol| {
        let name = rustc_demangle::demangle(symbol.name().ok()?);
        function(&format!("{name:#}"))
    });
    names.collect()
}

/// The functions in the list of what is public, but for those of traits, and for what is done while
/// compiling.
fn public() -> BTreeSet<Function> {
    let list = sources::read("api/leasehold.txt");
    let functions = list.lines().filter_map(|line| {
        let path = line
            .strip_prefix("pub async fn ")
            .or_else(|| line.strip_prefix("pub fn "))?;
        let (mut plain, mut open) = (String::new(), 0);
        for letter in path.chars().take_while(|letter| *letter != '(') {
            open += i32::from(letter == '<') - i32::from(letter == '>');
            if open == 0 && letter != '>' {
                plain.push(letter);
            }
        }
        function(&plain)
    });
    let of_traits = "default fmt from observe acquisition request reconnected";
    functions
        .filter(|(.., name)| of_traits.split(' ').all(|of| of != name))
        .collect()
}

#[test]
fn nothing_public_is_left_uncalled() {
    let (public, linked) = (public(), linked());
    assert!(public.len() > 400, "{}", public.len());
    let uncalled: Vec<_> = public.difference(&linked).collect();
    assert!(uncalled.is_empty(), "call these too: {uncalled:#?}");
}
