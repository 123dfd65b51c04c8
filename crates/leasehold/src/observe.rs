//! What happens to a client's claims, as typed facts, for whoever observes it.
//!
//! `tracing` hears the same facts: a span `leasehold.acquire` for each acquisition, a span
//! `leasehold.hold` for each lease that follows from it, and events in them. The attributes are
//! named as OpenTelemetry wants them: `leasehold.key`, `leasehold.token`, durations in seconds.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

pub use leasehold_core::{End, Fact};
use leasehold_core::{Key, Loss, Mode};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Span};

/// A claim as observers see it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ObservedClaim {
    /// The key.
    pub key: Key,
    /// Capacity and weight.
    pub mode: Mode,
    /// Tells the claims of one client apart.
    pub number: u64,
}

/// Hears what happens to the claims of a client. A closure is one, too.
///
/// The facts of one claim come in their order, on whichever task or thread they come to light:
/// return at once, and do not block. The client may be used, also from there. A panic ends the
/// telling of that fact only.
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
/// # lease.release().await?;
/// # Ok(()) }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Hears one fact.
    fn observe(&self, claim: &ObservedClaim, fact: Fact);
}

impl<F: Fn(&ObservedClaim, Fact) + Send + Sync + 'static> Observer for F {
    fn observe(&self, claim: &ObservedClaim, fact: Fact) {
        self(claim, fact);
    }
}

/// Those who observe a client, beside `tracing`.
#[derive(Clone, Default)]
pub(crate) struct Observers(Vec<Arc<dyn Observer>>);

impl Observers {
    pub(crate) fn add(&mut self, observer: impl Observer) {
        self.0.push(Arc::new(observer));
    }

    /// Whether anybody wants to hear of it.
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
        trace(claim, fact, acquisition, holds);
        for observer in &self.0 {
            observer.observe(claim, fact);
        }
    }
}

/// The spans of leases, by the numbers of their claims.
pub(crate) type Spans = HashMap<u64, Span>;

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", self.0.len())
    }
}

/// An acquisition, for `tracing`.
pub(crate) fn acquisition(key: &Key) -> Span {
    tracing::info_span!("leasehold.acquire", otel.kind = "client", leasehold.key = %key)
}

/// A client that is shut down, or hands its lease over, loses it by its own will.
fn is_wanted(loss: Loss) -> bool {
    matches!(loss, Loss::HandedOver | Loss::Shutdown)
}

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
    let none = Span::none();
    match fact {
        Fact::Requested => {
            tracing::debug!(parent: acquisition, leasehold.key = %key, "asks");
        }
        Fact::Queued { position } => {
            tracing::debug!(parent: acquisition, leasehold.key = %key, leasehold.position = position, "waits");
        }
        Fact::Granted { token, waited } => {
            tracing::info!(
                parent: acquisition, leasehold.key = %key, leasehold.token = token.get(),
                leasehold.waited_s = waited.as_secs_f64(), "acquired"
            );
            let hold = tracing::info_span!(
                parent: None, "leasehold.hold", leasehold.key = %key, leasehold.token = token.get()
            );
            hold.follows_from(acquisition);
            if !hold.is_none() {
                holds.insert(claim.number, hold);
            }
        }
        Fact::Renewed { remaining } => {
            let (hold, left) = (holds.get(&claim.number), remaining.as_secs_f64());
            let hold = hold.unwrap_or(&none);
            tracing::trace!(parent: hold, leasehold.key = %key, leasehold.remaining_s = left, "renewed");
        }
        Fact::Unanswered { remaining } => {
            let (hold, left) = (holds.get(&claim.number), remaining.as_secs_f64());
            tracing::warn!(
                parent: hold.unwrap_or(&none), leasehold.key = %key, leasehold.remaining_s = left,
                "no answer to a renewal; trying again"
            );
        }
        Fact::Lost { loss, held } => {
            let hold = holds.remove(&claim.number).unwrap_or(none);
            let held = held.as_secs_f64();
            if is_wanted(loss) {
                tracing::info!(parent: &hold, leasehold.key = %key, leasehold.held_s = held, "gave up: {loss}");
            } else {
                tracing::warn!(parent: &hold, leasehold.key = %key, leasehold.held_s = held, "lost: {loss}");
            }
        }
        Fact::Released { held } => {
            let hold = holds.remove(&claim.number).unwrap_or(none);
            let held = held.as_secs_f64();
            tracing::info!(parent: &hold, leasehold.key = %key, leasehold.held_s = held, "released");
        }
        Fact::Ended { end, waited } => {
            let why = end.map_or("withdrawn", End::name);
            tracing::debug!(
                parent: acquisition, leasehold.key = %key, leasehold.waited_s = waited.as_secs_f64(), "{why}"
            );
        }
        _ => {}
    }
}
