//! Accepts connections: as many as there are descriptors for, and each with a bound on its time.
//!
//! A connection has one request. So none is idle, and what a client that says nothing, says it
//! slowly or does not read can keep is bounded: see the constants. Where the bound on connections is
//! reached, the oldest one that can be done without makes room for the new one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::sleep;
use tokio_io_timeout::TimeoutStream;

/// How long a client may take for the head of its request.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// For how long a client may read nothing of its answer.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// How long the head of a request may be, in bytes and in headers.
const LONGEST_HEAD: usize = 16 * 1024;
const MOST_HEADERS: usize = 64;
/// How many connections are open at once.
const MOST: usize = 512;
/// Of a low limit of descriptors so many are left to the store, and so many connections are taken
/// in any case.
const OTHER_DESCRIPTORS: usize = 64;
const FEWEST: usize = 16;
/// The pause after an error that may pass, such as a lack of descriptors.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// How many connections are taken at once, with the process's limit of descriptors.
pub(super) fn most() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let left = limit.map_or(MOST, |limit| limit.saturating_sub(OTHER_DESCRIPTORS));
    left.clamp(FEWEST, MOST)
}

/// Serves all who connect, at most so many at once.
pub(super) async fn serve(listener: TcpListener, router: Router, most: usize) -> Infallible {
    let open = Open::default();
    let mut next = 0;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                open.enter(next, stream, router.clone(), most);
                next += 1;
                // One that had to make room closes before the next one comes.
                yield_now().await;
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                sleep(AFTER_ERROR).await;
            }
        }
    }
}

/// How far a conversation is. The least is closed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Asking,
    Answered,
    /// These have a bound of their own, and stay.
    Streaming,
}

/// The connections that are open, in the order in which they can be done without.
#[derive(Clone, Default)]
struct Open(Arc<Mutex<BTreeMap<(Stage, u64), AbortHandle>>>);

/// One of them, until this is dropped.
struct ConnectionGuard {
    open: Open,
    id: u64,
}

impl Open {
    fn all(&self) -> MutexGuard<'_, BTreeMap<(Stage, u64), AbortHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a new connection, and closes others where there is no room.
    fn enter(
        &self,
        id: u64,
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        router: Router,
        most: usize,
    ) {
        let mut all = self.all();
        while all.len() >= most
            && let Some((_, first)) = all.pop_first()
        {
            first.abort();
        }
        let open = self.clone();
        let place = ConnectionGuard { open, id };
        let conversation = tokio::spawn(async move {
            let router = TowerToHyperService::new(router);
            let service = service_fn(|request| {
                let answering = router.call(request);
                async {
                    let Ok::<Response, _>(answer) = answering.await;
                    let content = answer.headers().get(CONTENT_TYPE);
                    let stage = match content {
                        Some(content) if content == "text/event-stream" => Stage::Streaming,
                        _ => Stage::Answered,
                    };
                    let mut all = place.open.all();
                    if let Some(conversation) = all.remove(&(Stage::Asking, id)) {
                        all.insert((stage, id), conversation);
                    }
                    Ok::<_, Infallible>(answer)
                }
            });
            let mut stream = TimeoutStream::new(stream);
            stream.set_write_timeout(Some(WRITE_LIMIT));
            let conversation = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_LIMIT)
                .max_buf_size(LONGEST_HEAD)
                .max_headers(MOST_HEADERS)
                .keep_alive(false)
                .serve_connection(TokioIo::new(Box::pin(stream)), service);
            if let Err(error) = conversation.await {
                tracing::debug!(%error, "a connection has failed");
            }
        });
        all.insert((Stage::Asking, id), conversation.abort_handle());
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.open.all().retain(|(_, id), _| *id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    /// A conversation, and the client's side of it.
    fn begin(open: &Open, id: u64, most: usize) -> DuplexStream {
        let long = || async { "x".repeat(1 << 20) };
        let events = || async { ([(CONTENT_TYPE, "text/event-stream")], "x".repeat(1 << 20)) };
        let body = |body: String| async move { body };
        let router = Router::new()
            .route("/short", get(|| async { "short" }))
            .route("/long", get(long).post(body))
            .route("/events", get(events));
        let (client, server) = duplex(1024);
        open.enter(id, server, router, most);
        client
    }

    async fn rest(client: &mut DuplexStream) -> String {
        let mut text = Vec::new();
        // An end with an error is one, too.
        let _ = client.read_to_end(&mut text).await;
        String::from_utf8(text).unwrap()
    }

    /// What a client can do without an end, and what it gets.
    #[tokio::test(start_paused = true)]
    async fn nobody_keeps_a_connection_without_an_end() {
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(2 * LONGEST_HEAD));
        let many = "X: y\r\n".repeat(MOST_HEADERS + 1);
        let many = format!("GET /short HTTP/1.1\r\nHost: h\r\n{many}\r\n");
        for (sent, answer) in [
            ("", ""),
            ("GET /short HTTP/1.1\r\nHost: h\r\n", ""),
            ("GET /short HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 200 OK"),
            (&*long, "HTTP/1.1 431"),
            (&*many, "HTTP/1.1 431"),
        ] {
            let open = Open::default();
            let mut client = begin(&open, 0, 9);
            // It may be closed meanwhile.
            let _ = client.write_all(sent.as_bytes()).await;
            let got = rest(&mut client).await;
            assert!(got.starts_with(answer), "{sent:.40}: {got}");
            assert!(!answer.is_empty() || got.is_empty(), "{sent:.40}: {got}");
            assert!(open.all().is_empty(), "{sent:.40}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_does_not_read_is_closed() {
        for path in ["long", "events"] {
            let open = Open::default();
            let mut client = begin(&open, 0, 9);
            let request = format!("GET /{path} HTTP/1.1\r\nHost: h\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            while !open.all().is_empty() {
                sleep(Duration::from_secs(1)).await;
            }
            assert!(rest(&mut client).await.len() < 1 << 20, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_that_can_be_done_without_makes_room() {
        let open = Open::default();
        let begun = async |id, request: &str, stage| {
            let mut client = begin(&open, id, 3);
            client.write_all(request.as_bytes()).await.unwrap();
            while !open.all().contains_key(&(stage, id)) {
                yield_now().await;
            }
            client
        };
        let streams = "GET /events HTTP/1.1\r\nHost: h\r\n\r\n";
        let reads_slowly = "GET /long HTTP/1.1\r\nHost: h\r\n\r\n";
        let asks_slowly = "POST /long HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n";
        let _streams = begun(1, streams, Stage::Streaming).await;
        let _reads = begun(2, reads_slowly, Stage::Answered).await;
        let mut asks = begun(3, asks_slowly, Stage::Asking).await;
        let stages = || open.all().keys().copied().collect::<Vec<_>>();
        let others = [(Stage::Answered, 2), (Stage::Streaming, 1)];
        assert_eq!(stages(), [&[(Stage::Asking, 3)], &others[..]].concat());
        let mut quick = begin(&open, 4, 3);
        assert_eq!(rest(&mut asks).await, "");
        assert_eq!(stages(), [&[(Stage::Asking, 4)], &others[..]].concat());
        let request = "GET /short HTTP/1.1\r\nHost: h\r\n\r\n";
        quick.write_all(request.as_bytes()).await.unwrap();
        assert!(rest(&mut quick).await.ends_with("short"));
        let _next = begun(5, reads_slowly, Stage::Answered).await;
        let _last = begin(&open, 6, 3);
        assert_eq!(
            stages(),
            [
                (Stage::Asking, 6),
                (Stage::Answered, 5),
                (Stage::Streaming, 1)
            ]
        );
    }
}
