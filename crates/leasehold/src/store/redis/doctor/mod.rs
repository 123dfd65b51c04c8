//! Examines a server: asks it, uses it, and judges what came of it.

mod facts;
mod judge;
mod probe;
mod trial;

use super::RedisOptions;
use crate::store::report::Report;

/// Examines the server at these options.
pub(crate) async fn examine(options: &RedisOptions) -> Report {
    let facts = probe::ask(options).await;
    Report {
        store: options.redacted_url(),
        promise: judge::promise(&facts),
        findings: judge::judge(&facts),
    }
}
