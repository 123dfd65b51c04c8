//! Compares the public API of a crate, as rustdoc writes it to JSON, with the list in `api/`.
//!
//! `scripts/public-api` runs it: `leasehold-api LIST JSON` compares, `--update` before them writes the
//! list anew. `--harmless JSON JSON` says whether all that the first API has is in the second, with the
//! traits that are derived or automatic, and nothing is added that could break a program: part of an
//! enum, of a trait or of what a program may make. `--bare JSON` prints it without documentation and without the paths of this machine.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use public_api::Builder;
use serde::Deserialize;
use serde_json::Value;

/// What rustdoc writes that `public-api` can read.
const FORMAT: u32 = 57;

/// What stands at the beginning of the file.
#[derive(Deserialize)]
struct Written {
    format_version: u32,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments: Vec<_> = env::args_os().skip(1).map(PathBuf::from).collect();
    let first = arguments.first().and_then(|first| first.to_str());
    if let (Some("--bare"), [_, json]) = (first, &*arguments) {
        println!("{}", bare(serde_json::from_str(&read(json)?)?));
        return Ok(ExitCode::SUCCESS);
    }
    let (update, harmless) = (first == Some("--update"), first == Some("--harmless"));
    arguments.drain(..usize::from(update || harmless));
    let [list, json] = &*arguments else {
        let forms = "[--update] LIST JSON, --harmless JSON JSON, or --bare JSON";
        return Err(format!("usage: leasehold-api {forms}").into());
    };
    if harmless {
        let passes = is_harmless(&whole(list)?, &whole(json)?);
        return Ok(ExitCode::from(u8::from(!passes)));
    }
    let written: Written = serde_json::from_str(&read(json)?).map_err(|error| at(json, &error))?;
    if written.format_version != FORMAT {
        println!(
            "the API is not compared: this rustdoc writes format {}, and {FORMAT} is read",
            written.format_version
        );
        return Ok(ExitCode::SUCCESS);
    }
    let api = Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    let found: Vec<String> = api.items().map(|item| short(&item.to_string())).collect();
    if update {
        fs::write(list, found.join("\n") + "\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let known = read(list)?;
    let known: BTreeSet<&str> = known.lines().collect();
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    for gone in known.difference(&found) {
        println!("- {gone}");
    }
    for new in found.difference(&known) {
        println!("+ {new}");
    }
    if known == found {
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "{} has changed: review it, and run scripts/public-api --update",
        list.display()
    );
    Ok(ExitCode::FAILURE)
}

fn bare(mut api: Value) -> Value {
    let items = api["index"].as_object_mut();
    for item in items.into_iter().flat_map(|items| items.values_mut()) {
        (item["docs"], item["span"]) = (Value::Null, Value::Null);
    }
    let crates = api["external_crates"].as_object_mut();
    for of in crates.into_iter().flat_map(|crates| crates.values_mut()) {
        of["path"] = Value::from("");
    }
    api
}

fn is_harmless(before: &BTreeSet<String>, now: &BTreeSet<String>) -> bool {
    const APART: &str = "pub fn |pub async fn |pub struct |pub mod |impl";
    let is_name = |letter: char| letter.is_alphanumeric() || "_:".contains(letter);
    let traits: Vec<_> = (before.iter())
        .filter_map(|item| item.split_once("pub trait "))
        .map(|(_, named)| named.split(|letter| !is_name(letter)).next())
        .map(|name| format!("{}::", name.unwrap_or_default().trim_end_matches(':')))
        .collect();
    let stands_apart = |item: &String| {
        let mut named = APART.split('|').filter_map(|kind| item.strip_prefix(kind));
        named.any(|name| !traits.iter().any(|of| name.starts_with(of)))
    };
    before.is_subset(now) && now.difference(before).all(stands_apart)
}

fn whole(json: &Path) -> Result<BTreeSet<String>, Box<dyn Error>> {
    let api = Builder::from_rustdoc_json(json).build()?;
    Ok(api.items().map(ToString::to_string).collect())
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| at(file, &error))
}

fn at(file: &Path, error: &dyn Error) -> String {
    format!("{}: {error}", file.display())
}

/// Without the paths of the standard library: `Option` for `core::option::Option`.
fn short(item: &str) -> String {
    let is_part = |letter: char| letter.is_alphanumeric() || "_:".contains(letter);
    let mut shortened = String::new();
    for part in item.split_inclusive(|letter| !is_part(letter)) {
        let mut roots = ["core::", "alloc::", "std::"].iter();
        let is_standard = roots.any(|root| part.starts_with(root));
        shortened += match part.rfind("::").filter(|_| is_standard) {
            Some(end) => &part[end + 2..],
            None => part,
        };
    }
    shortened
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_break_a_program_is_not_harmless() {
        let set = |items: &[&str]| items.iter().map(ToString::to_string).collect();
        let before = ["pub trait a::T: Send", "pub enum a::E", "pub struct a::S"];
        let passes = |now: &[&str]| is_harmless(&set(&before), &set(&[&before, now].concat()));
        assert!(passes(&[]) && passes(&["pub fn a::S::of(u8, a::T::X)", "pub struct a::T2"]));
        assert!(passes(&[
            "pub fn a::T2::of()",
            "impl core::clone::Clone for a::S"
        ]));
        for breaks in [
            "pub fn a::T::new(&self)",
            "pub a::E::New",
            "pub a::S::field: u8",
            "pub type a::T::X",
        ] {
            assert!(!passes(&[breaks]), "{breaks}");
        }
        assert!(!is_harmless(&set(&before), &set(&before[1..])));
    }

    #[test]
    fn names_of_the_standard_library_are_short() {
        let item = "pub fn a::B::c(&self, core::option::Option<alloc::vec::Vec<a::D>>) -> std::io::Result<()>";
        let shown = "pub fn a::B::c(&self, Option<Vec<a::D>>) -> Result<()>";
        assert_eq!(short(item), shown);
    }
}
