//! The work that `bench/binding` gives to the package of Python, without Python: nanoseconds of a call
//! on `memory:`, and bytes of an idle lease.

use std::time::{Duration, Instant};

use leasehold::Error;

/// Calls that are gathered, and how often each is measured.
const GATHERED: usize = 100;
const ROUNDS: usize = 200;

fn main() -> Result<(), Error> {
    let leases = std::env::args().nth(1).and_then(|count| count.parse().ok());
    match leases {
        Some(leases) => println!("{}", bytes_of_a_lease(leases)?),
        None => println!("{} {}", blocking()?, gathered()?),
    }
    Ok(())
}

/// A call on the thread of its caller.
fn blocking() -> Result<u128, Error> {
    let client = leasehold::blocking::connect("memory:")?;
    let lock = client.mutex("k")?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS * 10 {
        let begun = Instant::now();
        let _ = lock.lock()?.release()?;
        times.push(begun.elapsed());
    }
    Ok(median(times).as_nanos() / 2)
}

/// A call among as many as are awaited together.
fn gathered() -> Result<u128, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = leasehold::connect("memory:").await?;
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let mut tasks = tokio::task::JoinSet::new();
            for key in 0..GATHERED {
                let lock = client.mutex(format!("k{key}"))?;
                tasks.spawn(async move { lock.lock().await });
            }
            let mut leases = Vec::new();
            while let Some(lease) = tasks.join_next().await {
                leases.push(lease.expect("a task")?);
            }
            times.push(begun.elapsed() / GATHERED as u32);
            for lease in leases {
                let _ = lease.release().await?;
            }
        }
        Ok(median(times).as_nanos())
    })
}

/// By how much this process grows.
fn bytes_of_a_lease(count: usize) -> Result<usize, Error> {
    let client = leasehold::blocking::connect("memory:")?;
    let before = resident();
    let leases: Result<Vec<_>, Error> = (0..count)
        .map(|key| client.mutex(format!("k{key}"))?.lock())
        .collect();
    let grown = resident() - before;
    drop(leases?);
    Ok(grown / count)
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    pages * 4096
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
