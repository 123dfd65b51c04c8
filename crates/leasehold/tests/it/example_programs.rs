//! The programs of `examples/`, run as they stand.

use leasehold_testkit::expect::says;
use leasehold_testkit::process::{Finished, Process, Signal, command};

use super::http::post;
use super::support::in_line;

fn start(name: &str, store: &str) -> Process {
    let mut program = command(&format!("examples/{name}"));
    program.arg(store);
    Process::spawn(program)
}

async fn run(name: &str, store: &str) -> String {
    said(start(name, store).finish().await)
}

/// What a program said that ended well, with nothing to complain about.
fn said(ended: Finished) -> String {
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.stderr, "", "{ended:?}");
    ended.stdout
}

#[tokio::test]
async fn workers_are_few_at_a_time() {
    let said = run("workers", "memory:").await;
    let done = "9 done, 1 cancelled, at most 3 at once";
    says(said, [done, "0 leases were left"]);
}

#[cfg(feature = "testing")]
#[tokio::test]
async fn an_hour_of_an_export_is_tested_at_once() {
    let said = run("testing", "").await;
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 4, "{said}");
    says(lines[1], ["it did not become free in time"]);
    says(lines[2], ["the lease was lost"]);
    says(lines[3], ["unavailable"]);
}

#[tokio::test]
async fn a_job_runs_once_in_a_period() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("local:{}", directory.path().display());
    let first = run("once_per_period", &store).await;
    assert!(first.contains("it ran 1 times"), "{first}");
    assert_eq!(first.matches(": 0 leases were left").count(), 3, "{first}");
    let second = run("once_per_period", &store).await;
    assert!(second.contains("it ran 0 times"), "{second}");
}

#[tokio::test]
async fn a_leader_resigns_when_it_is_told_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("local:{}", directory.path().display());
    let first = start("leader", &store);
    first.stdout().wait_for("a step in term").await;
    let second = start("leader", &store);
    let client = leasehold::connect(&store).await.unwrap();
    in_line(&client, "scheduler", 1).await;
    assert!(second.stdout().so_far().is_empty());
    first.signal(Signal::TERM);
    assert!(said(first.finish().await).ends_with("told to end\n0 leases were left\n"));
    second.stdout().wait_for("a step in term").await;
    second.signal(Signal::TERM);
    said(second.finish().await);
}

#[tokio::test]
async fn work_that_blocks_has_its_lease_to_the_end() {
    let said = run("blocking_work", "memory:").await;
    assert_eq!(said, "0 leases were left\n100 pages\n");
}

#[tokio::test]
async fn a_payment_is_made_once() {
    let said = run("side_effects", "memory:").await;
    assert!(said.starts_with("stopped after the payment\n"), "{said}");
    let ended = "0 leases were left\nasked 3 times, paid 1 times\n";
    assert!(said.ends_with(ended), "{said}");
}

#[cfg(feature = "metrics")]
#[tokio::test]
async fn metrics_are_shown() {
    let said = run("metrics", "memory:").await;
    let holds = r#"leasehold_hold_active{leasehold_mode="exclusive"} 1"#;
    assert!(said.contains(holds), "{said}");
    assert!(said.ends_with("# 0 leases were left\n"), "{said}");
}

#[tokio::test]
async fn an_order_is_paid_once() {
    for signal in [Signal::INT, Signal::TERM] {
        let service = start("axum_orders", "memory:");
        let line = service.stdout().wait_for("http://").await;
        let address = line.trim().trim_start_matches("http://");
        let paid = post(address, "/orders/42/pay", "").await;
        assert!(paid.starts_with("HTTP/1.1 200"), "{paid}");
        for path in ["/orders/42/pay", "/orders/43/pay"] {
            assert!(post(address, path, "").await.starts_with("HTTP/1.1 409"));
        }
        service.signal(signal);
        let said = said(service.finish().await);
        assert!(said.ends_with("0 leases were left\n"), "{said}");
    }
}
