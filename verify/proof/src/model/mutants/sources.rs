//! A copy of the core that asks at each place of a mutant whether it is to be broken there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{Mutant, Patch, all, root};

/// What the copy has besides: whether the mutant of that name was chosen.
const CHOICE: &str = r#"
fn mutated(name: &str) -> bool {
    use std::sync::LazyLock;
    static CHOSEN: LazyLock<Option<String>> =
        LazyLock::new(|| std::env::var("LEASEHOLD_MUTANT").ok());
    CHOSEN.as_deref() == Some(name)
}
"#;

/// Writes the copy. A file that has not changed is not written, so it is not built again.
pub(super) fn write(directory: &Path) -> io::Result<()> {
    let sources = broken(&all())?;
    fs::create_dir_all(directory)?;
    for old in files(directory)? {
        if !sources.contains_key(&old) {
            fs::remove_file(directory.join(old))?;
        }
    }
    for (file, text) in sources {
        let path = directory.join(file);
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            fs::create_dir_all(path.parent().unwrap_or(directory))?;
            fs::write(path, text)?;
        }
    }
    Ok(())
}

/// The files of the copy, by their paths in it.
pub(super) fn broken(mutants: &[Mutant]) -> io::Result<BTreeMap<PathBuf, String>> {
    let core = root().join("crates/leasehold-core/src");
    let mut sources = BTreeMap::new();
    for file in files(&core)? {
        let mut text = break_file(&file, &fs::read_to_string(core.join(&file))?, mutants)?;
        if file == Path::new("lib.rs") {
            text = format!("#![allow(warnings)]\n{text}{CHOICE}");
        }
        sources.insert(file, text);
    }
    let mut patches = mutants.iter().flat_map(|mutant| &mutant.patches);
    match patches.find(|patch| !sources.contains_key(Path::new(patch.file))) {
        Some(lost) => Err(io::Error::other(format!("the core has no {}", lost.file))),
        None => Ok(sources),
    }
}

fn break_file(file: &Path, text: &str, mutants: &[Mutant]) -> io::Result<String> {
    let mut places: BTreeMap<(usize, usize), String> = BTreeMap::new();
    for Mutant { name, patches, .. } in mutants {
        let here = |patch: &&Patch| Path::new(patch.file) == file;
        for Patch { from, to, .. } in patches.iter().filter(here) {
            let Range { start, end } = find(text, from).ok_or_else(|| {
                let file = file.display();
                io::Error::other(format!("{name}: {file} has not once {from:?}"))
            })?;
            let to = to.replace("$0", &text[start..end]);
            let choices = places.entry((start, end)).or_default();
            choices.push_str(&format!("if crate::mutated({name:?}) {{ {to} }} else "));
        }
    }
    let (mut broken, mut next) = (text.to_owned(), text.len());
    for ((start, end), choices) in places.into_iter().rev() {
        if end > next {
            let message = format!("{}: mutants overlap in {choices}", file.display());
            return Err(io::Error::other(message));
        }
        let whole = &text[start..end];
        broken.replace_range(start..end, &format!("({choices}{{ {whole} }})"));
        next = start;
    }
    Ok(broken)
}

/// Where an expression stands, however it is broken into lines; `None` unless that is one place.
fn find(text: &str, expression: &str) -> Option<Range<usize>> {
    let is_shown = |c: &char| !c.is_whitespace();
    let shown: Vec<_> = text.char_indices().filter(|(_, c)| is_shown(c)).collect();
    let wanted: Vec<_> = expression.chars().filter(is_shown).collect();
    let is_it = |place: &&[(usize, char)]| place.iter().map(|(_, c)| c).eq(&wanted);
    let mut places = shown.windows(wanted.len().max(1)).filter(is_it);
    let (first, last) = places.next().and_then(|it| it.first().zip(it.last()))?;
    let place = first.0..last.0 + last.1.len_utf8();
    places.next().is_none().then_some(place)
}

/// The paths of all files in a directory and below it, from there.
fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if path.is_dir() {
            let inside = self::files(&path)?;
            files.extend(inside.iter().map(|file| Path::new(&name).join(file)));
        } else {
            files.push(name.into());
        }
    }
    Ok(files)
}
