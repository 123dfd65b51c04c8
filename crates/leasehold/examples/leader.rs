//! One instance of a service leads, the others stand by. It resigns when it is told to end (SIGTERM, as a
//! pod is), so that the next one leads at once, and it stops leading as soon as its lease is lost.
//!
//! ```text
//! cargo run -p leasehold --example leader [STORE]
//! ```
//! Give the instance longer to end (`terminationGracePeriodSeconds`) than a step of the work takes.

#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::error::Error;
use std::time::Duration;

use leasehold::{Client, Leadership};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::interval;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = std::env::args().nth(1);
    // A leader that has died is followed after its TTL: shorter than usual, as a leader never pauses.
    let settings = leasehold::Settings::default().with_ttl(Duration::from_secs(10));
    let client = Client::builder()
        .store(store.as_deref().unwrap_or("memory:"))
        .settings(settings)
        .connect()
        .await?;
    let mut end = signal(SignalKind::terminate())?;
    let ended = tokio::select! {
        failed = stand(&client) => failed,
        _ = end.recv() => {
            println!("told to end");
            Ok(())
        }
    };
    // The candidate leaves the queue, or the leader resigns, before the program ends.
    let left = client.shutdown(Duration::from_secs(5)).await;
    println!("{} leases were left", left.unconfirmed);
    Ok(ended?)
}

/// Is a candidate, and leads, again and again.
async fn stand(client: &Client) -> Result<(), leasehold::Error> {
    let election = client.election("scheduler")?;
    let me = format!("process {}", std::process::id());
    loop {
        let leadership = election.campaign(&me).await?;
        println!("leads, term {}", leadership.term());
        match leadership.run(lead(&leadership)).await {
            Ok(()) => {}
            Err(error) if error.is_lost() => println!("leads no more: {error}"),
            Err(error) => return Err(error),
        }
    }
}

/// The work of a leader. It is dropped when the lease is lost: each step has to bear that, and sends
/// the term along, which whoever receives it compares.
async fn lead(leadership: &Leadership) {
    let mut ticks = interval(Duration::from_millis(100));
    loop {
        ticks.tick().await;
        println!("a step in term {}", leadership.term());
    }
}
