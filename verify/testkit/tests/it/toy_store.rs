//! A store as somebody else would write it, of public items only: records as text in a map.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use async_trait::async_trait;
use leasehold::core::{Inbox, Key, Queue, Snapshot, StoreTime};
use leasehold::store::{
    Capabilities, Listening, Listing, LockStore, OnePage, Push, PushSink, Records, Step, Transacted,
};
use leasehold::{ErrorKind, StoreError};
use leasehold_testkit::conformance::Fixture;
use leasehold_testkit::dice::Dice;

/// What all clients of the store share.
#[derive(Default)]
struct Place {
    records: BTreeMap<Key, String>,
    ears: BTreeMap<Inbox, (u64, Arc<dyn PushSink>)>,
    epochs: u64,
}

impl Place {
    fn read(&self, key: &Key) -> Result<Queue, StoreError> {
        let Some(text) = self.records.get(key) else {
            return Ok(Queue::default());
        };
        serde_json::from_str(text)
            .map_err(|error| StoreError::new(ErrorKind::Corrupt, error.to_string()))
    }

    fn tell(&self, inbox: &Inbox, push: impl FnOnce(u64) -> Push) -> bool {
        let ear = self.ears.get(inbox);
        ear.map(|(epoch, sink)| sink.push(push(*epoch))).is_some()
    }
}

struct Toy {
    place: Arc<Mutex<Place>>,
    inbox: Inbox,
}

impl fmt::Debug for Toy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Toy")
    }
}

fn now() -> StoreTime {
    StoreTime(0) + SystemTime::UNIX_EPOCH.elapsed().unwrap()
}

#[async_trait]
impl Records for Toy {
    fn capabilities(&self) -> Capabilities {
        Capabilities::queueing("toy")
    }

    async fn transact(&self, keys: &[&Key], step: Step<'_>) -> Result<Transacted, StoreError> {
        let mut place = self.place.lock().unwrap();
        let now = now();
        let queues = keys.iter().map(|key| place.read(key));
        let mut queues = queues.collect::<Result<Vec<_>, _>>()?;
        let mut taken = step.apply(&mut queues, now);
        let changed = keys.iter().zip(queues).zip(taken.iter_mut().flatten());
        for ((key, mut queue), outcome) in changed {
            queue.deliver(std::mem::take(&mut outcome.events), now, |event| {
                place.tell(event.inbox(), |epoch| {
                    Push::of(event, key, outcome.at, epoch)
                })
            });
            let text = serde_json::to_string(&queue).unwrap();
            place.records.insert((*key).clone(), text);
        }
        let epoch = place.ears.get(&self.inbox).map_or(0, |ear| ear.0);
        Ok(Transacted { taken, epoch })
    }

    async fn look(&self, key: &Key) -> Result<Snapshot, StoreError> {
        Ok(self.place.lock().unwrap().read(key)?.look(now()))
    }

    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a> {
        let place = self.place.lock().unwrap();
        let queues: Vec<_> = place
            .records
            .keys()
            .map(|key| place.read(key).unwrap())
            .collect();
        Box::new(OnePage::new(
            place.records.keys().zip(&queues),
            pattern,
            now(),
        ))
    }

    fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        let mut place = self.place.lock().unwrap();
        place.epochs += 1;
        let epoch = place.epochs;
        place.ears.insert(self.inbox.clone(), (epoch, sink));
        Ok(Box::new(Ear(self.place.clone(), self.inbox.clone())))
    }
}

struct Ear(Arc<Mutex<Place>>, Inbox);

impl Listening for Ear {}

impl Drop for Ear {
    fn drop(&mut self) {
        self.0.lock().unwrap().ears.remove(&self.1);
    }
}

/// Makes its clients.
struct Toys(Arc<Mutex<Place>>, Mutex<Dice>);

#[async_trait]
impl Fixture for Toys {
    async fn client(&self) -> Arc<dyn LockStore> {
        Arc::new(Toy {
            place: self.0.clone(),
            inbox: Inbox::from_random(self.1.lock().unwrap().roll(u64::MAX)),
        })
    }
}

leasehold_testkit::conformance!(Toys(Arc::default(), Mutex::new(Dice(1))));
