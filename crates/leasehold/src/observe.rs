//! Observability: events of a client's claims as typed facts, `tracing` spans and metrics.
//!
//! `tracing` gets the same facts: a span `leasehold.acquire` for each acquisition, a span
//! `leasehold.hold` for each lease, and events in both. The attributes follow the conventions of
//! OpenTelemetry: `leasehold.key`, `leasehold.token`, durations in seconds.
//!
//! With the feature `metrics`, the observer `Metrics` records metrics. `docs/metrics.md` lists
//! all metrics and spans.

#[cfg(feature = "metrics")]
mod metrics;

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub use leasehold_core::{End, Fact};
use leasehold_core::{Key, Loss, Mode, Moment};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Span, field};

#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
use crate::clock;
use crate::error::{ErrorKind, StoreError};

/// A claim as observers see it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ObservedClaim {
    /// The key.
    pub key: Key,
    /// Capacity and weight.
    pub mode: Mode,
    /// The number of the claim, unique within its client.
    pub number: u64,
}

/// An acquisition: one call that acquires a key, such as `lock()`.
///
/// It makes one claim or several: on a store without a queue the client asks again with a new
/// claim each time, and a claim that lost its place in the queue is replaced. A
/// [`MultiLock`](crate::MultiLock) acquires each of its keys: first all of them in one step, and
/// one by one if that finds a key busy or the store cannot do it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Acquisition<'a> {
    /// The key.
    pub key: &'a Key,
    /// Capacity and weight.
    pub mode: Mode,
    /// How it ended, and the time from the call to its end; `None` when it begins.
    pub ended: Option<(AcquireOutcome, Duration)>,
}

/// How an acquisition ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcquireOutcome {
    /// The caller has the lease.
    Granted,
    /// The key was not free, and the caller did not want to wait.
    Busy,
    /// The caller gave up: the future was dropped. Also: the store cannot lock these keys in one
    /// step, and the caller acquires them one by one.
    Withdrawn,
    /// The acquisition failed. [`ErrorKind::Timeout`]: the key did not become free in time.
    Failed(ErrorKind),
}

impl fmt::Display for AcquireOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted => f.write_str("granted"),
            Self::Busy => f.write_str("busy"),
            Self::Withdrawn => f.write_str("withdrawn"),
            Self::Failed(kind) => kind.fmt(f),
        }
    }
}

/// A request to the store on behalf of a claim, once it was answered or has failed.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StoreRequest<'a> {
    /// The key; of several the first.
    pub key: &'a Key,
    /// `claim`, `claim_all` (several keys in one step), `renew` or `release`.
    pub verb: &'static str,
    /// From sending to the answer or the failure; includes the time to reconnect.
    pub took: Duration,
    /// Why it failed; [`ErrorKind::Timeout`] if no answer came in time.
    pub failed: Option<ErrorKind>,
    /// What the store said, if it failed and not for want of time. An error of the kind
    /// [`ErrorKind::Unavailable`] with a [`retry_after`](StoreError::retry_after) passes by itself:
    /// the request is sent again while its caller waits.
    pub error: Option<&'a StoreError>,
}

/// Receives the events of a client's claims. Closures implement it too.
///
/// The facts of one claim arrive in order, on the task or thread that notices them. Return at
/// once, and do not block. The observer may use the client. A panic ends only the call for that
/// fact.
///
/// Acquisitions and requests are reported on the task that makes them. Their order relative to the
/// facts is not defined.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// use std::sync::mpsc::channel;
/// use leasehold::observe::{Fact, ObservedClaim};
/// let (told, heard) = channel();
/// let client = leasehold::Client::builder()
///     .store("memory:")
///     .observer(move |claim: &ObservedClaim, fact: Fact| {
///         if let Fact::Granted { waited, .. } = fact {
///             told.send((claim.key.to_string(), waited)).ok();
///         }
///     })
///     .connect()
///     .await?;
/// let lease = client.mutex("orders/42")?.lock().await?;
/// assert_eq!(heard.recv().unwrap().0, "orders/42");
/// # drop(lease);
/// # Ok(()) }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Called for each fact.
    fn observe(&self, claim: &ObservedClaim, fact: Fact);

    /// Called when an acquisition begins, and again when it ends.
    fn acquisition(&self, acquisition: Acquisition<'_>) {
        let _ = acquisition;
    }

    /// Called after each request to the store. A request whose future was dropped before its end
    /// is not reported.
    fn request(&self, request: StoreRequest<'_>) {
        let _ = request;
    }

    /// Called when pushed grants may have been missed, because the client reconnected: after an
    /// outage, or when it follows a fail-over or a moved slot. It is not called while the client
    /// has no claim that waits or is held.
    fn reconnected(&self) {}
}

impl<F: Fn(&ObservedClaim, Fact) + Send + Sync + 'static> Observer for F {
    fn observe(&self, claim: &ObservedClaim, fact: Fact) {
        self(claim, fact);
    }
}

/// Those who observe a client, beside `tracing`.
#[derive(Clone, Default)]
pub(crate) struct Observers(pub(crate) Vec<Arc<dyn Observer>>);

impl Observers {
    /// Whether there is an observer for it.
    pub(crate) fn hear(&self, fact: &Fact) -> bool {
        !self.0.is_empty() || level(fact) <= LevelFilter::current()
    }

    /// Tells all of them. `acquisition` is the span that the claim is asked for in, `holds` are
    /// those of the leases.
    pub(crate) fn tell(
        &self,
        claim: &ObservedClaim,
        fact: Fact,
        acquisition: &Span,
        holds: &mut Spans,
    ) {
        // Whose fault it is must not end the task that keeps everybody's leases.
        catch_unwind(AssertUnwindSafe(|| trace(claim, fact, acquisition, holds))).ok();
        self.each(|observer| observer.observe(claim, fact));
    }

    /// Reports a request that was sent at `sent`, and its result.
    pub(crate) fn request<T>(
        &self,
        key: &Key,
        verb: &'static str,
        sent: Moment,
        answer: &Result<T, Option<StoreError>>,
    ) {
        let failed = answer.as_ref().err();
        self.each(|observer| {
            observer.request(StoreRequest {
                key,
                verb,
                took: clock::now().since(sent),
                failed: failed
                    .map(|error| error.as_ref().map_or(ErrorKind::Timeout, StoreError::kind)),
                error: failed.and_then(Option::as_ref),
            });
        });
    }

    /// Calls each observer. A panic ends that call only; the panic hook has reported it.
    pub(crate) fn each(&self, tell: impl Fn(&dyn Observer)) {
        for observer in &self.0 {
            catch_unwind(AssertUnwindSafe(|| tell(&**observer))).ok();
        }
    }
}

/// An acquisition in progress: its span, and the reports to observers. Dropping it without an
/// outcome reports that the caller withdrew.
pub(crate) struct Acquiring<'a> {
    observers: &'a Observers,
    key: &'a Key,
    mode: Mode,
    began: Moment,
    outcome: AcquireOutcome,
    span: Span,
}

impl<'a> Acquiring<'a> {
    pub(crate) fn begin(observers: &'a Observers, key: &'a Key, mode: Mode) -> Self {
        let acquiring = Self {
            observers,
            key,
            mode,
            began: clock::now(),
            outcome: AcquireOutcome::Withdrawn,
            span: tracing::info_span!(
                "leasehold.acquire", otel.kind = "client", otel.status_code = field::Empty,
                leasehold.key = %key, leasehold.outcome = field::Empty
            ),
        };
        acquiring.tell(None);
        acquiring
    }

    /// The span in which the claims of this acquisition are made.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Reports how it came out; the inner error is how its claim has ended.
    pub(crate) fn end<T>(mut self, acquired: Result<&Result<T, End>, &StoreError>) {
        self.outcome = match acquired {
            Ok(Ok(_)) => AcquireOutcome::Granted,
            Ok(Err(End::Busy(_))) => AcquireOutcome::Busy,
            // The claim that was to be adopted does not exist any more.
            Ok(Err(End::Gone | End::Superseded)) => AcquireOutcome::Failed(ErrorKind::Lost),
            Ok(Err(_)) => AcquireOutcome::Withdrawn,
            Err(error) => AcquireOutcome::Failed(error.kind()),
        };
    }

    fn tell(&self, ended: Option<AcquireOutcome>) {
        self.observers.each(|observer| {
            observer.acquisition(Acquisition {
                key: self.key,
                mode: self.mode,
                ended: ended.map(|outcome| (outcome, clock::now().since(self.began))),
            });
        });
    }
}

impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        let outcome = self.outcome;
        self.span
            .record("leasehold.outcome", field::display(outcome));
        if matches!(outcome, AcquireOutcome::Failed(kind) if kind != ErrorKind::Timeout) {
            self.span.record("otel.status_code", "ERROR");
        }
        self.tell(Some(outcome));
    }
}

/// The spans of leases, by the numbers of their claims.
pub(crate) type Spans = HashMap<u64, Span>;

/// A client that is shut down, or hands its lease over, loses it by its own will.
fn is_wanted(loss: Loss) -> bool {
    matches!(loss, Loss::HandedOver | Loss::Shutdown)
}

/// The level from which on anything of it is seen. A lease has a span, which begins and ends by
/// facts that are events of a lower level.
fn level(fact: &Fact) -> Level {
    match fact {
        Fact::Granted { .. } | Fact::Released { .. } => Level::INFO,
        Fact::Lost { loss, .. } if is_wanted(*loss) => Level::INFO,
        Fact::Lost { .. } | Fact::Unanswered { .. } => Level::WARN,
        Fact::Renewed { .. } => Level::TRACE,
        _ => Level::DEBUG,
    }
}

fn trace(claim: &ObservedClaim, fact: Fact, acquisition: &Span, holds: &mut Spans) {
    let key = &claim.key;
    let hold = holds.get(&claim.number).cloned().unwrap_or_else(Span::none);
    match fact {
        Fact::Requested => tracing::debug!(parent: acquisition, leasehold.key = %key, "asks"),
        Fact::Queued { position } => tracing::debug!(
            parent: acquisition, leasehold.key = %key, leasehold.position = position, "waits"
        ),
        Fact::Granted { token, waited } => {
            tracing::debug!(
                parent: acquisition, leasehold.key = %key, leasehold.token = token.get(),
                leasehold.waited_s = waited.as_secs_f64(), "acquired"
            );
            let hold = tracing::info_span!(
                parent: None, "leasehold.hold", otel.status_code = field::Empty,
                leasehold.key = %key, leasehold.token = token.get()
            );
            hold.follows_from(acquisition);
            if !hold.is_none() {
                holds.insert(claim.number, hold);
            }
        }
        Fact::Renewed { remaining } => tracing::trace!(
            parent: &hold, leasehold.key = %key,
            leasehold.remaining_s = remaining.as_secs_f64(), "renewed"
        ),
        Fact::Unanswered { remaining } => tracing::warn!(
            parent: &hold, leasehold.key = %key,
            leasehold.remaining_s = remaining.as_secs_f64(), "a renewal failed; trying again"
        ),
        Fact::Lost { loss, held } => {
            let held = held.as_secs_f64();
            if is_wanted(loss) {
                tracing::debug!(parent: &hold, leasehold.key = %key, leasehold.held_s = held, "gave up: {loss}");
            } else {
                hold.record("otel.status_code", "ERROR");
                tracing::warn!(parent: &hold, leasehold.key = %key, leasehold.held_s = held, "lost: {loss}");
            }
        }
        Fact::Released { held } => tracing::debug!(
            parent: &hold, leasehold.key = %key, leasehold.held_s = held.as_secs_f64(), "released"
        ),
        Fact::Ended { end, waited } => {
            let why = end.map_or("withdrawn", End::name);
            tracing::debug!(
                parent: acquisition, leasehold.key = %key, leasehold.waited_s = waited.as_secs_f64(), "{why}"
            );
        }
        _ => {}
    }
    if matches!(fact, Fact::Lost { .. } | Fact::Released { .. }) {
        holds.remove(&claim.number);
    }
}
