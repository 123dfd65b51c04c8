//! Many leases held by one client: what it costs to renew them all in time.

use std::time::Duration;

use leasehold::Lease;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use super::Bench;
use super::figures::{Figures, number};
use crate::failure::Failure;

/// Two rounds of renewals at the default TTL: enough for every lease to be
/// renewed, and to be lost if it was not.
const FOR: Duration = Duration::from_secs(20);

/// Holds so many leases for a while.
pub(super) async fn keep(bench: &Bench, leases: usize) -> Result<Figures, Failure> {
    let mut held = Vec::with_capacity(leases);
    for n in 0..leases {
        let lock = bench.client.mutex(format!("bench/kept-{n}"))?;
        held.push(lock.lock().await?);
    }
    let before = bench.cost(None).await?;
    let (started, ours) = (Instant::now(), own_cpu());
    tokio::time::sleep(FOR).await;
    let taken = started.elapsed().as_secs_f64();
    let client_cpu = own_cpu().saturating_sub(ours).as_secs_f64() / taken;
    let spent = bench.spent_since(before, None).await?;
    let lost = held.iter().filter(|lease| !lease.is_valid()).count();
    // Given back at once, not one by one.
    futures_util::future::join_all(held.into_iter().map(Lease::release)).await;
    let renewals = spent.map(|spent| number(spent.calls) / taken);
    let server_cpu = spent.map(|spent| spent.cpu.as_secs_f64() / taken);
    Ok(Figures::of_measure("kept")
        .with("leases", leases)
        .with("renewals_per_second", renewals)
        .with("lost", lost)
        .with("client_cpu", client_cpu)
        .with("server_cpu", server_cpu))
}

/// Processor time of this process.
fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
