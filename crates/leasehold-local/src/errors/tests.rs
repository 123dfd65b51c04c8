//! Hints that are safe on every path, and answers of the system by their names.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use leasehold_store::ErrorKind;

use super::*;

#[test]
fn a_command_means_its_arguments_whatever_is_in_them() {
    let commands = ["$(touch ran)", "`touch ran`", "a;touch ran"];
    let odd = ["plain", "a b", "it's", "-n", "*", "a\nb", "", "\\", "é"];
    for name in commands.into_iter().chain(odd) {
        let said = command("printf %s", &[name]);
        let output = Command::new("sh").args(["-c", &said]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), name, "{said}");
    }
    assert_eq!(command("chmod go-w", &["/a/b-c"]), "chmod go-w /a/b-c");
}

/// All product files of this crate.
fn sources() -> Vec<(PathBuf, String)> {
    let mut directories = vec![PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut sources = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if !path.ends_with("tests.rs") {
                let text = fs::read_to_string(&path).unwrap();
                let product = text.split("#[cfg(test)]\nmod tests").next().unwrap();
                sources.push((path, product.to_owned()));
            }
        }
    }
    sources
}

/// A path that stands in a command as it is can be any command.
#[test]
fn every_command_of_a_hint_has_its_arguments_quoted() {
    let programs = "chmod chown chgrp mkdir rm mv groupadd usermod mount";
    let programs = programs.split(' ').chain(["leasehold init -S"]);
    let programs: Vec<_> = programs.map(|program| format!("{program} ")).collect();
    let mut found = 0;
    for (path, text) in sources() {
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let code = code.collect::<Vec<_>>().join("\n");
        for (number, literal) in code.split('"').enumerate().filter(|(n, _)| n % 2 == 1) {
            let before = code.split('"').nth(number - 1).unwrap_or_default();
            let literal = &format!("{literal} ");
            let starts = |program: &&String| {
                literal.starts_with(&**program) || literal.contains(&format!(" {program}"))
            };
            if let Some(program) = programs.iter().find(starts) {
                found += 1;
                let quoted = before.trim_end().ends_with("command(");
                assert!(quoted, "{program}in {}: {literal}", path.display());
            }
        }
    }
    assert!(found >= 8, "{found}");
}

#[test]
fn what_the_system_answered_is_named_as_what_it_is() {
    let path = Path::new("/some/dir");
    for (errno, said) in [
        (Errno::NOSPC, "the disk is full"),
        (Errno::DQUOT, "quota"),
        (Errno::FBIG, "larger than allowed"),
        (Errno::ACCESS, "permission denied"),
        (Errno::PERM, "does not permit"),
        (Errno::ROFS, "read-only"),
        (Errno::MFILE, "this process has too many open files"),
        (Errno::NFILE, "the machine has too many open files"),
        (Errno::NOENT, "removed while in use"),
    ] {
        let error = failed(path, "open", errno);
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.hint().is_some());
    }
    // What may pass says what it is, too.
    let error = failed(path, "open", Errno::IO);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("Input/output error"), "{error}");
}

#[test]
fn directories_of_the_system_are_known() {
    for path in "/ /tmp /srv/ /var/lib /usr/local /dev/shm /etc/cron.d".split(' ') {
        assert!(is_of_system(Path::new(path)), "{path}");
    }
    for path in ["/var/lib/jobs", "/home/ann", "/tmp/ann", "/srv/locks"] {
        assert!(!is_of_system(Path::new(path)), "{path}");
    }
    let hint = "name a directory of your own below it: local:/tmp/some/dir";
    assert_eq!(below(Path::new("/tmp/")), hint);
}
