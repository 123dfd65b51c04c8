//! What is refused before any store is asked, and what is printed on demand.

use std::process::Command;

use crate::common::*;

async fn run(arguments: impl Arguments) -> Finished {
    Store::memory().run(arguments).await
}

#[tokio::test]
async fn wrong_usage_is_64_and_says_why() {
    let key_too_long = "k".repeat(513);
    let refused = format!(
        "
        run k                                  | required arguments
        run k true                             | write -- before the command
        run -- true                            | required arguments
        run '' -- true                         | the key is empty
        run {key_too_long} -- true             | the key has 513 bytes
        run 'a\tb' -- true                     | control character
        run -w 30 k -- true                    | add a unit: 30s
        run -w soon k -- true                  | 1h30m
        run -n -w 1s k -- true                 | cannot be used with
        run --ttl 0s k -- true                 | 50 ms
        run --ttl 400d k -- true               | 24 h
        run --grace 20s k -- true              | too long for a TTL of 30 s
        run -E 256 k -- true                   | 256
        run --on-lost pray k -- true           | possible values: term, kill, ignore
        run -S foo: k -- true                  | foo
        init postgres://u:sesam@h/d            | write -S before the URL of a store
        doctor redis://:sesam@h/               | 'redis://***@h/' found
        doctor --json=redis://:sesam@h/        | 'redis://***@h/' for '--json'
        run --ttl=redis://:sesam@h/ k -- true  | 'redis://***@h/' for '--ttl
        run -S orders k -- true                | URL
        run --password-file /no/such k -- true | /no/such
        run -s --limit 2 k -- true             | '--shared' cannot be used with '--limit <N>'
        run -s -x k -- true                    | cannot be used with
        hold --reentrant --limit 2 k           | cannot be used with
        run k -k other -- true                 | '[KEY]' cannot be used with '--key <KEY>'
        run -k a -k a -- true                  | hint: name each key once
        run -k a --reentrant -- true           | cannot be used with
        run --take 2 k -- true                 | --limit <N>
        run --limit 2 --take 3 k -- true       | 3 permits were asked for, and the semaphore has 2
        run --limit 0 k -- true                | 0 is not in 1..
        run --every 1h -w 1s k -- true         | '--every <DURATION>' cannot be used with '--wait <DURATION>'
        run -k a --min-hold 1s -- true         | cannot be used with
        elect k true                           | write -- before the command
        run --every 5ms k -- true              | use 1s or more
        run --min-hold 400d k -- true          | 366 days or less
        run --max-hold 1ms k -- true           | 50ms or more
        run --recover-as a/b k -- true         | without slashes
        run --recover-as n -s k -- true        | cannot be used with
        elect k                                | required arguments
        elect k --observe -- true              | cannot be used with
        elect '' --observe                     | the key is empty
        resize k --from 0 --to 1               | 0 is not in 1..
        resize k --to 1                        | required arguments
        hold ''                                | the key is empty
        show ''                                | the key is empty
        break ''                               | the key is empty
        log --since 1h --until 2h              | there are no entries: --until is before --since
        bench --time 0                         | use 1ms or more
        man nothing                            | no page for nothing
        fetch                                  | unrecognized subcommand
                                               | Usage: leasehold <COMMAND>
    "
    );
    for [arguments, said] in table::<2>(&refused) {
        let ended = ends_saying(&Store::memory(), &arguments, 64, said).await;
        ended.has_said_first("leasehold: ");
        assert_eq!(ended.stdout, "", "{arguments:?}");
    }
}

/// People type what flock and consul have.
#[tokio::test]
async fn options_of_other_commands_are_answered_with_ours() {
    for [arguments, hint] in table::<2>(
        "
        run --timeout 5s k -- true | write -w DURATION
        run -t 5 k -- true         | write -w DURATION
        hold --timeout=5s k        | write -w DURATION
        wait -t 5s k               | write -w DURATION
        run --nonblock k -- true   | write -n
        run -name=deploy k -- true | --label is a name
        elect --name n k -- true   | --label is a name
        run k --command make       | write -c LINE
        run -o k -- true           | leave it out
        run -w 5M k -- true        | M is for months; m is minutes, e.g. 5m
        run --ttl 1M k -- true     | m is minutes
        status k                   | hint: write leasehold show KEY
        lock k -- true             | hint: write leasehold run KEY -- COMMAND
        list                       | hint: write leasehold ls
        rn k -- true               | hint: write leasehold run KEY
        -S memory: run k -- true   | hint: options follow the subcommand, as in leasehold ls -S URL
        --ttl 5s run k -- true     | hint: options follow the subcommand
        run                        | hint: for example: leasehold run -w 5m orders/42 -- ./import.sh
        hold                       | hint: for example: leasehold hold --label
        elect k                    | hint: for example: leasehold elect -S
        resize k                   | hint: for example: leasehold resize mailers --from 3 --to 5
        release                    | hint: for example: leasehold release deploy.lease
    ",
    ) {
        let refused = ends_saying(&Store::memory(), arguments, 64, hint).await;
        refused.has_not_said("dash");
        refused.has_not_said("tip:");
        refused.has_not_said("\n\n\n");
    }
    // Those after -- are the command's.
    let refused = run("run --colour k -- flock --timeout 5").await;
    refused.has_not_said("-w DURATION");
    // What has it already is not told to.
    for named in ["-S redis://h/", "-Sredis://h/", "--store=redis://h/"] {
        let refused = run(format!("show --colour {named} k")).await;
        refused.has_not_said("-S before");
    }
}

/// `-h` is what is used every day, on one screen; `--help` is all.
#[tokio::test]
async fn the_short_help_fits_a_screen() {
    for subcommand in ["run", "hold", "wait", "elect", "ls", "show"] {
        let mut all = leasehold([subcommand, "-h"]);
        all.env("COLUMNS", "100");
        let short = Process::run(all).await.stdout;
        assert!(short.lines().count() <= 55, "{subcommand}: {short}");
        let long = run(&[subcommand, "--help"]).await.stdout;
        for option in ["--tls-key", "--password-file", "--config"] {
            says(&long, [option]);
            assert!(!short.contains(option), "{subcommand}: {option}");
        }
        says(&short, ["--store", "--help"]);
    }
}

/// The store comes from the environment here.
#[tokio::test]
async fn what_is_set_in_the_environment_is_not_asked_for() {
    for arguments in ["run k", "hold", "elect k", "show"] {
        let refused = ends(&Store::memory(), arguments, 64).await;
        let (subcommand, _) = arguments.split_once(' ').unwrap_or((arguments, ""));
        refused.has_said(format!("Usage: leasehold {subcommand} [OPTIONS] "));
        refused.has_not_said("--store");
    }
}

/// What follows `--` is the command: a tip to put the key there would start it.
#[tokio::test]
async fn a_key_that_begins_with_a_dash_is_not_taken_for_the_command() {
    let refused = run("run -jobs -- true").await;
    let hint = "hint: for a key that begins with a dash write --key=-KEY";
    refused.has_ended_saying(Some(64), hint);
    refused.has_not_said("-- -j");
    ends_printing(&Store::memory(), "run --key=-jobs -- echo ran", 0, "ran\n").await;

    let refused = run("elect -jobs -- true").await;
    refused.has_said("hint: the key of an election cannot begin with a dash");
    refused.has_not_said("-- -j");

    run("show -jobs").await.has_said("'-- -j'");
    assert_eq!(run("show -- -jobs").await.code(), Some(0));
}

#[tokio::test]
async fn patterns_are_explained_as_they_are_typed() {
    let help = run("ls --help").await;
    help.has_shown("? for any character, [ab] for one");
    run("man ls").await.has_shown(", [ab] for one");
}

#[tokio::test]
async fn help_and_version_are_data() {
    for arguments in ["--help", "-h", "help run", "run --help", "-V"] {
        let ended = run(arguments).await;
        ended.has_been_quiet(Some(0));
        says(ended.stdout.to_lowercase(), ["leasehold"]);
    }
    // A pipe that nobody reads is fine, and a full disk is not.
    for (to, status) in [("/dev/fd/3", 0), ("/dev/full", 74)] {
        let command = env!("CARGO_BIN_EXE_leasehold");
        let script = format!("exec 3> >(:); wait $!; {command} --help >{to}");
        let ended = Command::new("bash").args(["-c", &script]).output().unwrap();
        assert_eq!(ended.status.code(), Some(status), "{to}");
        let said = String::from_utf8_lossy(&ended.stderr);
        let is_said = said.contains("cannot write the output");
        assert_eq!(is_said, status != 0, "{said}");
    }
    let help = run("run --help").await.stdout;
    says(&help, ["Example:", "  79 ", "130", "NO_COLOR"]);
    says(&help, ["--metrics-file <FILE>", ".prom"]);
    let variables = ["TOKEN", "TOKENS", "OWNER", "PASSWORD"];
    says(&help, variables.map(|name| format!("LEASEHOLD_{name}")));
}

#[tokio::test]
async fn help_shows_no_secrets_of_the_environment() {
    let mut command = leasehold("run --help");
    command.env("LEASEHOLD_STORE", "redis://:hunter2@host/");
    command.env("LEASEHOLD_PASSWORD", "hunter2");
    assert!(!Process::run(command).await.stdout.contains("hunter2"));
}

#[tokio::test]
async fn completions_and_manual_come_from_the_definitions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = ends(&Store::memory(), ("completions", shell), 0).await;
        for word in ["on-lost", "recover-as", "elect", "resize"] {
            script.has_shown(word);
        }
    }
    let page = run("man").await;
    for section in ["NAME", "\"EXIT STATUS\"", "ENVIRONMENT", "EXAMPLES"] {
        page.has_shown(format!(".SH {section}"));
    }
}

/// Packages have a page for each subcommand that the help lists (scripts/dist).
#[tokio::test]
async fn every_subcommand_of_the_help_has_a_page() {
    let help = run("--help").await.stdout;
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    let first_lines = commands.lines().filter_map(|line| line.strip_prefix("  "));
    let names: Vec<_> = first_lines
        .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    for known in ["run", "man"] {
        assert!(names.contains(&known), "{names:?}");
    }
    for name in names {
        let page = ends(&Store::memory(), ("man", name), 0).await;
        let title = format!(".TH leasehold-{name} 1");
        for part in [&*title, ".SH NAME", ".SH SYNOPSIS", ".SH EXAMPLES"] {
            page.has_shown(part);
        }
        let entries = page.stdout.split(".TP\n");
        for option in entries.filter(|entry| entry.starts_with(r"\fB\-")) {
            let said = option.lines().nth(1);
            assert!(said.is_some_and(|said| !said.is_empty()), "{option}");
        }
    }
}

/// A panic says nothing to a user, and where it comes from depends on the number.
#[tokio::test]
async fn too_few_descriptors_are_said() {
    let store = Store::local();
    let program = store.command("").get_program().to_owned();
    let mut started = false;
    for limit in 5..32 {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n $1; exec \"$0\" run -n k -- true"]);
        command.arg(&program).arg(limit.to_string());
        command.env("LEASEHOLD_STORE", &store.url);
        let ended = Process::run(command).await;
        ended.has_not_said("panicked");
        // With fewer, the system cannot even load the program.
        if ended.stderr.starts_with("leasehold: ") {
            says(ended.stderr.to_lowercase(), ["too many open files"]);
            ended.has_said("ulimit -n");
        }
        started |= ended.code() == Some(0);
    }
    assert!(started, "with as many as it takes");
}

/// Below `/proc` nothing can be made, which is not that it was removed.
#[tokio::test]
async fn a_home_that_takes_no_directory_is_said() {
    for (home, why) in [
        ("/proc", "cannot make the directory"),
        ("/dev/null", "is not a directory"),
    ] {
        let mut command = leasehold("run k -- true");
        command.env("HOME", home).env("LEASEHOLD_STORE", "local:");
        command.env_remove("XDG_STATE_HOME");
        let ended = Process::spawn(command).ends_saying(69, why).await;
        ended.has_said(format!("{home}/.local/state/leasehold"));
        ended.has_said("local:/some/dir");
        ended.has_not_said("removed while in use");
    }
}
