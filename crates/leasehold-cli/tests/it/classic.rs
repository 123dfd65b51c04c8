//! The command on locks that other libraries share.

use std::process::Command;

use crate::common::*;

fn on(server: &RedisServer, arguments: impl Arguments) -> Command {
    let mut command = at(&format!("{}?layout=classic", server.url()), arguments);
    // Of an outer lock on another store: not to be taken for this one's.
    command.envs([("LEASEHOLD_TOKEN", "7"), ("LEASEHOLD_TERM", "7")]);
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
        ran.has_printed(Some(0), "invoice-42 none none none\n");
        ran.has_said("acquired invoice-42, without a token");
    }
    let events = events(&run(&server, "run --json -k a -k b -- true").await.stderr);
    let acquired = events.iter().find(|it| it["event"] == "acquired").unwrap();
    let tokens = ["token", "tokens"].map(|name| acquired.get(name));
    assert_eq!(tokens, [None, None], "{acquired}");
    assert_eq!(server.query::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn the_key_is_the_one_that_others_use() {
    let server = RedisServer::start();
    let taken = server.try_command(&["SET", "invoice-42", "0123456789abcdef", "NX"]);
    taken.unwrap();
    let busy = run(&server, "run -n invoice-42 -- true").await;
    let held = "invoice-42 is held by the claim 012345…; it does not expire";
    busy.has_ended_saying(Some(75), held);

    let shown = run(&server, "show invoice-42").await;
    shown.has_shown("never");
    assert!(!shown.stdout.contains("0123456789"), "{}", shown.stdout);
    let view = run(&server, "show --json invoice-42").await.json();
    let holder = &view["holders"][0];
    assert_eq!(holder["id_hint"], "012345");
    for none in ["owner", "expires_in_ms"] {
        assert!(holder[none].is_null(), "{none}: {holder}");
    }
    assert!(holder.get("token").is_none(), "{holder}");

    let broken = run(&server, "break --yes invoice-42").await;
    broken.has_said("not fenced");
    assert_eq!(server.query::<u64>(&["EXISTS", "invoice-42"]), 0);

    let holder = Process::spawn(on(&server, "hold invoice-42"));
    assert_eq!(holder.prints("").await, "-");
    assert_eq!(server.query::<u64>(&["STRLEN", "invoice-42"]), 32);
    let listed = run(&server, "ls invoice-*").await;
    listed.has_shown("invoice-42  exclusive  the claim");
    assert_eq!(holder.ends_by(Signal::TERM).await.code(), Some(0));
    assert_eq!(server.query::<u64>(&["EXISTS", "invoice-42"]), 0);
}

#[tokio::test]
async fn what_it_cannot_do_is_said() {
    let server = RedisServer::start();
    let all = "run -s k -- true | run --limit 2 k -- true | run --every 1h k -- true | \
        run --reentrant k -- true | elect --note here k -- true | resize k --from 1 --to 2";
    for arguments in all.split(" | ") {
        let refused = run(&server, arguments).await;
        assert_ne!(refused.code(), Some(0), "{arguments:?}");
        refused.has_said("the classic layout cannot do this");
        refused.has_said("leave out layout=classic");
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
    let report = run(&server, "doctor --json").await.json();
    says(report["promise"].as_str().unwrap(), ["No fencing"]);
    let findings = report["findings"].as_array().unwrap();
    let about = |check: &str| findings.iter().find(|it| it["check"] == check);
    assert_eq!(about("layout").unwrap()["severity"], "note");
    assert_eq!(about("scripts").unwrap()["severity"], "fine");
    assert!(about("pushes").is_none());
    assert_eq!(server.query::<u64>(&["DBSIZE"]), 0);
}
