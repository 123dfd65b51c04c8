//! How code that takes locks is tested: a store that fails on demand, and an hour in no time.
//!
//! ```text
//! cargo run -p leasehold --example testing
//! ```
//!
//! In a crate of yours, each function below `main` is a `#[tokio::test(start_paused = true)]`.

#![allow(clippy::print_stdout, reason = "it shows what happens")]
#![allow(clippy::unwrap_used, reason = "a test fails with the message")]

use std::time::Duration;

use leasehold::testing::TestStore;
use leasehold::{Client, Error};
use tokio::time::{Instant, sleep};

/// The code under test: exports page by page, and says how many it has written.
async fn export(client: &Client, pages: u32) -> Result<u32, Error> {
    let work = async |_: &leasehold::Lease| {
        let mut written = 0;
        while written < pages {
            sleep(Duration::from_secs(60)).await; // a page
            written += 1;
        }
        written
    };
    let within = Duration::from_secs(10);
    client.mutex("export")?.with_lock_within(within, work).await
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Error> {
    exports_all_pages().await?;
    waits_for_ten_seconds_at_most().await?;
    stops_when_another_gets_the_key().await?;
    stops_when_the_store_is_gone().await
}

async fn exports_all_pages() -> Result<(), Error> {
    let store = TestStore::new();
    assert_eq!(export(&store.connect().await?, 60).await?, 60);
    println!("60 pages, one a minute, under a lease of 30 s that was renewed");
    Ok(())
}

async fn waits_for_ten_seconds_at_most() -> Result<(), Error> {
    let store = TestStore::new();
    let _other = store.busy("export").await?;
    let begun = Instant::now();
    let late = export(&store.connect().await?, 1).await.unwrap_err();
    assert!(late.is_timeout() && begun.elapsed() == Duration::from_secs(10));
    println!("{late}");
    Ok(())
}

async fn stops_when_another_gets_the_key() -> Result<(), Error> {
    let store = TestStore::new();
    let client = store.connect().await?;
    let after_a_while = async {
        sleep(Duration::from_secs(90)).await;
        store.lose("export").await
    };
    let (exported, lost) = tokio::join!(export(&client, 60), after_a_while);
    lost?;
    println!("{}", exported.unwrap_err());
    Ok(())
}

async fn stops_when_the_store_is_gone() -> Result<(), Error> {
    let store = TestStore::new();
    let client = store.connect().await?;
    let after_a_while = async {
        sleep(Duration::from_secs(90)).await;
        store.make_unavailable();
    };
    let (exported, ()) = tokio::join!(export(&client, 60), after_a_while);
    let error = exported.unwrap_err();
    assert!(error.is_lost());
    println!("{error}");
    Ok(())
}
