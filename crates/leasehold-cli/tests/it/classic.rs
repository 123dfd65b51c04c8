//! The command on locks that other libraries share.

use std::process::Command;

use crate::common::{Arguments, events, leasehold};
use leasehold_testkit::process::{Finished, Process, Signal};
use leasehold_testkit::server::RedisServer;

fn on(server: &RedisServer, arguments: impl Arguments) -> Command {
    let mut command = leasehold(arguments);
    let url = format!("{}?layout=classic", server.url());
    command.env("LEASEHOLD_STORE", url);
    // Of an outer lock on another store: not to be taken for this one's.
    command
        .env("LEASEHOLD_TOKEN", "7")
        .env("LEASEHOLD_TERM", "7");
    command.env("LEASEHOLD_TOKENS", r#"{"outer":7}"#);
    command
}

async fn run(server: &RedisServer, arguments: impl Arguments) -> Finished {
    Process::run(on(server, arguments)).await
}

const TELL: &str = "echo \"$LEASEHOLD_KEY ${LEASEHOLD_TOKEN-none} ${LEASEHOLD_TOKENS-none} \
                    ${LEASEHOLD_TERM-none}\"";

#[tokio::test]
async fn a_command_is_given_no_token() {
    let server = RedisServer::start();
    for arguments in [
        ("run -v invoice-42 -- sh -c", TELL),
        ("elect --once -v invoice-42 -- sh -c", TELL),
    ] {
        let ran = run(&server, arguments).await;
        ran.has_code(Some(0));
        assert_eq!(ran.stdout, "invoice-42 none none none\n");
        ran.has_said("acquired invoice-42, without a token");
    }
    let ran = run(&server, "run --json -k a -k b -- true").await;
    let events = events(&ran.stderr);
    let acquired = events.iter().find(|it| it["event"] == "acquired").unwrap();
    assert!(
        acquired.get("token").is_none() && acquired.get("tokens").is_none(),
        "{acquired}"
    );
    assert_eq!(server.query::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn the_key_is_the_one_that_others_use() {
    let server = RedisServer::start();
    let taken = server.try_command(&["SET", "invoice-42", "0123456789abcdef", "NX"]);
    taken.unwrap();
    let busy = run(&server, "run -n invoice-42 -- true").await;
    busy.has_code(Some(75));
    let held = "invoice-42 is held by the claim 012345…; it does not expire";
    busy.has_said(held);

    let shown = run(&server, "show invoice-42").await;
    shown.has_shown("never");
    assert!(!shown.stdout.contains("0123456789"), "{}", shown.stdout);
    let shown = run(&server, "show --json invoice-42").await;
    let view: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    let holder = &view["holders"][0];
    assert_eq!(holder["id_hint"], "012345");
    assert!(
        holder["owner"].is_null() && holder["expires_in_ms"].is_null(),
        "{holder}"
    );
    assert!(holder.get("token").is_none(), "{holder}");

    let broken = run(&server, "break --yes invoice-42").await;
    broken.has_said("not fenced");
    assert_eq!(server.query::<u64>(&["EXISTS", "invoice-42"]), 0);

    let holder = Process::spawn(on(&server, "hold invoice-42"));
    assert_eq!(holder.prints("").await, "-");
    assert_eq!(server.query::<u64>(&["STRLEN", "invoice-42"]), 32);
    let listed = run(&server, "ls invoice-*").await;
    listed.has_shown("invoice-42  exclusive  the claim");
    holder.signal(Signal::TERM);
    assert_eq!(holder.finish().await.code(), Some(0));
    assert_eq!(server.query::<u64>(&["EXISTS", "invoice-42"]), 0);
}

#[tokio::test]
async fn what_it_cannot_do_is_said() {
    let server = RedisServer::start();
    for arguments in [
        "run -s k -- true",
        "run --limit 2 k -- true",
        "run --every 1h k -- true",
        "run --reentrant k -- true",
        "elect --note here k -- true",
        "resize k --from 1 --to 2",
    ] {
        let refused = run(&server, arguments).await;
        assert_ne!(refused.code(), Some(0), "{arguments:?}");
        let said = &refused.stderr;
        assert!(said.contains("the classic layout cannot do this"), "{said}");
        assert!(said.contains("leave out layout=classic"), "{said}");
    }
    let recovered = "run --recover-as job k -- true";
    run(&server, &recovered).await.has_code(Some(64));
    let listed = run(&server, "ls").await;
    listed.has_said("every string of the database");
    assert_eq!(server.query::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn the_doctor_says_what_is_not_promised() {
    let server = RedisServer::start();
    let seen = run(&server, "doctor --json").await;
    let report: serde_json::Value = serde_json::from_str(&seen.stdout).unwrap();
    assert!(
        report["promise"].as_str().unwrap().contains("No fencing"),
        "{report}"
    );
    let findings = report["findings"].as_array().unwrap();
    let about = |check: &str| findings.iter().find(|it| it["check"] == check);
    assert_eq!(about("layout").unwrap()["severity"], "note");
    assert_eq!(about("scripts").unwrap()["severity"], "fine");
    assert!(about("pushes").is_none());
    assert_eq!(server.query::<u64>(&["DBSIZE"]), 0);
}
