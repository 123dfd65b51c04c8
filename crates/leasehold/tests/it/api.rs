//! Compile-time checks of the API: futures and guards are `Send`, and so on.

use std::future::Future;
use std::time::Duration;

use leasehold::{
    Any, Client, Election, Error, Exclusive, Lease, Lock, LockOptions, LossSignal, Mode,
    MultiLease, MultiLock, Mutex, Permits, Reentrant, RwLock, Semaphore, Shared,
};

fn can_be_sent<T: Send + 'static>() {}
fn can_be_shared<T: Send + Sync + 'static>() {}

/// A future that any task may have: `tokio::spawn` wants that.
fn can_be_spawned<T>(_: impl Future<Output = T> + Send) {}

#[test]
fn handles_and_leases_belong_to_no_thread() {
    can_be_shared::<Client>();
    can_be_shared::<Lock>();
    can_be_shared::<Mutex>();
    can_be_shared::<RwLock>();
    can_be_shared::<Semaphore>();
    can_be_shared::<Reentrant>();
    can_be_shared::<MultiLock>();
    can_be_shared::<Election>();
    can_be_shared::<Lease<Exclusive>>();
    can_be_shared::<Lease<Shared>>();
    can_be_shared::<Lease<Permits>>();
    can_be_shared::<Lease<Any>>();
    can_be_shared::<MultiLease>();
    can_be_shared::<LossSignal>();
    can_be_shared::<Error>();
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
