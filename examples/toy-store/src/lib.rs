//! A store for leasehold as somebody else would write it: a record of text per key, in a map
//! that all clients share.
//!
//! Replace the map with what keeps your records. `leasehold::Client::builder().with_store(..)`
//! takes a [`Toy`] as any other store.

pub mod journal;
mod scheme;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use leasehold_store::core::{Inbox, Key, Queue, Snapshot, StoreTime};
use leasehold_store::{
    Capabilities, ErrorKind, Listening, Listing, OnePage, Push, PushSink, Records, Step,
    StoreError, Transacted, clock, random::random_u64,
};

pub use scheme::Toys;

/// Where the records are. All clones are one place.
#[derive(Debug, Clone, Default)]
pub struct Place(Arc<Mutex<Contents>>);

#[derive(Default)]
struct Contents {
    records: BTreeMap<Key, String>,
    /// Those that are open, each with its connection epoch.
    inboxes: BTreeMap<Inbox, (u64, Arc<dyn PushSink>)>,
    epochs: u64,
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.records.fmt(f)
    }
}

impl Place {
    /// Another client.
    pub fn client(&self) -> Toy {
        Toy {
            place: self.clone(),
            inbox: Inbox::from_random(random_u64()),
        }
    }

    /// Held for a whole step, which makes it atomic.
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    fn read(&self, key: &Key) -> Result<Queue, StoreError> {
        self.records.get(key).map_or(Ok(Queue::default()), |text| {
            serde_json::from_str(text).map_err(corrupt)
        })
    }
}

fn corrupt(error: serde_json::Error) -> StoreError {
    StoreError::new(ErrorKind::Corrupt, "the record cannot be read").with_source(error)
}

/// The store's time. It must be one clock for all clients; it may step back.
fn now() -> StoreTime {
    StoreTime(0) + clock::wall()
}

/// One client of a [`Place`].
#[derive(Debug)]
pub struct Toy {
    place: Place,
    inbox: Inbox,
}

#[async_trait]
impl Records for Toy {
    fn capabilities(&self) -> Capabilities {
        Capabilities::queueing("toy")
    }

    async fn transact(&self, keys: &[&Key], step: Step<'_>) -> Result<Transacted, StoreError> {
        let mut place = self.place.lock();
        let now = now();
        let queues = keys.iter().map(|key| place.read(key));
        let mut queues = queues.collect::<Result<Vec<_>, _>>()?;
        let epoch = place.inboxes.get(&self.inbox).map_or(0, |open| open.0);
        let mut taken = step.apply(&mut queues, now);
        // Where not all was taken, there are no outcomes here, and nothing is put back.
        let changed = keys.iter().zip(queues).zip(taken.iter_mut().flatten());
        for ((key, mut queue), outcome) in changed {
            let at = outcome.at;
            queue.deliver(outcome, now, |event| {
                let open = place.inboxes.get(event.inbox());
                let push = |epoch| Push::of(event, key, at, epoch);
                open.map(|(epoch, sink)| sink.push(push(*epoch))).is_some()
            });
            let text = serde_json::to_string(&queue).map_err(corrupt)?;
            place.records.insert(Key::clone(key), text);
        }
        Ok(Transacted { taken, epoch })
    }

    async fn look(&self, key: &Key) -> Result<Snapshot, StoreError> {
        Ok(self.place.lock().read(key)?.look(now()))
    }

    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a> {
        let place = self.place.lock();
        let queues = place.records.keys().map(|key| (key, place.read(key)));
        Box::new(OnePage::new(queues, pattern, now()))
    }

    fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        let mut place = self.place.lock();
        place.epochs += 1;
        let open = (place.epochs, sink);
        place.inboxes.insert(self.inbox.clone(), open);
        Ok(Box::new(Open(self.place.clone(), self.inbox.clone())))
    }
}

/// An open inbox; it ends with this value.
struct Open(Place, Inbox);

impl Listening for Open {}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.lock().inboxes.remove(&self.1);
    }
}
