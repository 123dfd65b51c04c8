//! What is refused before any store is asked, and what is printed on demand.

mod common;

use common::{Store, leasehold};
use leasehold_testkit::process::{Finished, Process};

async fn run(arguments: &[&str]) -> Finished {
    Store::memory().run(arguments).await
}

#[tokio::test]
async fn wrong_usage_is_64_and_says_why() {
    let key_too_long = "k".repeat(513);
    for (arguments, said) in [
        (&["run", "k"][..], "required arguments"),
        (&["run", "k", "true"], "write -- before the command"),
        (&["run", "--", "true"], "required arguments"),
        (&["run", "", "--", "true"], "the key is empty"),
        (
            &["run", &key_too_long, "--", "true"],
            "the key has 513 bytes",
        ),
        (&["run", "a\tb", "--", "true"], "control character"),
        (&["run", "-w", "30", "k", "--", "true"], "say the unit: 30s"),
        (&["run", "-w", "soon", "k", "--", "true"], "1h30m"),
        (
            &["run", "-n", "-w", "1s", "k", "--", "true"],
            "cannot be used with",
        ),
        (&["run", "--ttl", "0s", "k", "--", "true"], "50 ms"),
        (&["run", "--ttl", "400d", "k", "--", "true"], "24 h"),
        (
            &["run", "--grace", "20s", "k", "--", "true"],
            "too long for a TTL of 30 s",
        ),
        (&["run", "-E", "256", "k", "--", "true"], "256"),
        (
            &["run", "--on-lost", "pray", "k", "--", "true"],
            "possible values: term, kill, ignore",
        ),
        (&["run", "-S", "foo:", "k", "--", "true"], "foo"),
        (&["run", "-S", "orders", "k", "--", "true"], "URL"),
        (
            &["run", "--password-file", "/no/such", "k", "--", "true"],
            "/no/such",
        ),
        (&["hold", ""], "the key is empty"),
        (&["show", ""], "the key is empty"),
        (&["break", ""], "the key is empty"),
        (&["man", "nothing"], "no page for nothing"),
        (&["fetch"], "unrecognized subcommand"),
        (&[], "Usage: leasehold <COMMAND>"),
    ] {
        let ended = run(arguments).await;
        assert_eq!(ended.code(), Some(64), "{arguments:?}: {}", ended.stderr);
        assert!(
            ended.stderr.contains(said),
            "{arguments:?}: {}",
            ended.stderr
        );
        assert!(
            ended.stderr.starts_with("leasehold: "),
            "{arguments:?}: {}",
            ended.stderr
        );
        assert_eq!(ended.stdout, "", "{arguments:?}");
    }
}

#[tokio::test]
async fn help_and_version_are_data() {
    for arguments in [
        &["--help"][..],
        &["-h"],
        &["help", "run"],
        &["run", "--help"],
        &["-V"],
    ] {
        let ended = run(arguments).await;
        assert_eq!(
            (ended.code(), &*ended.stderr),
            (Some(0), ""),
            "{arguments:?}"
        );
        assert!(
            ended.stdout.to_lowercase().contains("leasehold"),
            "{arguments:?}"
        );
    }
    let help = run(&["run", "--help"]).await.stdout;
    for part in [
        "Example:",
        "  79 ",
        "130",
        "LEASEHOLD_TOKEN",
        "LEASEHOLD_PASSWORD",
        "NO_COLOR",
    ] {
        assert!(help.contains(part), "{part} in {help}");
    }
}

#[tokio::test]
async fn help_shows_no_secrets_of_the_environment() {
    let mut command = leasehold(&["run", "--help"]);
    command
        .env("LEASEHOLD_STORE", "redis://:hunter2@host/")
        .env("LEASEHOLD_PASSWORD", "hunter2");
    let ended = Process::run(command).await;
    assert!(!ended.stdout.contains("hunter2"));
}

#[tokio::test]
async fn completions_and_manual_come_from_the_definitions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completions", shell]).await;
        assert_eq!(script.code(), Some(0));
        assert!(script.stdout.contains("on-lost"), "{shell}");
    }
    let page = run(&["man"]).await.stdout;
    for section in [
        ".SH NAME",
        ".SH \"EXIT STATUS\"",
        ".SH ENVIRONMENT",
        ".SH EXAMPLES",
    ] {
        assert!(page.contains(section), "{section} in {page}");
    }
    for subcommand in ["run", "hold", "show", "ls", "break", "completions"] {
        let page = run(&["man", subcommand]).await.stdout;
        assert!(
            page.contains(&format!(".TH leasehold-{subcommand} 1")),
            "{page}"
        );
    }
}
