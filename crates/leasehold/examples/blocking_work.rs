//! Work that blocks its thread, such as a database driver without `async` or compression. The lease is
//! renewed meanwhile, since `leasehold::blocking` does that on a thread of its own.
//!
//! ```text
//! cargo run -p leasehold --example blocking_work [STORE]
//! ```

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it shows what happens"
)]

use std::error::Error;
use std::time::Duration;

use leasehold::{Released, Token, blocking};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = std::env::args().nth(1);
    let store = store.unwrap_or_else(|| "memory:".to_owned());
    // In an asynchronous program such work is on a thread of its own; other tasks go on.
    let pages = tokio::task::spawn_blocking(move || compress(&store)).await??;
    println!("{pages} pages");
    Ok(())
}

fn compress(store: &str) -> Result<u32, leasehold::Error> {
    let client = blocking::connect(store)?;
    let pages = write_pages(&client);
    let left = client.shutdown(Duration::from_secs(5));
    println!("{} leases were left", left.unconfirmed);
    pages
}

fn write_pages(client: &blocking::Client) -> Result<u32, leasehold::Error> {
    let lease = client.mutex("archive/2026")?.lock()?;
    let mut pages = 0;
    while pages < 100 {
        // Nothing can stop this thread from outside: it looks before each step that cannot be undone.
        if !lease.is_valid() {
            eprintln!("the lease was lost after {pages} pages");
            break;
        }
        write_page(pages, lease.token());
        pages += 1;
    }
    match lease.release() {
        Ok(Released::Held) => {}
        Ok(late) => eprintln!("the lease had ended: {late:?}; look at the last page"),
        // The pages count. The key is free after the TTL at the latest.
        Err(error) => eprintln!("{error}"),
    }
    Ok(pages)
}

/// Computes, and writes. Whoever keeps the pages refuses a token that is lower than one it has seen.
fn write_page(page: u32, _token: Token) {
    std::hint::black_box((0..10_000).fold(page, |sum, byte| sum.rotate_left(5) ^ byte));
}
