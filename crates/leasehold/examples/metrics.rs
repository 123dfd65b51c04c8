//! The metrics of a service, as Prometheus reads them.
//!
//! ```text
//! cargo run -p leasehold --example metrics [STORE]
//! ```

#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::error::Error;
use std::time::Duration;

use leasehold::observe::Metrics;
use leasehold::{Client, Lease};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = std::env::args().nth(1);
    // First the recorder: gauges count from the first lease on.
    let prometheus = PrometheusBuilder::new()
        .with_recommended_naming(true)
        .set_buckets_for_metric(Matcher::Prefix("leasehold".into()), &Metrics::BUCKETS)?
        .install_recorder()?;
    let client = Client::builder()
        .store(store.as_deref().unwrap_or("memory:"))
        .observer(Metrics::new())
        .connect()
        .await?;
    let worked = work(&client, &prometheus).await;
    let left = client.shutdown(Duration::from_secs(5)).await;
    println!("# {} leases were left", left.unconfirmed);
    Ok(worked?)
}

async fn work(client: &Client, prometheus: &PrometheusHandle) -> Result<(), leasehold::Error> {
    let orders = client.mutex("orders/42")?;
    let held = async |_: &Lease| {
        // Somebody who comes meanwhile, and gives up.
        if let Err(error) = orders.lock_within(Duration::from_millis(20)).await {
            println!("# {error}");
        }
        // A service answers GET /metrics with this.
        let page = prometheus.render();
        let lines = page.lines();
        for line in lines.filter(|line| !line.starts_with('#') && !line.contains("bucket")) {
            println!("{line}");
        }
    };
    orders.with_lock(held).await
}
