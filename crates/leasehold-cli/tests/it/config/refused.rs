//! Files, profiles and variables that cannot be used.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::{Place, write};
use crate::common::*;

#[tokio::test]
async fn a_mistake_is_named_with_its_line_and_what_to_write() {
    let place = Place::new();
    let file = place.user();
    for [text, line, said, hint] in table::<4>(
        r#"
        ttl = '1m'\nstroe = 'local:'\n        | 2 | no key "stroe"                  | did you mean store?
        password_file = 'x'\n                 | 1 | no key                          | did you mean password-file?
        [profile.p]\n\nwiat = '5s'\n          | 3 | no key "wiat"                   | did you mean wait?
        [profiles.p]\n                        | 1 | no key                          | did you mean profile?
        colour = 'red'\n                      | 1 | no key                          | the keys are store, user
        password = 'hunter2'\n                | 1 | a password cannot be set        | password-file
        ttl = 30\n                            | 1 | ttl is not a text               | ttl = "30s"
        ttl = '30'\n                          | 1 | the value of ttl cannot be used | 30s for seconds
        ttl = '1ms'\n                         | 1 | a TTL of 1ms is out of bounds   | 50 ms and 24 h
        grace = 'soon'\n                      | 1 | the value of grace              | 1h30m
        wait = ''\n                           | 1 | the wait is empty               | e.g. 5m
        store = ' '\n                         | 1 | the store is empty              | e.g. redis://host/
        store = 'orders'\n                    | 1 | not a URL                       | redis://host/
        store = 'rediss:/x'\n                 | 1 | the value of store              | hint:
        [profile.p]\nttl = '9h'\nttl = '8h'\n | 3 | duplicate key                   | hint:
        ttl = '1m\nwait = '5s'\n              | 1 | not valid TOML                  | ttl = "30s"
        store = redis://:hunter2@h/\n         | 1 | not valid TOML                  | hint:
        profile = 'p'\n                       | 1 | profile is not a table          | [profile.prod]
        profile.p = 'p'\n                     | 1 | profile.p is not a table        | [profile.prod]
    "#,
    ) {
        write(&file, &text);
        let stderr = place.refused("").await;
        let place_of_it = format!("leasehold: {}:{line}: ", file.display());
        assert!(stderr.starts_with(&place_of_it), "{text}: {stderr}");
        says(&stderr, [&*said, &hint, "leasehold: hint: "]);
        assert_eq!(stderr.lines().count(), 2, "{stderr}");
        assert!(!stderr.contains("hunter2"), "{stderr}");
    }
    // Whoever uses a store says so, and does nothing.
    write(&file, "stroe = 'local:'\n");
    for arguments in "run k -- echo ran | hold k | ls | show k | top | doctor".split(" | ") {
        let ended = place.run(arguments).await;
        ended.has_printed(Some(64), "");
        ended.has_said("did you mean store?");
    }
    let run = place.run("run --json k -- true").await;
    let exit = json!({"event": "exit", "status": 64, "signal": null});
    assert_eq!(events(&run.stderr).last(), Some(&exit));
    place.run("completions bash").await.has_code(Some(0));
}

#[tokio::test]
async fn a_wrong_variable_is_named() {
    let place = Place::new();
    for (name, value, said) in [
        ("LEASEHOLD_TTL", "30", "30s for seconds"),
        ("LEASEHOLD_WAIT", "", "the wait is empty"),
        ("LEASEHOLD_GRACE", "soon", "1h30m"),
        ("LEASEHOLD_CONFIG", "", "LEASEHOLD_CONFIG is empty"),
        ("LEASEHOLD_PROFILE", "", "LEASEHOLD_PROFILE is empty"),
        ("LEASEHOLD_PROFILE", "prod", "no leasehold.toml was found"),
    ] {
        let ended = place.run_with(&[(name, value)], "config").await;
        ended.has_ended_saying(Some(64), name);
        ended.has_said(said);
    }
}

/// What is typed goes before it, so it does not matter.
#[tokio::test]
async fn a_wrong_variable_is_no_error_where_the_option_is_typed() {
    let place = Place::new();
    for (name, option, value) in [
        ("LEASEHOLD_STORE", "-S", "local:"),
        ("LEASEHOLD_TTL", "--ttl", "30s"),
        ("LEASEHOLD_WAIT", "-w", "5s"),
        ("LEASEHOLD_GRACE", "--grace", "5s"),
        ("LEASEHOLD_RETRY_FOR", "--retry-for", "5s"),
        ("LEASEHOLD_USER", "--user", "app"),
        ("LEASEHOLD_PASSWORD_FILE", "--password-file", "f"),
    ] {
        let nothing = [(name, "")];
        place.run_with(&nothing, "config").await.has_code(Some(64));
        let typed = format!("config {option} {value}");
        place.run_with(&nothing, typed).await.has_code(Some(0));
    }
}

/// Without it the login would be another one, of which nothing would be said.
#[tokio::test]
async fn a_password_that_is_no_text_is_refused() {
    let place = Place::new();
    for (arguments, status) in [("config", 64), ("config --password-file f", 0)] {
        let mut command = place.command(arguments);
        command.env("LEASEHOLD_PASSWORD", OsStr::from_bytes(b"hunter2\xff"));
        let ended = Process::spawn(command).ends(status).await;
        ended.has_not_said("hunter2");
        let cause = "LEASEHOLD_PASSWORD cannot be used: it is not UTF-8";
        assert_eq!(ended.stderr.contains(cause), status == 64, "{ended}");
    }
}

#[tokio::test]
async fn a_filter_of_the_log_that_is_no_text_is_named() {
    let place = Place::new();
    let mut command = place.command("config");
    command.env("LEASEHOLD_LOG", OsStr::from_bytes(b"info\xff"));
    let ended = Process::run(command).await;
    ended.has_ended_saying(Some(0), "LEASEHOLD_LOG is not a filter of log lines");
}

#[tokio::test]
async fn a_variable_that_sets_nothing_is_named() {
    let place = Place::new();
    let variables = [
        ("LEASEHOLD_STROE", "redis://host/"),
        ("LEASEHOLD_X", "1"),
        ("LEASEHOLD_TOKEN", "1"),
    ];
    let ended = place.run_with(&variables, "config").await;
    ended.has_code(Some(0));
    let mut said: Vec<_> = ended.stderr.lines().collect();
    said.sort_unstable();
    let expected = [
        "leasehold: hint: did you mean LEASEHOLD_STORE?",
        "leasehold: warning: there is no setting LEASEHOLD_STROE: it is ignored",
        "leasehold: warning: there is no setting LEASEHOLD_X: it is ignored",
    ];
    assert_eq!(said, expected);
}

#[tokio::test]
async fn a_profile_or_a_file_that_is_not_there_is_an_error() {
    let place = Place::new();
    write(&place.user(), "[profile.prod]\n[profile.staging]\n");
    write(&place.system(), "[profile.beta]\n[profile.staging]\n");
    let long = "# long\n".repeat(200_000);
    write(&place.path("long.toml"), &long);
    for [arguments, said, hint] in table::<3>(
        r#"
        --profile prd      | no profile "prd" (--profile)        | did you mean prod?
        --profile x        |                                     | there are beta, prod, staging
        --config none.toml | cannot read none.toml: No such file | hint: --config
        --config home      | cannot read home: it is a directory |
        --config long.toml | it has more than 1 MiB              |
    "#,
    ) {
        says(place.refused(arguments).await, [said, hint]);
    }
}

#[tokio::test]
async fn a_file_that_others_can_write_to_is_refused() {
    let place = Place::new();
    for path in [place.system(), place.user(), place.path("named.toml")] {
        let name = path.to_str().unwrap();
        let arguments = match path.ends_with("named.toml") {
            true => format!("--config {name}"),
            false => String::new(),
        };
        write(&path, "label = 'x'\n");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o646)).unwrap();
        let refused = place.refused(arguments).await;
        let cause = "others than its owner can write";
        says(&refused, [name, cause, "(mode 0646)", "chmod go-w"]);
        fs::remove_file(&path).unwrap();
    }
}

/// Else the locks would be taken in another store, as long as a disk is not mounted.
#[tokio::test]
async fn a_link_to_nothing_is_no_absent_file() {
    let place = Place::new();
    let (file, nothing) = (place.user(), place.path("nothing"));
    let said = ["cannot read", "a symbolic link leads to nothing"];
    // The file, its directory, and the one of all configurations.
    for link in file.ancestors().take(3) {
        if link.is_dir() {
            fs::remove_dir(link).unwrap();
        }
        symlink(&nothing, link).unwrap();
        says(place.refused("").await, said);
        fs::remove_file(link).unwrap();
    }
}
