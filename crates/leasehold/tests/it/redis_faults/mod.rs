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

use std::env;
use std::process::Command as Program;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::core::UNHEARD_CUT;
use leasehold::store::redis::{RedisOptions, RedisStore};
use leasehold::{Client, ErrorKind, Lease, LeaseState, Loss, Released, Settings, Token};
use leasehold_testkit::process::{Process, Signal};
use leasehold_testkit::proxy::{Command, Direction, End, Proxy};
use leasehold_testkit::server::{Data, RedisServer};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{LIMIT, soon, try_lock, until};

/// What a busy machine may add to a bound that is promised.
const BUSY: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(2);
/// How long the claims of most clients live.
const LIVES: Duration = Duration::from_secs(LIMIT.as_secs() + 10);
/// The key that all tests are about; `warm` uses another.
const KEY: &str = "the-key";

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

// ---- what the tests share ----

async fn client_with(url: &str, settings: Settings) -> Client {
    let options = RedisOptions::from_url(url).unwrap();
    let store = Arc::new(RedisStore::connect(options).await.unwrap());
    let client = Client::builder().with_store(store).settings(settings);
    let client = client.connect().await.unwrap();
    warm(&client).await;
    client
}

/// A client whose claims all outlive the limit: what is left behind is seen.
async fn client(url: &str) -> Client {
    let settings = Settings::default().with_ttl(LIVES).with_waiter_ttl(LIVES);
    client_with(url, settings).await
}

fn ttl(ttl: Duration) -> Settings {
    Settings::default().with_ttl(ttl)
}

/// The server learns the scripts, so that a rule about the n-th call means what it says.
async fn warm(client: &Client) {
    let lease = soon("a first lease", client.mutex("warm").unwrap().lock())
        .await
        .unwrap();
    lease.renew().await.unwrap();
    client.inspect("warm").await.unwrap();
    let _ = lease.release().await.unwrap();
}

/// Waits until so many hold and wait for the key.
async fn standing(client: &Client, holders: usize, waiters: usize) {
    until(
        &format!("{holders} holders and {waiters} waiters"),
        async || {
            let seen = client.inspect(KEY).await.unwrap();
            (seen.holders.len(), seen.waiters.len()) == (holders, waiters)
        },
    )
    .await;
}

async fn lock(client: &Client) -> Lease {
    soon("the key", client.mutex(KEY).unwrap().lock())
        .await
        .unwrap()
}

fn waiting(client: &Client) -> JoinHandle<Result<Lease, leasehold::Error>> {
    crate::support::waiting(client, KEY)
}

async fn granted(waiting: JoinHandle<Result<Lease, leasehold::Error>>) -> Lease {
    soon("the key", waiting).await.unwrap().unwrap()
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
    let keys = arguments
        .get(2)
        .and_then(|count| std::str::from_utf8(count).ok());
    let Some(keys) = keys.and_then(|count| count.parse::<usize>().ok()) else {
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
    fn assert_rising(&self, above: Token) {
        let all: Vec<_> = [above].iter().chain(&self.tokens).copied().collect();
        assert!(all.is_sorted_by(|a, b| a < b), "tokens rise: {all:?}");
    }
}

/// A queue of tasks that lock once, and say so while they hold.
struct Line {
    tasks: JoinSet<()>,
    served: mpsc::UnboundedSender<(usize, Token, u32)>,
    order: mpsc::UnboundedReceiver<(usize, Token, u32)>,
    inside: Arc<AtomicU64>,
}

impl Line {
    fn new() -> Self {
        let (served, order) = mpsc::unbounded_channel();
        Self {
            tasks: JoinSet::new(),
            served,
            order,
            inside: Arc::default(),
        }
    }

    fn join(&mut self, client: &Client) {
        let (n, key) = (self.tasks.len(), client.mutex(KEY).unwrap());
        let (served, inside) = (self.served.clone(), self.inside.clone());
        self.tasks.spawn(async move {
            let lease = key.lock().await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone inside");
            served.send((n, lease.token(), lease.rejoined())).unwrap();
            tokio::task::yield_now().await;
            assert!(lease.is_valid());
            inside.fetch_sub(1, Ordering::SeqCst);
            // Without an answer the background goes on.
            lease.release().await.ok();
        });
    }

    async fn all_served(mut self) -> Served {
        let mut all = Served::default();
        while let Some(task) = soon("everyone's turn", self.tasks.join_next()).await {
            task.unwrap();
        }
        drop(self.served);
        while let Some((n, token, rejoined)) = self.order.recv().await {
            all.order.push(n);
            all.tokens.push(token);
            all.rejoined += rejoined;
        }
        all
    }
}
