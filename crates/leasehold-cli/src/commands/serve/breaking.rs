//! Breaks a lock, if its holders still are those that were seen.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use leasehold::Key;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::api::Problem;
use crate::commands::break_key::{break_seen, outcome};
use crate::failure::Failure;
use crate::view::{KeyView, held_by};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Breaking {
    key: String,
    /// Those of all holders who were seen.
    tokens: BTreeSet<u64>,
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
    if !shared.gate.may_break {
        let problem = Problem::new(StatusCode::FORBIDDEN, "breaking locks is not allowed here");
        return Err(problem.hint("start leasehold serve with --allow-break"));
    }
    let Json(Breaking { key, tokens }) = breaking?;
    Key::new(&key).map_err(Failure::from)?;
    let now = KeyView::from(&shared.client.inspect(&key).await?);
    let held: BTreeSet<_> = now.holders.iter().filter_map(|held| held.token).collect();
    if held.is_empty() || held != tokens {
        let held = held_by(&now.holders).unwrap_or_else(|| "free".to_owned());
        let message = format!("nothing was broken: now {key} is {held}");
        return Err(Problem::new(StatusCode::CONFLICT, message));
    }
    let broken = break_seen(&shared.client, &now, None).await?;
    if broken.holders == 0 {
        return Err(Problem::new(StatusCode::CONFLICT, outcome(&key, &broken)));
    }
    Ok(Json(Broke {
        holders: broken.holders,
        said: outcome(&key, &broken),
    }))
}
