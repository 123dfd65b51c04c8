//! The local store with several processes: each test runs this binary in a special role.
#![cfg(all(unix, feature = "local"))]

use std::collections::HashSet;

use crate::local_support::*;

#[tokio::test]
async fn grants_come_in_order_of_arrival() {
    let place = Place::new();
    let (client, lease) = held(&place.1).await;
    let mut queue = Vec::new();
    for number in 1..=4 {
        queue.push(place.start("hold"));
        in_line(&client, "k", number).await;
    }
    let mut last = lease.token().get();
    let _ = lease.release().await.unwrap();
    for process in &mut queue {
        let held = process.says("held ").await;
        let token: u64 = held["held ".len()..].parse().unwrap();
        assert!(token > last, "tokens rise in order of arrival");
        last = token;
        process.stdin = None;
        process.says("released").await;
    }
}

#[tokio::test]
async fn a_killed_holder_frees_its_key() {
    let place = Place::new();
    let client = place.connect().await;
    let mut holder = place.start("hold");
    holder.says("held").await;
    let next = waiting(&client, "k");
    in_line(&client, "k", 1).await;
    holder.kill().await;
    let _ = freed(next).await.release().await.unwrap();
    // Who goes at once leaves what the dead have left to those who come.
    until("the dead go", async || place.files("sessions") <= 1).await;
    drop(client);
    place.is_deserted().await;
}

/// All of a group die at once: holder, next in line, and the one after it.
#[tokio::test]
async fn killed_waiters_are_passed() {
    let place = Place::new();
    let client = place.connect().await;
    let mut dying = vec![place.start("hold")];
    dying[0].says("held").await;
    for number in 1..=2 {
        dying.push(place.start("hold"));
        in_line(&client, "k", number).await;
    }
    let next = waiting(&client, "k");
    in_line(&client, "k", 3).await;
    for process in &mut dying {
        process.kill().await;
    }
    let _ = freed(next).await.release().await.unwrap();
}

#[tokio::test]
async fn a_child_lives_for_its_killed_parent() {
    let place = Place::new();
    let client = place.connect().await;
    let mut guard = place.start("guard");
    guard.says("held").await;
    guard.kill().await;
    let mut next = waiting(&client, "k");
    // Several looks of the next in line.
    let early = timeout(Duration::from_millis(900), &mut next).await;
    assert!(early.is_err(), "the child still works under the lease");
    guard.stdin = None;
    let _ = freed(next).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_update_is_lost_when_processes_are_killed() {
    let place = Place::new();
    fs::write(place.0.path().join("counter"), "0").unwrap();
    fs::write(place.0.path().join("log"), "").unwrap();
    let mut processes: Vec<_> = (0..30).map(|_| place.start("add")).collect();
    // Every third dies at a random moment while the others go on.
    let killed = processes.len() as u64 / 3;
    for process in processes.iter_mut().step_by(3) {
        moment(200_000).await;
        process.kill().await;
    }
    for (number, process) in processes.iter_mut().enumerate() {
        if number % 3 != 0 {
            process.says("done").await;
        }
    }
    let log = fs::read_to_string(place.0.path().join("log")).unwrap();
    let mut written: Vec<(u64, u64)> = log
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(value, token)| (value.parse().unwrap(), token.parse().unwrap()))
        .collect();
    let values: HashSet<_> = written.iter().map(|(value, _)| value).collect();
    let lost = written.len() - values.len();
    assert_eq!(lost, 0, "two wrote the same value: an update was lost");
    written.sort_unstable();
    let rise = written.is_sorted_by(|a, b| a.1 < b.1);
    assert!(rise, "tokens rise with the grants");
    let last = fs::read_to_string(place.0.path().join("counter")).unwrap();
    let last: u64 = last.parse().unwrap();
    assert!(last >= written.len() as u64 && last <= written.len() as u64 + killed);
    assert!(written.len() >= 20 * 20);
}

#[tokio::test]
async fn killed_at_any_instant_leaves_a_record_to_go_on_with() {
    let place = Place::new();
    let (store, key) = (place.open().await, key("k"));
    let mut last = None;
    for id in 0..40_u128 {
        let mut churning = place.start("churn");
        churning.says("churning").await;
        moment(3_000).await;
        churning.kill().await;
        let token = claimed(&store, &key, id).await.token;
        assert!(token > last, "a dead holder is buried in the same step");
        last = token;
        released(&store, &key, id).await;
    }
    // Who held nothing when it was killed is found by whoever opens next.
    let other = place.open().await;
    assert_eq!(place.files("sessions"), 2, "only the living are left");
    drop((store, other));
    place.is_deserted().await;
}
