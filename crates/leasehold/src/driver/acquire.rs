//! From "I want this key" to a lease.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Arrival, Backoff, Command, LastAnswer, Moment, Renewal, RenewalPolicy, Reply, Retry,
    Standpoint, Token, Validity, Verdict, Waiter, WaiterConfig,
};

use super::acknowledged::confirm;
use super::own_id::{COLLISIONS, not_unique};
use super::registry::EntryId;
use super::retry::{POLLING, acquire_by_asking};
use super::signal::Signal;
use super::subject::{Subject, Terms};
use super::wish::{Grant, Patience, Wish, mismatch, quarantined, timed_out};
use super::{Departure, Driver, GRACE, random_u64, unanswered};
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::store::{Acknowledged, Capabilities};
use crate::sync::{Ordering, sleep, timeout};

/// How one attempt with one claim id ended.
pub(super) enum Attempt {
    Granted(Grant),
    /// Another has it, for so long if it does not go on.
    Busy(Duration),
    /// The store grants nothing for so long.
    Quarantined(Duration),
    /// The claim lapsed or was removed under us.
    Gone,
    /// It was granted, but the lease was over before it could be handed out.
    Late,
    /// Another client has a claim with the same id.
    Taken,
    /// Too few have acknowledged it: it does not count, and is given back.
    Unacknowledged(StoreError),
}

/// How one wish ended, where it did not fail.
pub(super) enum Tried {
    Granted(Grant),
    /// Another has it, for so long if it does not go on.
    Busy(Duration),
}

impl Tried {
    fn granted(self) -> Option<Grant> {
        match self {
            Self::Granted(grant) => Some(grant),
            Self::Busy(_) => None,
        }
    }
}

/// So many grants in a row that came too late mean that the TTL is too short
/// for this store.
const LATE: u32 = 3;

/// Gets the key. `None`: it is busy, and nobody wants to wait.
///
/// Dropping the future at any point leaves the queue, in the background.
pub(crate) async fn acquire(
    driver: &Arc<Driver>,
    wish: &Wish,
    patience: Patience,
    progress: impl FnMut(u64, u32),
) -> Result<Option<Grant>, StoreError> {
    let acquired = driver
        .while_open(acquire_open(driver, wish, patience, progress))
        .await?;
    if matches!(&acquired, Err(error) if error.kind() == ErrorKind::Timeout) {
        // Whoever asks next does not find it in line.
        driver.own_departures(&wish.key).await;
    }
    acquired
}

async fn acquire_open(
    driver: &Arc<Driver>,
    wish: &Wish,
    patience: Patience,
    progress: impl FnMut(u64, u32),
) -> Result<Option<Grant>, StoreError> {
    let Capabilities { queueing, push, .. } = driver.store.capabilities();
    let usual = || if push { Retry::default() } else { POLLING };
    let retry = wish.retry.or_else(|| (!queueing).then(usual));
    let Some(retry) = retry.filter(|_| !matches!(patience, Patience::No)) else {
        let waits = !matches!(patience, Patience::No);
        let tried = acquire_in_line(driver, wish, patience, waits, progress).await?;
        return Ok(tried.granted());
    };
    if !queueing {
        return acquire_by_asking(driver, wish, retry, patience).await;
    }
    let mut pauses = retry.pauses(random_u64());
    let never = |_, _| {};
    loop {
        let pause = match acquire_in_line(driver, wish, patience, false, never).await {
            Ok(Tried::Granted(grant)) => return Ok(Some(grant)),
            Ok(Tried::Busy(_)) => pauses.next(),
            // Asking sooner is of no use: a quarantine, or a server that starts.
            Err(refused) if refused.kind() == ErrorKind::Refused => {
                let Some(pause) = refused.retry_after else {
                    return Err(refused);
                };
                Some(pause)
            }
            Err(error) => return Err(error),
        };
        let Some(pause) = pause else {
            return Ok(None);
        };
        let left = match patience {
            Patience::Until(moment) => moment.since(clock::now()),
            Patience::No | Patience::Forever => Duration::MAX,
        };
        if left.is_zero() {
            return Err(timed_out());
        }
        sleep(pause.min(left)).await;
    }
}

/// One claim after the other until one is granted, or busy. `waits` is what the
/// store is told.
pub(super) async fn acquire_in_line(
    driver: &Arc<Driver>,
    wish: &Wish,
    patience: Patience,
    waits: bool,
    mut progress: impl FnMut(u64, u32),
) -> Result<Tried, StoreError> {
    let mut pause = Backoff::new(
        Duration::from_millis(5),
        Duration::from_secs(1),
        random_u64(),
    );
    let (mut rejoined, mut late, mut taken) = (0, 0, 0);
    // In line behind its own it has what they leave; without a line they are in its way.
    let stays = waits && driver.store.capabilities().queueing;
    let stays = stays && matches!(patience, Patience::Forever);
    loop {
        if !stays {
            driver.own_departures(&wish.key).await;
        }
        match attempt(driver, wish, patience, waits, |position| {
            progress(position, rejoined);
        })
        .await?
        {
            Attempt::Granted(grant) => return Ok(Tried::Granted(Grant { rejoined, ..grant })),
            Attempt::Busy(left) => return Ok(Tried::Busy(left)),
            Attempt::Quarantined(left) => return Err(quarantined(left)),
            Attempt::Unacknowledged(error) => return Err(error),
            Attempt::Late if late + 1 == LATE => return Err(too_late(wish.terms.ttl)),
            Attempt::Taken => {
                taken += 1;
                if taken == COLLISIONS {
                    return Err(not_unique());
                }
            }
            gone @ (Attempt::Gone | Attempt::Late) => {
                rejoined += 1;
                late = if matches!(gone, Attempt::Late) {
                    late + 1
                } else {
                    0
                };
                tracing::debug!(key = %wish.key, "the claim has gone; joining again at the tail");
                sleep(pause.pause()).await;
            }
        }
    }
}

async fn attempt(
    driver: &Arc<Driver>,
    wish: &Wish,
    patience: Patience,
    waits: bool,
    mut progress: impl FnMut(u64),
) -> Result<Attempt, StoreError> {
    let now = clock::now();
    let limit = driver.settings.operation_timeout;
    let (give_up, patience) = match patience {
        Patience::Until(end) => (Some(end), limit.min(end.since(now).max(GRACE))),
        Patience::No | Patience::Forever => (None, limit),
    };
    let config = WaiterConfig {
        lease_ttl: wish.terms.ttl,
        waiter_ttl: wish.waiter_ttl,
        give_up,
        patience,
        seed: random_u64(),
    };
    let own = driver.claim_id(&wish.key).await?;
    let claim = Command::Claim(wish.claim(driver, own.id.clone(), waits));
    let mut subject = Subject::new(wish.key.clone(), own, 0, wish.terms, false);
    let asking = Asking::start(driver);
    let resets = driver.resets.load(Ordering::Acquire);
    let mut waiter = Waiter::new(config, now);
    let departure = Departure::new(driver, subject.clone());
    let asked = ask(driver, wish, &claim, &mut waiter).await;
    let Asked {
        sends,
        last_error,
        acknowledged,
        busy_for,
        answered: last_answer,
    } = match asked {
        Ok(asked) => asked,
        Err(Failure::Refused(refused)) => {
            // A definite no to the only request: nothing was changed.
            departure.confirmed();
            return Err(refused);
        }
        // It stands at the store, and is given back as `departure` goes.
        Err(Failure::Unacknowledged(short)) => return Ok(Attempt::Unacknowledged(short)),
    };

    let answered =
        waiter.position().is_some() || matches!(waiter.verdict(), Some(Verdict::Granted { .. }));
    subject.settled = sends == 1 && answered;

    let signal = Arc::new(Signal::new(wish.tells_position));
    let (entry, verdict) = match waiter.verdict() {
        Some(Verdict::Granted {
            arrival,
            token,
            validity,
            ..
        }) => {
            let entry = keep(driver, &subject, &signal, (arrival, token), validity);
            asking.end();
            departure.confirmed();
            signal.set_token(token);
            if let Some(acknowledged) = acknowledged {
                signal.set_acknowledged(acknowledged);
            }
            let grant = Grant {
                entry,
                subject,
                signal,
                rejoined: 0,
            };
            return Ok(hand_over(driver, wish, grant).await);
        }
        Some(verdict) => {
            let none_made = matches!(
                verdict,
                Verdict::Busy | Verdict::Quarantined(_) | Verdict::Mismatch(_) | Verdict::Taken
            );
            if sends == 1 && none_made {
                departure.confirmed();
            }
            asking.end();
            (None, verdict)
        }
        None => {
            let entry = driver.with_registry(|registry, now| {
                if driver.resets.load(Ordering::Acquire) != resets {
                    // The answer came before the inbox was open, or reopened.
                    waiter.handle_reset(now);
                }
                registry.insert_waiting(subject.clone(), waiter, last_answer, signal.clone(), now)
            });
            driver.want_inbox();
            asking.end();
            // From here on the registry has the claim; dropping us withdraws it.
            departure.confirmed();
            let mut registered = Registered {
                driver,
                entry: Some(entry),
                subject: &subject,
            };
            let verdict = driver.verdict(&signal, give_up, &mut progress).await?;
            registered.entry = None;
            (Some(entry), verdict)
        }
    };
    let last_error = signal.last_error().or(last_error);
    match verdict {
        Verdict::Granted { .. } => {
            let Some(entry) = entry else {
                return Ok(Attempt::Gone);
            };
            let grant = Grant {
                entry,
                subject,
                signal,
                rejoined: 0,
            };
            Ok(hand_over(driver, wish, grant).await)
        }
        Verdict::Busy => Ok(Attempt::Busy(busy_for)),
        Verdict::Quarantined(left) => Ok(Attempt::Quarantined(left)),
        Verdict::Gone => Ok(Attempt::Gone),
        Verdict::Taken => Ok(Attempt::Taken),
        Verdict::TimedOut => Err(timed_out()),
        Verdict::Unreachable => Err(last_error.unwrap_or_else(|| unanswered(patience))),
        Verdict::Mismatch(in_use) => Err(mismatch(wish.mode, in_use)),
    }
}

/// What asking for a claim came to.
struct Asked {
    sends: u32,
    last_error: Option<StoreError>,
    /// Who has the grant, where it must be acknowledged and is.
    acknowledged: Option<Acknowledged>,
    /// If the key is busy: how long what blocks it lives without renewal.
    busy_for: Duration,
    answered: LastAnswer,
}

/// Why there is no claim, or none that counts.
enum Failure {
    /// Nothing was changed.
    Refused(StoreError),
    /// It was granted, and too few have acknowledged it.
    Unacknowledged(StoreError),
}

/// Asks until the store has answered once, or it is out of reach.
async fn ask(
    driver: &Arc<Driver>,
    wish: &Wish,
    claim: &Command,
    waiter: &mut Waiter,
) -> Result<Asked, Failure> {
    let mut sends = 0;
    let (mut last_error, mut acknowledged) = (None, None);
    let mut busy_for = Duration::MAX;
    let mut answered = LastAnswer::default();
    loop {
        let now = clock::now();
        waiter.handle_timeout(now);
        if waiter.verdict().is_some() || waiter.position().is_some() {
            return Ok(Asked {
                sends,
                last_error,
                acknowledged,
                busy_for,
                answered,
            });
        }
        let next = waiter
            .poll_timeout()
            .map_or(Duration::ZERO, |next| next.since(now));
        let Some(request) = waiter.poll_transmit(now) else {
            sleep(next).await;
            continue;
        };
        sends += 1;
        let limit = waiter
            .poll_timeout()
            .map_or(Duration::ZERO, |end| end.since(now));
        match timeout(limit, driver.store.step(&wish.key, claim)).await {
            Ok(Ok(answer)) => {
                if let Some(short) = answer.shortfall() {
                    return Err(Failure::Unacknowledged(short));
                }
                acknowledged = answer.achieved();
                answered = LastAnswer::new(now, answer.at);
                if let Reply::Busy { blocked_until } = answer.reply {
                    busy_for = blocked_until.since(answer.at);
                }
                waiter.handle_reply(
                    clock::now(),
                    now,
                    answer.epoch,
                    request,
                    &answer.reply,
                    answer.at,
                );
            }
            Ok(Err(error)) if error.kind() == ErrorKind::Unavailable => {
                last_error = Some(error);
                waiter.handle_unanswered(clock::now());
            }
            Ok(Err(error)) if sends == 1 => return Err(Failure::Refused(error)),
            Ok(Err(error)) => {
                last_error = Some(error);
                waiter.handle_unanswered(clock::now());
            }
            Err(_) => {
                // What the store said before says more.
                last_error.get_or_insert_with(|| unanswered(limit));
                waiter.handle_unanswered(clock::now());
            }
        }
    }
}

/// Hands a claim that was granted at once to the watchdog.
pub(super) fn keep(
    driver: &Arc<Driver>,
    subject: &Subject,
    signal: &Arc<Signal>,
    (arrival, token): (Arrival, Token),
    validity: Validity,
) -> EntryId {
    let Terms {
        ttl,
        policy,
        max_hold,
        ..
    } = subject.terms;
    driver.with_registry(|registry, now| {
        let renewal = Renewal::new(now, ttl, policy, validity, None, false, random_seed(now))
            .of(arrival, token)
            .at_most(max_hold);
        registry.insert_held(subject.clone(), renewal, signal.clone(), arrival, now)
    })
}

/// A seed for pauses; not a secret, so no system randomness on the way to a lease.
fn random_seed(now: Moment) -> u64 {
    now.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Checks the validity once more before a guard is handed out. What waited too
/// long on its way is renewed first, and so is a lease that lives on the TTL of its
/// wait and is not to be renewed by itself: it has its own from the grant.
pub(super) async fn hand_over(driver: &Arc<Driver>, wish: &Wish, grant: Grant) -> Attempt {
    let margin = match wish.terms.policy {
        RenewalPolicy::Automatic(_) => wish.waiter_ttl / 4,
        RenewalPolicy::Manual | RenewalPolicy::Fixed => wish.terms.ttl * 9 / 10,
    };
    let mut registered = Registered {
        driver,
        entry: Some(grant.entry),
        subject: &grant.subject,
    };
    if let Err(error) = confirm(driver, wish, &grant).await {
        // What there is of it is given back as `registered` goes.
        return Attempt::Unacknowledged(error);
    }
    let remaining = grant.signal.valid_until().since(clock::now());
    if remaining < margin {
        // Whatever comes of it is told by the standpoint.
        let ttl = driver.allowed(grant.entry, None);
        let renewal = grant.subject.renewal(ttl);
        driver
            .renew(grant.entry, &grant.subject, renewal)
            .await
            .ok();
    }
    if matches!(grant.signal.standpoint(), Standpoint::Lost(_)) {
        // What may be left of it is given back as `registered` goes.
        return Attempt::Late;
    }
    registered.entry = None;
    drop(registered);
    Attempt::Granted(grant)
}

pub(super) fn too_late(ttl: Duration) -> StoreError {
    StoreError::new(
        ErrorKind::Unavailable,
        format!("the store answers too late for a TTL of {ttl:?}: each lease was over on arrival"),
    )
    .with_hint("choose a longer TTL, or look why the store is slow")
}

/// Counts a claim that is under way and not registered yet, so that a push that
/// overtakes its answer is kept.
pub(super) struct Asking<'a>(&'a Driver);

impl<'a> Asking<'a> {
    pub(super) fn start(driver: &'a Driver) -> Self {
        driver.asking.fetch_add(1, Ordering::AcqRel);
        Self(driver)
    }

    /// The claim is registered, or over.
    fn end(self) {}
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asking.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A registered claim whose caller may go away: then it leaves the queue,
/// unless the entry was taken out before.
struct Registered<'a> {
    driver: &'a Arc<Driver>,
    entry: Option<EntryId>,
    subject: &'a Subject,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.driver.leave(Some(entry), self.subject.clone());
        }
    }
}
