//! A payment at a provider that knows nothing of tokens. No lock can make such a call happen once: the
//! process can stop before it, and go on when another has paid. So the database, which compares tokens,
//! keeps what is intended; the provider gets a key of that intent, and pays each key once.
//!
//! ```text
//! cargo run -p leasehold --example side_effects [STORE]
//! ```

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it shows what happens"
)]

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use leasehold::{Client, Released, Token};
use rusqlite::{Connection, OptionalExtension, params};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = std::env::args().nth(1);
    let client = leasehold::connect(store.as_deref().unwrap_or("memory:")).await?;
    let db = Connection::open_in_memory()?;
    db.execute_batch(
        "CREATE TABLE payments (
             invoice INTEGER PRIMARY KEY, token INTEGER NOT NULL, intent TEXT NOT NULL, receipt TEXT);",
    )?;
    let mut provider = Provider::default();
    let paid = async {
        // The second run stands for another process, which goes on where the first has stopped.
        pay(&client, &db, &mut provider, 7, Stop::BeforeTheReceipt).await?;
        pay(&client, &db, &mut provider, 7, Stop::Never).await?;
        pay(&client, &db, &mut provider, 7, Stop::Never).await
    };
    let paid = paid.await;
    let left = client.shutdown(Duration::from_secs(5)).await;
    println!("{} leases were left", left.unconfirmed);
    paid?;
    println!(
        "asked {} times, paid {} times",
        provider.asked,
        provider.paid.len()
    );
    Ok(())
}

/// Where a process is killed, to see what the next one does.
#[derive(PartialEq)]
enum Stop {
    Never,
    BeforeTheReceipt,
}

async fn pay(
    client: &Client,
    db: &Connection,
    provider: &mut Provider,
    invoice: i64,
    stop: Stop,
) -> Result<(), Box<dyn Error>> {
    let lease = client.mutex(format!("invoices/{invoice}"))?.lock().await?;
    let token = lease.token();
    // 1. What is intended, before anything happens. Whoever comes later finds it, and keeps its key.
    let Some(intent) = intend(db, invoice, token)? else {
        println!("a later holder is at work");
        return Ok(());
    };
    // 2. The effect, with the key of the intent: repeated, it is the same payment.
    let receipt = provider.pay(&intent);
    if stop == Stop::BeforeTheReceipt {
        println!("stopped after the payment");
        return Ok(());
    }
    // 3. The result, if nobody came later.
    let sql = "UPDATE payments SET receipt = ?3 WHERE invoice = ?1 AND token = ?2";
    let kept = db.execute(sql, params![invoice, token.as_i64(), receipt])?;
    println!("{receipt}, kept in {kept} row");
    match lease.release().await {
        Ok(Released::Held) => {}
        Ok(late) => eprintln!("the lease had ended: {late:?}"),
        // The payment counts. The key is free after the TTL at the latest.
        Err(error) => eprintln!("{error}"),
    }
    Ok(())
}

/// The key of the payment: that of the first who intended it. `None` if a later holder was here.
fn intend(db: &Connection, invoice: i64, token: Token) -> rusqlite::Result<Option<String>> {
    let sql = "INSERT INTO payments (invoice, token, intent) VALUES (?1, ?2, ?3)
               ON CONFLICT (invoice) DO UPDATE SET token = excluded.token
                   WHERE payments.token <= excluded.token
               RETURNING intent";
    let intent = format!("invoice-{invoice}-{token}");
    let row = params![invoice, token.as_i64(), intent];
    db.query_row(sql, row, |row| row.get(0)).optional()
}

/// A provider with idempotency keys.
#[derive(Default)]
struct Provider {
    asked: u32,
    paid: HashMap<String, String>,
}

impl Provider {
    fn pay(&mut self, key: &str) -> String {
        self.asked += 1;
        let number = self.paid.len() + 1;
        let receipt = || format!("receipt {number}");
        self.paid
            .entry(key.to_owned())
            .or_insert_with(receipt)
            .clone()
    }
}
