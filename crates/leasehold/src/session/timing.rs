//! All time limits and pauses of the session, each with its reason. Those of a claim are in the
//! core.

use std::time::Duration;

use leasehold_core::Retry;

/// With nothing to keep, the watchdog stays this long in case there is something again, with
/// its inbox open.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// A lease that is kept for this long is worth an open inbox, so that its holder hears at once
/// if an administrator breaks it.
pub(super) const INBOX_AFTER: Duration = Duration::from_millis(100);

/// A failed attempt to open the inbox is repeated after this.
pub(super) const INBOX_AGAIN: Duration = Duration::from_millis(250);

/// So many claims that are due at once are seen to in one go: enough for requests that travel
/// together, and other tasks of the thread get their turn in between.
pub(super) const TOGETHER: usize = 256;

/// The longest sleep. Timers stand still while the machine sleeps, validity does not: on waking
/// up, a lost lease is noticed within this time.
pub(super) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// A driver that is this late has stood still, as in a process that was stopped: answers may be there.
pub(super) const STOOD_STILL: Duration = Duration::from_millis(100);

/// How often a task that waits looks whether the watchdog runs, and how many looks in a row at
/// which it was late mean that it does not.
pub(super) const WATCHDOG_LOOK: Duration = Duration::from_secs(2);
pub(super) const WATCHDOG_LATE_LOOKS: u32 = 5;

/// The pauses of those who ask where nobody tells that a key is free: what a waiter may lose of
/// its turn, and still few requests. Other libraries ask about as often.
pub(super) const POLLING: Retry = Retry::FullJitter {
    base: Duration::from_millis(10),
    cap: Duration::from_millis(150),
};

/// The shortest of their pauses, whatever is set: without any they would be a flood of requests.
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// Who asks without a place in line asks this much later, at most, than the time at which what
/// blocks the key can expire.
pub(super) const ASK_AFTER_LAPSE: Duration = Duration::from_millis(10);

/// Who watches an election looks this much later than the time at which the leader's lease can
/// expire.
pub(crate) const LOOK_AFTER_LAPSE: Duration = Duration::from_millis(20);

/// How long the store remembers a watch; asked for again at a third. A watcher that died costs
/// a push per change until then.
pub(super) const WATCH_TTL: Duration = Duration::from_secs(60);

/// How often a watcher polls a store without pushes.
pub(super) const WATCH_LOOK: Duration = Duration::from_secs(1);
