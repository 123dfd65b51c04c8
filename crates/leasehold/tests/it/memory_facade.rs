//! The guarantees of the library, on the memory store.

use std::time::SystemTime;

use crate::steps::*;

struct Memory(MemoryStore);

#[async_trait]
impl Fixture for Memory {
    async fn client(&self) -> Arc<dyn LockStore> {
        Arc::new(self.0.client())
    }
}

impl leasehold_testkit::facade::Fixture for Memory {}

leasehold_testkit::facade!(Memory(MemoryStore::new()));
leasehold_testkit::facade!(@limits Memory(MemoryStore::new()));

/// Tasks that take and give back without ever waiting leave time for others: here they
/// are all on one thread, and a timer has to go off.
#[tokio::test(flavor = "current_thread")]
async fn tasks_that_never_wait_give_way() {
    let client = leasehold::connect("memory:").await.expect("a client");
    let stop = Arc::new(AtomicBool::new(false));
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for n in 0..20 {
        let (lock, stop) = (client.mutex(format!("k{n}")).expect("a lock"), stop.clone());
        tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) && started.elapsed() < Duration::from_secs(20) {
                let lease = lock.lock().await.expect("a lease");
                let _ = lease.release().await.expect("an answer");
            }
            stop.load(Ordering::Relaxed)
        });
    }
    sleep(Duration::from_millis(5)).await;
    stop.store(true, Ordering::Relaxed);
    let mut stopped = tasks.join_all().await.into_iter();
    assert!(stopped.all(|stopped| stopped), "no timer went off");
}

/// Whoever opens it takes no entry from those who write to it and read it.
#[tokio::test]
async fn an_audited_store_that_is_opened_again_keeps_its_log() {
    let open = || leasehold::connect("memory:opened-again?audit=1000");
    let client = open().await.unwrap();
    let lease = client.mutex("k").unwrap().lock().await.unwrap();
    let log = || client.audit_log(None, SystemTime::UNIX_EPOCH).unwrap();
    let mut followed = log();
    assert_eq!(followed.next().await.unwrap().len(), 1);
    let _other = open().await.unwrap();
    let _ = lease.release().await.unwrap();
    assert_eq!(followed.next().await.unwrap().len(), 1, "the release");
    assert_eq!(log().next().await.unwrap().len(), 2);
}
