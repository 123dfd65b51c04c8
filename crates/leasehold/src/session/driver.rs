//! The driver: one task that drives all keys of a client. It renews their claims, retries, releases in the
//! background, and keeps the inbox open. It ends when no claim is left.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use leasehold_core::{Moment, Transmit};
use tokio::task::{unconstrained, yield_now};

use super::claim_slot::{Carried, ClaimSlot};
use super::keys::KeySlot;
use super::shutdown::Closed;
use super::timing::{
    INBOX_AFTER, INBOX_AGAIN, LINGER, LONGEST_SLEEP, STOOD_STILL, TOGETHER, WATCHDOG_LOOK,
};
use super::{Machine, Session, unanswered};
use crate::background::nudge;
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::store::Listening;
use crate::sync::{OnDrop, Ordering, lock, sleep, timeout};

impl Session {
    /// Starts the task, or wakes it if it means to sleep beyond `due`. It is woken too if
    /// it should have woken itself: its timer is late when the machine has slept. With its runtime
    /// gone, the client is closed when this returns.
    pub(super) fn ensure_awake(self: &Arc<Self>, due: Moment, now: Moment) {
        let planned = self.wake_at.load(Ordering::SeqCst);
        if planned == 0 {
            if self.claim_driving() {
                let session = self.clone();
                // Its runtime has ended, and starts no other.
                let ends = OnDrop::new(move || session.close(Closed::NoRuntime));
                self.runtime.spawn(Driver::new(self.clone()).run(ends));
            } else {
                self.wake.notify_one();
            }
        } else if due.0 < planned || planned < now.0 {
            self.wake.notify_one();
        } else {
            return;
        }
        nudge();
    }

    /// Whether whoever asks is the one to drive the client's keys from now on.
    fn claim_driving(&self) -> bool {
        let claimed = (self.wake_at).compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst);
        claimed.is_ok()
    }

    /// Whether the task has woken when it meant to.
    pub(super) fn is_kept(&self) -> bool {
        let planned = Moment(self.wake_at.load(Ordering::Acquire));
        clock::now() < planned + WATCHDOG_LOOK
    }
}

/// A request, and what came of it.
type Done = (Arc<KeySlot>, Arc<ClaimSlot>, Transmit, Carried);
type InFlight = FuturesUnordered<BoxFuture<'static, Done>>;
type Listened = Result<Box<dyn Listening>, StoreError>;

/// That the inbox could not be opened, by this task or one before it.
#[derive(Debug, Default)]
pub(super) struct SubscribeBackoff {
    /// Why not, when it failed last: it is tried again with pauses, for leases only if
    /// there was no answer. A refusal stays one, and costs them no more than that they
    /// hear less.
    cause: Option<ErrorKind>,
    told: bool,
}

impl SubscribeBackoff {
    /// It failed again. Says whether people have to hear of it: once, and not of a
    /// connection that broke, since the next attempt makes another.
    fn is_news(&mut self, cause: ErrorKind) -> bool {
        let broke = cause == ErrorKind::Unavailable && self.cause.is_none();
        self.cause = Some(cause);
        !broke && !std::mem::replace(&mut self.told, true)
    }
}

struct Driver {
    session: Arc<Session>,
    in_flight: InFlight,
    opening: FuturesUnordered<BoxFuture<'static, Listened>>,
    inbox: Option<Box<dyn Listening>>,
    listen_after: Moment,
    idle_since: Option<Moment>,
}

impl Driver {
    fn new(session: Arc<Session>) -> Self {
        Self {
            session,
            in_flight: FuturesUnordered::new(),
            opening: FuturesUnordered::new(),
            inbox: None,
            listen_after: clock::now() + INBOX_AFTER,
            idle_since: None,
        }
    }

    /// Drives the keys. `ends` is cancelled if this ends by itself.
    async fn run(mut self, ends: OnDrop<impl FnOnce()>) {
        let (mut due, mut wake_at) = (Vec::new(), clock::now());
        loop {
            if self.session.is_inherited() {
                // What it would send is the parent's to send.
                return std::future::pending().await;
            }
            if clock::now().since(wake_at) >= STOOD_STILL {
                // Answers that are there come before what is late.
                yield_now().await;
                self.hear();
            }
            let now = clock::now();
            let more = self.drive_all(now, &mut due);
            let next = self.session.keys.next_due();
            let empty = self.session.is_idle(next);
            self.open_inbox(now, empty);
            if empty && self.in_flight.is_empty() {
                if self.is_over(now) {
                    return ends.cancel();
                }
            } else {
                self.idle_since = None;
            }
            wake_at = self.plan(now, next);
            tokio::select! {
                Some(done) = next_answer(&mut self.in_flight) => self.answered(done),
                Some(listened) = self.opening.next() => self.listened(listened),
                () = self.session.wake.notified() => {}
                () = yield_now(), if more => {}
                // Not since the look above: what was held up meanwhile is not slept again.
                () = sleep(wake_at.since(clock::now())) => {}
            }
        }
    }

    /// Drives the keys that are due, and hears what has come meanwhile. Whether there may be more of
    /// either.
    fn drive_all(&mut self, now: Moment, due: &mut Vec<Arc<KeySlot>>) -> bool {
        self.session.keys.due(now, due);
        let mut more = due.len() == TOGETHER;
        for home in due.drain(..) {
            self.drive(&home);
        }
        // With the first look at it each request is sent, so that all travel together.
        more |= self.hear();
        self.session.shutdown.departed.notify_waiters();
        more
    }

    /// Hears what has come. Whether there may be more.
    fn hear(&mut self) -> bool {
        for _ in 0..TOGETHER {
            let Some(Some(done)) = next_answer(&mut self.in_flight).now_or_never() else {
                return false;
            };
            self.answered(done);
        }
        true
    }

    /// Sends what is due for the claims on a key that no other task drives.
    fn drive(&mut self, home: &Arc<KeySlot>) {
        let (session, in_flight) = (&self.session, &self.in_flight);
        session.apply(home, None, |machine, now| {
            machine.handle_timeout(now);
            while let Some((number, sent)) = machine.poll_transmit(now, || session.ids.next().ok())
            {
                if let Some(slot) = machine.data(number) {
                    let (session, home, slot) = (session.clone(), home.clone(), slot.clone());
                    in_flight.push(Box::pin(async move {
                        let answer = session.carry(&home.key, &sent).await;
                        (home, slot, sent, answer)
                    }));
                }
            }
        });
    }

    fn answered(&self, (home, slot, sent, answer): Done) {
        self.session.apply(&home, None, |machine, now| {
            machine.handle_answer(now, slot.number, &sent, slot.note(&sent, answer));
        });
    }

    /// Says when the task means to wake, so that others wake it only for less.
    fn plan(&self, now: Moment, next: Option<Moment>) -> Moment {
        let latest = now + LONGEST_SLEEP;
        let mut wake_at = next.map_or(latest, |next| next.min(latest));
        if self.inbox.is_none() && self.opening.is_empty() && self.listen_after > now {
            wake_at = wake_at.min(self.listen_after);
        }
        let planned = wake_at.0.max(2);
        self.session.wake_at.store(planned, Ordering::SeqCst);
        // Something may have been listed just before that was said.
        let due = self.session.keys.next_due();
        due.map_or(wake_at, |due| due.min(wake_at))
    }

    /// Whether nothing was kept for a while, or nothing comes any more: then the task ends, and
    /// whoever registers something starts another.
    fn is_over(&mut self, now: Moment) -> bool {
        let idle_since = *self.idle_since.get_or_insert(now);
        if now.since(idle_since) < LINGER && self.session.shutdown.closed().is_none() {
            return false;
        }
        // Closed before anybody can start another task, which opens it again.
        self.inbox = None;
        let session = &self.session;
        session.listening.store(false, Ordering::SeqCst);
        session.wake_at.store(0, Ordering::SeqCst);
        // Something may have been listed just before that was said: then it goes on, unless
        // another has begun.
        session.is_idle(session.keys.next_due()) || !session.claim_driving()
    }

    /// Opens the inbox for those who wait at once, for leases that are kept
    /// after a while.
    fn open_inbox(&mut self, now: Moment, empty: bool) {
        let pushes = self.session.store.capabilities().push;
        if self.inbox.is_some() || !self.opening.is_empty() || !pushes {
            return;
        }
        let waiters = self.session.wants_inbox();
        let due = now >= self.listen_after;
        let wanted = match lock(&self.session.unsubscribed).cause {
            None => waiters || !empty && due,
            Some(ErrorKind::Unavailable) => !empty && due,
            Some(_) => waiters && due,
        };
        if wanted {
            self.session.listening.store(true, Ordering::SeqCst);
            let session = self.session.clone();
            let limit = session.settings.operation_timeout;
            self.opening.push(Box::pin(async move {
                let listened = timeout(limit, session.store.listen(session.clone())).await;
                listened.unwrap_or_else(|_| Err(unanswered(limit)))
            }));
        }
    }

    fn listened(&mut self, listened: Listened) {
        let now = clock::now();
        match listened {
            Ok(inbox) => {
                self.inbox = Some(inbox);
                *lock(&self.session.unsubscribed) = SubscribeBackoff::default();
                // What was pushed before it was open went unheard.
                for home in self.session.keys.all() {
                    home.wake_watchers();
                    self.session.apply(&home, None, Machine::handle_reset);
                }
            }
            Err(error) => {
                if lock(&self.session.unsubscribed).is_news(error.kind()) {
                    tracing::warn!(%error, "cannot listen for grants; polling instead");
                } else {
                    tracing::debug!(%error, "cannot listen for grants; retrying");
                }
                self.listen_after = now + INBOX_AGAIN;
            }
        }
    }
}

/// The next request that has come to something. Without Tokio's budget of a task: with many answers
/// there, each of those beyond it would be looked at again and again.
fn next_answer(in_flight: &mut InFlight) -> impl Future<Output = Option<Done>> {
    unconstrained(in_flight.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_listen_says_so_once_and_not_of_a_connection_that_broke() {
        let (broke, refused) = (ErrorKind::Unavailable, ErrorKind::Refused);
        let heard = |causes: &[ErrorKind]| -> Vec<bool> {
            let mut unsubscribed = SubscribeBackoff::default();
            causes
                .iter()
                .map(|cause| unsubscribed.is_news(*cause))
                .collect()
        };
        assert_eq!(heard(&[refused, refused]), [true, false]);
        assert_eq!(heard(&[broke, broke, broke]), [false, true, false]);
        assert_eq!(heard(&[broke, refused, broke]), [false, true, false]);
    }
}
