//! A store whose answers to claims a case holds back, or replaces by an error.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold::StoreError;
use leasehold::core::{Claim, Command, Inbox, Key, Snapshot};
use leasehold::store::{AllAnswer, Answer, Capabilities, Listening, Listing, LockStore, PushSink};
use tokio::sync::watch;

/// What becomes of the answers to claims, and of all requests if nothing is answered.
#[derive(Debug, Clone)]
pub(super) enum Gate {
    /// They arrive.
    Open,
    /// The store has answered, and the answer is held back.
    Closed,
    /// The store is not asked: the error stands for its answer.
    Failing(StoreError),
    /// The store is not asked, and nothing is answered: not only claims.
    Silent,
}

/// A client's way to a store, with a gate for what claims are answered.
#[derive(Debug)]
pub(super) struct Gated {
    store: Arc<dyn LockStore>,
    gate: watch::Sender<Gate>,
    answered: watch::Sender<u64>,
}

impl Gated {
    pub(super) fn new(store: Arc<dyn LockStore>) -> Arc<Self> {
        Arc::new(Self {
            store,
            gate: watch::Sender::new(Gate::Open),
            answered: watch::Sender::new(0),
        })
    }

    pub(super) fn set(&self, gate: Gate) {
        self.gate.send_replace(gate);
    }

    /// Waits until the store has answered so many claims.
    pub(super) async fn answered(&self, claims: u64) {
        wait_for(&self.answered, |seen| *seen >= claims).await;
    }

    async fn heard(&self) {
        wait_for(&self.gate, |gate| !matches!(gate, Gate::Silent)).await;
    }

    async fn pass<T>(
        &self,
        ask: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        if let Gate::Failing(error) = self.gate.borrow().clone() {
            return Err(error);
        }
        self.heard().await;
        let answer = ask.await;
        self.answered.send_modify(|answered| *answered += 1);
        wait_for(&self.gate, |gate| !matches!(gate, Gate::Closed)).await;
        answer
    }
}

async fn wait_for<T>(sender: &watch::Sender<T>, is_so: impl FnMut(&T) -> bool) {
    let seen = sender.subscribe().wait_for(is_so).await.map(drop);
    seen.expect("the sender is here");
}

#[async_trait]
impl LockStore for Gated {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn step(&self, key: &Key, command: &Command) -> Result<Answer, StoreError> {
        let step = self.store.step(key, command);
        match command {
            Command::Claim(_) => self.pass(step).await,
            _ => {
                self.heard().await;
                step.await
            }
        }
    }

    async fn claim_all(&self, parts: &[(Key, Claim)]) -> Result<Option<AllAnswer>, StoreError> {
        self.pass(self.store.claim_all(parts)).await
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
        self.store.listen(sink).await
    }
}
