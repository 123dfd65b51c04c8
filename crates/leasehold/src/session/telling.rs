//! Facts on their way to those who observe the client.
//!
//! They come to light while the registry is locked, and are told when it is not: whoever hears
//! them may use the client.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use leasehold_core::{Fact, Facts, Life, Moment};
use tracing::Span;

use super::Session;
use super::registry::Registry;
use crate::observe::{ObservedClaim, Observers};
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError};

/// What was told of one claim.
#[derive(Debug)]
pub(super) struct Told {
    facts: Facts,
    claim: ObservedClaim,
    /// The span that it is in: its acquisition, then its hold.
    span: Arc<Mutex<Span>>,
}

impl Told {
    pub(super) fn new(claim: ObservedClaim) -> Self {
        let span = Arc::new(Mutex::new(Span::current()));
        let facts = Facts::default();
        Self { facts, claim, span }
    }

    /// Looks at the claim: what is new is to be told.
    pub(super) fn look(&mut self, life: &Life, now: Moment, telling: &mut Telling) {
        let (claim, span) = (&self.claim, &self.span);
        self.facts
            .look(life, now, |fact| telling.add(claim, fact, span));
    }
}

/// What is to be told.
#[derive(Debug, Default)]
pub(super) struct Telling {
    observers: Observers,
    pending: Vec<(ObservedClaim, Fact, Arc<Mutex<Span>>)>,
    any: Arc<AtomicBool>,
}

impl Telling {
    pub(super) fn to(observers: Observers) -> Self {
        Self {
            observers,
            ..Self::default()
        }
    }

    fn add(&mut self, claim: &ObservedClaim, fact: Fact, span: &Arc<Mutex<Span>>) {
        if self.observers.hear(&fact) {
            self.pending.push((claim.clone(), fact, span.clone()));
            self.any.store(true, Ordering::Release);
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
    turn: Mutex<()>,
}

impl Teller {
    pub(super) fn of(registry: &Registry) -> Self {
        Self {
            any: registry.telling.any.clone(),
            turn: Mutex::new(()),
        }
    }
}

struct Afterwards<'a>(&'a Session);

impl Drop for Afterwards<'_> {
    fn drop(&mut self) {
        let Self(session) = self;
        while session.teller.any.load(Ordering::Acquire) {
            let Ok(_turn) = session.teller.turn.try_lock() else {
                return;
            };
            let (facts, observers) = {
                let telling = &mut session.locked().telling;
                telling.any.store(false, Ordering::Release);
                let facts = std::mem::take(&mut telling.pending);
                (facts, telling.observers.clone())
            };
            for (claim, fact, span) in facts {
                let mut span = span.lock().unwrap_or_else(PoisonError::into_inner);
                observers.tell(&claim, fact, &mut span);
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
