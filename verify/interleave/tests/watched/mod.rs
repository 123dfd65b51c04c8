//! The memory store, and what a client must not do to any store.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::StoreError;
use leasehold::core::{Arrival, Claim, Command, Inbox, Key, Reply, Snapshot};
use leasehold::store::memory::MemoryStore;
use leasehold::store::{
    Answer, Capabilities, Listening, Listing, LockStore, Push, PushSink, Verbs as _,
};
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
    ear: Mutex<Option<Weak<dyn PushSink>>>,
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
        let sink = self.ear.lock().unwrap().as_ref().and_then(Weak::upgrade);
        if let Some(sink) = sink {
            sink.push(Push::Next {
                key: Key::new("nobody's").unwrap(),
                arrival: Arrival(1),
                left: Duration::ZERO,
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
    async fn step(&self, key: &Key, command: &Command) -> Result<Answer, StoreError> {
        let Command::Claim(claim) = command else {
            return self.store.step(key, command).await;
        };
        if self.queueing {
            let answer = self.store.step(key, command).await;
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
        let answer = self.store.step(key, &Command::Claim(claim)).await?;
        if matches!(answer.reply, Reply::Busy { .. }) {
            self.store.watch(key, WATCH).await?;
        }
        Ok(answer)
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

    /// Opened once at a time.
    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        let alone = Alone::now(&self.open, "two inboxes");
        yield_now().await;
        *self.ear.lock().unwrap() = Some(Arc::downgrade(&sink));
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
