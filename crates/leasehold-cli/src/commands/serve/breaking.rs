//! Breaks a lock, if its holders still are those that were seen.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use leasehold::Key;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::api::{Problem, not_found};
use crate::commands::break_key::outcome;
use crate::failure::Failure;
use crate::view::{KeyView, held_by};

/// What the page sends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Breaking {
    key: String,
    /// That of a holder who was seen.
    token: u64,
}

/// What is sent where the key stands in the path.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LastSeen {
    last_token: u64,
}

#[derive(Serialize)]
pub(super) struct Broke {
    holders: u64,
    said: String,
}

pub(super) async fn break_key(
    State(shared): State<Arc<Shared>>,
    breaking: Result<Json<Breaking>, JsonRejection>,
) -> Result<Json<Broke>, Problem> {
    may_break(&shared)?;
    let Json(Breaking { key, token }) = breaking?;
    let is_seen = |lock: &KeyView| lock.holders.iter().any(|held| held.token == Some(token));
    break_if(&shared, &key, is_seen).await
}

/// `POST /api/v1/locks/{key}/break`: nobody was granted the key since.
pub(super) async fn break_in_path(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
    uri: Uri,
    seen: Result<Json<LastSeen>, JsonRejection>,
) -> Result<Json<Broke>, Problem> {
    let Path(path) = path?;
    // A key may end like this itself: then its slash is encoded.
    let is_break = uri.path().ends_with("/break");
    let Some(key) = path.strip_suffix("/break").filter(|_| is_break) else {
        return Err(not_found(uri).await);
    };
    may_break(&shared)?;
    let Json(LastSeen { last_token }) = seen?;
    let is_seen = |lock: &KeyView| !lock.holders.is_empty() && lock.last_token == last_token;
    break_if(&shared, key, is_seen).await
}

fn may_break(shared: &Shared) -> Result<(), Problem> {
    if shared.gate.may_break {
        return Ok(());
    }
    let problem = Problem::new(StatusCode::FORBIDDEN, "this page breaks no locks");
    Err(problem.hint("leasehold serve --allow-break lets it"))
}

async fn break_if(
    shared: &Shared,
    key: &str,
    is_seen: impl FnOnce(&KeyView) -> bool,
) -> Result<Json<Broke>, Problem> {
    Key::new(key).map_err(Failure::from)?;
    let now = KeyView::from(&shared.client.inspect(key).await?);
    if !is_seen(&now) {
        let held = held_by(&now.holders).unwrap_or_else(|| "free".to_owned());
        let message = format!("nothing was broken: now {key} is {held}");
        return Err(Problem::new(StatusCode::CONFLICT, message));
    }
    let broken = shared.client.break_key(key).await?;
    Ok(Json(Broke {
        holders: broken.holders,
        said: outcome(key, &broken),
    }))
}
