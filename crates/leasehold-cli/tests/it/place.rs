//! Which store it is when none is named, and whether that is the one that is meant.

use std::path::Path;
use std::process::Command;

use crate::common::*;
use tempfile::TempDir;

/// The command of a user whose home is there.
fn at_home(home: &Path, arguments: impl Arguments) -> Command {
    let mut command = leasehold(arguments);
    command.env("HOME", home).env_remove("XDG_STATE_HOME");
    command
}

async fn run(home: &TempDir, arguments: impl Arguments) -> Finished {
    Process::run(at_home(home.path(), arguments)).await
}

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test]
async fn a_store_variable_that_is_set_to_nothing_is_an_error() {
    let home = home();
    let all = "run k -- true | run -n --every 1h k -- true | hold k | elect k -- true | \
        elect --observe k | show k | ls | break -y k | resize k --from 1 --to 2 | doctor | \
        init | bench";
    for arguments in all.split(" | ") {
        for nothing in ["", " "] {
            let mut command = at_home(home.path(), arguments);
            command.env("LEASEHOLD_STORE", nothing);
            let ended = Process::run(command).await;
            ended.has_ended_saying(Some(64), "the store is empty");
            ended.has_said("unset LEASEHOLD_STORE");
        }
    }
    assert!(!home.path().join(".local").exists());
}

#[tokio::test]
async fn a_periodic_job_says_that_no_store_is_named() {
    let home = home();
    let job = "run --every 1h k -- true";
    for (runs, said) in [("run --every 1h k", 1), ("run once", 0)] {
        let ended = run(&home, format!("{runs} -- true")).await;
        ended.has_code(Some(0));
        let lines = ended.stderr.matches("warning: no store is named: ").count();
        assert_eq!(lines, said, "{ended}");
    }
    let said = run(&home, job).await.stderr;
    let confirms = "-S local: confirms";
    says(&said, ["every machine", "LEASEHOLD_STORE", confirms]);
    let said = run(&home, "run -S local: --every 1h k -- true").await;
    said.has_not_said("no store");
    let mut by_variable = at_home(home.path(), job);
    by_variable.env("LEASEHOLD_STORE", "local:");
    Process::run(by_variable).await.has_not_said("no store");
}

#[tokio::test]
async fn a_store_of_one_process_is_told() {
    let store = Store::memory();
    for (arguments, status, lines) in [
        ("run k -- true", 0, 1),
        ("elect --once k -- true", 0, 1),
        // Refused when that was said.
        ("hold --password-file /no/such k", 64, 1),
        ("run -q k -- true", 0, 0),
        ("show k", 0, 0),
    ] {
        let ended = ends(&store, arguments, status).await;
        let said = ended.stderr.matches("warning: memory: excludes no other");
        assert_eq!(said.count(), lines, "{ended}");
    }
}

/// Whose store was not named looks at another one.
#[tokio::test]
async fn a_key_that_looks_like_a_store_is_told() {
    let store = Store::local();
    for (arguments, lines) in [
        ("ls redis://u:sesam@h/", 1),
        ("show redis-cluster://h1,h2/", 1),
        ("log postgres://h/d", 1),
        ("ls redlock://a,b,c/", 1),
        ("show valkey://h/", 1),
        // Jobs may have such a key.
        ("wait valkey://h/", 0),
        ("show https://h/", 0),
        ("ls 'redis:*'", 0),
        ("show -S memory: redis://h/", 0),
    ] {
        let ended = ends(&store, arguments, 0).await;
        let said = ended.stderr.matches("like the URL of a store");
        assert_eq!(said.count(), lines, "{ended}");
        ended.has_not_said("sesam");
    }
}

#[tokio::test]
async fn an_election_wants_its_store_named() {
    let home = home();
    for arguments in ["elect k -- echo ran", "elect --observe k"] {
        let ended = run(&home, arguments).await;
        ended.has_printed(Some(64), "");
        let named = ["no store is named", "LEASEHOLD_STORE", "-S local:"];
        says(&ended.stderr, named);
    }
    assert!(!home.path().join(".local").exists());
    let arguments = "elect -S local: --once k -- echo ran";
    run(&home, &arguments).await.has_printed(Some(0), "ran\n");
}

#[tokio::test]
async fn another_home_is_told() {
    let (home, state) = (home(), home());
    let here = home.path().join(".local/state/leasehold");
    let there = state.path().join("leasehold");
    for store in ["", "-S local:"] {
        for (command, with_state, directory, why) in [
            ("run", false, &here, "because of HOME"),
            ("run", true, &there, "because of XDG_STATE_HOME"),
            ("hold", true, &there, "because of XDG_STATE_HOME"),
        ] {
            let arguments = match command {
                "run" => "-n k -- true",
                // Refused when that was said.
                _ => "--password-file /no/such k",
            };
            let mut command = at_home(home.path(), format!("{command} {store} {arguments}"));
            if with_state {
                command.env("XDG_STATE_HOME", state.path());
            }
            let ended = Process::run(command).await;
            says(&ended.stderr, [directory.to_str().unwrap(), why]);
        }
    }
    let directory = format!("local:{}", state.path().join("named").display());
    let named = run(&home, format!("run -S {directory} k -- true")).await;
    named.has_been_quiet(Some(0));
    run(&home, "run -q k -- true").await.has_been_quiet(Some(0));

    let looked = run(&home, "doctor -S local:").await.stdout;
    says(&looked, [here.to_str().unwrap(), "named by HOME"]);
    let looked = run(&home, ("doctor -S", &directory)).await;
    looked.has_shown("named by its URL");
}

#[tokio::test]
async fn the_usual_home_is_not_worth_a_word() {
    let mut user = Command::new("sh");
    user.args(["-c", "getent passwd $(id -u) | cut -d: -f6"]);
    let user = Process::run(user).await;
    let usual = Path::new(user.stdout.trim());
    assert!(usual.is_absolute(), "{}", user.stdout);
    let files = home();
    let linked = files.path().join("home");
    std::os::unix::fs::symlink(usual, &linked).unwrap();
    for home in [usual, &linked] {
        // Refused after what there is to say was said, so that nothing is made in that home.
        let ended = Process::run(at_home(home, "run --password-file /no/such k -- true")).await;
        ended.has_code(Some(64));
        ended.has_said_first("leasehold: cannot open the store: cannot read the password file");
    }
}
