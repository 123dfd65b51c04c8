//! Rivals for one lock, on every store that processes can share.

use std::time::Duration;

use crate::common::*;
use leasehold::core::Token;
use leasehold::fence::Gate;
use tokio::time::Instant;

on_each_store!(
    a_busy_lock_is_75_or_the_chosen_status,
    the_one_who_waits_is_told_twice,
    a_wait_may_end_in_time_or_not,
    ctrl_c_leaves_the_queue_at_once,
    a_holder_stopped_beyond_its_lease_has_lost_it,
    a_broken_lock_ends_its_command,
    a_broken_lock_may_be_ignored,
    holding_ends_with_a_signal_or_the_loss,
    show_and_ls_have_their_shape,
    a_program_that_cannot_run_leaves_nothing_behind,
    a_break_takes_the_grant_that_it_names_and_no_pattern,
    a_resource_that_is_told_of_a_break_refuses_the_former_holder,
    what_others_write_does_not_drive_the_terminal,
);

async fn a_busy_lock_is_75_or_the_chosen_status(store: &Store) {
    let (holder, _) = store.holder("orders/42 --label deploy").await;
    for (arguments, status) in [
        ("-n", 75),
        ("-w 0", 75),
        ("-n -E 0", 0),
        ("-w 50ms -E 11", 11),
    ] {
        let run = format!("run {arguments} orders/42 -- echo ran");
        let ended = ends_printing(store, run, status, "").await;
        let who = format!("(pid {}, label deploy) for ", holder.pid());
        ended.has_said("orders/42 is held by ");
        ended.has_said(&who);
        ended.has_said(" unless renewed");
    }
    let quiet = store.run("run -q -n orders/42 -- true").await;
    quiet.has_been_quiet(Some(75));

    let events = events(&store.run("run -n --json orders/42 -- true").await.stderr);
    assert_eq!(events[0]["event"], "conflict");
    assert_eq!(events[0]["holders"][0]["owner"]["pid"], holder.pid());
    let exit = json!({"event": "exit", "status": 75, "signal": null});
    assert_eq!(events[1], exit);
    // Nobody who gave up is left in the queue.
    assert_eq!(store.show("orders/42").await["waiters"], json!([]));
}

async fn the_one_who_waits_is_told_twice(store: &Store) {
    let (holder, first) = store.holder("k").await;
    let waiter = store.spawn(("run k -- sh -c", "echo token $LEASEHOLD_TOKEN"));
    let waits = "leasehold: waiting for k (position 1), held by ";
    let said = waiter.says(waits).await;
    assert!(said.contains(&format!("(pid {})", holder.pid())), "{said}");
    holder.ends_by(Signal::TERM).await.has_code(Some(0));
    waiter.says("leasehold: acquired k after ").await;
    let ended = waiter.ends(0).await;
    assert_eq!(ended.stderr.lines().count(), 2, "{}", ended.stderr);
    let token: u64 = ended.stdout.trim()["token ".len()..].parse().unwrap();
    assert!(token > first);
}

async fn a_wait_may_end_in_time_or_not(store: &Store) {
    let (holder, _) = store.holder("k").await;
    let late = ends_printing(store, "run -w 100ms k -- echo ran", 75, "").await;
    late.has_said("gave up after ");
    let timely = store.waiter("k", "run -w 1m k -- echo ran").await;
    holder.signal(Signal::INT);
    timely.finish().await.has_printed(Some(0), "ran\n");
}

async fn ctrl_c_leaves_the_queue_at_once(store: &Store) {
    let (_holder, _) = store.holder("k").await;
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let waiter = store.waiter("k", "run k -- echo ran").await;
        let sent = Instant::now();
        let ended = waiter.ends_by(signal).await;
        let took = sent.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
        ended.has_signal(signal);
        assert_eq!(ended.stdout, "");
        assert_eq!(ended.stderr.lines().count(), 2, "{}", ended.stderr);
        assert_eq!(store.show("k").await["waiters"], json!([]));
    }
}

async fn a_holder_stopped_beyond_its_lease_has_lost_it(store: &Store) {
    let script = "echo token $LEASEHOLD_TOKEN; exec sleep 60";
    let holder = store.spawn(("run --ttl 3s k -- sh -c", script));
    let first = holder.prints("token ").await;
    let waiter = store.spawn(("run k -- sh -c", "echo token $LEASEHOLD_TOKEN"));
    waiter.says("waiting").await;
    holder.signal(Signal::STOP);
    let second = waiter.ends(0).await;
    holder.signal(Signal::CONT);
    holder.ends_saying(79, "leasehold: lost k: ").await;
    let token = |line: &str| line.trim()["token ".len()..].parse::<u64>().unwrap();
    assert!(token(&first) < token(&second.stdout));
}

async fn a_broken_lock_ends_its_command(store: &Store) {
    let script = "trap 'echo told; exit 0' TERM; echo up; sleep 60 > /dev/null & wait";
    let holder = store.up(("run k -- sh -c", script)).await;
    // Nobody can be asked.
    ends_saying(store, "break k", 64, "hint: use --yes").await;
    let done = ends(store, "break --yes --json k", 0).await.json();
    includes(&done, json!({"key": "k", "holders": 1}));
    let ended = holder.ends_printing(79, "up\ntold\n").await;
    // A holder that has only just begun does not listen yet: then it finds its claim gone.
    ended.has_said_first("leasehold: lost k: ");
    let next = ("run k -- sh -c", "echo $LEASEHOLD_TOKEN");
    let token = store.run(next).await.stdout;
    assert!(token.trim().parse::<u64>().unwrap() > done["token"].as_u64().unwrap());
}

async fn a_break_takes_the_grant_that_it_names_and_no_pattern(store: &Store) {
    let (former, stale) = store.holder("k").await;
    store.run("break --yes k").await;
    former.finish().await;
    let (holder, token) = store.holder("k").await;
    for ask in ["--yes", ""] {
        let broken = store.run(format!("break k --token {stale} {ask}")).await;
        let said = format!("nothing was broken: nobody holds k with token {stale}\n");
        broken.has_code(Some(1));
        assert!(broken.stderr.ends_with(&said), "{}", broken.stderr);
    }
    let shown = store.run("show k").await.stdout;
    let heading = format!("k: lock, token {token}\n");
    assert!(shown.starts_with(&heading), "{shown}");
    let shown = store.run("show never-used").await.stdout;
    assert!(shown.starts_with("never-used: free"), "{shown}");
    assert!(!shown.contains("token"), "{shown}");
    let said = "nobody holds k*: break takes a key, not a pattern";
    ends_saying(store, "break --yes k*", 64, said).await;
    let hint = r"hint: leasehold ls -- 'k'\''*' lists the keys";
    ends_saying(store, ("break --yes", "k'*"), 64, hint).await;
    ends(store, format!("break --yes k --token {token}"), 0).await;
    holder.finish().await.has_code(Some(79));
}

async fn a_resource_that_is_told_of_a_break_refuses_the_former_holder(store: &Store) {
    let (holder, stale) = store.holder("k").await;
    let waiter = store.waiter("k", "hold k").await;
    let broken = store.run("break --yes k").await;
    let (_, told) = broken.stderr.split_once("tokens up to ").expect("a token");
    let (told, _) = told.split_once(" are void").expect("a sentence");
    let resource = Gate::at(Token::from(told.parse::<u64>().unwrap()));
    resource.admit(Token::from(stale)).unwrap_err();
    let next: u64 = waiter.prints("").await.parse().unwrap();
    resource.admit(Token::from(next)).unwrap();
    holder.finish().await.has_code(Some(79));
}

async fn what_others_write_does_not_drive_the_terminal(store: &Store) {
    let key = "k\u{202e}/\u{200b}1";
    let label = "a\u{202e}b\u{2028}\u{1b}[2Jc\nforged";
    let (_holder, token) = store.holder(&["--label", label, key]).await;
    let obeyed = |c: char| c != '\n' && (c.is_control() || "\u{202e}\u{200b}\u{2028}".contains(c));
    for (arguments, lines) in [
        (&["show", key][..], 3),
        (&["ls"], 2),
        (&["run", "-n", key, "--", "true"], 1),
        (&["run", "-n", "--json", key, "--", "true"], 2),
        (&["show", "--json", key], 1),
    ] {
        let ended = store.run(arguments).await;
        let said = ended.stdout + &ended.stderr;
        assert!(!said.contains(obeyed), "{arguments:?}: {said:?}");
        assert_eq!(said.lines().count(), lines, "{arguments:?}: {said}");
        assert!(said.contains("202e"), "{arguments:?}: {said}");
    }
    // To programs it is what it is.
    let shown = store.show(key).await;
    assert_eq!(shown["key"], key);
    assert_eq!(shown["holders"][0]["token"], token);
}

async fn a_broken_lock_may_be_ignored(store: &Store) {
    let script = "echo up; until test -e go; do sleep 0.02; done; echo done";
    let run = ("run --on-lost ignore k -- sh -c", script);
    let holder = store.up(run).await;
    store.run("break --yes k").await;
    holder.says("the command continues without the lock").await;
    std::fs::write(store.path("go"), "").unwrap();
    holder.finish().await.has_printed(Some(79), "up\ndone\n");
}

async fn holding_ends_with_a_signal_or_the_loss(store: &Store) {
    let (holder, token) = store.holder("k").await;
    assert_eq!(store.show("k").await["holders"][0]["token"], token);
    store.run("hold -n k").await.has_printed(Some(75), "");
    holder.ends_by(Signal::INT).await.has_code(Some(0));
    assert_eq!(store.show("k").await["holders"], json!([]));

    let holder = store.spawn("hold --json k");
    let held: Value = serde_json::from_str(&holder.prints("").await).unwrap();
    assert_eq!(held["key"], "k");
    assert!(held["token"].as_u64().unwrap() > token);
    store.run("break -y k").await;
    let ended = holder.ends(79).await;
    let lost = events(&ended.stderr);
    assert_eq!(lost[1]["event"], "lost", "{lost:?}");
    let reasons = [json!("gone"), json!("revoked")];
    assert!(reasons.contains(&lost[1]["reason"]), "{lost:?}");
}

async fn show_and_ls_have_their_shape(store: &Store) {
    let empty = ends_printing(store, "ls", 0, "").await;
    empty.has_been_quiet(Some(0));
    let free = store.show("a/1").await;
    includes(&free, json!({"key": "a/1", "kind": "lock"}));
    includes(&free, json!({"holders": [], "waiters": []}));

    let (holder, token) = store.holder("a/1 --label first").await;
    let (_other, _) = store.holder("b/1").await;
    let waiter = store.waiter("a/1", "run a/1 -- true").await;
    let shown = store.show("a/1").await;
    let time = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let (held, waits) = (&shown["holders"][0], &shown["waiters"][0]);
    assert!(time(&shown["at"]) >= time(&held["since"]));
    assert!(time(&waits["since"]) >= time(&held["since"]));
    for (claim, bounds) in [(held, 20_000..=30_000), (waits, 6_000..=10_000)] {
        let ends = claim["expires_in_ms"].as_u64().unwrap();
        assert!(bounds.contains(&ends), "{shown}");
    }
    let host = &held["owner"]["host"];
    // A store may have one for all its keys.
    let last_token = &shown["last_token"];
    assert!(last_token.as_u64() >= Some(token), "{shown}");
    let context = |claim: &Value| claim["owner"]["context"].clone();
    assert_ne!(context(held), context(waits));
    assert_eq!(
        shown,
        json!({
            "key": "a/1",
            "kind": "lock",
            "last_token": last_token,
            "at": shown["at"],
            "holders": [{
                "mode": "exclusive",
                "owner": {
                    "host": host, "pid": holder.pid(), "label": "first",
                    "context": context(held),
                },
                "since": held["since"],
                "expires_in_ms": held["expires_in_ms"],
                "token": token,
            }],
            "waiters": [{
                "mode": "exclusive",
                "owner": {
                    "host": host, "pid": waiter.pid(), "label": null,
                    "context": context(waits),
                },
                "since": waits["since"],
                "expires_in_ms": waits["expires_in_ms"],
                "position": 1,
            }],
        })
    );
    for (pattern, keys) in [("*", &["a/1", "b/1"][..]), ("b*", &["b/1"]), ("c?", &[])] {
        let listed = store.run(format!("ls {pattern} --json")).await.stdout;
        let listed = json_lines(&listed).into_iter();
        let found: Vec<_> = listed.map(|each| each["key"].clone()).collect();
        assert_eq!(found, keys, "{pattern}");
    }
    says(store.run("show a/1").await.stdout, ["holds", "waits, 1"]);
    let table = store.run("ls").await.stdout;
    assert_eq!(table.lines().count(), 3, "{table}");
}

async fn a_program_that_cannot_run_leaves_nothing_behind(store: &Store) {
    // Looks runnable, and is not: its interpreter is a directory.
    let script = store.program("script", "#!/\n");
    ends(store, &("run k --", script.to_str().unwrap()), 126).await;
    let shown = store.show("k").await;
    includes(&shown, json!({"holders": [], "waiters": []}));
}

/// Of many short waits a log would say nothing else.
#[tokio::test]
async fn a_short_wait_is_not_said() {
    let store = Store::redis();
    let client = leasehold::connect(&store.url).await.unwrap();
    let lock = client.mutex("k").unwrap();
    let mut is_short = false;
    // A machine that is busy may take longer than that.
    for _ in 0..50 {
        let lease = lock.lock().await.unwrap();
        let looks = store.spawn("wait --json k");
        let waits = store.spawn("run --json k -- true");
        let in_line = async || !client.inspect("k").await.unwrap().waiters.is_empty();
        assert!(eventually(in_line).await, "nobody waits");
        let _ = lease.release().await.unwrap();
        for process in [looks, waits] {
            let events = events(&process.finish().await.stderr);
            let waited = events.iter().find_map(|event| event["waited_ms"].as_u64());
            if waited.is_some_and(|waited| waited < 300) {
                let names = names(&events);
                let said = names.iter().any(|name| name.starts_with("waiting"));
                assert!(!said, "{events:?}");
                is_short |= names.contains(&"acquired");
            }
        }
        if is_short {
            return;
        }
    }
    panic!("each wait was long");
}
