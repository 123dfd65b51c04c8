//! Files, profiles and variables that cannot be used.

use leasehold_testkit::expect::says;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{Place, write};
use crate::common::events;
use leasehold_testkit::process::Process;
use serde_json::json;

#[tokio::test]
async fn a_mistake_is_named_with_its_line_and_what_to_write() {
    let place = Place::new();
    let file = place.user();
    for (text, line, said, hint) in [
        (
            "ttl = '1m'\nstroe = 'local:'\n",
            2,
            "no key \"stroe\"",
            "did you mean store?",
        ),
        (
            "password_file = 'x'\n",
            1,
            "no key",
            "did you mean password-file?",
        ),
        (
            "[profile.p]\n\nwiat = '5s'\n",
            3,
            "no key \"wiat\"",
            "did you mean wait?",
        ),
        ("[profiles.p]\n", 1, "no key", "did you mean profile?"),
        ("colour = 'red'\n", 1, "no key", "the keys are store, user"),
        (
            "password = 'hunter2'\n",
            1,
            "a password cannot be set",
            "password-file",
        ),
        ("ttl = 30\n", 1, "ttl is not a text", "ttl = \"30s\""),
        (
            "ttl = '30'\n",
            1,
            "the value of ttl cannot be used",
            "30s for seconds",
        ),
        (
            "ttl = '1ms'\n",
            1,
            "a TTL of 1ms is out of bounds",
            "50 ms and 24 h",
        ),
        ("grace = 'soon'\n", 1, "the value of grace", "1h30m"),
        ("wait = ''\n", 1, "the wait is empty", "e.g. 5m"),
        (
            "store = ' '\n",
            1,
            "the store is empty",
            "e.g. redis://host/",
        ),
        ("store = 'orders'\n", 1, "not a URL", "redis://host/"),
        ("store = 'rediss:/x'\n", 1, "the value of store", "hint: "),
        (
            "[profile.p]\nttl = '9h'\nttl = '8h'\n",
            3,
            "duplicate key",
            "hint: ",
        ),
        (
            "ttl = '1m\nwait = '5s'\n",
            1,
            "not valid TOML",
            "ttl = \"30s\"",
        ),
        (
            "store = redis://:hunter2@h/\n",
            1,
            "not valid TOML",
            "hint: ",
        ),
        (
            "profile = 'p'\n",
            1,
            "profile is not a table",
            "[profile.prod]",
        ),
        (
            "profile.p = 'p'\n",
            1,
            "profile.p is not a table",
            "[profile.prod]",
        ),
    ] {
        write(&file, text);
        let stderr = place.refused("").await;
        let place_of_it = format!("leasehold: {}:{line}: ", file.display());
        assert!(stderr.starts_with(&place_of_it), "{text}: {stderr}");
        for part in [said, hint, "leasehold: hint: "] {
            assert!(stderr.contains(part), "{text}: {part} in {stderr}");
        }
        assert_eq!(stderr.lines().count(), 2, "{stderr}");
        assert!(!stderr.contains("hunter2"), "{stderr}");
    }
    // Whoever uses a store says so, and does nothing.
    write(&file, "stroe = 'local:'\n");
    for arguments in [
        "run k -- echo ran",
        "hold k",
        "ls",
        "show k",
        "top",
        "doctor",
    ] {
        let ended = place.run(arguments).await;
        let outcome = (ended.code(), &*ended.stdout);
        assert_eq!(outcome, (Some(64), ""), "{}", ended.stderr);
        ended.has_said("did you mean store?");
    }
    let run = place.run("run --json k -- true").await;
    assert_eq!(
        *events(&run.stderr).last().unwrap(),
        json!({"event": "exit", "status": 64, "signal": null})
    );
    assert_eq!(place.run("completions bash").await.code(), Some(0));
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
        let mut command = place.command("config");
        command.env(name, value);
        let ended = Process::run(command).await;
        assert_eq!(ended.code(), Some(64), "{name}: {}", ended.stderr);
        says(&ended.stderr, [name, said]);
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
        let run = async |arguments: &str| {
            let mut command = place.command(format!("config {arguments}"));
            command.env(name, "");
            Process::run(command).await
        };
        let ended = run("").await;
        assert_eq!(ended.code(), Some(64), "{name}: {}", ended.stdout);
        let ended = run(&format!("{option} {value}")).await;
        assert_eq!(ended.code(), Some(0), "{name}: {}", ended.stderr);
    }
}

#[tokio::test]
async fn a_variable_that_sets_nothing_is_named() {
    let place = Place::new();
    let mut command = place.command("config");
    command
        .env("LEASEHOLD_STROE", "redis://host/")
        .env("LEASEHOLD_X", "1")
        .env("LEASEHOLD_TOKEN", "1");
    let ended = Process::run(command).await;
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
    let near = place.refused("--profile prd").await;
    says(
        &near,
        ["no profile \"prd\" (--profile)", "did you mean prod?"],
    );
    let far = place.refused("--profile x").await;
    assert!(far.contains("there are prod, staging"), "{far}");

    let missing = place.refused("--config none.toml").await;
    says(
        &missing,
        ["cannot read none.toml: No such file", "hint: --config"],
    );
    let directory = place.refused("--config home").await;
    says(&directory, ["cannot read home: it is a directory"]);
    let long = place.path("long.toml");
    write(&long, &"# long\n".repeat(200_000));
    let long = place.refused("--config long.toml").await;
    assert!(long.contains("it has more than 1 MiB"), "{long}");
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
        for part in [
            name,
            "others than its owner can write",
            "(mode 0646)",
            "chmod go-w",
        ] {
            assert!(refused.contains(part), "{part} in {refused}");
        }
        fs::remove_file(&path).unwrap();
    }
}
