//! Error messages with the answer of each server.

use std::time::Duration;

use leasehold_core::quorum::{QuorumSize, Vote};
use leasehold_core::written;
use leasehold_store::{ErrorKind, StoreError};

use super::Inner;

/// What a server said, or why it said nothing.
#[derive(Debug, Clone)]
pub(super) enum ServerAnswer {
    Nothing,
    Vote(Vote),
    Error(StoreError),
}

/// The answers of all servers to one question.
#[derive(Debug, Clone)]
pub(super) struct Report(pub(super) Vec<ServerAnswer>);

impl Report {
    pub(super) fn new(size: QuorumSize) -> Self {
        Self(vec![ServerAnswer::Nothing; size.servers()])
    }

    pub(super) fn note(&mut self, server: usize, result: Result<Vote, &StoreError>) {
        if let Some(said) = self.0.get_mut(server) {
            *said = match result {
                Ok(vote) => ServerAnswer::Vote(vote),
                Err(error) => ServerAnswer::Error(error.clone()),
            };
        }
    }

    /// An error that names who said what.
    pub(super) fn error(&self, inner: &Inner, kind: ErrorKind, limit: Duration) -> StoreError {
        let agreed = (self.0.iter())
            .filter(|said| {
                matches!(
                    said,
                    ServerAnswer::Vote(Vote::Yes | Vote::Released { .. } | Vote::Done)
                )
            })
            .count();
        let mut parts = Vec::with_capacity(self.0.len());
        for (member, said) in inner.members.iter().zip(&self.0) {
            parts.push(format!("{}: {}", member.name, phrase(said, limit)));
        }
        let (all, needed) = (inner.size.servers(), inner.size.quorum());
        let refused = self.0.iter().filter(|said| is_final(said)).count();
        let kind = match kind {
            // Asking again does not help: too few are left that may answer.
            ErrorKind::Unavailable if all - refused < needed => ErrorKind::Refused,
            kind => kind,
        };
        let mut error = StoreError::new(
            kind,
            format!(
                "{agreed} of {all} servers agreed, {needed} are needed ({})",
                parts.join("; ")
            ),
        );
        // Too few were left because servers said so, and not for want of answers.
        let answered = self.0.iter().filter_map(not_now);
        let (count, soonest) = (answered.clone().count(), answered.min());
        if let (ErrorKind::Unavailable, Some(soonest)) = (kind, soonest)
            && all - refused - count < needed
        {
            error = error.with_retry_after(soonest);
        }
        let has = |like: fn(&Vote) -> bool| {
            let votes = self.0.iter().filter_map(|said| match said {
                ServerAnswer::Vote(vote) => Some(vote),
                _ => None,
            });
            votes.filter(|vote| like(vote)).count() > 0
        };
        if has(|vote| matches!(vote, Vote::Foreign)) {
            error.with_hint(
                "use the same servers, max_ttl and quarantine in all clients of a set; `leasehold \
                 init` moves a server to another set",
            )
        } else if has(|vote| matches!(vote, Vote::Quarantined { .. })) {
            error.with_hint(
                "a server that has restarted, or lost its data, votes again after its quarantine; \
                 `leasehold init` marks servers that are new",
            )
        } else if has(|vote| matches!(vote, Vote::Skewed { .. })) {
            error.with_hint("correct this machine's clock")
        } else {
            error.with_hint("check that the servers are running and reachable from this host")
        }
    }
}

/// When a server that cannot do it now is to be asked again.
fn not_now(said: &ServerAnswer) -> Option<Duration> {
    match said {
        ServerAnswer::Error(error) if error.kind() == ErrorKind::Unavailable => error.retry_after(),
        _ => None,
    }
}

/// Whether a server has refused, and did not say when it may be otherwise.
fn is_final(said: &ServerAnswer) -> bool {
    match said {
        ServerAnswer::Error(error) => {
            error.kind() != ErrorKind::Unavailable && error.retry_after().is_none()
        }
        ServerAnswer::Nothing | ServerAnswer::Vote(_) => false,
    }
}

fn phrase(said: &ServerAnswer, limit: Duration) -> String {
    let vote = match said {
        ServerAnswer::Nothing => return format!("no answer within {}", written(limit)),
        ServerAnswer::Error(error) => return error.to_string(),
        ServerAnswer::Vote(vote) => vote,
    };
    match vote {
        Vote::Yes => "yes".to_owned(),
        Vote::Busy { left, .. } if *left == Duration::MAX => {
            "no, another client has the key, with a lock that does not expire".to_owned()
        }
        Vote::Busy { left, .. } => format!("no, it votes for another claim for {left:.1?}"),
        Vote::Stale { .. } => "no, it has seen a higher token".to_owned(),
        Vote::Skewed { by } => format!(
            "no, this client's clock is too far ahead of the server's, by {by:.1?} more than \
             allowed"
        ),
        Vote::Lost => "no, it no longer votes for this claim".to_owned(),
        Vote::Taken => "no, the claim id is another client's".to_owned(),
        Vote::Quarantined { left } => {
            format!("cannot vote for {left:.1?}: it is new or may have lost data")
        }
        Vote::Foreign => "no, it belongs to another set of servers".to_owned(),
        Vote::Released { .. } => "it has released the claim".to_owned(),
        Vote::Broken { .. } | Vote::Done => "done".to_owned(),
    }
}
