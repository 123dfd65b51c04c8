//! What runs do with settings that were not typed.

use super::{Place, write};
use crate::common::*;

#[tokio::test]
async fn commands_do_as_the_file_says() {
    let place = Place::new();
    let of_system = "store = 'local:/nowhere'\nlabel = 'system'\n";
    write(&place.system(), of_system);
    let store = place.path("store");
    let of_user = "label = 'billing'\nwait = '0s'\n";
    let of_user = format!("store = 'local:{}'\n{of_user}", store.display());
    write(&place.user(), &of_user);
    let holder = Process::spawn(place.command("hold k"));
    holder.prints("").await;
    let view = place.run("show k --json").await.json();
    assert_eq!(view["holders"][0]["owner"]["label"], "billing");
    assert!(store.is_dir());

    let busy = place.run("run k -- echo ran").await;
    busy.has_printed(Some(75), "");
    // What is typed goes before it.
    let waiting = Process::spawn(place.command("run -w forever k -- true"));
    waiting.says("waiting for k").await;
    drop(holder);
    waiting.finish().await.has_code(Some(0));

    // A store in a file is named.
    let elected = "elect --once e -- echo ran";
    place.run(&elected).await.has_printed(Some(0), "ran\n");
}

/// A wait that was set for all runs is no wish about this one.
#[tokio::test]
async fn a_configured_wait_gives_way_to_what_is_typed() {
    let place = Place::new();
    write(&place.user(), "store = 'local:'\nwait = '1h'\n");
    for variables in [&[][..], &[("LEASEHOLD_WAIT", "2h")]] {
        for typed in ["--every 1h", "--every 1h -n"] {
            let run = format!("run {typed} j -- true");
            let ended = place.run_with(variables, run).await;
            ended.has_printed(Some(0), "");
            ended.has_not_said("no store is named");
        }
        let holder = Process::spawn(place.command("hold k"));
        holder.prints("").await;
        let at_once = place.run_with(variables, "run -n k -- true").await;
        at_once.has_code(Some(75));
    }
}

#[tokio::test]
async fn a_grace_time_that_is_too_long_is_named_with_its_place() {
    let place = Place::new();
    write(&place.user(), "ttl = '10s'\n\n[profile.p]\ngrace = '6s'\n");
    let run = "run --profile p k -- true";
    for arguments in [run, "config --profile p"] {
        let ended = place.run(arguments).await;
        ended.has_code(Some(64));
        let file = place.user().display().to_string();
        let grace = format!("a grace time of 6.0 s (profile p in {file}:4) is too long");
        let ttl = format!("for a TTL of 10 s ({file}:1)");
        says(&ended.stderr, [grace, ttl]);
    }
    let short = "run --max-hold 4s --grace 3s k -- true";
    let said = "3.0 s (--grace) is too long for a TTL of 4.0 s (--max-hold)";
    place.run(&short).await.has_said(said);
}

/// What the outer one was opened with goes on to the inner one, and goes before files; a profile
/// that the inner one names goes before that.
#[tokio::test]
async fn a_run_within_a_run_has_the_outer_ones_store() {
    let server = RedisServer::builder().password("hunter2").start();
    let url = format!("redis://{}/", server.address());
    let place = Place::new();
    write(&place.path("password"), "hunter2\n");
    write(&place.path("wrong"), "hunter3\n");
    let (right, wrong) = (place.path("password"), place.path("wrong"));
    let (right, wrong) = (right.display(), wrong.display());
    let other = format!("local:{}", place.path("other").display());
    let script = "\"$L\" run inner -- sh -c 'echo $LEASEHOLD_STORE' && \
        \"$L\" run --profile other inner -- sh -c 'echo $LEASEHOLD_STORE' && \
        \"$L\" config";
    // Also what the file has for whatever store.
    for (in_file, typed) in [
        (format!("store = '{url}'\n"), None),
        (String::new(), Some(url)),
    ] {
        let login = format!("user = 'nobody'\npassword-file = '{wrong}'\n");
        let profile = format!("[profile.other]\nstore = '{other}'\n");
        write(&place.user(), &(in_file + &login + &profile));
        let mut command = place.command("run --user default");
        command.arg(format!("--password-file={right}"));
        command.args(typed.map(|url| format!("--store={url}")));
        command.args(["outer", "--", "sh", "-c", script]);
        let ended = Process::run(command).await;
        let said = &ended.stdout;
        assert_eq!(ended.code(), Some(0), "{said}{}", ended.stderr);
        let lines: Vec<_> = said.lines().collect();
        assert!(lines[0].contains(&server.address().to_string()), "{said}");
        assert_eq!(lines[1], other);
        for (key, value) in [("user", "default"), ("password-file", &right.to_string())] {
            let words = [key, value, "LEASEHOLD_STORE_FILE"];
            let has = |line: &&str| line.split_whitespace().eq(words);
            assert!(lines.iter().any(has), "{words:?} in {said}");
        }
    }
}
