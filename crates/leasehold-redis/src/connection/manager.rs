//! The connection manager of a store: connects, reconnects, and reports losses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::Backoff;
use leasehold_store::random::random_u64;
use leasehold_store::{Push, StoreError};
use tokio::sync::{Notify, watch};

use super::endpoint::Endpoint;
use super::in_flight::AbandonedRequests;
use super::inbox::OwnInbox;
use super::multiplexed::Connection;
use super::primary;
use super::sentinel::Named;
use super::socket::{OnPush, Signals};
use crate::errors;
use crate::std_ext::BackgroundTask;

/// The pauses between tries to connect again.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The connection; or, while it is being opened again, the reason of the last failure.
type State = Result<Arc<Connection>, Option<StoreError>>;

/// What the store, its connection and its tasks share.
pub(crate) struct ConnectionManager {
    pub(crate) endpoint: Endpoint,
    on_loss: Option<OnLoss>,
    pub(crate) inbox: Arc<OwnInbox>,
    state: watch::Sender<State>,
    /// The abandoned requests of all connections.
    pub(crate) abandoned: Arc<AbandonedRequests>,
    /// The last epoch. Held by who subscribes, or ends that.
    pub(super) subscribing: tokio::sync::Mutex<u64>,
    reconnecting: BackgroundTask,
    /// Whether there was a connection before: pushes in between are lost.
    stood: AtomicBool,
    /// Whether this client has asked for locks, and not only looked.
    claims: AtomicBool,
    /// A Sentinel has named a primary: the pause before the next try is over.
    named: Arc<Notify>,
    /// The task that watches for fail-overs.
    looking_out: BackgroundTask,
}

/// Called when the connection is lost, on its own task.
pub(crate) type OnLoss = Box<dyn Fn() + Send + Sync>;

impl ConnectionManager {
    /// Opens the connection in the background, however long that takes.
    pub(crate) fn start(endpoint: Endpoint) -> Arc<Self> {
        let inbox = Arc::new(OwnInbox::random(&endpoint.options.prefix));
        let endpoint = endpoint.hearing(&inbox.channel);
        Self::start_as(inbox, endpoint, false, None)
    }

    /// The same for a cluster, whose inbox this is. `stood`: pushes may have been lost before the
    /// first connection stands.
    pub(crate) fn start_as(
        inbox: Arc<OwnInbox>,
        endpoint: Endpoint,
        stood: bool,
        on_loss: Option<OnLoss>,
    ) -> Arc<Self> {
        let shared = Arc::new(Self {
            endpoint,
            inbox,
            on_loss,
            state: watch::Sender::new(Err(None)),
            abandoned: Arc::default(),
            subscribing: tokio::sync::Mutex::default(),
            reconnecting: BackgroundTask::default(),
            stood: AtomicBool::new(stood),
            claims: AtomicBool::new(false),
            named: Arc::default(),
            looking_out: BackgroundTask::default(),
        });
        shared.find_again(Duration::ZERO);
        shared
    }

    /// Whether it is connected, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        self.state.borrow().is_ok()
    }

    /// The connection, if it is up.
    pub(crate) fn current(&self) -> Option<Arc<Connection>> {
        self.state.borrow().as_ref().ok().cloned()
    }

    /// Why there is no connection, where it is known.
    pub(crate) fn last_failure(&self) -> Option<StoreError> {
        match &*self.state.borrow() {
            Err(Some(last)) => Some(errors::no_connection(last)),
            _ => None,
        }
    }

    /// The same; where it is not known, to which place there is none.
    pub(crate) fn failure(&self) -> StoreError {
        let unknown = || errors::no_connection_to(&self.endpoint.options.address.shown());
        self.last_failure().unwrap_or_else(unknown)
    }

    /// This client asks for a lock: from now on, a quarantine that the server needs
    /// starts whenever the connection is opened again.
    pub(crate) fn note_claim(&self) {
        self.claims.store(true, Ordering::Relaxed);
    }

    /// The connection; waits while it is being opened again, for as long as an
    /// answer may take.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>, StoreError> {
        if let Some(wire) = self.current() {
            return Ok(wire);
        }
        let limit = self.endpoint.options.response_timeout;
        // Most find it open: what waits does not make every request larger.
        let settled = Box::pin(self.settled(limit, errors::is_answered)).await;
        settled.map_err(|_| self.failure())
    }

    /// Waits so long for the connection; an error only where it is known why there is none.
    pub(crate) async fn ready_within(self: &Arc<Self>, limit: Duration) -> Result<(), StoreError> {
        if !self.is_up() {
            let limit = limit.min(self.endpoint.options.response_timeout / 2);
            Box::pin(self.settled(limit, errors::is_answered))
                .await
                .ok();
        }
        self.last_failure().map_or(Ok(()), Err)
    }

    /// Waits until the first attempt to connect has been made: whether it succeeded.
    pub(crate) async fn first_try(self: &Arc<Self>) -> Result<(), StoreError> {
        let settled = match self.endpoint.search() {
            // During a fail-over there is no primary for a moment.
            Some(_) => {
                let limit = self.endpoint.options.connect_timeout;
                self.settled(limit, errors::is_answered).await
            }
            None => self.settled(Duration::MAX, |_| true).await,
        };
        let failed = |last: Option<StoreError>| last.unwrap_or_else(|| self.failure());
        settled.map(drop).map_err(failed)
    }

    /// The connection, once it stands; or the last failure, once it is one that is not
    /// waited out, or time is up.
    pub(super) async fn settled(
        self: &Arc<Self>,
        limit: Duration,
        is_final: impl Fn(&StoreError) -> bool,
    ) -> State {
        // Whoever was connecting may have ended with its runtime.
        if self.reconnecting.has_ended() && !self.is_up() {
            self.find_again(FIRST_PAUSE);
        }
        let mut states = self.state.subscribe();
        let settled = states.wait_for(|state| match state {
            Ok(_) => true,
            Err(last) => last.as_ref().is_some_and(&is_final),
        });
        // Whether in time or not, it is what it is now.
        let _ = tokio::time::timeout(limit, settled).await;
        self.state.borrow().clone()
    }

    // ---- opening and losing ----

    async fn connect(self: &Arc<Self>) -> Result<Arc<Connection>, StoreError> {
        let link = Arc::downgrade(self);
        let hearing: OnPush = Arc::new(move |info, signals| {
            if let Some(link) = link.upgrade() {
                link.pushed(info, signals);
            }
        });
        let opened = self.endpoint.connect(Some(hearing)).await?;
        let wire = Connection::start(opened, &self.endpoint, Arc::downgrade(self));
        // The nodes of a cluster are heard elsewhere.
        let hears = !self.endpoint.of_cluster;
        if hears {
            self.inbox.decide(wire.server.rights.push());
        }
        if let Some(writer) = &wire.acked_writer {
            writer.open(&wire).await?;
        }
        // A member of a set may still have to be marked, or moved to it.
        if let (Some(gate), None) = (&wire.server.gate, &self.endpoint.set) {
            let starts = self.claims.load(Ordering::Relaxed);
            gate.touch(&wire, starts).await?;
        }
        if hears && self.inbox.sink().is_some() {
            self.subscribe(&wire).await?;
        }
        Ok(wire)
    }

    fn publish(self: &Arc<Self>, wire: Arc<Connection>) {
        tracing::debug!(url = %self.endpoint.redacted, "connected");
        let signals = Arc::clone(&wire.socket.signals);
        let _ = self.state.send_replace(Ok(wire));
        if let Some(search) = self.endpoint.search() {
            let looking = primary::look_out(Arc::clone(search), Arc::downgrade(self));
            self.looking_out.ensure(looking);
        }
        if self.stood.swap(true, Ordering::AcqRel) {
            self.inbox.push(Push::Reset);
        }
        if *signals.dead.borrow() {
            self.lost(&signals);
        }
    }

    /// The connection with these signals is lost: opens another in the background.
    pub(crate) fn lost(self: &Arc<Self>, signals: &Arc<Signals>) {
        signals.dead.send_replace(true);
        let was_current = self.state.send_if_modified(|state| {
            let current = matches!(state, Ok(wire) if Arc::ptr_eq(&wire.socket.signals, signals));
            if current {
                *state = Err(None);
            }
            current
        });
        if was_current {
            tracing::debug!(url = %self.endpoint.redacted, "lost the connection");
            self.inbox.push(Push::Disconnected);
            self.on_loss.iter().for_each(|on_loss| on_loss());
            self.find_again(FIRST_PAUSE);
        }
    }

    /// Connects in the background, after pauses that begin with `first` and end
    /// when a Sentinel names a primary.
    fn find_again(self: &Arc<Self>, first: Duration) {
        let link = Arc::downgrade(self);
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, random_u64());
        let named = Arc::clone(&self.named);
        self.reconnecting.start(async move {
            let mut pause = first;
            loop {
                tokio::select! {
                    () = named.notified() => {}
                    () = tokio::time::sleep(pause) => {}
                }
                let Some(link) = link.upgrade() else { return };
                // Who has lost the connection and who finds none may begin at the same time.
                if link.is_up() {
                    return;
                }
                match link.connect().await {
                    _ if link.is_up() => return,
                    Ok(wire) => return link.publish(wire),
                    Err(error) => {
                        tracing::debug!(%error, "cannot connect");
                        let error = link.judge(error);
                        let _ = link.state.send_replace(Err(Some(error)));
                    }
                }
                pause = backoff.pause();
            }
        });
    }

    /// A login that has worked may do so again: a password file is read with each connection.
    pub(super) fn judge(&self, error: StoreError) -> StoreError {
        let changes = self.endpoint.options.access.may_change();
        match changes && self.endpoint.common.has_worked() && errors::is_of_login(&error) {
            true => errors::not_now(error),
            false => error,
        }
    }

    /// A Sentinel has named this primary: if we speak to another, we leave it.
    pub(super) fn heard_of(self: &Arc<Self>, named: &Named) {
        let Some(wire) = self.current() else {
            return self.named.notify_one();
        };
        let ours = wire.server.named.as_ref();
        if ours.is_some_and(|ours| named.replaces(ours)) {
            tracing::debug!(url = %self.endpoint.redacted, "a Sentinel reported another primary; \
             reconnecting");
            self.lost(&wire.socket.signals);
        }
    }
}
