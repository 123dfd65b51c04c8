//! A store that tells when its client may not have heard of its turn. Who does not listen when
//! its turn comes is passed over: it keeps its place, but nobody promises that turn.

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use leasehold::StoreError;
use leasehold::core::{Claim, Command, Inbox, Key, Push, Snapshot, UNHEARD_CUT};
use leasehold::store::{AllAnswer, Answer, Capabilities, Listening, Listing, LockStore, PushSink};
use leasehold_store::sync::lock;
use tokio::time::Instant;

/// A store, and whom to tell.
pub(crate) struct Hearing {
    store: Arc<dyn LockStore>,
    ears: Arc<Ears>,
}

struct Ears {
    deaf: Box<dyn Fn() + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Clone, Copy)]
enum State {
    Listens,
    /// Nobody listens, and since when a claim waits.
    Silent(Option<Instant>),
    /// Nobody listens any more: claims that wait may be passed over. Where requests have connections
    /// of their own, they are answered all the same.
    Lost,
}

impl Hearing {
    /// Calls `deaf` when the client does not listen any more, when it listens again, or late for a
    /// claim that waits, and with each answer until then.
    pub(crate) fn new(store: Arc<dyn LockStore>, deaf: impl Fn() + Send + Sync + 'static) -> Self {
        let ears = Arc::new(Ears {
            deaf: Box::new(deaf),
            state: Mutex::new(State::Silent(None)),
        });
        Self { store, ears }
    }
}

impl Ears {
    fn replace(&self, state: State) -> State {
        let mut now = lock(&self.state);
        match (*now, state) {
            // The first that waits counts.
            (State::Silent(Some(_)), State::Silent(Some(_))) => *now,
            (State::Listens | State::Lost, State::Silent(Some(_))) => *now,
            _ => std::mem::replace(&mut now, state),
        }
    }
}

impl State {
    /// Whether a claim has waited for so long without a listener that it may have been passed, or has
    /// lost its listener.
    fn is_late(self) -> bool {
        match self {
            Self::Silent(Some(since)) => since.elapsed() >= UNHEARD_CUT,
            Self::Lost => true,
            Self::Silent(None) | Self::Listens => false,
        }
    }
}

impl fmt::Debug for Hearing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl LockStore for Hearing {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn step(&self, key: &Key, command: &Command) -> Result<Answer, StoreError> {
        if matches!(command, Command::Claim(claim) if claim.wait) {
            self.ears.replace(State::Silent(Some(Instant::now())));
        }
        let answer = self.store.step(key, command).await;
        if lock(&self.ears.state).is_late() {
            (self.ears.deaf)();
        }
        answer
    }

    async fn claim_all(&self, parts: &[(Key, Claim)]) -> Result<Option<AllAnswer>, StoreError> {
        self.store.claim_all(parts).await
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
        let ears = Arc::clone(&self.ears);
        let ear = Arc::new(Ear { sink, ears });
        let open = self.store.listen(ear).await?;
        if self.ears.replace(State::Listens).is_late() {
            (self.ears.deaf)();
        }
        let ears = Arc::clone(&self.ears);
        Ok(Box::new(Open { _open: open, ears }))
    }

    fn child_fds(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        self.store.child_fds()
    }
}

struct Ear {
    sink: Arc<dyn PushSink>,
    ears: Arc<Ears>,
}

impl PushSink for Ear {
    fn push(&self, push: Push) {
        match push {
            Push::Disconnected => {
                self.ears.replace(State::Lost);
                (self.ears.deaf)();
            }
            Push::Reset => {
                self.ears.replace(State::Listens);
                (self.ears.deaf)();
            }
            _ => {}
        }
        self.sink.push(push);
    }
}

struct Open {
    _open: Box<dyn Listening>,
    ears: Arc<Ears>,
}

impl Listening for Open {}

impl Drop for Open {
    fn drop(&mut self) {
        self.ears.replace(State::Silent(None));
    }
}
