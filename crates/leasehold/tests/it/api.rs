//! The API as a whole: futures and guards are `Send`, errors name the operation, and so on.

use std::future::Future;
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::thread;

use futures_util::StreamExt as _;
use leasehold::observe::{Fact, ObservedClaim};
use leasehold::{
    Any, Election, Error, Exclusive, GrantNumber, Lock, LockOptions, Loss, LossSignal, Mode,
    MultiLease, MultiLock, Mutex, Operation, Permits, Reentrant, RwLock, Semaphore, Shared,
};

use crate::steps::*;

fn can_be_sent<T: Send + 'static>() {}
fn can_be_shared<T: Send + Sync + 'static>() {}

/// A future that any task may have: `tokio::spawn` wants that.
fn can_be_spawned<T>(_: impl Future<Output = T> + Send) {}

#[test]
fn handles_and_leases_belong_to_no_thread() {
    can_be_shared::<(Client, Lock, Mutex, RwLock, Semaphore, Reentrant)>();
    can_be_shared::<(MultiLock, MultiLease, Election, LossSignal, Error)>();
    can_be_shared::<(Lease<Exclusive>, Lease<Shared>)>();
    can_be_shared::<(Lease<Permits>, Lease<Any>)>();
    can_be_sent::<LockOptions>();
}

#[tokio::test]
async fn futures_can_be_spawned() {
    let client = leasehold::connect("memory:").await.unwrap();
    let lock = client.mutex("k").unwrap();
    can_be_spawned(lock.lock());
    can_be_spawned(lock.try_lock());
    can_be_spawned(lock.lock_within(Duration::from_secs(1)));
    can_be_spawned(lock.lock_opts(LockOptions::new()));
    let untyped = client.lock_of("k", Mode::EXCLUSIVE).unwrap();
    can_be_spawned(untyped.lock());
    can_be_spawned(untyped.lock_opts(LockOptions::new()));
    let both = untyped.on_all(["k", "l"]).unwrap();
    can_be_spawned(both.lock());
    can_be_spawned(both.lock_opts(LockOptions::new()));
    can_be_spawned(client.inspect("k"));
    can_be_spawned(client.shutdown(Duration::from_secs(1)));
    let lease = lock.lock().await.unwrap();
    can_be_spawned(lease.lost());
    can_be_spawned(lease.run(async {}));
    can_be_spawned(lease.renew());
    can_be_spawned(lease.rotate());
    can_be_spawned(lease.release());
}

/// Whoever logs an error sees what was attempted.
#[tokio::test]
async fn errors_name_the_operation() {
    let client = leasehold::connect("memory:").await.unwrap();
    let invalid = client.inspect("").await.unwrap_err();
    assert_eq!(invalid.operation(), Operation::Inspect, "{invalid}");
    let lease = lock(&client, "k").await;
    let long = lease.set_note("x".repeat(100_000)).await.unwrap_err();
    assert_eq!(long.operation(), Operation::Proclaim, "{long}");
    client.break_key("k").await.unwrap();
    lease.lost().await;
    let lost = fails(lease.into_parts().await, ErrorKind::Lost, &[]);
    assert_eq!(lost.operation(), Operation::HandOver, "{lost}");
    let mut leaders = client.election("e").unwrap().observe();
    assert!(leaders.next().await.unwrap().is_none());
    let _ = client.shutdown(Duration::from_secs(1)).await;
    // However often it is called.
    for _ in 0..4 {
        let closed = fails(leaders.next().await, ErrorKind::Closed, &[]);
        assert_eq!(closed.operation(), Operation::Observe, "{closed}");
    }
}

/// A loop over what a closed client observes ends.
#[test]
fn the_leaders_of_a_closed_client_end() {
    let client = leasehold::blocking::connect("memory:").unwrap();
    let leaders = client.election("e").unwrap().observe();
    let _ = client.shutdown(Duration::from_secs(1));
    let told: Vec<_> = leaders.take(9).map(|it| it.unwrap_err().kind()).collect();
    assert_eq!(told, [ErrorKind::Closed]);
}

/// Its thread drives the runtime: an answer of a server would wait for it.
#[test]
fn a_blocking_call_in_a_callback_of_another_is_refused() {
    let client = leasehold::blocking::connect("memory:").unwrap();
    let lock = client.mutex("k").unwrap();
    let (held, (told, heard)) = (lock.lock().unwrap(), channel());
    let how = LockOptions::new().on_progress(move |_| {
        told.send(client.inspect("k").map(drop)).unwrap();
    });
    let waits = thread::spawn(move || lock.lock_opts(how).map(drop));
    let refused = heard.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    drop(held);
    waits.join().unwrap().unwrap();
}

/// What cannot be refused does not wait for what only that thread does.
#[test]
fn in_a_callback_losses_are_awaited_and_a_shutdown_is_begun() {
    let client = leasehold::blocking::connect("memory:").unwrap();
    let lease = |key| client.mutex(key).unwrap().lock().unwrap();
    let (held, other, lock) = (lease("k"), lease("other"), client.mutex("k").unwrap());
    let (told, heard) = channel();
    let how = LockOptions::new().on_progress(move |_| {
        let not_lost = other.lost_within(Duration::from_millis(1));
        let connected = leasehold::blocking::connect("memory:").map(drop);
        let left = client.shutdown(Duration::MAX).unconfirmed > 0;
        let said = (not_lost, connected, left, other.lost());
        told.send(said).unwrap();
    });
    let waits = thread::spawn(move || lock.lock_opts(how).map(drop));
    let said = heard.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!((said.0, said.2, said.3), (None, true, Loss::Shutdown));
    fails(said.1, ErrorKind::Invalid, &["would block forever"]);
    fails(waits.join().unwrap(), ErrorKind::Closed, &[]);
    drop(held);
}

/// Also on the thread that waits in place of the one that drives.
#[test]
fn a_blocking_call_of_who_observes_the_shutdown_in_a_callback_is_refused() {
    let (asks, (told, heard)) = (Arc::new(OnceLock::new()), channel());
    let asked: Arc<OnceLock<leasehold::blocking::Client>> = asks.clone();
    let observes = move |_: &ObservedClaim, _: Fact| {
        if let Some(client) = asked.get() {
            told.send(client.inspect("k").map(drop)).ok();
        }
    };
    let builder = leasehold::blocking::Client::builder().store("memory:");
    let client = builder.observer(observes).connect().unwrap();
    let lock = client.mutex("k").unwrap();
    let held = lock.lock().unwrap();
    let how = LockOptions::new().on_progress(move |_| {
        asks.set(client.clone()).ok();
        let _ = client.shutdown(Duration::from_secs(1));
    });
    let waits = thread::spawn(move || lock.lock_opts(how).map(drop));
    fails(waits.join().unwrap(), ErrorKind::Closed, &[]);
    let refused = heard.recv_timeout(Duration::from_secs(60)).unwrap();
    fails(refused, ErrorKind::Invalid, &["would block forever"]);
    drop(held);
}

/// Only that thread could release what is held.
#[tokio::test(flavor = "current_thread")]
async fn a_blocking_shutdown_on_the_only_thread_of_its_client_is_begun() {
    let client = leasehold::connect("memory:").await.unwrap();
    let lease = lock(&client, "k").await;
    let (begun, long) = (Instant::now(), Duration::from_secs(60));
    let done = leasehold::blocking::Client::from(client).shutdown(long);
    assert_eq!((done.released, done.unconfirmed), (0, 1));
    assert!(begun.elapsed() < long);
    assert_eq!(lease.lost().await, Loss::Shutdown);
}

/// Changes of leader are a stream, too, and a leader may go on as one who holds a lock.
#[tokio::test]
async fn a_leader_is_followed_and_becomes_a_holder() {
    let client = leasehold::connect("memory:").await.unwrap();
    let election = client.election("e").unwrap();
    // Its own `next` would be taken, not that of `poll_next`.
    let mut leaders = election
        .observe()
        .map(|told| told.map(|now| now.map(|now| now.term)));
    assert_eq!(leaders.next().await.unwrap().unwrap(), None);
    let leadership = election.campaign("one").await.unwrap();
    let term = leaders.next().await.unwrap().unwrap();
    assert_eq!(term, Some(leadership.term()));
    let lease = leadership.into_lease();
    lease.renew().await.unwrap();
    give_back(lease).await;
    let blocking = leasehold::blocking::Client::from(client);
    let led = tokio::task::spawn_blocking(move || {
        let leadership = blocking.election("e")?.campaign("two")?;
        leadership.into_lease().release()
    });
    assert_eq!(led.await.unwrap().unwrap(), Released::Held);
}

#[tokio::test]
async fn grants_are_numbered_and_renewed_when_it_is_said() {
    let client = client_with("memory:", Settings::default().with_renew_at(0.5)).await;
    let lock = client.rwlock("k").unwrap();
    let (one, two) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    let numbers: [GrantNumber; 2] = [one.number(), two.number()];
    assert!(numbers[0] < numbers[1], "{numbers:?}");
    let late = Settings::default().with_renew_at(0.99);
    let builder = Client::builder().store("memory:").settings(late);
    fails(builder.connect().await, ErrorKind::Invalid, &["renew_at"]);
}
