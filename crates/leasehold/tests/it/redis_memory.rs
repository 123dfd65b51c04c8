//! The memory use of keys on a server: none for idle keys.
#![cfg(feature = "redis")]

use crate::redis_support::*;
use futures_util::future::try_join_all;

/// How many requests are under way at once.
const AT_ONCE: usize = 10_000;

/// What the server may use more than before: the counter, and what buffers and tables keep.
const SPARE: u64 = 1_000_000;

/// What a held key costs at most: its name, its record and when it expires.
const HELD: u64 = 400;

fn used_memory(server: &RedisServer) -> u64 {
    let info: String = server.query(&["INFO", "memory"]);
    let mut lines = info.lines();
    let used = lines.find_map(|line| line.strip_prefix("used_memory:"));
    used.unwrap().trim().parse().unwrap()
}

async fn lock(client: &Client, number: usize) -> Result<Lease, Error> {
    let key = client.mutex(format!("key/{number}"))?;
    // No renewals: what many of them cost is not asked here.
    key.with_ttl(Duration::from_secs(24 * 3600)).lock().await
}

/// `LEASEHOLD_KEYS=1000000` holds so many at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_keys_leave_the_memory_as_it_was() {
    let wanted = std::env::var("LEASEHOLD_KEYS").ok();
    let count = wanted.map_or(20_000, |count| count.parse().unwrap());
    let server = RedisServer::start();
    let client = leasehold::connect(server.url()).await.unwrap();
    // The connections, the scripts and the counter are there before.
    let _ = lock(&client, count).await.unwrap().release().await.unwrap();
    let (before, begun) = (used_memory(&server), Instant::now());

    let mut leases = Vec::new();
    for first in (0..count).step_by(AT_ONCE) {
        let numbers = first..count.min(first + AT_ONCE);
        let locks = numbers.map(|number| lock(&client, number));
        leases.append(&mut try_join_all(locks).await.unwrap());
    }
    assert_eq!(server.query::<usize>(&["DBSIZE"]), count + 1);
    let (held, locked) = (used_memory(&server), begun.elapsed());
    let each = (held - before) / leases.len() as u64;
    while !leases.is_empty() {
        let some = leases.split_off(leases.len().saturating_sub(AT_ONCE));
        let ends = try_join_all(some.into_iter().map(Lease::release));
        for end in ends.await.unwrap() {
            assert_eq!(end, Released::Held);
        }
    }
    let released = begun.elapsed() - locked;

    // First the number: a million names would hide it.
    assert_eq!(server.query::<usize>(&["DBSIZE"]), 1);
    let left: Vec<String> = server.query(&["KEYS", "*"]);
    assert_eq!(left, ["leasehold:last"]);
    // The server gives tables and buffers back by and by.
    let limit = Instant::now() + Duration::from_secs(30);
    let mut after = used_memory(&server);
    while after > before + SPARE && Instant::now() < limit {
        sleep(Duration::from_millis(50)).await;
        after = used_memory(&server);
    }
    eprintln!(
        "{count} keys, locked in {locked:.1?}, released in {released:.1?}: {before} bytes before, \
         {held} while all were held ({each} a key), {after} after"
    );
    assert!(after <= before + SPARE, "{after} after {before}");
    assert!(each <= HELD, "{each} bytes a key");
}
