//! The sources of this repository, which some tests read.

use std::fs;
use std::path::{Path, PathBuf};

/// A file or directory, by its path in the repository.
pub(crate) fn at(path: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(path)
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(at(path)).unwrap()
}

/// All files below the directory that end so.
pub(crate) fn files_in(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_in(&path, ending));
        } else if path.extension().is_some_and(|end| end == ending) {
            found.push(path);
        }
    }
    found
}
