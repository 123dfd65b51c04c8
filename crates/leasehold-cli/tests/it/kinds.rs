//! Readers, permits, several keys, owners who enter again, holds of a least and a longest time.

use std::fs;

use crate::common::*;

on_each_store!(
    readers_hold_together_and_a_writer_alone,
    a_limit_lets_so_many_in_and_is_changed_by_an_administrator,
    several_keys_are_held_all_or_none,
    several_keys_in_any_order_do_not_block_each_other,
    an_owner_enters_again,
    a_recursive_walk_does_not_wait_for_itself,
    the_longest_hold_ends_like_a_loss,
    the_least_hold_keeps_the_lock_of_one_who_left,
);

async fn readers_hold_together_and_a_writer_alone(store: &Store) {
    let (one, first) = store.holder("-s config").await;
    let (two, second) = store.holder("--shared config").await;
    assert!(second > first);
    assert_eq!(store.show("config").await["holders"][1]["mode"], "shared");
    let writer = store.spawn("run -x config -- echo wrote");
    let said = writer.says("waiting for config").await;
    assert!(said.ends_with(", and 1 more"), "{said}");
    // A writer waits.
    ends(store, "run -n -s config -- true", 75).await;
    one.signal(Signal::TERM);
    two.signal(Signal::TERM);
    writer.finish().await.has_printed(Some(0), "wrote\n");
    let (_writer, _) = store.holder("config").await;
    ends(store, "run -ns config -- true", 75).await;
}

async fn a_limit_lets_so_many_in_and_is_changed_by_an_administrator(store: &Store) {
    let (_one, _) = store.holder("--limit 3 mail").await;
    let script = "echo up; until test -e go; do sleep 0.02; done";
    let limit = ("run --limit 3 --take 2 mail -- sh -c", script);
    let two = store.up(limit).await;
    let shown = store.show("mail").await;
    includes(&shown, json!({"kind": "semaphore", "permits": 3}));
    assert_eq!(shown["holders"][1]["weight"], 2);
    store.run("show mail").await.has_shown("2 of 3 permits");
    store.run("ls").await.has_shown("permits  3/3 ");

    ends(store, "run -n --limit 3 mail -- true", 75).await;
    ends(store, "run --limit 5 mail -- true", 64).await;

    let hint = "name the number of permits that the semaphore has";
    ends_saying(store, "resize mail --from 2 --to 4", 64, hint).await;
    let waiter = store.waiter("mail", "run --limit 3 mail -- echo in").await;
    let resized = store.run("resize mail --from 3 --to 4").await;
    let said = "leasehold: resized mail from 3 to 4 permits\n";
    assert_eq!(resized.stderr, said);
    let table = store.run("show mail").await.stdout;
    assert!(table.starts_with("mail: semaphore of 4, "), "{table}");
    assert!(table.contains(" of 4 permits"), "{table}");
    assert!(!table.contains(" of 3 permits"), "{table}");
    waiter.finish().await.has_printed(Some(0), "in\n");
    fs::write(store.path("go"), "").unwrap();
    assert_eq!(two.wait().await.code(), Some(0));

    let free = store.run("resize --json free --from 3 --to 4").await;
    let done = json!({"key": "free", "from": 3, "to": 4, "in_use": false});
    assert_eq!(free.json(), done);
}

async fn several_keys_are_held_all_or_none(store: &Store) {
    let holder = store.spawn("hold --json -k 'b = \"1\"' -k a");
    let held: Value = serde_json::from_str(&holder.prints("").await).unwrap();
    assert_eq!(held["key"], "b = \"1\"");
    assert_eq!(held["token"], held["tokens"]["b = \"1\""]);
    let of_a = &store.show("a").await["holders"][0];
    assert_eq!(held["tokens"]["a"], of_a["token"]);

    let busy = ends(store, "run -n -k c -k a -- true", 75).await;
    busy.has_said_first("leasehold: a is held by ");
    assert_eq!(store.show("c").await["holders"], json!([]));
    let script = "printf '%s\\n' \"$LEASEHOLD_KEY\" \"$LEASEHOLD_TOKENS\" $LEASEHOLD_TOKEN";
    let waiter = store.spawn(("run -k c -k a -k 'b = \"1\"' -- sh -c", script));
    waiter.says("waiting for a (position 1), held by ").await;
    holder.signal(Signal::TERM);
    let ended = waiter.ends(0).await;
    let lines: Vec<_> = ended.stdout.lines().collect();
    let tokens: Value = serde_json::from_str(lines[1]).unwrap();
    assert_eq!(tokens.as_object().unwrap().len(), 3, "{tokens}");
    assert_eq!((lines[0], lines[2]), ("c", &*tokens["c"].to_string()));
    assert!(tokens["a"].as_u64() > held["tokens"]["a"].as_u64());

    let readers = printing(store, "hold -s -k c -k a", "").await;
    assert_eq!(store.show("c").await["holders"][0]["mode"], "shared");
    // Losing one is losing all.
    store.run("break -y a").await;
    readers.ends(79).await.has_said_first("leasehold: lost a: ");
    store.until_free("c").await;
}

async fn several_keys_in_any_order_do_not_block_each_other(store: &Store) {
    fs::write(store.path("count"), "0").unwrap();
    let script = "read n < count; echo $((n + 1)) > count";
    let spawn =
        |[one, two]: [&str; 2]| store.spawn((format!("run -q -k {one} -k {two} -- sh -c"), script));
    let orders = [["a", "b"], ["b", "a"]].repeat(10);
    let all: Vec<_> = orders.into_iter().map(spawn).collect();
    for each in all {
        each.finish().await.has_been_quiet(Some(0));
    }
    let count = fs::read_to_string(store.path("count")).unwrap();
    assert_eq!(count.trim(), "20");
}

async fn an_owner_enters_again(store: &Store) {
    // The inner one leaves first; the outer still holds.
    let script = "echo $LEASEHOLD_OWNER $LEASEHOLD_TOKEN; \
        \"$L\" run -n --reentrant k -- sh -c 'echo $LEASEHOLD_OWNER $LEASEHOLD_TOKEN'; \
        env -u LEASEHOLD_OWNER \"$L\" run -n --reentrant k -- true; echo $?; \
        \"$L\" run -n k -- true; echo $?";
    let run = ("run -v --json --reentrant k -- sh -c", script);
    let ended = store.run_with(&[("LEASEHOLD_LOG", "trace")], run).await;
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{ended}");
    assert_eq!((lines[0], lines[2], lines[3]), (lines[1], "75", "75"));
    let owner = lines[0].split(' ').next().unwrap();
    assert_eq!(owner.len(), 32);
    ended.has_not_said(owner);
    assert_eq!(store.show("k").await["holders"], json!([]));

    let owner = [("LEASEHOLD_OWNER", "hunter2")];
    let ended = store.run_with(&owner, "run --reentrant k -- true").await;
    ended.has_code(Some(64));
    ended.has_not_said("hunter2");
}

/// The script calls itself under the lock for each level of a tree.
async fn a_recursive_walk_does_not_wait_for_itself(store: &Store) {
    let script = "#!/bin/sh\n\
        echo \"$1 $LEASEHOLD_TOKEN\" >> log\n\
        for sub in \"$1\"/*; do\n\
          if [ -d \"$sub\" ]; then\n\
            \"$L\" run --reentrant -w 10s menu -- ./walk \"$sub\" || exit\n\
          fi\n\
        done\n";
    store.program("walk", script);
    for path in ["menu/food/fish/raw", "menu/food/meat", "menu/drinks/hot"] {
        fs::create_dir_all(store.path(path)).unwrap();
    }
    let walked = store.run("run --reentrant menu -- ./walk menu").await;
    walked.has_been_quiet(Some(0));
    let log = fs::read_to_string(store.path("log")).unwrap();
    let lines = log.lines().map(|line| line.split_once(' ').unwrap());
    let (paths, tokens): (Vec<&str>, Vec<&str>) = lines.unzip();
    let all = "menu menu/drinks menu/drinks/hot menu/food menu/food/fish menu/food/fish/raw \
        menu/food/meat";
    assert_eq!(paths.join(" "), all);
    assert!(tokens.iter().all(|token| token == &tokens[0]), "{log}");
    assert_eq!(store.show("menu").await["holders"], json!([]));
}

async fn the_longest_hold_ends_like_a_loss(store: &Store) {
    let run = "run --max-hold 4s k -- sleep 60";
    let ended = ends(store, &run, 79).await;
    ended.has_said_first("leasehold: k ends in ");
    ended.has_said("it was held for its maximum time; stopping the command");

    let ended = ends(store, "hold --json --max-hold 4s k", 79).await;
    assert_eq!(events(&ended.stderr)[1]["reason"], "max-hold");
}

#[tokio::test]
async fn the_longest_hold_may_be_longer_than_time_itself() {
    let store = Store::memory();
    ends(&store, "run --max-hold 300000000000y k -- true", 0).await;
}

#[tokio::test]
async fn the_longest_hold_has_one_reason() {
    let store = Store::local();
    let stubborn = "trap '' TERM; while :; do sleep 1; done";
    let ended = store.run(("run --max-hold 400ms k -c", stubborn)).await;
    ended.has_ended_saying(Some(79), "lost k; killing the command");
    assert_eq!(ended.stderr.matches("maximum time").count(), 1, "{ended:?}");
}

async fn the_least_hold_keeps_the_lock_of_one_who_left(store: &Store) {
    let ended = store.run("run --min-hold 1m k -- true").await;
    ended.has_been_quiet(Some(0));
    let busy = ends(store, "run -n k -- true", 75).await;
    busy.has_said_first("leasehold: k is taken until ");
    let shown = store.show("k").await;
    let until = shown["holders"][0]["kept_until"].as_str().unwrap();
    assert!(until.parse::<jiff::Timestamp>().is_ok(), "{until}");
    store.run("show k").await.has_shown("\ntaken until 2");
    store.run("ls").await.has_shown("(finished)");
}
