//! Pushes from strangers: whatever comes to an inbox, nobody believes in a grant that the
//! store did not give, and it costs the store a question at most.
//!
//! What *is* believed: a grant for the very arrival that this client was told it waits
//! with, on the same connection. Who can read the records knows both, and could as well
//! take the claim (SAFETY.md).
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails with the message"
)]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::core::{Arrival, Capacity, Claim, Inbox, Key, Release, Renew, Snapshot, Token};
use leasehold::store::memory::MemoryStore;
use leasehold::store::{Answer, Capabilities, Listening, LockStore, Push, PushSink};
use leasehold::{Client, Released, StoreError};
use proptest::prelude::*;
use tokio::time::timeout;

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A store whose inbox strangers know.
#[derive(Debug)]
struct Overheard {
    store: MemoryStore,
    inbox: Mutex<Option<Ear>>,
    asked: AtomicUsize,
    epoch: AtomicU64,
}

struct Ear(Arc<dyn PushSink>);

impl std::fmt::Debug for Ear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ear")
    }
}

impl Overheard {
    fn note(&self, answer: Result<Answer, StoreError>) -> Result<Answer, StoreError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if let Ok(answer) = &answer {
            self.epoch.store(answer.epoch, Ordering::SeqCst);
        }
        answer
    }

    fn push(&self, push: Push) {
        let inbox = self.inbox.lock().unwrap();
        let Ear(sink) = inbox.as_ref().expect("an open inbox");
        sink.push(push);
    }
}

#[async_trait]
impl LockStore for Overheard {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
    async fn claim(&self, key: &Key, claim: &Claim) -> Result<Answer, StoreError> {
        self.note(self.store.claim(key, claim).await)
    }
    async fn renew(&self, key: &Key, renew: &Renew) -> Result<Answer, StoreError> {
        self.note(self.store.renew(key, renew).await)
    }
    async fn release(&self, key: &Key, release: &Release) -> Result<Answer, StoreError> {
        self.store.release(key, release).await
    }
    async fn resize(&self, key: &Key, from: u32, to: u32) -> Result<Answer, StoreError> {
        self.store.resize(key, from, to).await
    }
    async fn watch(&self, key: &Key, ttl: Duration) -> Result<Answer, StoreError> {
        self.store.watch(key, ttl).await
    }
    async fn break_key(&self, key: &Key) -> Result<Answer, StoreError> {
        self.store.break_key(key).await
    }
    async fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError> {
        self.store.inspect(key).await
    }
    async fn list(&self, pattern: &str) -> Result<Vec<(Key, Snapshot)>, StoreError> {
        self.store.list(pattern).await
    }
    fn inbox(&self) -> &Inbox {
        self.store.inbox()
    }
    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        *self.inbox.lock().unwrap() = Some(Ear(sink.clone()));
        self.store.listen(sink).await
    }
}

/// A push that nobody sent; what it says is told apart from the truth, or near to it.
#[derive(Debug, Clone)]
struct Forged {
    kind: u8,
    right_key: bool,
    /// Added to the arrival of the victim.
    off: i64,
    right_epoch: bool,
    number: u64,
}

fn forged() -> impl Strategy<Value = Forged> {
    let off = prop_oneof![Just(0_i64), -3..3_i64, any::<i64>()];
    let number = prop_oneof![Just(0), Just(u64::MAX), any::<u64>()];
    (
        0..7_u8,
        prop::bool::weighted(0.8),
        off,
        any::<bool>(),
        number,
    )
        .prop_map(|(kind, right_key, off, right_epoch, number)| Forged {
            kind,
            right_key,
            off,
            right_epoch,
            number,
        })
}

impl Forged {
    /// The push; `None` for one that says what only the store and the client know.
    fn push(&self, key: &Key, arrival: Arrival, epoch: u64, held: bool) -> Option<Push> {
        let Self { number, .. } = *self;
        let hits = self.right_key && self.off == 0;
        let believed = match self.kind {
            0 => hits && self.right_epoch && !held,
            2 | 3 => hits && held,
            4 => hits && !held,
            _ => false,
        };
        if believed {
            return None;
        }
        let key = if self.right_key {
            key.clone()
        } else {
            Key::new("another").unwrap()
        };
        let arrival = Arrival(arrival.0.wrapping_add_signed(self.off));
        let push = match self.kind {
            0 => Push::Granted {
                // Another than that, by chance too.
                epoch: if self.right_epoch {
                    epoch
                } else {
                    epoch ^ number.max(1)
                },
                key,
                arrival,
                token: Token(number),
            },
            1 => Push::Next {
                key,
                arrival,
                left: Duration::from_micros(number),
            },
            2 => Push::Revoked { key, arrival },
            3 => Push::Adopted { key, arrival },
            4 => Push::Unfit {
                key,
                arrival,
                in_use: Capacity::Permits(1),
            },
            5 => Push::Changed { key },
            _ => Push::Reset,
        };
        Some(push)
    }
}

/// Waits for what others are to do.
async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !done().await {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, wait).await.expect(what);
}

async fn nobody_believes(pushes: Vec<Forged>) {
    let store = MemoryStore::new();
    let victim = Arc::new(Overheard {
        store: store.client(),
        inbox: Mutex::default(),
        asked: AtomicUsize::new(0),
        epoch: AtomicU64::new(0),
    });
    let holder = Client::builder().with_store(Arc::new(store)).connect();
    let holder = holder.await.unwrap();
    let client = Client::builder().with_store(victim.clone()).connect();
    let client = client.await.unwrap();
    let key = Key::new("k").unwrap();

    let held = holder.mutex("k").unwrap().lock().await.unwrap();
    let waiting = {
        let mutex = client.mutex("k").unwrap();
        tokio::spawn(async move { mutex.lock().await.unwrap() })
    };
    // An answer on an open inbox: from now on a right push would be believed.
    let heard = async || victim.epoch.load(Ordering::SeqCst) > 0;
    until("an answer with the inbox open", heard).await;
    let epoch = victim.epoch.load(Ordering::SeqCst);
    let look = victim.inspect(&key).await.unwrap();
    let arrival = look.waiters[0].claim.arrival;

    let before = victim.asked.load(Ordering::SeqCst);
    for forged in &pushes {
        if let Some(push) = forged.push(&key, arrival, epoch, false) {
            victim.push(push);
        }
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished(), "{forged:?} was believed");
    }
    assert!(held.is_valid());
    let asked = victim.asked.load(Ordering::SeqCst) - before;
    assert!(asked <= 2 * pushes.len() + 2, "{asked} questions");
    let look = victim.inspect(&key).await.unwrap();
    assert_eq!((look.holders.len(), look.waiters.len()), (1, 1));
    assert_eq!(look.waiters[0].claim.arrival, arrival, "it keeps its place");

    assert_eq!(held.release().await.unwrap(), Released::StillOurs);
    let lease = timeout(LIMIT, waiting).await.expect("a grant").unwrap();
    let look = victim.inspect(&key).await.unwrap();
    assert_eq!(lease.token(), look.holders[0].token);

    for forged in &pushes {
        if let Some(push) = forged.push(&key, arrival, epoch, true) {
            victim.push(push);
        }
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        assert!(lease.is_valid(), "{forged:?} ended it");
        assert_eq!(lease.token(), look.holders[0].token, "{forged:?}");
    }
    assert_eq!(lease.release().await.unwrap(), Released::StillOurs);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_forged_push_is_not_believed(pushes in prop::collection::vec(forged(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(nobody_believes(pushes));
    }
}

/// What strangers may write: forgeries that miss, and noise.
#[cfg(any(feature = "local", feature = "redis"))]
fn noise(arrival: Arrival) -> Vec<Vec<u8>> {
    let near = [arrival.0 - 1, arrival.0 + 1, 0, u64::MAX];
    let mut all: Vec<Vec<u8>> = Vec::new();
    for other in near {
        for line in [
            format!("1 g {other} 9 9 9 k"),
            format!("1 n {other} 9 1 k"),
            format!("1 k\nG {other} 9\nN {other} 0\nR {other}\nA {other}\nU {other} 1"),
        ] {
            all.push(line.into_bytes());
        }
    }
    let right = arrival.0;
    for line in [
        // Another key, another version, another order of words, too much, too little.
        format!("1 g {right} 9 9 9 other"),
        format!("2 g {right} 9 9 9 k"),
        format!("1 G {right} 9 9 9 k"),
        format!("1 g {right} -9 9 9 k"),
        format!("1 g {right} 9"),
        format!("1 g  {right} 9 9 9 k"),
        format!("1 other\nG {right} 9"),
        format!("2 k\nG {right} 9"),
        format!("1 k\ng {right} 9"),
        format!("1 k\nG {right}"),
        format!("1 n {right} 0 18446744073709551615 k"),
        format!("1 k\nN {right} 18446744073709551615"),
        "\n".repeat(5_000),
        "1 c 0 9 k".to_owned(),
        "1 k\nC".to_owned(),
    ] {
        all.push(line.into_bytes());
    }
    all.push(vec![0xff; 10_000]);
    all.push(vec![0; 10_000]);
    all.push(Vec::new());
    all
}

/// Two clients; one holds, the other waits, while `send` brings what strangers say.
#[cfg(any(feature = "local", feature = "redis"))]
async fn noise_is_passed_over(
    clients: [Client; 2],
    watch: &dyn LockStore,
    send: impl AsyncFn(Vec<u8>),
) {
    let [holder, client] = clients;
    let key = Key::new("k").unwrap();
    let held = holder.mutex("k").unwrap().lock().await.unwrap();
    let waiting = {
        let mutex = client.mutex("k").unwrap();
        tokio::spawn(async move { mutex.lock().await.unwrap() })
    };
    let in_line = async || !watch.inspect(&key).await.unwrap().waiters.is_empty();
    until("the waiter in line", in_line).await;
    let look = watch.inspect(&key).await.unwrap();
    for message in noise(look.waiters[0].claim.arrival) {
        send(message).await;
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
    }
    assert!(held.is_valid());
    assert_eq!(held.release().await.unwrap(), Released::StillOurs);
    let lease = timeout(LIMIT, waiting).await.expect("a grant").unwrap();
    let look = watch.inspect(&key).await.unwrap();
    assert_eq!(lease.token(), look.holders[0].token);
    assert_eq!(lease.release().await.unwrap(), Released::StillOurs);
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn strangers_publish_on_the_channel_of_an_inbox() {
    use leasehold::store::redis::{RedisOptions, RedisStore};

    let server = leasehold_testkit::server::RedisServer::start();
    let options = RedisOptions::from_url(&server.url()).unwrap();
    let store = async || Arc::new(RedisStore::connect(options.clone()).await.unwrap());
    let connect =
        async |store: Arc<RedisStore>| Client::builder().with_store(store).connect().await.unwrap();
    let victim = store().await;
    let clients = [connect(store().await).await, connect(victim.clone()).await];
    let raw = redis::Client::open(server.url()).unwrap();
    let stranger = raw.get_multiplexed_async_connection().await.unwrap();
    let channel = format!("leasehold:inbox:{}", victim.inbox().as_str());
    let heard = Arc::new(AtomicUsize::new(0));
    let send = async |message: Vec<u8>| {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(&channel).arg(message);
        let to: usize = publish.query_async(&mut stranger.clone()).await.unwrap();
        heard.fetch_add(to, Ordering::SeqCst);
    };
    noise_is_passed_over(clients, &*victim, send).await;
    assert!(heard.load(Ordering::SeqCst) > 0, "nobody listened");
}

#[cfg(feature = "local")]
#[tokio::test]
async fn strangers_send_to_the_socket_of_an_inbox() {
    use leasehold::store::local::{LocalOptions, LocalStore};
    use std::os::unix::net::UnixDatagram;

    let place = tempfile::tempdir().unwrap();
    let options = LocalOptions {
        directory: Some(place.path().join("d")),
        ..LocalOptions::default()
    };
    let store = async || Arc::new(LocalStore::open(options.clone()).await.unwrap());
    let connect =
        async |store: Arc<LocalStore>| Client::builder().with_store(store).connect().await.unwrap();
    let victim = store().await;
    let clients = [connect(store().await).await, connect(victim.clone()).await];
    let stranger = UnixDatagram::unbound().unwrap();
    stranger.set_nonblocking(true).unwrap();
    let socket = place
        .path()
        .join(format!("d/inbox/{}.sock", victim.inbox().as_str()));
    let heard = AtomicUsize::new(0);
    let send = async |message: Vec<u8>| {
        until("the socket", async || socket.exists()).await;
        // Full as long as nobody reads.
        let sent = async || stranger.send_to(&message, &socket).is_ok();
        until("room in the socket", sent).await;
        heard.fetch_add(1, Ordering::SeqCst);
    };
    noise_is_passed_over(clients, &*victim, send).await;
    assert!(heard.load(Ordering::SeqCst) > 0);
}
