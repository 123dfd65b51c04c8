//! The corpora, and so many changes of them, always the same: what runs with the other
//! tests, on any compiler.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says with what"
)]

use std::path::{Path, PathBuf};
use std::{fs, panic};

use leasehold_fuzz::mutate::{Dice, change};
use leasehold_fuzz::{TARGETS, Target};

/// How many changed inputs each target is given.
const CHANGES: usize = 100_000;

fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name);
    let files =
        fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut corpus: Vec<_> = files
        .map(|file| file.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    corpus.sort();
    corpus
}

/// Runs it, and says with which bytes it failed.
fn run(target: &Target, data: &[u8], from: &Path) {
    if let Err(failure) = panic::catch_unwind(|| (target.run)(data)) {
        eprintln!(
            "{} fails with \"{}\", from {}",
            target.name,
            data.escape_ascii(),
            from.display()
        );
        panic::resume_unwind(failure);
    }
}

fn replay(name: &str) {
    let target = leasehold_fuzz::target(name).unwrap();
    let corpus = corpus(target);
    for (path, data) in &corpus {
        run(target, data, path);
    }
    let mut dice = Dice::new(1);
    for _ in 0..CHANGES {
        let (path, data) = &corpus[dice.below(corpus.len())];
        let (_, other) = &corpus[dice.below(corpus.len())];
        run(target, &change(data, other, &mut dice), path);
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test] fn $name() { replay(stringify!($name)); })*

        #[test]
        fn no_target_is_left_out() {
            let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

targets!(answers durations globs journals local_files parts pushes records server urls words);

#[test]
fn the_same_seed_gives_the_same_changes() {
    let changes = |seed| {
        let mut dice = Dice::new(seed);
        [(); 50].map(|()| change(b"redis://host:1/?db=2", b"other", &mut dice))
    };
    assert_eq!(changes(7), changes(7));
    assert_ne!(changes(7), changes(8));
}
