//! The one task that keeps all claims of a client: renews, asks again,
//! releases in the background, and holds the inbox open. It ends when nothing
//! is left to keep.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use leasehold_core::Moment;

use super::closing::Closed;
use super::registry::{Done, Errand, Send};
use super::{Driver, unanswered};
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::store::{Listening, Verbs as _};
use crate::sync::{Ordering, sleep, timeout};

/// With nothing to keep, the task stays this long in case there is something
/// again, with its inbox open.
const LINGER: Duration = Duration::from_secs(1);

/// A lease that is kept for this long is worth an open inbox, so that its
/// holder hears at once if an administrator breaks it.
const SETTLED: Duration = Duration::from_millis(100);

/// The longest sleep. Timers stand still while the machine sleeps, validity
/// does not: on waking up, a lost lease is noticed within this time.
pub(super) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// A failed attempt to open the inbox is repeated after this.
const LISTEN_PAUSE: Duration = Duration::from_millis(250);

/// Starts the task if none runs. With its runtime gone, the client is closed when this
/// returns.
pub(super) fn ensure_running(driver: &Arc<Driver>) {
    if driver.wake_at.load(Ordering::Acquire) == 0 {
        ensure_awake(driver, clock::now());
    }
}

/// Starts the task, or wakes it if it means to sleep beyond `due`. It is woken too if
/// it should have woken itself: its timer is late when the machine has slept.
pub(super) fn ensure_awake(driver: &Arc<Driver>, due: Moment) {
    let planned = driver.wake_at.load(Ordering::Acquire);
    if planned == 0 {
        let claimed = driver
            .wake_at
            .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if claimed {
            driver.runtime.spawn(Watchdog::new(driver.clone()).run());
        } else {
            driver.wake.notify_one();
        }
    } else if due.0 < planned || planned < clock::now().0 {
        driver.wake.notify_one();
    }
}

type Listened = Result<Box<dyn Listening>, StoreError>;

/// That the inbox could not be opened.
#[derive(Debug, Default)]
struct Deafness {
    /// Why not, when it failed last: it is tried again with pauses, for leases only if
    /// there was no answer. A refusal stays one, and costs them no more than that they
    /// hear less.
    cause: Option<ErrorKind>,
    told: bool,
}

impl Deafness {
    /// It failed again. Says whether people have to hear of it: once, and not of a
    /// connection that broke, since the next attempt makes another.
    fn is_news(&mut self, cause: ErrorKind) -> bool {
        let broke = cause == ErrorKind::Unavailable && self.cause.is_none();
        self.cause = Some(cause);
        !broke && !std::mem::replace(&mut self.told, true)
    }
}

struct Watchdog {
    driver: Arc<Driver>,
    in_flight: FuturesUnordered<BoxFuture<'static, Done>>,
    opening: FuturesUnordered<BoxFuture<'static, Listened>>,
    inbox: Option<Box<dyn Listening>>,
    /// Whether the store tells anybody anything.
    pushes: bool,
    listen_after: Moment,
    deafness: Deafness,
    idle_since: Option<Moment>,
    /// Whether it ends by itself.
    over: bool,
}

impl Watchdog {
    fn new(driver: Arc<Driver>) -> Self {
        Self {
            pushes: driver.store.capabilities().push,
            driver,
            in_flight: FuturesUnordered::new(),
            opening: FuturesUnordered::new(),
            inbox: None,
            listen_after: clock::now() + SETTLED,
            deafness: Deafness::default(),
            idle_since: None,
            over: false,
        }
    }

    async fn run(mut self) {
        let mut sends = Vec::new();
        loop {
            let now = clock::now();
            let (next, empty) = {
                let mut registry = self.driver.lock();
                registry.collect_due(now, &mut sends);
                self.driver.openness.departed.notify_waiters();
                (registry.next_due(), registry.is_empty())
            };
            for send in sends.drain(..) {
                self.in_flight.push(carry(self.driver.clone(), send));
            }
            self.open_inbox(now);
            if empty && self.in_flight.is_empty() {
                if self.is_over(now) {
                    self.over = true;
                    return;
                }
            } else {
                self.idle_since = None;
            }
            let wake_at = self.plan(now, next);
            tokio::select! {
                Some(done) = self.in_flight.next() => {
                    self.driver.lock().complete(&done, clock::now());
                }
                Some(listened) = self.opening.next() => self.listened(listened),
                () = self.driver.wake.notified() => {}
                // Not since the look above: what was held up meanwhile is not slept again.
                () = sleep(wake_at.since(clock::now())) => {}
            }
        }
    }

    /// Says when the task means to wake, so that others wake it only for less.
    fn plan(&self, now: Moment, next: Option<Moment>) -> Moment {
        let mut wake_at = now + LONGEST_SLEEP;
        if let Some(next) = next {
            wake_at = wake_at.min(next);
        }
        if self.inbox.is_none() && self.opening.is_empty() && self.listen_after > now {
            wake_at = wake_at.min(self.listen_after);
        }
        self.driver
            .wake_at
            .store(wake_at.0.max(2), Ordering::Release);
        // Something may have been registered just before that was said.
        match self.driver.lock().next_due() {
            Some(due) if due < wake_at => due,
            _ => wake_at,
        }
    }

    /// Whether nothing was kept for a while: then the task ends, and whoever
    /// registers something starts another.
    fn is_over(&mut self, now: Moment) -> bool {
        let idle_since = *self.idle_since.get_or_insert(now);
        if now.since(idle_since) < LINGER {
            return false;
        }
        let registry = self.driver.lock();
        let over = registry.is_empty();
        if over {
            // Closed before anybody can start another task, which opens it again.
            self.inbox = None;
            self.driver.listening.store(false, Ordering::Release);
            self.driver.wake_at.store(0, Ordering::Release);
        }
        over
    }

    /// Opens the inbox for those who wait at once, for leases that are kept
    /// after a while.
    fn open_inbox(&mut self, now: Moment) {
        if self.inbox.is_some() || !self.opening.is_empty() || !self.pushes {
            return;
        }
        let (waiters, empty) = {
            let registry = self.driver.lock();
            (registry.has_listeners(), registry.is_empty())
        };
        let due = now >= self.listen_after;
        let wanted = match self.deafness.cause {
            None => waiters || !empty && due,
            Some(ErrorKind::Unavailable) => !empty && due,
            Some(_) => waiters && due,
        };
        if wanted {
            self.driver.listening.store(true, Ordering::Release);
            let driver = self.driver.clone();
            let limit = driver.settings.operation_timeout;
            self.opening.push(Box::pin(async move {
                let listened = timeout(limit, driver.store.listen(driver.clone())).await;
                listened.unwrap_or_else(|_| Err(unanswered(limit)))
            }));
        }
    }

    fn listened(&mut self, listened: Listened) {
        let now = clock::now();
        match listened {
            Ok(inbox) => {
                self.inbox = Some(inbox);
                self.deafness = Deafness::default();
                // What was pushed before it was open went unheard.
                self.driver.resets.fetch_add(1, Ordering::AcqRel);
                self.driver.watches.wake_all();
                self.driver.lock().reset(now);
            }
            Err(error) => {
                if self.deafness.is_news(error.kind()) {
                    tracing::warn!(%error, "cannot listen for grants; asking from time to time");
                } else {
                    tracing::debug!(%error, "cannot listen for grants; trying again");
                }
                self.listen_after = now + LISTEN_PAUSE;
            }
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if !self.over {
            // Its runtime has ended, and starts no other.
            self.driver.close(Closed::NoRuntime);
        }
    }
}

/// Carries one request to the store and back.
fn carry(driver: Arc<Driver>, send: Send) -> BoxFuture<'static, Done> {
    let Send {
        entry,
        subject,
        errand,
        held,
        sent,
    } = send;
    // A request must fail early enough to be repeated within the lease.
    let limit = driver.settings.operation_timeout.min(subject.terms.ttl / 3);
    Box::pin(async move {
        let store = &driver.store;
        let ask = async {
            match &errand {
                Errand::Renew(renew) if held => {
                    driver.renew_held(&subject.key, renew.clone()).await
                }
                Errand::Renew(renew) => store.renew(&subject.key, renew).await,
                Errand::Release => driver.release_once(&subject).await,
            }
        };
        let result = timeout(limit, ask)
            .await
            .unwrap_or_else(|_| Err(unanswered(limit)));
        Done {
            entry,
            errand,
            sent,
            result,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_listen_says_so_once_and_not_of_a_connection_that_broke() {
        let (broke, refused) = (ErrorKind::Unavailable, ErrorKind::Refused);
        let heard = |causes: &[ErrorKind]| -> Vec<bool> {
            let mut deafness = Deafness::default();
            causes
                .iter()
                .map(|cause| deafness.is_news(*cause))
                .collect()
        };
        assert_eq!(heard(&[refused, refused]), [true, false]);
        assert_eq!(heard(&[broke, broke, broke]), [false, true, false]);
        assert_eq!(heard(&[broke, refused, broke]), [false, true, false]);
    }
}
