//! Pays the orders whose numbers come on standard input, one transaction each, while it holds a lock:
//!
//! ```text
//! LEASEHOLD_STORE=postgres://app@pg1/shop PGHOST=pg1 PGUSER=clerk PGDATABASE=shop cargo run <orders
//! ```
//!
//! The lock alone cannot prevent that a holder is paused, and goes on when its lease has ended. So
//! each transaction calls `leasehold.guard` first, with the token of the lease. If a later holder has
//! been there, that fails, and nothing is committed.

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use leasehold::{Released, Token};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

const KEY: &str = "payments";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let locks = leasehold::connect(&env::var("LEASEHOLD_STORE")?).await?;
    // That of PGHOST, PGUSER, PGDATABASE. The role needs no right to the records of the locks.
    let mut database = PgConnection::connect_with(&PgConnectOptions::new()).await?;

    let lease = locks.mutex(KEY)?.lock().await?;
    let ended = pay_all(&mut database, lease.token()).await;
    match lease.release().await {
        Ok(Released::Held) => {}
        // Whether it was held to the end: what was committed was checked, each time.
        Ok(late) => eprintln!("the lease had ended: {late:?}"),
        Err(error) => eprintln!("{error}"),
    }
    let left = locks.shutdown(Duration::from_secs(5)).await;
    if left.unconfirmed > 0 {
        eprintln!("{KEY} is not free before the lease ends");
    }
    ended
}

async fn pay_all(database: &mut PgConnection, token: Token) -> Result<ExitCode, Box<dyn Error>> {
    let mut orders = BufReader::new(stdin()).lines();
    while let Some(order) = orders.next_line().await? {
        match pay(database, token, order.parse()?).await {
            Ok(()) => println!("order {order} is paid"),
            Err(error) if is_stale(&error) => {
                // A later holder has been there, and does the work now.
                eprintln!("order {order} is not paid: {error}");
                return Ok(ExitCode::FAILURE);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn pay(database: &mut PgConnection, token: Token, order: i64) -> sqlx::Result<()> {
    let mut work = database.begin().await?;
    sqlx::query("select leasehold.guard($1, $2)") // first of all, also before what is read
        .bind(KEY)
        .bind(token.as_i64())
        .execute(&mut *work)
        .await?; // on an error the transaction is rolled back
    sqlx::query("update orders set state = 'paid' where id = $1")
        .bind(order)
        .execute(&mut *work)
        .await?;
    work.commit().await
}

fn is_stale(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.as_deref() == Some("LH001")
}
