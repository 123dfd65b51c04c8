//! Suspend of the machine: clocks have advanced, timers have not.

#![cfg(feature = "simulation")]

use std::cell::Cell;
use std::rc::Rc;

use leasehold::core::Moment;
use leasehold::simulation::{Dialled, World, bring};

use crate::steps::*;

/// tokio's paused clock moves timers; `slept` is what they have missed.
struct Machine {
    began: Instant,
    slept: Cell<Duration>,
}

impl Machine {
    fn new() -> Rc<Self> {
        Rc::new(Self {
            began: Instant::now(),
            slept: Cell::default(),
        })
    }

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
    let machine = Machine::new();
    let _brought = bring(machine.clone());
    let settings = Settings::default().with_ttl(Duration::from_secs(30));
    let client = client_with("memory:", settings).await;
    let long = client.mutex("long").unwrap().lock().await.unwrap();
    sleep(Duration::from_millis(150)).await;
    machine.slept.set(Duration::from_secs(2));

    let short = client.mutex("short").unwrap();
    let short = short.with_ttl(Duration::from_millis(300));
    let short = short.lock().await.unwrap();
    sleep(Duration::from_millis(400)).await;
    assert!(short.is_valid(), "it was not renewed");
    assert!(long.is_valid());
}

/// It was the machine that stood still: the store has been asked nothing meanwhile, and is there.
#[tokio::test(start_paused = true)]
async fn who_waits_goes_on_after_a_sleep_at_the_end_of_the_queue() {
    let machine = Machine::new();
    let _brought = bring(machine.clone());
    let url = "memory:who_waits_goes_on";
    let (one, other) = (connect(url).await, connect(url).await);
    let held = one.mutex("k").unwrap().with_ttl(Duration::from_secs(3600));
    let held = held.lock().await.unwrap();
    let waits = waiting(&other, "k");
    while one.inspect("k").await.unwrap().waiters.is_empty() {
        yield_now().await;
    }
    machine.slept.set(Duration::from_secs(90));
    sleep(Duration::from_secs(4)).await;
    let _ = held.release().await.unwrap();
    assert_eq!(waits.await.unwrap().unwrap().rejoined(), 1);
}

/// On one machine too: the time of `local:` runs on while it sleeps, for minimum holds. A lease of
/// a longer TTL is kept.
#[cfg(all(target_os = "linux", feature = "local"))]
#[tokio::test(start_paused = true)]
async fn a_local_lease_is_lost_by_a_sleep_that_is_longer_than_its_ttl() {
    let machine = Machine::new();
    let _brought = bring(machine.clone());
    let place = tempfile::TempDir::new().unwrap();
    let url = format!("local:{}", place.path().display());
    let (one, other) = (connect(&url).await, connect(&url).await);
    let held = async |key: &str, seconds| {
        let lock = one.mutex(key).unwrap();
        let lock = lock.with_ttl(Duration::from_secs(seconds));
        lock.lock().await.unwrap()
    };
    let (short, long) = (held("short", 30).await, held("long", 3600).await);
    let daily = one.mutex("daily").unwrap();
    let daily = daily.with_min_hold(Duration::from_secs(60));
    let _ = daily.lock().await.unwrap().release().await.unwrap();
    let taken = async |key: &str| try_lock(&other, key).await.is_some();
    assert!(!taken("daily").await);
    machine.slept.set(Duration::from_secs(90));
    assert!(!short.is_valid());
    assert!(taken("short").await, "the other is granted");
    assert!(long.is_valid());
    assert!(!taken("long").await);
    assert!(taken("daily").await, "its minimum hold is over");
}
