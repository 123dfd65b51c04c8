//! A leasehold within what a leasehold runs: it opens the same store, and no secret is shown on
//! the way.

use std::fs;
use std::process::Command;

use crate::common::*;
use leasehold_testkit::server::ClientCertificate;

/// Shows its environment and its arguments, and what an inner leasehold, and one within that, say.
const SCRIPT: &str = "env; tr '\\0' ' ' < /proc/$$/cmdline; echo; \
    \"$L\" run middle -- \"$L\" run inner -- sh -c 'echo inner of $LEASEHOLD_STORE; env'";

async fn nested(mut command: Command, url: Option<&str>) -> Finished {
    command.args(["outer", "--", "sh", "-c", SCRIPT]);
    if let Some(url) = url {
        command.env("LEASEHOLD_STORE", url);
    }
    Process::run(command).await
}

#[tokio::test]
async fn it_opens_a_store_with_a_password_from_anywhere_and_shows_it_nowhere() {
    let server = RedisServer::builder().password("hunter2");
    let server = server.user("app", "on >hunter3 ~* &* +@all").start();
    let plain = format!("redis://{}/", server.address());
    let files = Store::memory();
    let write = |name: &str, text: &str| {
        let path = files.path(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let file = write("password", "hunter2\n");
    let of_user = write("of-user", "hunter3\n");

    let by_file = leasehold(("run --password-file", &file));
    let mut by_relative_file = leasehold("run --password-file password");
    by_relative_file.current_dir(files.path("."));
    let mut by_named_file = leasehold("run");
    by_named_file.env("LEASEHOLD_PASSWORD_FILE", &file);
    let mut by_environment = leasehold("run");
    by_environment.env("LEASEHOLD_PASSWORD", "hunter2");
    let by_user = leasehold(("run --user app --password-file", &of_user));
    let with_user = server.url_as("app", "hunter3");
    let url = server.url();
    for (how, command, url) in [
        ("file", by_file, Some(&plain)),
        ("relative file", by_relative_file, Some(&plain)),
        ("file in the environment", by_named_file, Some(&plain)),
        ("environment", by_environment, Some(&plain)),
        ("user and file", by_user, Some(&plain)),
        ("URL in the environment", leasehold("run"), Some(&url)),
        ("URL with user", leasehold("run"), Some(&with_user)),
        ("URL in the arguments", leasehold(("run -S", &url)), None),
    ] {
        let ended = nested(command, url.map(String::as_str)).await;
        assert_eq!(ended.code(), Some(0), "{how}: {ended}");
        ended.has_shown("\ninner of redis://");
        for secret in ["hunter2", "hunter3"] {
            let shown = ended.stdout.contains(secret) || ended.stderr.contains(secret);
            assert!(!shown, "{how}: {ended}");
        }
    }
}

#[tokio::test]
async fn it_opens_a_store_with_the_certificates_of_the_outer_one() {
    let server = RedisServer::builder().password("hunter2");
    let server = server.tls(ClientCertificate::Required).start();
    let command = leasehold(format!("run {}", tls_options(&server)));
    let ended = nested(command, Some(&server.url())).await;
    ended.has_code(Some(0));
    ended.has_shown("\ninner of rediss://");
    assert!(!ended.stdout.contains("hunter2"), "{}", ended.stdout);
}

#[tokio::test]
async fn what_is_handed_on_is_for_that_store_only() {
    let outer = RedisServer::builder().password("hunter2").start();
    let other = RedisServer::builder().password("hunter3").start();
    let inner = "\"$L\" run -n -S \"$OTHER\" inner -- echo ran";
    let mut command = at(&outer.url(), ("run outer -- sh -c", inner));
    command.env("OTHER", other.url());
    Process::run(command).await.has_printed(Some(0), "ran\n");

    // Nor is one handed on by an outer leasehold to what runs under a store that has none.
    let handed = [("LEASEHOLD_STORE_FILE", "/proc/1/fd/1")];
    let run = ("run k -- sh -c", "echo ${LEASEHOLD_STORE_FILE-none}");
    let ended = Store::memory().run_with(&handed, run).await;
    assert_eq!(ended.stdout, "none\n");
}

#[tokio::test]
async fn what_is_handed_on_ends_with_the_outer_one() {
    let server = RedisServer::builder().password("hunter2").start();
    let run = ("run k -- sh -c", "echo $LEASEHOLD_STORE_FILE");
    let ended = run_at(&server.url(), run).await;
    let file = ended.stdout.trim();
    assert!(file.starts_with("/proc/"), "{file}");
    let plain = format!("redis://{}/", server.address());
    let mut late = at(&plain, "run -n k -- true");
    late.env("LEASEHOLD_STORE_FILE", file);
    Process::spawn(late).ends_saying(69, "password").await;
}
