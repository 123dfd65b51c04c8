//! Facts on their way to those who observe the client.
//!
//! They come to light while the registry is locked, and are told when it is not: whoever hears
//! them may use the client.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, TryLockError};

use leasehold_core::{Fact, Facts, Life, Moment};
use tracing::Span;

use super::Session;
use super::registry::Registry;
use crate::observe::{ObservedClaim, Observers, Spans};
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError};

/// What was told of one claim.
#[derive(Debug)]
pub(super) struct Told {
    facts: Facts,
    claim: ObservedClaim,
    /// The span of the acquisition, until that is over: a span ends with its last handle.
    acquisition: Span,
}

impl Told {
    pub(super) fn new(claim: ObservedClaim) -> Self {
        Self {
            facts: Facts::default(),
            claim,
            acquisition: Span::current(),
        }
    }

    /// Looks at the claim: what is new is to be told.
    pub(super) fn look(&mut self, life: &Life, now: Moment, telling: &mut Telling) {
        let acquisition = &mut self.acquisition;
        self.facts.look(life, now, |fact| {
            let mut span = acquisition.clone();
            if matches!(fact, Fact::Granted { .. } | Fact::Ended { .. }) {
                span = std::mem::replace(acquisition, Span::none());
            }
            if telling.observers.hear(&fact) {
                telling.pending.push((self.claim.clone(), fact, span));
                telling.any.store(true, Ordering::Release);
            }
        });
    }
}

/// What is to be told.
#[derive(Debug, Default)]
pub(super) struct Telling {
    observers: Observers,
    pending: Vec<(ObservedClaim, Fact, Span)>,
    any: Arc<AtomicBool>,
}

impl Telling {
    pub(super) fn to(observers: Observers) -> Self {
        Self {
            observers,
            ..Self::default()
        }
    }
}

/// The registry, while it is locked. What comes to light meanwhile is told afterwards: fields
/// are dropped in this order.
pub(super) struct Locked<'a> {
    registry: MutexGuard<'a, Registry>,
    _afterwards: Afterwards<'a>,
}

/// Tells what is to be told, one task at a time, so that facts keep their order: a task that
/// comes meanwhile leaves its own to that one.
pub(super) struct Teller {
    any: Arc<AtomicBool>,
    /// Whoever has it tells.
    turn: Mutex<Spans>,
}

impl Teller {
    pub(super) fn of(registry: &Registry) -> Self {
        Self {
            any: registry.telling.any.clone(),
            turn: Mutex::new(HashMap::new()),
        }
    }
}

struct Afterwards<'a>(&'a Session);

impl Drop for Afterwards<'_> {
    fn drop(&mut self) {
        let Self(session) = self;
        while session.teller.any.load(Ordering::Acquire) {
            let mut holds = match session.teller.turn.try_lock() {
                Ok(holds) => holds,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let (facts, observers) = {
                let telling = &mut session.locked().telling;
                telling.any.store(false, Ordering::Release);
                let facts = std::mem::take(&mut telling.pending);
                (facts, telling.observers.clone())
            };
            for (claim, fact, acquisition) in facts {
                // Whose fault it is must not end the task that keeps everybody's leases. The
                // panic was reported by its hook.
                let tell = AssertUnwindSafe(|| {
                    observers.tell(&claim, fact, &acquisition, &mut holds);
                });
                catch_unwind(tell).ok();
            }
        }
    }
}

impl Session {
    pub(super) fn lock(&self) -> Locked<'_> {
        Locked {
            registry: self.locked(),
            _afterwards: Afterwards(self),
        }
    }

    fn locked(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Locked<'_> {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.registry
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Registry {
        &mut self.registry
    }
}
