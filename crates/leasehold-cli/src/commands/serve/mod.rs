//! `leasehold serve`: the locks of a store on a page, as JSON and as metrics.

mod api;
mod breaking;
mod connections;
mod events;
mod gate;
mod graph;
mod histories;
mod metrics;
mod page;
mod reader;
mod table;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use leasehold::Client;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore};

use self::gate::Gate;
use self::histories::Histories;
use self::reader::Reader;
use crate::args::ServeArgs;
use crate::connect::{Opening, connect};
use crate::exit;
use crate::failure::Failure;
use crate::output::Printer;
use crate::signals::Signals;

/// How long the body of a request may be.
const LONGEST_BODY: usize = 4 * 1024;
/// How many pages are kept up to date at once, and no more than half of the connections.
const MOST_STREAMS: usize = 200;
/// How many requests read the details of a key at once; others wait.
const MOST_LOOKS: usize = 8;
/// How often the store is read, while somebody looks.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long a request may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// Answers everybody, and tells nothing but that the process answers.
const HEALTH: &str = "/healthz";

/// What all requests share.
struct Shared {
    client: Client,
    opening: Opening,
    reader: Reader,
    histories: Histories,
    gate: Gate,
    streams: Arc<Semaphore>,
    /// For requests that read more than the table.
    looks: Semaphore,
    /// The last examination of the servers.
    examined: Mutex<Option<api::Examined>>,
    max_series: usize,
}

/// Serves until a signal comes.
pub(crate) async fn serve(args: &ServeArgs, printer: &Printer) -> Result<u8, Failure> {
    let gate = Gate::of(args)?;
    let client = connect(&args.common.store).await?;
    let mut signals = Signals::listen()?;
    let listener = listen(args.listen).await?;
    let address = listener
        .local_addr()
        .map_err(|error| cannot_listen(args.listen, &error))?;
    let most = connections::most();
    let shared = Arc::new(Shared {
        opening: Opening::of(&args.common.store),
        reader: Reader::begin(client.clone(), INTERVAL),
        histories: Histories::new(client.clone()),
        gate,
        streams: Arc::new(Semaphore::new(MOST_STREAMS.min(most / 2))),
        looks: Semaphore::new(MOST_LOOKS),
        examined: Mutex::default(),
        max_series: args.max_series,
        client,
    });
    let url = format!("http://{address}/");
    let store = shared.client.store_url();
    let serving = serde_json::json!({ "url": url, "store": store });
    printer.show(&serving, || format!("serving {store} at {url}\n"))?;
    tokio::select! {
        never = connections::serve(listener, router(shared), most) => match never {},
        _ = signals.next() => Ok(exit::OK),
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(page::index))
        .route("/app.js", get(page::script))
        .route("/style.css", get(page::style))
        .route(HEALTH, get(|| async { "ok\n" }))
        .route("/metrics", get(metrics::metrics))
        .route("/api/v1/info", get(api::info))
        .route("/api/v1/locks", get(api::locks))
        .route("/api/v1/lock", get(api::lock))
        .route("/api/v1/waits", get(api::waits))
        .route("/api/v1/servers", get(api::servers))
        .route("/api/v1/break", post(breaking::break_key))
        .route("/api/v1/events", get(events::events))
        .fallback(api::not_found)
        .method_not_allowed_fallback(api::not_allowed)
        .layer(DefaultBodyLimit::max(LONGEST_BODY))
        .layer(from_fn_with_state(Arc::clone(&shared), gate::admit))
        .with_state(shared)
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| cannot_listen(address, &error))
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Failure {
    let message = format!("cannot listen at {address}: {error}");
    Failure::new(exit::UNAVAILABLE, message)
        .hint("--listen names another address, port 0 any that is free")
}

/// Whether only this machine reaches it.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}
