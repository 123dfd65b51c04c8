//! `leasehold deadlocks`: the locks that wait for each other.

use std::io::{self, IsTerminal};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use leasehold::{BlockedClaim, Deadlock};
use serde::Serialize;

use crate::args::DeadlocksArgs;
use crate::connect::connect;
use crate::duration::{millis, spoken};
use crate::exit;
use crate::failure::Failure;
use crate::output::Printer;
use crate::view::{ClaimView, time};

/// One deadlock, as `deadlocks --json` writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct DeadlockView {
    /// Who holds what and waits for what.
    pub(crate) sentence: String,
    /// When the last of them began to wait.
    pub(crate) since: Timestamp,
    pub(crate) for_ms: u64,
    claims: Vec<BlockedView>,
}

/// A claim that waits, and what its context holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct BlockedView {
    waits_for: String,
    waiter: ClaimView,
    holds: Vec<HeldView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct HeldView {
    key: String,
    #[serde(flatten)]
    holder: ClaimView,
}

/// Prints the deadlocks of the store. The status says whether there are some.
pub(crate) async fn deadlocks(args: &DeadlocksArgs, printer: &Printer) -> Result<u8, Failure> {
    let client = connect(&args.common.store).await?;
    if !client.capabilities().queueing {
        let message = "this store does not record who waits, so deadlocks cannot be found";
        return Err(
            Failure::new(exit::UNAVAILABLE, message).hint("docs/deadlocks.md says which stores do")
        );
    }
    let found = client.deadlocks().await?;
    for deadlock in &found {
        let view = DeadlockView::from(deadlock);
        let lasts = spoken(Duration::from_millis(view.for_ms));
        printer.show(&view, || format!("{}, for {lasts}\n", view.sentence))?;
    }
    if found.is_empty() {
        if !args.common.output.json && io::stderr().is_terminal() {
            printer.notice("no deadlocks");
        }
        return Ok(exit::OK);
    }
    Ok(exit::DEADLOCKED)
}

impl From<&Deadlock> for DeadlockView {
    fn from(deadlock: &Deadlock) -> Self {
        let since = deadlock.since();
        let lasts = deadlock.at.duration_since(since).unwrap_or_default();
        Self {
            sentence: deadlock.to_string(),
            since: time(since),
            for_ms: millis(lasts),
            claims: deadlock
                .claims
                .iter()
                .map(|claim| BlockedView::of(claim, deadlock.at))
                .collect(),
        }
    }
}

#[cfg(test)]
impl DeadlockView {
    pub(crate) fn saying(sentence: &str) -> Self {
        Self {
            sentence: sentence.to_owned(),
            since: Timestamp::UNIX_EPOCH,
            for_ms: 0,
            claims: Vec::new(),
        }
    }
}

impl BlockedView {
    fn of(claim: &BlockedClaim, at: SystemTime) -> Self {
        let held = claim.holds.iter().map(|(key, holder)| HeldView {
            key: key.to_string(),
            holder: ClaimView::of_holder(holder, at),
        });
        Self {
            waits_for: claim.key.to_string(),
            waiter: ClaimView::from(&claim.waiter),
            holds: held.collect(),
        }
    }
}
