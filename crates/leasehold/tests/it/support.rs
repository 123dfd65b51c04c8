//! What the tests of all stores share.

use std::env;
use std::process::Command;
use std::time::Duration;

use leasehold::core::{ClaimId, Key, Release};
use leasehold::{Client, Error, Lease};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long anything may take on a busy machine before a test fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// This program again, to do in a role what one of its tests does that is no test by itself.
pub(crate) fn in_role(test: &str, role: &str, url: &str) -> Command {
    let mut program = Command::new(env::current_exe().unwrap());
    program.args([test, "--exact", "--nocapture"]);
    program.env("LEASEHOLD_TEST_ROLE", role);
    program.env("LEASEHOLD_TEST_URL", url);
    program
}

/// The role of this process, if it has been started in one, and the URL for it.
pub(crate) fn my_role() -> Option<(String, String)> {
    let role = env::var("LEASEHOLD_TEST_ROLE").ok()?;
    Some((role, env::var("LEASEHOLD_TEST_URL").unwrap()))
}

/// A runtime that only its caller drives.
pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = timeout(LIMIT, work).await;
    done.unwrap_or_else(|_| panic!("{what} within {LIMIT:?}"))
}

/// Asks again and again until it is so; for what no event tells.
pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let asked = async {
        while !so().await {
            sleep(Duration::from_millis(2)).await;
        }
    };
    soon(what, asked).await;
}

pub(crate) async fn try_lock(client: &Client, key: &str) -> Option<Lease> {
    client.mutex(key).unwrap().try_lock().await.unwrap()
}

/// Begins to wait for the key.
pub(crate) fn waiting(client: &Client, key: &str) -> JoinHandle<Result<Lease, Error>> {
    let lock = client.mutex(key).unwrap();
    tokio::spawn(async move { lock.lock().await })
}

/// Until so many wait for the key.
pub(crate) async fn in_line(seen_by: &Client, key: &str, waiters: usize) {
    let count = async || seen_by.inspect(key).await.unwrap().waiters.len();
    until("so many in line", async || count().await == waiters).await;
}

/// What a listing names and cannot read.
pub(crate) async fn skipped(client: &Client) -> Vec<String> {
    let (mut listing, mut names) = (client.listing("*"), Vec::new());
    while let Some(page) = listing.next().await.unwrap() {
        names.extend(page.skipped.into_iter().map(|one| one.name));
    }
    names.sort_unstable();
    names
}

/// A test of each of these names, which awaits what stands there.
macro_rules! tests {
    (#[$how:meta] $(fn $name:ident() { $call:expr })*) => { $(
        #[$how]
        async fn $name() {
            $call.await;
        }
    )* };
}
pub(crate) use tests;

/// The same, but for this.
pub(crate) fn but<T>(mut it: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut it);
    it
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(crate) fn id(number: u128) -> ClaimId {
    ClaimId::from_random(number)
}

pub(crate) fn release(number: u128) -> Release {
    release_of(id(number))
}

pub(crate) fn release_of(id: ClaimId) -> Release {
    Release {
        id,
        hand_off: true,
        settled: false,
        unused: false,
    }
}
