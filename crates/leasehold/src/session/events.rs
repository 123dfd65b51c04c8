//! Delivers facts about claims to the client's observers.
//!
//! Facts are collected while a claim is locked and delivered after it is unlocked, so that
//! observers may use the client.

use std::sync::TryLockError;

use leasehold_core::Fact;
use tracing::Span;

use crate::background;
use crate::observe::{ObservedClaim, Observers, Spans};
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// Tells what is to be told, one task at a time, so that facts keep their order: a task that
/// comes meanwhile leaves its own to that one.
#[derive(Default)]
pub(super) struct EventQueue {
    any: AtomicBool,
    pending: Mutex<Vec<(ObservedClaim, Fact, Span)>>,
    /// The task that holds it delivers.
    turn: Mutex<Spans>,
}

impl EventQueue {
    /// Adds a fact.
    pub(super) fn keep(&self, claim: ObservedClaim, fact: Fact, span: Span) {
        lock(&self.pending).push((claim, fact, span));
        self.any.store(true, Ordering::Release);
    }

    /// Delivers the collected facts. The caller must not hold locks.
    pub(super) fn deliver(&self, observers: &Observers) {
        while self.any.load(Ordering::Acquire) {
            if background::thread_ends() {
                // What subscribers of `tracing` keep of it is gone: another thread tells.
                return;
            }
            let mut holds = match self.turn.try_lock() {
                Ok(holds) => holds,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            self.any.store(false, Ordering::Release);
            let facts = std::mem::take(&mut *lock(&self.pending));
            for (claim, fact, acquisition) in facts {
                observers.tell(&claim, fact, &acquisition, &mut holds);
            }
        }
    }
}
