//! A handler that pays an order once, however many instances of the service are asked at the same time.
//!
//! ```text
//! cargo run -p leasehold --example axum_orders [STORE]
//! curl -X POST http://127.0.0.1:PORT/orders/42/pay
//! ```
//! The lock keeps two requests from working on one order; the fence in the row refuses a request that
//! stalled until its lease was over. The table stands for the database that all instances share.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it shows what happens"
)]

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use leasehold::{Client, Released, Token};
use rusqlite::{Connection, OptionalExtension, params};
use tokio::signal::unix::{SignalKind, signal};

/// How long a request waits for its order. Then its client may ask again.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct Service {
    client: Client,
    orders: Arc<Mutex<Connection>>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = std::env::args().nth(1);
    let client = leasehold::connect(store.as_deref().unwrap_or("memory:")).await?;
    let orders = Connection::open_in_memory()?;
    orders.execute_batch(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT, token INTEGER NOT NULL);
         INSERT INTO orders VALUES (42, 'new', 0);",
    )?;
    let service = Service {
        client: client.clone(),
        orders: Arc::new(Mutex::new(orders)),
    };
    let routes = Router::new().route("/orders/{id}/pay", post(pay));
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", socket.local_addr()?);
    let mut told_to_end = signal(SignalKind::terminate())?; // as a pod is
    let ended = async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = told_to_end.recv() => {}
        }
    };
    let served = axum::serve(socket, routes.with_state(service))
        .with_graceful_shutdown(ended)
        .await;
    // What is still held is released now, and not when its TTL is over.
    let left = client.shutdown(Duration::from_secs(5)).await;
    println!("{} leases were left", left.unconfirmed);
    Ok(served?)
}

async fn pay(State(service): State<Service>, Path(id): Path<i64>) -> Response {
    match service.pay(id).await {
        Ok(answer) => answer.into_response(),
        Err(error) => {
            let status = if error.is_retryable() {
                StatusCode::SERVICE_UNAVAILABLE
            } else {
                StatusCode::INTERNAL_SERVER_ERROR
            };
            (status, [("retry-after", "1")], error.to_string()).into_response()
        }
    }
}

impl Service {
    async fn pay(&self, id: i64) -> Result<(StatusCode, &'static str), leasehold::Error> {
        let lock = self.client.mutex(format!("orders/{id}"))?;
        let lease = lock.lock_within(PATIENCE).await?;
        let answer = match self.set_paid(id, lease.token()) {
            Ok(true) => (StatusCode::OK, "paid"),
            Ok(false) => (
                StatusCode::CONFLICT,
                "it is paid, or there is no such order",
            ),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the database has failed"),
        };
        match lease.release().await {
            Ok(Released::Held) => {}
            // The fence in the row has kept anybody out who came later.
            Ok(late) => eprintln!("orders/{id}: the lease had ended: {late:?}"),
            // The work counts. The key is free after the TTL at the latest.
            Err(error) => eprintln!("orders/{id}: {error}"),
        }
        Ok(answer)
    }

    /// Whether the order was changed: only if no later holder has been here.
    fn set_paid(&self, id: i64, token: Token) -> rusqlite::Result<bool> {
        let orders = self.orders.lock().unwrap_or_else(|held| held.into_inner());
        let sql = "UPDATE orders SET state = 'paid', token = ?2
                   WHERE id = ?1 AND state = 'new' AND token < ?2 RETURNING id";
        let token = token.as_i64();
        let changed: Option<i64> = orders
            .query_row(sql, params![id, token], |row| row.get(0))
            .optional()?;
        Ok(changed.is_some())
    }
}
