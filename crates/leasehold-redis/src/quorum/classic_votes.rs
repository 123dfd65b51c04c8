//! Redlock with the classic layout, shared with other libraries: on each server the string of
//! `SET key id NX PX ttl`, and a majority of them decides.
//!
//! The same round counts the replies as for the native layout. There are no tokens, no tombstones
//! and no quarantine: a server that loses its data votes again.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ClaimId, Command, Reply, Token, Void, Voided};
use leasehold_store::StoreError;

use crate::classic::{Outcome, Step, Verb, deadline, standing, unsupported, wall};
use crate::codec::stores_own;
use crate::connection::multiplexed::Connection;

/// Asks one server. `first`: the claim was never asked for before.
pub(super) async fn take(
    wire: &Arc<Connection>,
    key: &str,
    command: &Command,
    first: bool,
) -> Result<Reply, StoreError> {
    let at = wall();
    let take = async |verb, id: Option<&ClaimId>, ttl| {
        let id = id.map_or("", |id| id.expose());
        Step { verb, id, ttl }.take(wire, key).await
    };
    let stands = |id: &ClaimId, outcome| match outcome {
        Outcome::Ours(left) => standing(id.expose(), deadline(at, left)),
        Outcome::Others(left) => Reply::Busy {
            blocked_until: deadline(at, left),
        },
        Outcome::Taken => Reply::Taken,
        Outcome::Nobodys => Reply::Gone,
    };
    Ok(match command {
        Command::Claim(claim) => {
            let verb = if first { Verb::First } else { Verb::Claim };
            let outcome = take(verb, Some(&claim.id), claim.lease_ttl).await?;
            stands(&claim.id, outcome)
        }
        // Not taken up again, as the native layout does: without a tombstone it would bring back
        // what was broken.
        Command::Renew(renew) => {
            let outcome = take(Verb::Renew, Some(&renew.id), renew.ttl).await?;
            stands(&renew.id, outcome)
        }
        Command::Void(Void { whose, .. }) => {
            let (verb, id) = match whose {
                Voided::Claim { id, released: true } => (Verb::Release, Some(id)),
                Voided::Claim { id, .. } => (Verb::Withdraw, Some(id)),
                Voided::Key { .. } => (Verb::Break, None),
            };
            let held = matches!(take(verb, id, Duration::ZERO).await?, Outcome::Ours(_));
            match id {
                Some(_) if held => Reply::Released { held },
                Some(_) => Reply::Absent,
                None => Reply::Broken {
                    holders: held.into(),
                    token: Token::NONE,
                },
            }
        }
        Command::Watch { .. } => {
            return Err(unsupported("its record cannot store who watches a key"));
        }
        other => return Err(stores_own(other)),
    })
}
