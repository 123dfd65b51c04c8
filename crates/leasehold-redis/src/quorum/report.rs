//! Error messages with the answer of each server.

use std::time::Duration;

use leasehold_core::quorum::QuorumSize;
use leasehold_core::{Reply, StoreTime, Token, written};
use leasehold_store::{Answer, ErrorKind, StoreError};

use super::Inner;

/// What came of a command at a server.
pub(super) type Answered = Result<Answer, StoreError>;

/// What a server replied.
#[derive(Debug, Clone, Copy)]
struct Replied {
    reply: Reply,
    /// The time of the server.
    at: StoreTime,
    /// The proposal that it was asked about.
    token: Token,
}

/// The reply of a server that has done what was asked, where nothing else counts.
const DONE: Replied = Replied {
    reply: Reply::Done,
    at: StoreTime(0),
    token: Token::NONE,
};

/// The answers of all servers to one question; of those that were silent, none.
#[derive(Debug, Clone)]
pub(super) struct Report(Vec<Option<Result<Replied, StoreError>>>);

impl Report {
    pub(super) fn new(size: QuorumSize) -> Self {
        Self(vec![None; size.servers()])
    }

    pub(super) fn errors(&self) -> impl Iterator<Item = &StoreError> {
        let said = self.0.iter().flatten();
        said.filter_map(|said| said.as_ref().err())
    }

    /// Whether a server has done what was asked.
    pub(super) fn note<T>(&mut self, server: usize, result: &Result<T, StoreError>) {
        self.0[server] = Some(result.as_ref().map(|_| DONE).map_err(StoreError::clone));
    }

    /// What a server replied to a proposal.
    pub(super) fn note_reply(&mut self, server: usize, token: Token, result: &Answered) {
        let replied = |answer: &Answer| Replied {
            reply: answer.reply,
            at: answer.at,
            token,
        };
        self.0[server] = Some(result.as_ref().map(replied).map_err(StoreError::clone));
    }

    /// An error that names who said what.
    pub(super) fn error(&self, inner: &Inner, kind: ErrorKind, limit: Duration) -> StoreError {
        let replies = || self.0.iter().flatten().flatten();
        let agrees = |it: &&Replied| it.reply == Reply::Done || it.reply.has_token();
        let agreed = replies().filter(agrees).count();
        let mut parts = Vec::with_capacity(self.0.len());
        for (member, said) in inner.members.iter().zip(&self.0) {
            parts.push(format!("{}: {}", member.name, phrase(said.as_ref(), limit)));
        }
        let (all, needed) = (inner.size.servers(), inner.size.quorum());
        let not_now = |error: &&StoreError| error.kind() == ErrorKind::Unavailable;
        // A server has refused, and did not say when it may be otherwise.
        let is_final = |error: &&StoreError| !not_now(error) && error.retry_after().is_none();
        let refused = self.errors().filter(is_final).count();
        let kind = match kind {
            // Asking again does not help: too few are left that may answer.
            ErrorKind::Unavailable if all - refused < needed => ErrorKind::Refused,
            kind => kind,
        };
        let said = parts.join("; ");
        let message = format!("{agreed} of {all} servers agreed, {needed} are needed ({said})");
        let mut error = StoreError::new(kind, message);
        // Too few were left because servers said so, and not for want of answers.
        let unavailable = || self.errors().filter(not_now);
        let answered = || unavailable().filter_map(StoreError::retry_after);
        let (count, soonest) = (answered().count(), answered().min());
        if let (ErrorKind::Unavailable, Some(soonest)) = (kind, soonest)
            && all - refused - count < needed
        {
            error = error.with_retry_after(soonest);
        }
        let advises = |it: &&StoreError| it.kind() == ErrorKind::Refused && it.hint().is_some();
        if let Some(refused) = self.errors().find(advises) {
            error.with_hint_of(refused)
        } else if replies().any(|it| matches!(it.reply, Reply::Quarantined { .. })) {
            error.with_hint(
                "a server that has restarted, or lost its data, votes again after its quarantine; \
                 `leasehold init` marks servers that are new",
            )
        } else if replies().any(|it| skew(it).is_some()) {
            error.with_hint("correct this machine's clock")
        } else {
            error.with_hint("check that the servers are running and reachable from this host")
        }
    }
}

/// By how much a proposal is too far ahead of a server's clock.
fn skew(replied: &Replied) -> Option<Duration> {
    match replied.reply {
        Reply::Outbid { most, .. } if replied.token > most => {
            Some(Duration::from_micros(replied.token.get() - most.get()))
        }
        _ => None,
    }
}

fn phrase(said: Option<&Result<Replied, StoreError>>, limit: Duration) -> String {
    let replied = match said {
        None => return format!("no answer within {}", written(limit)),
        Some(Err(error)) => return error.to_string(),
        Some(Ok(replied)) => replied,
    };
    match replied.reply {
        Reply::Done => "done".to_owned(),
        Reply::Standing(_) => "yes".to_owned(),
        Reply::Busy { blocked_until } if blocked_until == StoreTime::NEVER => {
            "no, another client has the key, with a lock that does not expire".to_owned()
        }
        Reply::Busy { blocked_until } => {
            let left = written(blocked_until.since(replied.at));
            format!("no, it votes for another claim for {left}")
        }
        Reply::Outbid { .. } => match skew(replied) {
            Some(by) => format!(
                "no, this client's clock is too far ahead of the server's, by {} more than allowed",
                written(by)
            ),
            None => "no, it has seen a higher token".to_owned(),
        },
        Reply::Taken => "no, the claim id is another client's".to_owned(),
        Reply::Quarantined { until } => {
            let left = written(until.since(replied.at));
            format!("cannot vote for {left}: it is new or may have lost data")
        }
        _ => "no, it no longer votes for this claim".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quarantine may last a day.
    #[test]
    fn how_long_a_server_does_not_vote_is_said_as_people_write_it() {
        let (until, blocked_until) = (StoreTime(86_400_000_000), StoreTime(90_000_000));
        for (reply, said) in [
            (Reply::Quarantined { until }, "cannot vote for 1d:"),
            (Reply::Busy { blocked_until }, "another claim for 1m30s"),
        ] {
            let replied = Ok(Replied { reply, ..DONE });
            let phrase = phrase(Some(&replied), Duration::ZERO);
            assert!(phrase.contains(said), "{phrase}");
        }
    }
}
