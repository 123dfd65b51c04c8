//! Faults between a client, the network and one Redis server, and what is guaranteed in spite of
//! them. A proxy breaks connections at chosen points. Real processes are killed, which run this
//! binary in a special role.
#![cfg(feature = "redis")]

mod answers;
mod connections;
mod deaths;
mod forgetting;
mod leaving;
mod nobody;
mod silence;

use leasehold::core::UNHEARD_CUT;
use leasehold_testkit::process::{Process, Signal};
use leasehold_testkit::proxy::Command;
use leasehold_testkit::server::Data;

use crate::redis_support::*;

/// What a busy machine may add to a bound that is promised.
const BUSY: Duration = Duration::from_millis(500);
/// How long the claims of most clients live.
const LIVES: Duration = Duration::from_secs(LIMIT.as_secs() + 10);
/// The key that all tests are about; `warm` uses another.
const KEY: &str = "the-key";

// ---- what the tests share ----

async fn client_with(url: &str, settings: Settings) -> Client {
    let store = Arc::new(connect(url).await.unwrap());
    let client = Client::builder().with_store(store).settings(settings);
    let client = client.connect().await.unwrap();
    warm(&client).await;
    client
}

/// Claims that all outlive the limit: what is left behind is seen.
fn lasting() -> Settings {
    Settings::default().with_ttl(LIVES).with_waiter_ttl(LIVES)
}

async fn client(url: &str) -> Client {
    client_with(url, lasting()).await
}

/// A server with a client behind a proxy, and another without.
async fn proxied(ours: Settings, other: Settings) -> (RedisServer, Proxy, Client, Client) {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let ours = client_with(&proxy.url(), ours).await;
    let other = client_with(&server.url(), other).await;
    (server, proxy, ours, other)
}

fn ttl(ttl: Duration) -> Settings {
    Settings::default().with_ttl(ttl)
}

/// The server learns the scripts, so that a rule about the n-th call means what it says.
async fn warm(client: &Client) {
    let mutex = client.mutex("warm").unwrap();
    let lease = soon("a first lease", mutex.lock()).await.unwrap();
    lease.renew().await.unwrap();
    client.inspect("warm").await.unwrap();
    let _ = lease.release().await.unwrap();
}

/// Waits until so many hold and wait for the key.
async fn standing(client: &Client, holders: usize, waiters: usize) {
    let what = format!("{holders} holders and {waiters} waiters");
    until(&what, async || {
        let seen = client.inspect(KEY).await.unwrap();
        (seen.holders.len(), seen.waiters.len()) == (holders, waiters)
    })
    .await;
}

/// Gives back the last lease: nobody holds or waits any more.
async fn leaves_nothing(lease: Lease, seen_by: &Client) {
    give_back(lease).await;
    standing(seen_by, 0, 0).await;
}

async fn lock(client: &Client) -> Lease {
    let mutex = client.mutex(KEY).unwrap();
    soon("the key", mutex.lock()).await.unwrap()
}

fn waiting(client: &Client) -> Waiting {
    crate::support::waiting(client, KEY)
}

fn is_claim(command: &Command) -> bool {
    is_step(command, 1)
}

fn is_renewal(command: &Command) -> bool {
    is_step(command, 2)
}

fn is_release(command: &Command) -> bool {
    is_step(command, 3)
}

/// Whether a step of our key with this verb is in the call: see `step.lua`.
fn is_step(command: &Command, verb: u8) -> bool {
    let arguments = command.arguments();
    let keys = arguments.get(2).map(|count| String::from_utf8_lossy(count));
    let Some(Ok(keys)) = keys.map(|count| count.parse::<usize>()) else {
        return false;
    };
    // The flags and the retention come before the steps.
    let mut steps = arguments.iter().skip(3 + keys + 2);
    command.is("EVALSHA") && command.has(KEY) && steps.any(|step| step.first() == Some(&verb))
}

/// How many listen for grants.
fn inboxes(server: &RedisServer) -> usize {
    server.query::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len()
}

/// The ids in all requests of a kind from now on.
fn ids(proxy: &Proxy, kind: fn(&Command) -> bool) -> Arc<Mutex<Vec<Vec<u8>>>> {
    let seen = Arc::<Mutex<Vec<_>>>::default();
    let ids = seen.clone();
    // It never happens: the rule only listens.
    proxy.request(
        move |command| {
            if kind(command) {
                ids.lock().unwrap().push(command.arguments()[4].clone());
            }
            false
        },
        1,
    );
    seen
}

/// Asserts that a request was repeated, with the same id.
fn asked_again(ids: &Mutex<Vec<Vec<u8>>>) {
    let mut ids = ids.lock().unwrap().clone();
    assert!(ids.len() > 1, "it was asked for again");
    ids.dedup();
    assert_eq!(ids.len(), 1, "with the same id");
}

/// How long after `end` something happened, or before it.
fn after(at: Instant, end: Instant) -> i64 {
    let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap();
    (micros(at.saturating_duration_since(end)) - micros(end.saturating_duration_since(at))) / 1000
}

/// Those who were served, in order.
#[derive(Default)]
struct Served {
    order: Vec<usize>,
    tokens: Vec<Token>,
    rejoined: u32,
}

impl Served {
    fn add(&mut self, n: usize, lease: &Lease) {
        self.order.push(n);
        self.tokens.push(lease.token());
        self.rejoined += lease.rejoined();
    }

    fn assert_rising(&self, above: Token) {
        let all: Vec<_> = [above].iter().chain(&self.tokens).copied().collect();
        assert!(all.is_sorted_by(|a, b| a < b), "tokens rise: {all:?}");
    }

    fn assert_in_order(&self) {
        let order = &self.order;
        assert!(order.is_sorted(), "in order of arrival: {order:?}");
    }
}

/// A queue of tasks that lock once, and say so while they hold.
#[derive(Default)]
struct Line {
    tasks: JoinSet<()>,
    served: Arc<Mutex<Served>>,
    inside: Arc<AtomicU64>,
}

impl Line {
    /// So many in line behind a holder, of these clients in turn.
    async fn of(clients: &[&Client], seen_by: &Client, count: usize) -> Self {
        let mut line = Self::default();
        for n in 0..count {
            line.join(clients[n % clients.len()]);
            standing(seen_by, 1, n + 1).await;
        }
        line
    }

    fn join(&mut self, client: &Client) {
        let (n, key) = (self.tasks.len(), client.mutex(KEY).unwrap());
        let (served, inside) = (self.served.clone(), self.inside.clone());
        self.tasks.spawn(async move {
            let lease = key.lock().await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone inside");
            served.lock().unwrap().add(n, &lease);
            yield_now().await;
            assert!(lease.is_valid());
            inside.fetch_sub(1, Ordering::SeqCst);
            // Without an answer the background goes on.
            lease.release().await.ok();
        });
    }

    async fn all_served(mut self) -> Served {
        while let Some(task) = soon("everyone's turn", self.tasks.join_next()).await {
            task.unwrap();
        }
        std::mem::take(&mut *self.served.lock().unwrap())
    }
}
