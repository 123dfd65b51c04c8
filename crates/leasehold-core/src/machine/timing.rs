//! All time limits, pauses and shares in the state machine of a claim, each with its reason.
//!
//! The settings of users (TTLs, renewal share, operation time-out) are in [`Terms`](super::Terms)
//! and [`Deadlines`](super::Deadlines).

use std::time::Duration;

// ---- waiting ----

/// A waiting claim is renewed when this part of its TTL is over, so that two requests may fail;
/// and so is the first renewal of a lease that was granted from the queue.
pub(crate) const RENEW_WAITING_AT: u32 = 3;

/// After the time at which the claim ahead can expire, each place in the queue waits this much
/// longer before it looks: the next in line asks, the others only if it does not.
pub(super) const STAGGER: Duration = Duration::from_millis(50);

/// At most so much later: what is ahead may be one run, whose client has died.
pub(super) const STAGGER_AT_MOST: Duration = Duration::from_secs(1);

/// The shortest pause between two looks of one waiter.
pub(super) const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// How long a claim without pushes pauses before it asks whether it was granted, when it is
/// first in line: an eighth of the time that it has been, within these bounds. So a hand-off
/// is late by a sixteenth of the hold before it on average, and a long wait costs little.
/// Behind the first, as many times longer as the position says.
pub(super) const ASK_PAUSE: (Duration, Duration) =
    (Duration::from_millis(20), Duration::from_millis(500));
pub(super) const ASK_SHARE: u32 = 8;

/// So many questions in a row may be caused by pushes that prove nothing, and then one in such
/// a time: a flood of them must not become a flood of questions.
pub(super) const HINT_BURST: u32 = 16;
pub(super) const HINT_PAUSE: Duration = Duration::from_millis(50);

/// How much longer than its time to wait a call may take, in all: for the store's answer to a
/// first request, for its own claims to leave, and for its claim to leave the queue.
pub const GRACE: Duration = Duration::from_millis(500);

/// How much further than the client's clock the store's may have gone since the last answer,
/// beside one per cent. A clock that was stepped by more costs a question.
pub(super) const CLOCK_AHEAD: Duration = Duration::from_secs(10);

/// The pauses after a request that came to nothing: the first, and the longest.
pub(super) const ASK_AGAIN: (Duration, Duration) =
    (Duration::from_millis(20), Duration::from_secs(1));

// ---- being handed out ----

/// A lease with less than this part of the waiter TTL left is renewed before its caller gets it:
/// a quarter is what the watchdog needs for its first renewal.
pub(super) const MARGIN_OF_WAITING: u32 = 4;

/// So many grants in a row that came too late mean that the TTL is too short for this store.
pub(super) const LATE: u32 = 3;

// ---- held ----

/// The share of the TTL at which a lease is renewed if what its caller has set is no number.
pub(super) const RENEW_AT: f64 = 1.0 / 3.0;

/// Renewals fall on a grid of this many points per interval, so that those of many leases
/// travel together.
pub(super) const GRID: u64 = 64;

/// After a renewal that was not answered: the first pause; the longest is this part of the TTL.
pub(super) const RENEW_AGAIN: Duration = Duration::from_millis(20);
pub(super) const RENEW_AGAIN_PART: u32 = 10;

/// A request must fail early enough to be repeated twice within the lease.
pub(super) const REQUEST_PART: u32 = 3;

/// After a change that was not answered: the first pause; the longest is this part of the time
/// that an operation may take.
pub(super) const CHANGE_AGAIN: Duration = Duration::from_millis(10);
pub(super) const CHANGE_AGAIN_PART: u32 = 4;

// ---- leaving ----

/// The pauses between two tries to release.
pub(super) const RELEASE_AGAIN: (Duration, Duration) =
    (Duration::from_millis(20), Duration::from_secs(1));
