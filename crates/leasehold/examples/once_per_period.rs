//! A job that three machines start at the same time, and that runs once in each period, also if its
//! machine dies half-way or the clocks of the machines differ a little.
//!
//! ```text
//! cargo run -p leasehold --example once_per_period [STORE]
//! ```

#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::error::Error;
use std::time::Duration;

use leasehold::Client;
use tokio::task::JoinSet;

/// A little less than the time from one start to the next, so that the next finds the key free.
const PERIOD: Duration = Duration::from_secs(3600 - 60);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = std::env::args().nth(1);
    let store = store.as_deref().unwrap_or("memory:nightly");
    let mut machines = JoinSet::new();
    for machine in ["a", "b", "c"] {
        let client = Client::builder()
            .store(store)
            .label(machine)
            .connect()
            .await?;
        machines.spawn(async move {
            let ran = start(&client, machine).await;
            // Also after an error: what is still held is released now.
            let left = client.shutdown(Duration::from_secs(5)).await;
            println!("{machine}: {} leases were left", left.unconfirmed);
            ran
        });
    }
    let mut runs = 0;
    while let Some(ran) = machines.join_next().await {
        runs += u32::from(ran??);
    }
    println!("it ran {runs} times");
    Ok(())
}

/// Whether the job ran here.
async fn start(client: &Client, machine: &str) -> Result<bool, leasehold::Error> {
    // The key stays taken for the period, whatever becomes of the lease.
    let job = client.mutex("nightly/report")?.with_min_hold(PERIOD);
    // It is `Lost` if another may have run the job too. An error of the release is none of the work.
    let ran = job.with_try_lock(async |_| report(machine).await).await?;
    if ran.is_none() {
        println!("{machine}: somebody has run it, or does");
    }
    Ok(ran.is_some())
}

async fn report(machine: &str) {
    println!("{machine}: runs");
    tokio::task::yield_now().await;
}
