//! Helpers of the tests of the Redis store.

pub(crate) mod case;
pub(crate) mod crowd;
pub(crate) mod fake_sentinel;

use leasehold::store::Listening;
pub(crate) use leasehold::store::Push;
pub(crate) use leasehold::store::redis::{RedisOptions, RedisStore};
pub(crate) use leasehold_testkit::process::overload;
pub(crate) use leasehold_testkit::proxy::{Direction, Proxy};
pub(crate) use leasehold_testkit::server::{Program, RedisServer};
use tokio::sync::mpsc;

pub(crate) use crate::steps::*;

/// The least rights of `docs/stores/rights.md`.
pub(crate) const LEAST_RIGHTS: &str = "resetchannels ~leasehold:* &leasehold:* -@all +eval \
    +evalsha +time +mget +exists +type +set +setrange +del +hset +hget +hmget +hgetall +hdel \
    +pexpire +publish +subscribe +unsubscribe +scan +info +ping";

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) async fn connect(url: &str) -> Result<RedisStore, StoreError> {
    RedisStore::connect(RedisOptions::from_url(url).unwrap()).await
}

pub(crate) async fn store(server: &RedisServer) -> RedisStore {
    connect(&server.url()).await.unwrap()
}

pub(crate) fn options(server: &RedisServer) -> RedisOptions {
    RedisOptions::from_url(&server.url()).unwrap()
}

pub(crate) fn claim(store: &RedisStore, number: u128) -> Claim {
    Claim {
        inbox: Some(store.inbox().clone()),
        owner: ClientInfo::new("host", 7, Some("a label")),
        ..Claim::new(id(number), Mode::EXCLUSIVE, Duration::from_secs(30))
    }
}

/// A claim that does not wait.
pub(crate) fn trying(store: &RedisStore, number: u128) -> Claim {
    but(claim(store, number), |it| it.wait = false)
}

pub(crate) fn renew(number: u128) -> Renew {
    Renew::new(id(number), Duration::from_secs(30))
}

/// Until the answer of the server to this has that part.
pub(crate) async fn until_answered(server: &RedisServer, command: &[&str], part: &str) {
    let answers = async || server.query::<String>(command).contains(part);
    until(part, answers).await;
}

/// The next push; fails where none comes.
pub(crate) async fn next(pushes: &mut mpsc::UnboundedReceiver<Push>) -> Push {
    let push = timeout(Duration::from_secs(20), pushes.recv()).await;
    push.expect("a push in time").expect("an open inbox")
}

/// A connection is lost, and then there is another; fails where another push comes.
pub(crate) async fn reconnected(pushes: &mut mpsc::UnboundedReceiver<Push>) {
    assert_eq!(next(pushes).await, Push::Disconnected);
    let mut push = next(pushes).await;
    while push == Push::Disconnected {
        push = next(pushes).await;
    }
    assert_eq!(push, Push::Reset);
}

/// Claims the key for each of these: the first holds it, the others wait.
pub(crate) async fn queue_up(
    store: &RedisStore,
    key: &Key,
    numbers: impl IntoIterator<Item = u128>,
) {
    for number in numbers {
        let reply = store.claim(key, &claim(store, number)).await.unwrap().reply;
        let stands = matches!(reply, ClaimReply::Standing(_));
        assert!(stands, "claim {number}: {reply:?}");
    }
}

/// Loses the connection of the inbox three times. Each new one has a higher epoch, and hears; a
/// store without an inbox has none.
pub(crate) async fn each_connection_has_another_epoch(store: &RedisStore, lose: impl Fn()) {
    let (ear, mut pushes) = listen(store).await;
    let key = key("k");
    let mut epochs = vec![store.claim(&key, &claim(store, 1)).await.unwrap().epoch];
    for _ in 0..3 {
        lose();
        reconnected(&mut pushes).await;
        let answer = store.claim(&key, &claim(store, 1)).await.unwrap();
        assert!(answer.holds());
        epochs.push(answer.epoch);
    }
    assert!(epochs.is_sorted_by(|a, b| 0 < *a && a < b), "{epochs:?}");
    store.claim(&key, &claim(store, 2)).await.unwrap();
    store.release(&key, &release(1)).await.unwrap();
    assert!(matches!(next(&mut pushes).await, Push::Granted { epoch, .. } if epoch == epochs[3]));

    drop(ear);
    let renewed = store.renew(&key, &renew(2)).await.unwrap();
    let claimed = store.claim(&key, &claim(store, 2)).await.unwrap();
    assert_eq!((renewed.epoch, claimed.epoch), (0, 0), "nobody listens");
}

/// Acquisitions per second of so many clients at one key, each holding 5 ms.
pub(crate) async fn rate(open: &impl AsyncFn() -> Client, clients: usize, name: &str) -> f64 {
    let span = Duration::from_millis(1_200);
    let mut tasks = JoinSet::new();
    let mut opened = Vec::new();
    for _ in 0..clients {
        opened.push(open().await);
    }
    let end = Instant::now() + span;
    for client in opened {
        let lock = client.mutex(name).unwrap();
        tasks.spawn(async move {
            let mut count = 0_u32;
            while Instant::now() < end {
                let Ok(lease) = lock.lock_within(end.duration_since(Instant::now())).await else {
                    break;
                };
                sleep(Duration::from_millis(5)).await;
                let _ = lease.release().await.unwrap();
                count += 1;
            }
            drop(client);
            count
        });
    }
    let count: u32 = tasks.join_all().await.into_iter().sum();
    f64::from(count) / span.as_secs_f64()
}

/// Opens the inbox of the store, until the first of these is dropped.
pub(crate) async fn listen(
    store: &RedisStore,
) -> (Box<dyn Listening>, mpsc::UnboundedReceiver<Push>) {
    let (heard, pushes) = sink();
    (store.listen(heard).await.unwrap(), pushes)
}
