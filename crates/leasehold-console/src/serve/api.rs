//! What is asked once: `/api/v1`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use leasehold::doctor::{Report, examine};
use leasehold::{Broken, Error, ErrorKind, Invalid, Key};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Shared;
use super::graph::WaitsView;
use super::selection::{MOST_CLAIMS, Selection};
use crate::breaking::break_if;
use crate::histories::{self, History};
use crate::history::EntryView;
use crate::lock_table::shorten;
use crate::view::{KeyView, time};

/// For how long an examination of the servers is shown.
const EXAMINED: Duration = Duration::from_secs(60);

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

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            // The store answers: it is the record that cannot be read.
            ErrorKind::Corrupt => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self {
            hint: error.hint().map(str::to_owned),
            ..Self::new(status, error.to_string())
        }
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        Self {
            hint: invalid.hint,
            ..Self::new(StatusCode::BAD_REQUEST, invalid.message)
        }
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
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

/// What is served: whether the store can keep an audit log, and whether it keeps who waits.
pub(super) async fn info(State(shared): State<Arc<Shared>>) -> Json<Value> {
    Json(json!({
        "store": shared.client.store_url(),
        "version": env!("CARGO_PKG_VERSION"),
        "may_break": shared.options.auth.may_break,
        "audit": shared.client.audit_log(None, SystemTime::now()).is_ok(),
        "queueing": shared.client.capabilities().queueing,
    }))
}

pub(super) async fn locks(
    State(shared): State<Arc<Shared>>,
    selection: Result<Query<Selection>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(selection) = selection?;
    selection.check()?;
    let table = shared.reader.make(|reader| reader.select(&selection));
    Ok(Json(shared.reader.aged(table.await)).into_response())
}

/// One key, and what the audit log says of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct LockView {
    key: String,
    /// Null: it is free, or cannot be read.
    lock: Option<KeyView>,
    /// Of events only: who asks once, and reads no more than `lock`, has to see that it failed.
    lock_error: Option<String>,
    /// The newest entries, the newest first.
    history: Vec<EntryView>,
    history_error: Option<String>,
}

impl LockView {
    pub(super) fn new(
        key: String,
        (lock, lock_error): (Option<KeyView>, Option<String>),
        history: History,
    ) -> Self {
        let (history, history_error) = match history.transpose() {
            Ok(entries) => (entries.unwrap_or_default(), None),
            Err(why) => (Vec::new(), Some(why)),
        };
        Self {
            key,
            lock,
            lock_error,
            history,
            history_error,
        }
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
    Key::new(&key)?;
    let (mut view, history) = histories::look(&shared.client, &key, &shared.looks).await?;
    shorten(&mut view, MOST_CLAIMS);
    let lock = view.is_used().then_some(view);
    Ok(Json(LockView::new(key, (lock, None), history)))
}

/// Something, and when it was found.
#[derive(Debug, Serialize)]
pub(super) struct At<T> {
    pub(super) at: Timestamp,
    #[serde(flatten)]
    pub(super) found: T,
    /// How old the locks were, of which it was made; null before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) read_ms_ago: Option<Option<u64>>,
}

pub(super) async fn waits(State(shared): State<Arc<Shared>>) -> Response {
    let graph = shared.reader.make(|reader| reader.with(WaitsView::of));
    Json(shared.reader.aged(graph.await)).into_response()
}

/// An examination of the servers, and until when it is shown.
pub(super) type Examined = (Instant, At<Report>);

pub(super) async fn servers(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    // One examination at a time: others wait for it, and have the same.
    let mut examined = shared.examined.lock().await;
    let is_over = |(until, _): &Examined| *until <= Instant::now();
    if examined.as_ref().is_none_or(is_over) {
        let report = At {
            found: examine(&shared.options.url, &shared.options.access).await?,
            at: time(SystemTime::now()),
            read_ms_ago: None,
        };
        *examined = Some((Instant::now() + EXAMINED, report));
    }
    Ok(Json(examined.as_ref().map(|(_, report)| report)).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Breaking {
    key: String,
    /// Those of all holders who were seen.
    tokens: BTreeSet<u64>,
}

/// Breaks a lock, if its holders still are those that were seen.
pub(super) async fn break_key(
    State(shared): State<Arc<Shared>>,
    breaking: Result<Json<Breaking>, JsonRejection>,
) -> Result<Json<Value>, Problem> {
    if !shared.options.auth.may_break {
        let problem = Problem::new(StatusCode::FORBIDDEN, "breaking locks is not allowed here");
        return Err(problem.hint("start leasehold serve with --allow-break"));
    }
    let breaking = breaking.map_err(|it| Problem::new(it.status(), it.body_text()));
    let Json(Breaking { key, tokens }) = breaking?;
    Key::new(&key)?;
    let are_these = |now: &KeyView| {
        let held: BTreeSet<_> = now.holders.iter().filter_map(|held| held.token).collect();
        !held.is_empty() && held == tokens
    };
    match break_if(&shared.client, &key, None, are_these).await? {
        (None, said) => Err(Problem::new(StatusCode::CONFLICT, said)),
        (Some(Broken { holders, .. }), said) => {
            Ok(Json(json!({ "holders": holders, "said": said })))
        }
    }
}
