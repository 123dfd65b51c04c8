//! Test: folders are layers, and each imports only from those before it.

use std::fs;
use std::path::{Path, PathBuf};

/// From the lowest up. Those in one row know nothing of each other.
const LAYERS: [&[&str]; 9] = [
    &["std_ext"],
    &["errors", "options", "claim_table"],
    &["codec"],
    &["connection"],
    &["routing"],
    &["queue", "classic"],
    &["quorum"],
    &["doctor"],
    &["scheme"],
];

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// What is named behind a path: one name, or those in braces.
fn names(named: &str) -> impl Iterator<Item = &str> {
    let several = named
        .strip_prefix('{')
        .and_then(|rest| rest.split('}').next());
    let all: Vec<_> = several.map_or_else(|| vec![named], |names| names.split(", ").collect());
    all.into_iter().map(|name| {
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
        &name[..end.unwrap_or(name.len())]
    })
}

#[test]
fn each_folder_imports_from_lower_layers_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut imports = 0;
    for file in files {
        let inside = file.strip_prefix(&root).unwrap().with_extension("");
        let parts: Vec<_> = inside.iter().map(|part| part.to_str().unwrap()).collect();
        // The crate's root, its tests and its doors for fuzzing know all.
        let Some(own) = layer(parts[0]).filter(|_| !parts.contains(&"tests")) else {
            continue;
        };
        let text = fs::read_to_string(&file).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        // What leads to the root from here.
        let depth = parts.len() - usize::from(parts.last() == Some(&"mod"));
        let roots = [
            "crate::".to_owned(),
            format!("use {}", "super::".repeat(depth)),
        ];
        for line in text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
        {
            for named in roots
                .iter()
                .flat_map(|root| line.split(root.as_str()).skip(1))
            {
                for name in names(named) {
                    let allowed = name == parts[0] || layer(name).is_some_and(|other| other < own);
                    assert!(allowed, "{} imports {name:?}", file.display());
                    imports += 1;
                }
            }
        }
    }
    assert!(imports > 100, "only {imports} imports were seen");
}
