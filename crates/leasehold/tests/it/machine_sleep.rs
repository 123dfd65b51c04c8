//! Suspend of the machine: clocks have advanced, timers have not.

#![cfg(feature = "simulation")]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::simulation::{Dialled, World, bring};
use leasehold::store::memory::MemoryStore;
use leasehold::{Client, Settings};
use tokio::time::{Instant, sleep};

/// tokio's paused clock moves timers; `slept` is what they have missed.
struct Machine {
    began: Instant,
    slept: Cell<Duration>,
}

impl Machine {
    fn up_for(&self) -> Duration {
        Duration::from_secs(1) + self.began.elapsed() + self.slept.get()
    }
}

impl World for Machine {
    fn now(&self) -> Moment {
        Moment(u64::try_from(self.up_for().as_micros()).unwrap_or(u64::MAX))
    }

    fn wall(&self) -> Duration {
        self.up_for()
    }

    fn whereabouts(&self) -> (String, u32) {
        ("machine".to_owned(), 1)
    }

    fn dial(&self, _: &str, _: u16) -> Dialled {
        unreachable!("a store in memory has no server")
    }
}

/// The watchdog means to wake at a time that has passed while its timer stood still.
/// A lease that comes then must not wait for that timer.
#[tokio::test(start_paused = true)]
async fn a_lease_that_begins_after_a_sleep_is_renewed_in_time() {
    let machine = Rc::new(Machine {
        began: Instant::now(),
        slept: Cell::default(),
    });
    let _brought = bring(machine.clone());
    let client = Client::builder()
        .with_store(Arc::new(MemoryStore::new()))
        .settings(Settings::default().with_ttl(Duration::from_secs(30)))
        .connect()
        .await
        .unwrap();
    let long = client.mutex("long").unwrap().lock().await.unwrap();
    sleep(Duration::from_millis(150)).await;
    machine.slept.set(Duration::from_secs(2));

    let short = client.mutex("short").unwrap();
    let short = short.with_ttl(Duration::from_millis(300)).unwrap();
    let short = short.lock().await.unwrap();
    sleep(Duration::from_millis(400)).await;
    assert!(short.is_valid(), "it was not renewed");
    assert!(long.is_valid());
}
