//! What is asked once: `/api/v1`.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use leasehold::doctor::{Report, examine};
use leasehold::{Error, Key};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::Shared;
use super::graph::WaitsView;
use super::table::{Selection, shortened};
use crate::failure::Failure;
use crate::feed::history;
use crate::history::EntryView;
use crate::view::KeyView;

/// For how long an examination of the servers is shown.
const EXAMINED: Duration = Duration::from_secs(60);
/// The longest table that is made.
const LONGEST_TABLE: usize = 500;
/// How long a pattern may be: each key is compared with it, by the only thread.
const LONGEST_PATTERN: usize = 256;

/// What was asked cannot be answered.
#[derive(Debug, Serialize)]
pub(super) struct Problem {
    #[serde(skip)]
    status: StatusCode,
    error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self {
            status,
            error: error.into(),
            hint: None,
        }
    }

    pub(super) fn hint(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, Json(self)).into_response()
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let status = match failure.status {
            crate::exit::USAGE => StatusCode::BAD_REQUEST,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self {
            hint: failure.hint,
            ..Self::new(status, failure.message)
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Failure::from(error).into()
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

pub(super) async fn not_found(uri: Uri) -> Problem {
    let message = format!("no such path: {:?}", uri.path());
    Problem::new(StatusCode::NOT_FOUND, message).hint("docs/serve.md lists the paths")
}

pub(super) async fn not_allowed(method: Method, uri: Uri) -> Problem {
    let message = format!("{method} is not allowed at {:?}", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, message)
}

/// What is served.
#[derive(Serialize)]
pub(super) struct Info {
    store: String,
    version: &'static str,
    may_break: bool,
    /// Whether the store can keep an audit log.
    audit: bool,
    /// Whether it keeps who waits.
    queueing: bool,
}

pub(super) async fn info(State(shared): State<Arc<Shared>>) -> Json<Info> {
    Json(Info {
        store: shared.client.store_url().to_owned(),
        version: env!("CARGO_PKG_VERSION"),
        may_break: shared.gate.may_break,
        audit: shared.client.audit_log(None, SystemTime::now()).is_ok(),
        queueing: shared.client.capabilities().queueing,
    })
}

impl Selection {
    /// Refuses a table that is too long, or takes too long.
    pub(super) fn check(&self) -> Result<(), Problem> {
        let message = match (self.limit, self.pattern.len()) {
            (1..=LONGEST_TABLE, ..=LONGEST_PATTERN) => return Ok(()),
            (1..=LONGEST_TABLE, _) => format!("a pattern has at most {LONGEST_PATTERN} bytes"),
            _ => format!("limit is a number from 1 to {LONGEST_TABLE}"),
        };
        Err(Problem::new(StatusCode::BAD_REQUEST, message))
    }
}

pub(super) async fn locks(
    State(shared): State<Arc<Shared>>,
    selection: Result<Query<Selection>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(selection) = selection?;
    selection.check()?;
    let table = shared.reader.make(|reader| reader.select(&selection));
    let table = table.await;
    Ok(Json(shared.reader.aged(&table)).into_response())
}

/// One key, and what the audit log says of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct LockView {
    pub(super) key: String,
    /// Null: it is free.
    pub(super) lock: Option<KeyView>,
    /// The newest entries, the newest first.
    pub(super) history: Vec<EntryView>,
    pub(super) history_error: Option<String>,
}

impl LockView {
    /// Whether it shows the same, however much time has passed.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let same_lock = match (&self.lock, &other.lock) {
            (Some(one), Some(other)) => one.is_same(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same_lock && self.history == other.history && self.history_error == other.history_error
    }
}

#[derive(Deserialize)]
pub(super) struct OfKey {
    key: String,
}

pub(super) async fn lock(
    State(shared): State<Arc<Shared>>,
    key: Result<Query<OfKey>, QueryRejection>,
) -> Result<Json<LockView>, Problem> {
    let Query(OfKey { key }) = key?;
    Key::new(&key).map_err(Failure::from)?;
    // It is never closed.
    let _turn = shared.looks.acquire().await;
    let view = shortened(KeyView::from(&shared.client.inspect(&key).await?));
    let (history, history_error) = match history::newest(&shared.client, &key).await {
        Ok(entries) => (entries, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    Ok(Json(LockView {
        key,
        lock: view.is_used().then_some(view),
        history,
        history_error,
    }))
}

/// The graph, and when it was asked for.
#[derive(Serialize)]
pub(super) struct Waits {
    at: jiff::Timestamp,
    #[serde(flatten)]
    graph: WaitsView,
}

pub(super) async fn waits(State(shared): State<Arc<Shared>>) -> Json<Waits> {
    let graph = shared.reader.make(|reader| reader.with(WaitsView::of));
    let graph = graph.await;
    let at = crate::view::time(SystemTime::now());
    Json(Waits { at, graph })
}

/// An examination of the servers, and when it was made.
pub(super) struct Examined {
    at: Instant,
    made: SystemTime,
    report: Report,
}

#[derive(Serialize)]
struct Servers<'a> {
    at: jiff::Timestamp,
    #[serde(flatten)]
    report: &'a Report,
}

pub(super) async fn servers(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    // One examination at a time: others wait for it, and have the same.
    let mut examined = shared.examined.lock().await;
    let known = examined
        .take()
        .filter(|known| known.at.elapsed() < EXAMINED);
    let known = match known {
        Some(known) => known,
        None => Examined {
            report: examine(&shared.opening.url, &shared.opening.access)
                .await
                .map_err(Failure::from)?,
            at: Instant::now(),
            made: SystemTime::now(),
        },
    };
    let known = examined.insert(known);
    let servers = Servers {
        at: crate::view::time(known.made),
        report: &known.report,
    };
    Ok(Json(servers).into_response())
}
