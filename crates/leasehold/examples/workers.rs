//! Ten jobs, of which three may run at the same time, on however many machines. A job that is cancelled
//! leaves the queue, or gives its permit back.
//!
//! ```text
//! cargo run -p leasehold --example workers [STORE]
//! ```

#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::Client;
use tokio::task::JoinSet;
use tokio::time::sleep;

const PERMITS: u32 = 3;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = std::env::args().nth(1);
    let client = leasehold::connect(store.as_deref().unwrap_or("memory:")).await?;
    let worked = work(&client).await;
    let left = client.shutdown(Duration::from_secs(5)).await;
    println!("{} leases were left", left.unconfirmed);
    worked
}

async fn work(client: &Client) -> Result<(), Box<dyn Error>> {
    let workers = client.semaphore("reports/workers", PERMITS)?;
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut jobs = JoinSet::new();
    for job in 0..10_u32 {
        let (workers, running, most) = (workers.clone(), running.clone(), most.clone());
        let work = jobs.spawn(async move {
            // Waits for a permit, works, and gives it back; `Lost` if it ended before the work did.
            let report = workers.with_permit(async |_| {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(Duration::from_millis(20)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                job * job
            });
            report.await
        });
        if job == 9 {
            // It leaves the queue: dropping its future is enough.
            work.abort();
        }
    }
    let (mut done, mut cancelled) = (0, 0);
    while let Some(job) = jobs.join_next().await {
        match job {
            Ok(report) => {
                report?;
                done += 1;
            }
            Err(ended) if ended.is_cancelled() => cancelled += 1,
            Err(panicked) => return Err(panicked.into()),
        }
    }
    let most = most.load(Ordering::SeqCst);
    println!("{done} done, {cancelled} cancelled, at most {most} at once");
    Ok(())
}
