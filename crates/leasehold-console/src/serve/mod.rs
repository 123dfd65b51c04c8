//! The locks of a store on a page, as JSON and as metrics.

mod api;
mod auth;
mod connections;
mod events;
mod graph;
mod metrics;
mod reader;
mod selection;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get, post};
use leasehold::{Access, Client};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore};

pub use self::auth::{Auth, MIN_TOKEN_LENGTH, TOKEN_HINT};
use self::reader::Reader;
use crate::ConsoleError;
use crate::feed::Load;
use crate::histories::Histories;

/// How long the body of a request may be.
const LONGEST_BODY: usize = 4 * 1024;
/// How many pages are kept up to date at once, and no more than half of the connections.
const MOST_STREAMS: usize = 200;
/// How often the store is read, while somebody looks.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long a request may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// Answers everybody, and tells nothing but that the process answers.
const HEALTH: &str = "/healthz";

/// What is served, to whom.
#[derive(Debug)]
pub struct ServeOptions {
    /// The store, to examine its servers.
    pub url: String,
    /// What the store asks for.
    pub access: Access,
    /// Who may ask.
    pub auth: Auth,
    /// How many prefixes of keys have metrics of their own.
    pub max_series: usize,
}

/// What all requests share.
struct Shared {
    client: Client,
    options: ServeOptions,
    reader: Reader,
    histories: Histories,
    streams: Arc<Semaphore>,
    /// Of requests that read more than the table, of which one reads at a time.
    looks: Load,
    /// The last examination of the servers.
    examined: Mutex<Option<api::Examined>>,
}

/// Begins to listen. Answers where, and what answers requests for as long as it is polled.
pub async fn listen(
    address: SocketAddr,
    client: Client,
    options: ServeOptions,
) -> Result<(SocketAddr, impl Future<Output = Infallible>), ConsoleError> {
    let failed = |error| ConsoleError::Listen(address, error);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let listens_at = listener.local_addr().map_err(failed)?;
    let most_connections = connections::most();
    let router = router(Arc::new(Shared {
        options,
        reader: Reader::begin(client.clone(), INTERVAL),
        histories: Histories::new(client.clone(), INTERVAL),
        streams: Arc::new(Semaphore::new(MOST_STREAMS.min(most_connections / 2))),
        looks: Load::default(),
        examined: Mutex::default(),
        client,
    }));
    let serving = connections::serve(listener, router, most_connections);
    Ok((listens_at, serving))
}

fn router(shared: Arc<Shared>) -> Router {
    let page = file("text/html", include_str!("page/index.html"));
    let script = file("text/javascript", include_str!("page/app.js"));
    let style = file("text/css", include_str!("page/style.css"));
    Router::new()
        .route("/", page)
        .route("/app.js", script)
        .route("/style.css", style)
        .route(HEALTH, get(|| async { "ok\n" }))
        .route("/metrics", get(metrics::metrics))
        .route("/api/v1/info", get(api::info))
        .route("/api/v1/locks", get(api::locks))
        .route("/api/v1/lock", get(api::lock))
        .route("/api/v1/waits", get(api::waits))
        .route("/api/v1/servers", get(api::servers))
        .route("/api/v1/break", post(api::break_key))
        .route("/api/v1/events", get(events::events))
        .fallback(api::not_found)
        .method_not_allowed_fallback(api::not_allowed)
        .layer(DefaultBodyLimit::max(LONGEST_BODY))
        .layer(from_fn_with_state(Arc::clone(&shared), auth::admit))
        .with_state(shared)
}

/// A file of the page, which is part of the program.
fn file(kind: &str, content: &'static str) -> MethodRouter<Arc<Shared>> {
    let kind = format!("{kind}; charset=utf-8");
    get(async move || ([(CONTENT_TYPE, kind)], content))
}
