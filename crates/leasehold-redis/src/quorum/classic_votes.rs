//! Redlock with the classic layout, shared with other libraries: on each server the string of
//! `SET key id NX PX ttl`, and a majority of them decides.
//!
//! The core counts the votes as for the native layout. There are no tokens, no tombstones and no
//! quarantine: a server that loses its data votes again.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Token;
use leasehold_core::quorum::Vote;
use leasehold_store::StoreError;

use super::script::Ask;
use crate::classic::{Outcome, Step, Verb, unsupported};
use crate::connection::multiplexed::Connection;

/// Asks one server. `first`: the claim was never asked for before.
pub(super) async fn ask(
    wire: &Arc<Connection>,
    key: &str,
    ask: &Ask,
    first: bool,
) -> Result<Vote, StoreError> {
    let take = async |verb, id: &str, ttl| Step { verb, id, ttl }.take(wire, key).await;
    Ok(match ask {
        Ask::Acquire(vote) => {
            let verb = if first { Verb::First } else { Verb::Claim };
            granted(take(verb, vote.id.expose(), vote.ttl).await?)
        }
        Ask::Extend(extend) => {
            let (id, ttl) = (extend.vote.id.expose(), extend.vote.ttl);
            match take(Verb::Renew, id, ttl).await? {
                Outcome::Ours(_) => Vote::Yes,
                // Not taken up again, as the native layout does: without a tombstone it
                // would bring back what was broken.
                _ => Vote::Lost,
            }
        }
        Ask::Release(part) => {
            // It wakes others if it held, so that nothing of it is under way to a majority.
            let verb = if part.wake {
                Verb::Release
            } else {
                Verb::Withdraw
            };
            let held = is_ours(take(verb, part.id.expose(), Duration::ZERO).await?);
            Vote::Released { held }
        }
        Ask::Break(..) => {
            let held = is_ours(take(Verb::Break, "", Duration::ZERO).await?);
            // Only whether there was one counts: there are no tokens.
            let token = Token(held.into());
            Vote::Broken { token }
        }
        Ask::Watch(_) => return Err(unsupported("its record cannot store who watches a key")),
    })
}

fn is_ours(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Ours(_))
}

fn granted(outcome: Outcome) -> Vote {
    match outcome {
        Outcome::Ours(_) => Vote::Yes,
        Outcome::Others(left) => Vote::Busy {
            left: left.unwrap_or(Duration::MAX),
            highest: Token::NONE,
        },
        Outcome::Taken => Vote::Taken,
        Outcome::Nobodys => Vote::Lost,
    }
}
