//! Many leases held by one client: what it costs to renew them all in time.

use std::time::Duration;

use leasehold::Lease;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use super::Bench;
use super::pairs::cost;
use crate::failure::Failure;

/// Two rounds of renewals at the default TTL: enough for every lease to be
/// renewed, and to be lost if it was not.
const FOR: Duration = Duration::from_secs(20);

/// What it came to.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) leases: usize,
    pub(super) lost: usize,
    pub(super) renewals_per_second: Option<f64>,
    /// Of one core.
    pub(super) client_cpu: f64,
    pub(super) server_cpu: Option<f64>,
}

/// Holds so many leases for a while.
pub(super) async fn keep(bench: &Bench, leases: usize) -> Result<Kept, Failure> {
    let mut held = Vec::with_capacity(leases);
    for n in 0..leases {
        let lock = bench.client.mutex(format!("bench/kept-{n}"))?;
        held.push(lock.lock().await?);
    }
    let before = cost(bench.baseline.as_deref()).await?;
    let (started, ours) = (Instant::now(), own_cpu());
    tokio::time::sleep(FOR).await;
    let taken = started.elapsed().as_secs_f64();
    let client_cpu = own_cpu().saturating_sub(ours).as_secs_f64() / taken;
    let spent = before.zip(cost(bench.baseline.as_deref()).await?);
    let lost = held.iter().filter(|lease| !lease.is_valid()).count();
    // Given back at once, not one by one.
    futures_util::future::join_all(held.into_iter().map(Lease::release)).await;
    #[expect(clippy::cast_precision_loss, reason = "a count in a report")]
    let renewals = |count: u64| count as f64 / taken;
    Ok(Kept {
        leases,
        lost,
        renewals_per_second: spent.map(|(a, b)| renewals(b.scripts - a.scripts)),
        client_cpu,
        server_cpu: spent.map(|(a, b)| b.cpu.saturating_sub(a.cpu).as_secs_f64() / taken),
    })
}

/// Processor time of this process.
fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
