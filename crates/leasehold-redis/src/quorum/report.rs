//! Error messages with the answer of each server.

use std::time::Duration;

use leasehold_core::quorum::QuorumSize;
use leasehold_core::{Reply, StoreTime, Token, written};
use leasehold_store::{Answer, ErrorKind, StoreError};

use super::Inner;

/// What a server said, or why it said nothing.
#[derive(Debug, Clone)]
enum Said {
    Nothing,
    /// It has done what was asked.
    Done,
    /// What it replied, at which of its times, and to which proposal.
    Reply(Reply, StoreTime, Token),
    Error(StoreError),
}

/// The answers of all servers to one question.
#[derive(Debug, Clone)]
pub(super) struct Report(Vec<Said>);

impl Report {
    pub(super) fn new(size: QuorumSize) -> Self {
        Self(vec![Said::Nothing; size.servers()])
    }

    /// The errors of a kind.
    pub(super) fn errors(&self, kind: ErrorKind) -> impl Iterator<Item = &StoreError> {
        self.0.iter().filter_map(move |said| match said {
            Said::Error(error) if error.kind() == kind => Some(error),
            _ => None,
        })
    }

    /// Whether a server has done what was asked.
    pub(super) fn note<T>(&mut self, server: usize, result: &Result<T, StoreError>) {
        self.0[server] = match result {
            Ok(_) => Said::Done,
            Err(error) => Said::Error(error.clone()),
        };
    }

    /// What a server replied to a proposal.
    pub(super) fn note_reply(
        &mut self,
        server: usize,
        token: Token,
        result: &Result<Answer, StoreError>,
    ) {
        self.0[server] = match result {
            Ok(answer) => Said::Reply(answer.reply, answer.at, token),
            Err(error) => Said::Error(error.clone()),
        };
    }

    /// An error that names who said what.
    pub(super) fn error(&self, inner: &Inner, kind: ErrorKind, limit: Duration) -> StoreError {
        let agrees = |said: &&Said| {
            matches!(said, Said::Done)
                || matches!(said, Said::Reply(reply, ..) if reply.has_token())
        };
        let agreed = self.0.iter().filter(agrees).count();
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
        let said = parts.join("; ");
        let message = format!("{agreed} of {all} servers agreed, {needed} are needed ({said})");
        let mut error = StoreError::new(kind, message);
        // Too few were left because servers said so, and not for want of answers.
        let not_now = || self.errors(ErrorKind::Unavailable);
        let answered = || not_now().filter_map(StoreError::retry_after);
        let (count, soonest) = (answered().count(), answered().min());
        if let (ErrorKind::Unavailable, Some(soonest)) = (kind, soonest)
            && all - refused - count < needed
        {
            error = error.with_retry_after(soonest);
        }
        let mut refused = self.errors(ErrorKind::Refused);
        let quarantined = |said: &Said| matches!(said, Said::Reply(Reply::Quarantined { .. }, ..));
        if let Some(refused) = refused.find(|refused| refused.hint().is_some()) {
            error.with_hint_of(refused)
        } else if self.0.iter().any(quarantined) {
            error.with_hint(
                "a server that has restarted, or lost its data, votes again after its quarantine; \
                 `leasehold init` marks servers that are new",
            )
        } else if self.0.iter().any(|said| skew(said).is_some()) {
            error.with_hint("correct this machine's clock")
        } else {
            error.with_hint("check that the servers are running and reachable from this host")
        }
    }
}

/// By how much a proposal is too far ahead of a server's clock.
fn skew(said: &Said) -> Option<Duration> {
    match said {
        Said::Reply(Reply::Outbid { most, .. }, _, token) if token > most => {
            Some(Duration::from_micros(token.get() - most.get()))
        }
        _ => None,
    }
}

/// Whether a server has refused, and did not say when it may be otherwise.
fn is_final(said: &Said) -> bool {
    matches!(said, Said::Error(error)
        if error.kind() != ErrorKind::Unavailable && error.retry_after().is_none())
}

fn phrase(said: &Said, limit: Duration) -> String {
    let (reply, at) = match said {
        Said::Nothing => return format!("no answer within {}", written(limit)),
        Said::Error(error) => return error.to_string(),
        Said::Done => return "done".to_owned(),
        Said::Reply(reply, at, _) => (reply, *at),
    };
    match reply {
        Reply::Standing(_) => "yes".to_owned(),
        Reply::Busy { blocked_until } if *blocked_until == StoreTime::NEVER => {
            "no, another client has the key, with a lock that does not expire".to_owned()
        }
        Reply::Busy { blocked_until } => {
            let left = blocked_until.since(at);
            format!("no, it votes for another claim for {left:.1?}")
        }
        Reply::Outbid { .. } => match skew(said) {
            Some(by) => format!(
                "no, this client's clock is too far ahead of the server's, by {by:.1?} more than \
                 allowed"
            ),
            None => "no, it has seen a higher token".to_owned(),
        },
        Reply::Taken => "no, the claim id is another client's".to_owned(),
        Reply::Quarantined { until } => {
            let left = until.since(at);
            format!("cannot vote for {left:.1?}: it is new or may have lost data")
        }
        _ => "no, it no longer votes for this claim".to_owned(),
    }
}
