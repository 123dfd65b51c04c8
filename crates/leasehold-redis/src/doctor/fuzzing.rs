//! The parsers of a server's configuration. See [`crate::fuzzing`].

use std::collections::HashMap;

use leasehold_core::StoreTime;
use leasehold_store::report::Finding;
use redis::Value;

use super::facts::{Facts, Part};
use super::sentinels::{self, View};
use super::{judge, probe};
use crate::connection::rights;

/// What is said of a server with this `INFO`, and these settings.
pub fn findings(info: &str, config: &[(&str, &str)]) -> Vec<Finding> {
    let settings: HashMap<_, _> = config
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let mut facts = Facts::default();
    facts.config.extend(probe::settings(settings));
    facts.info.extend(rights::fields(info));
    let parts = [Part::Alone, Part::Node, Part::Voter];
    let judged = parts.into_iter().flat_map(|part| {
        facts.part = part;
        judge::judge(&facts)
    });
    judged.collect()
}

/// Whether a server with this marker grants, or votes.
pub fn marker(marker: &[u8], run_id: &str, now: i64) -> Option<Finding> {
    let terms = probe::read_marker(marker)?.terms;
    let now = StoreTime(u64::try_from(now).unwrap_or(0));
    let vote = probe::vote_of(Some(marker), run_id, now, &terms);
    Some(judge::votes(vote, Part::Alone))
}

/// What is said of a Sentinel that answers so.
pub fn sentinel(about: &Value, quorum: &Value) -> Vec<Finding> {
    let view = View::read(about, Some(quorum));
    sentinels::judge(&[("h:26379".to_owned(), Ok(view))])
}
