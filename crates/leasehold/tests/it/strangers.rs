//! Pushes from untrusted senders: no message to an inbox can fake a grant or an end of a claim,
//! and each causes at most one request to the store.
//!
//! A trusted push is proved by the claim's id. Anyone who can read the records knows the id, and
//! could take the claim anyway (SAFETY.md). The senders in these tests know everything else:
//! inboxes, keys, arrival numbers, tokens, times, connections, and all earlier pushes.

use leasehold::core::{Arrival, Capacity, ClaimId, Command, Inbox, Key, Proof, Snapshot, Token};
use leasehold::store::{Answer, Capabilities, Listening, Listing, Push, PushSink};
use proptest::prelude::*;

use crate::steps::*;

/// A store whose inbox strangers know.
#[derive(Debug)]
struct Overheard {
    store: MemoryStore,
    inbox: Mutex<Option<Ear>>,
    heard: Arc<Mutex<Vec<Push>>>,
    asked: AtomicUsize,
    epoch: AtomicU64,
}

struct Ear(Arc<dyn PushSink>);

/// Hears all that the store pushes.
struct Tap(Arc<dyn PushSink>, Arc<Mutex<Vec<Push>>>);

impl PushSink for Tap {
    fn push(&self, push: Push) {
        self.1.lock().unwrap().push(push.clone());
        self.0.push(push);
    }
}

impl std::fmt::Debug for Ear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ear")
    }
}

impl Overheard {
    fn new(store: MemoryStore) -> Arc<Self> {
        Arc::new(Self {
            store,
            inbox: Mutex::default(),
            heard: Arc::default(),
            asked: AtomicUsize::new(0),
            epoch: AtomicU64::new(0),
        })
    }

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
    async fn step(&self, key: &Key, command: &Command) -> Result<Answer, StoreError> {
        let answer = self.store.step(key, command).await;
        match command {
            Command::Claim(_) | Command::Renew(_) => self.note(answer),
            _ => answer,
        }
    }
    async fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError> {
        self.store.inspect(key).await
    }
    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a> {
        self.store.listing(pattern)
    }
    fn inbox(&self) -> &Inbox {
        self.store.inbox()
    }
    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        *self.inbox.lock().unwrap() = Some(Ear(sink.clone()));
        let tap = Arc::new(Tap(sink, self.heard.clone()));
        self.store.listen(tap).await
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
    /// Whose id made the proof: nobody's, another claim's, or that of a push before.
    proof: u8,
}

prop_compose! {
    fn forged()(
        kind in 0..8_u8,
        right_key in prop::bool::weighted(0.8),
        off in prop_oneof![Just(0_i64), -3..3_i64, any::<i64>()],
        right_epoch in any::<bool>(),
        number in prop_oneof![Just(0), Just(u64::MAX), any::<u64>()],
        proof in 0..3_u8,
    ) -> Forged {
        Forged { kind, right_key, off, right_epoch, number, proof }
    }
}

impl Forged {
    fn push(
        &self,
        key: &Key,
        arrival: Arrival,
        epoch: u64,
        look: &Snapshot,
        heard: &[Push],
    ) -> Push {
        let Self { number, .. } = *self;
        let key = match self.right_key {
            true => key.clone(),
            false => Key::new("another").unwrap(),
        };
        let arrival = Arrival(arrival.0.wrapping_add_signed(self.off));
        // Another than that, by chance too.
        let epoch = match self.right_epoch {
            true => epoch,
            false => epoch ^ number.max(1),
        };
        let token = match number {
            0 => Token::from(look.last_token.get() + 1),
            _ => Token::from(number),
        };
        let at = look.at;
        let before = heard.iter().rev().find_map(|push| match push {
            Push::Granted { proof, .. } => Some(*proof),
            _ => None,
        });
        let proof = match (self.proof, before) {
            (0, _) => Proof::parse(&"0".repeat(40)).unwrap(),
            (1, Some(proof)) => proof,
            _ => Proof::of(&ClaimId::from_random(number.into()), "g"),
        };
        match self.kind {
            0 => Push::Granted {
                epoch,
                key,
                arrival,
                token,
                behind: (number % 2 == 1).then_some(Arrival(number)),
                at,
                proof,
            },
            1 => Push::Next {
                key,
                arrival,
                left: Duration::from_micros(number),
            },
            2 => Push::Revoked {
                key,
                arrival,
                at,
                proof,
            },
            3 => Push::Adopted {
                key,
                arrival,
                at,
                proof,
            },
            4 => Push::Unfit {
                key,
                arrival,
                in_use: Capacity::Permits(1),
                at,
                proof,
            },
            5 => Push::Changed { key },
            6 if !heard.is_empty() => {
                // Word for word, on this connection.
                let at = usize::try_from(number).unwrap_or_default() % heard.len();
                let mut push = heard[at].clone();
                if let Push::Granted { epoch: of_push, .. } = &mut push {
                    *of_push = epoch;
                }
                push
            }
            _ => Push::Reset,
        }
    }
}

async fn nobody_believes(pushes: Vec<Forged>) {
    let store = MemoryStore::new();
    let victim = Overheard::new(store.client());
    let holder = client_of(Arc::new(store)).await;
    let client = client_of(victim.clone()).await;
    let key = Key::new("k").unwrap();

    // A turn before, so that there is something to be repeated.
    let (held, turn) = contended(&holder, &client, "k").await;
    give_back(hand_over(held, turn).await).await;
    victim.epoch.store(0, Ordering::SeqCst);

    let held = lock(&holder, "k").await;
    let waiting = waiting(&client, "k");
    // An answer on an open inbox: from now on a right push would be believed.
    let heard = async || victim.epoch.load(Ordering::SeqCst) > 0;
    until("an answer with the inbox open", heard).await;
    let epoch = victim.epoch.load(Ordering::SeqCst);
    let look = victim.inspect(&key).await.unwrap();
    let arrival = look.waiters[0].claim.arrival;

    let push = async |forged: &Forged, look: &Snapshot| {
        let heard = victim.heard.lock().unwrap().clone();
        victim.push(forged.push(&key, arrival, epoch, look, &heard));
        for _ in 0..4 {
            yield_now().await;
        }
    };
    let before = victim.asked.load(Ordering::SeqCst);
    for forged in &pushes {
        push(forged, &look).await;
        assert!(!waiting.is_finished(), "{forged:?} was believed");
    }
    assert!(held.is_valid());
    let asked = victim.asked.load(Ordering::SeqCst) - before;
    assert!(asked <= 2 * pushes.len() + 2, "{asked} questions");
    let look = victim.inspect(&key).await.unwrap();
    assert_eq!((look.holders.len(), look.waiters.len()), (1, 1));
    assert_eq!(look.waiters[0].claim.arrival, arrival, "it keeps its place");

    let lease = hand_over(held, waiting).await;
    let look = victim.inspect(&key).await.unwrap();
    assert_eq!(lease.token(), look.holders[0].token);

    for forged in &pushes {
        push(forged, &look).await;
        assert!(lease.is_valid(), "{forged:?} ended it");
        assert_eq!(lease.token(), look.holders[0].token, "{forged:?}");
    }
    give_back(lease).await;
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_forged_push_is_not_believed(pushes in prop::collection::vec(forged(), 1..40)) {
        runtime().block_on(nobody_believes(pushes));
    }
}

/// What strangers may write: forgeries that miss, and noise.
#[cfg(any(feature = "local", feature = "redis"))]
fn noise(arrival: Arrival) -> Vec<Vec<u8>> {
    let near = [arrival.0 - 1, arrival.0, arrival.0 + 1, 0, u64::MAX];
    let proof = "0123456789abcdef0123456789abcdef01234567";
    let mut lines = Vec::new();
    for other in near {
        lines.extend([
            // Of the version before, which proved nothing.
            format!("1 g {other} 9 9 9 k"),
            format!("1 r {other} 9 k"),
            format!("1 k\nG {other} 9\nN {other} 0\nR {other}\nA {other}\nU {other} 1"),
            format!("2 g {other} 9 9 {proof} k"),
            format!("2 u {other} 1 9 {proof} k"),
            format!("2 n {other} 9 1 k"),
            format!("2 k\nG {other} 9 9 {proof}\nN {other} 0\nU {other} 1 9 {proof}"),
            format!("2 k\nR {other} 9 {proof}\nA {other} 9 {proof}"),
        ]);
    }
    let right = arrival.0;
    lines.extend([
        // Another key, another version, another order of words, too much, too little.
        format!("2 g {right} 9 9 {proof} other"),
        format!("3 g {right} 9 9 {proof} k"),
        format!("2 G {right} 9 9 {proof} k"),
        format!("2 g {right} -9 9 {proof} k"),
        format!("2 g {right} 9"),
        format!("2 g  {right} 9 9 {proof} k"),
        format!("2 g {right} 9 9 k"),
        format!("2 other\nG {right} 9 9 {proof}"),
        format!("3 k\nG {right} 9 9 {proof}"),
        format!("2 k\ng {right} 9 9 {proof}"),
        format!("2 k\nG {right}"),
        format!("2 n {right} 0 18446744073709551615 k"),
        format!("2 k\nN {right} 18446744073709551615"),
        "\n".repeat(5_000),
        "2 c 0 9 k".to_owned(),
        "2 k\nC".to_owned(),
    ]);
    let mut all: Vec<_> = lines.into_iter().map(String::into_bytes).collect();
    all.extend([vec![0xff; 10_000], vec![0; 10_000], Vec::new()]);
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
    let (held, waiting) = contended(&holder, &client, "k").await;
    let look = watch.inspect(&key).await.unwrap();
    for message in noise(look.waiters[0].claim.arrival) {
        send(message).await;
        yield_now().await;
        assert!(!waiting.is_finished());
    }
    assert!(held.is_valid());
    let lease = hand_over(held, waiting).await;
    let look = watch.inspect(&key).await.unwrap();
    assert_eq!(lease.token(), look.holders[0].token);
    give_back(lease).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn strangers_publish_on_the_channel_of_an_inbox() {
    use crate::redis_support::{RedisServer, store};

    let server = RedisServer::start();
    let victim = Arc::new(store(&server).await);
    let holder = client_of(Arc::new(store(&server).await)).await;
    let clients = [holder, client_of(victim.clone()).await];
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
    let mut options = LocalOptions::default();
    options.directory = Some(place.path().join("d"));
    let store = async || Arc::new(LocalStore::open(options.clone()).await.unwrap());
    let victim = store().await;
    let holder = client_of(store().await).await;
    let clients = [holder, client_of(victim.clone()).await];
    let stranger = UnixDatagram::unbound().unwrap();
    stranger.set_nonblocking(true).unwrap();
    let inbox = format!("d/inbox/{}.sock", victim.inbox().as_str());
    let socket = place.path().join(inbox);
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
