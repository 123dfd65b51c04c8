//! One claim of the client, as the registry has it.

use std::sync::Arc;

use leasehold_core::{Arrival, Key, Life, Moment, Phase, Transmit};

use super::own_id::{OwnId, OwnIds};
use super::registry::EntryId;
use super::signal::Signal;
use super::telling::Told;
use crate::error::StoreError;
use crate::store::Answer;

/// What came of a request: an answer, what the store or the connection said, or nothing in
/// time.
pub(crate) type Carried = Result<Answer, Option<StoreError>>;

/// One request on its way to the store.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) entry: EntryId,
    pub(crate) key: Key,
    pub(crate) transmit: Transmit,
}

/// A claim, and who drives it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) life: Life,
    pub(super) told: Told,
    pub(super) signal: Arc<Signal>,
    /// The ids under which it may stand, so that no other claim gets them.
    pub(super) ids: Vec<OwnId>,
    pub(super) timer: Option<Moment>,
    /// As it is found: see `Registry::settle`.
    pub(super) phase: Phase,
    pub(super) arrival: Option<Arrival>,
    /// So many tasks drive it themselves.
    pub(super) driven: usize,
    /// Its caller has let go of it.
    pub(super) orphan: bool,
}

impl Entry {
    pub(super) fn poll_transmit(&mut self, now: Moment, ids: &OwnIds) -> Option<Transmit> {
        let (key, own) = (&self.key, &mut self.ids);
        self.life.poll_transmit(now, || {
            let fresh = ids.now(key)?;
            own.push(fresh.clone());
            Some(fresh.id)
        })
    }

    /// When the watchdog has to see to it. A task that asks or releases sees to that itself.
    pub(super) fn due(&self) -> Option<Moment> {
        let own = self.driven > 0 && matches!(self.phase, Phase::Asking | Phase::Leaving);
        if own { None } else { self.life.poll_timeout() }
    }
}
