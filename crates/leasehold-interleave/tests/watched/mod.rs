//! The memory store, and what a client must not do to any store.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::StoreError;
use leasehold::core::{Arrival, Claim, Inbox, Key, Release, Renew, Reply, Snapshot};
use leasehold::store::memory::MemoryStore;
use leasehold::store::{Answer, Capabilities, Listening, LockStore, Push, PushSink};
use shuttle::future::yield_now;
use shuttle::sync::atomic::{AtomicUsize, Ordering};

/// How long a store without a line remembers who was busy.
const WATCH: Duration = Duration::from_secs(30);

/// A client's way to the store.
#[derive(Debug)]
pub(crate) struct Watched {
    store: MemoryStore,
    /// Whether it keeps waiters in line.
    queueing: bool,
    /// How many inboxes are open.
    open: Arc<AtomicUsize>,
    /// How many ask for a key where there is no line.
    trying: Arc<AtomicUsize>,
    /// Who hears what comes to the inbox.
    ear: Mutex<Option<Ear>>,
}

struct Ear(Weak<dyn PushSink>);

impl fmt::Debug for Ear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ear")
    }
}

impl Watched {
    pub(crate) fn new(store: MemoryStore, queueing: bool) -> Self {
        Self {
            store,
            queueing,
            open: Arc::default(),
            trying: Arc::default(),
            ear: Mutex::default(),
        }
    }

    pub(crate) fn listens(&self) -> bool {
        self.ear.lock().unwrap().is_some()
    }

    /// Pushes what is about nobody's claim, on a thread of its own.
    pub(crate) fn push_noise(&self) {
        let sink = (self.ear.lock().unwrap().as_ref()).and_then(|Ear(sink)| sink.upgrade());
        if let Some(sink) = sink {
            sink.push(Push::Revoked {
                key: Key::new("nobody's").unwrap(),
                arrival: Arrival(1),
            });
        }
    }
}

#[async_trait]
impl LockStore for Watched {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.store.capabilities();
        capabilities.queueing = self.queueing;
        capabilities
    }

    /// However many of its tasks wait, a store without a line sees one that asks.
    async fn claim(&self, key: &Key, claim: &Claim) -> Result<Answer, StoreError> {
        if self.queueing {
            let answer = self.store.claim(key, claim).await;
            // Pushes may be quicker.
            yield_now().await;
            return answer;
        }
        let _alone = Alone::now(&self.trying, "two ask at once");
        yield_now().await;
        let claim = Claim {
            wait: false,
            ..claim.clone()
        };
        let answer = self.store.claim(key, &claim).await;
        if matches!(
            &answer,
            Ok(Answer {
                reply: Reply::Busy { .. },
                ..
            })
        ) {
            self.store.watch(key, WATCH).await?;
        }
        answer
    }

    async fn renew(&self, key: &Key, renew: &Renew) -> Result<Answer, StoreError> {
        self.store.renew(key, renew).await
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

    /// Opened once at a time.
    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        let alone = Alone::now(&self.open, "two inboxes");
        yield_now().await;
        *self.ear.lock().unwrap() = Some(Ear(Arc::downgrade(&sink)));
        Ok(Box::new(OpenInbox {
            _inbox: self.store.listen(sink).await?,
            _alone: alone,
        }))
    }
}

struct OpenInbox {
    _inbox: Box<dyn Listening>,
    _alone: Alone,
}

impl Listening for OpenInbox {}

/// One of whom there is never another.
struct Alone(Arc<AtomicUsize>);

impl Alone {
    fn now(count: &Arc<AtomicUsize>, otherwise: &str) -> Self {
        let others = count.fetch_add(1, Ordering::SeqCst);
        let alone = Self(count.clone());
        assert_eq!(others, 0, "{otherwise}");
        alone
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
