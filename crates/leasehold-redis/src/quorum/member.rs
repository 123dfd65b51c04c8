//! One server of the set: its connection, and what it is asked over it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::quorum::Vote;
use leasehold_core::{Backoff, Inbox, SetTerms};
use leasehold_store::{ErrorKind, StoreError};
use tokio::sync::watch;
use tokio::time::timeout;

use super::super::classic::Desk;
use super::super::options::{RedisLayout, RedisOptions};
use super::super::refusal;
use super::classic;
use super::options::address;
use super::script::{Ask, read_vote};
use crate::connection::connect::Target;
use crate::connection::gate::marker_key;
use crate::connection::link::Shared;
use crate::connection::step::{Way, run};
use crate::connection::wire::Wire;

/// The pauses between tries to reach a server for the first time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Where a server stands.
#[derive(Clone)]
enum Opening {
    /// Not reached yet; with the reason of the last failure.
    Not(Option<StoreError>),
    /// Reached once: from then on the link finds it again by itself.
    Open(Arc<Shared>),
}

pub(super) struct Member {
    /// Host and port, for people.
    pub(super) name: String,
    options: RedisOptions,
    /// How it is asked in the classic layout.
    classic: Option<Desk>,
    opening: watch::Sender<Opening>,
}

impl Member {
    /// Starts to reach for the server, in the background until it is reached or
    /// nobody wants it any more.
    pub(super) fn start(options: RedisOptions, seed: u64) -> Arc<Self> {
        let member = Arc::new(Self {
            name: address(&options),
            classic: (options.layout == RedisLayout::Classic).then(Desk::default),
            options,
            opening: watch::Sender::new(Opening::Not(None)),
        });
        let weak = Arc::downgrade(&member);
        tokio::spawn(async move {
            let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, seed);
            loop {
                let Some(options) = weak.upgrade().map(|member| member.options.clone()) else {
                    return;
                };
                let opened = match Target::new(&options) {
                    Ok(target) => Shared::open(target.of_votes(), None).await,
                    Err(error) => Err(error),
                };
                let Some(member) = weak.upgrade() else { return };
                match opened {
                    Ok(shared) => {
                        member.opening.send_replace(Opening::Open(shared));
                        return;
                    }
                    Err(error) => {
                        tracing::debug!(server = %member.name, %error, "cannot connect");
                        member.opening.send_replace(Opening::Not(Some(error)));
                    }
                }
                drop(member);
                tokio::time::sleep(pauses.pause()).await;
            }
        });
        member
    }

    /// The first attempt has been made: whether it reached the server.
    pub(super) async fn first_try(&self) -> Result<(), StoreError> {
        let mut opening = self.opening.subscribe();
        let tried = opening.wait_for(|opening| !matches!(opening, Opening::Not(None)));
        match tried.await.as_deref() {
            Ok(Opening::Not(Some(error))) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Whether it tells us what changes, as far as is known.
    pub(super) fn hears(&self) -> bool {
        match &*self.opening.borrow() {
            Opening::Open(shared) => shared.hears(),
            Opening::Not(_) => true,
        }
    }

    /// The link to the server; waits until it was reached.
    pub(super) async fn shared(&self) -> Result<Arc<Shared>, StoreError> {
        let mut opening = self.opening.subscribe();
        let open = opening.wait_for(|opening| {
            // Waiting does not cure a refusal.
            let refused = |error: &StoreError| error.kind() != ErrorKind::Unavailable;
            match opening {
                Opening::Open(_) => true,
                Opening::Not(last) => last.as_ref().is_some_and(refused),
            }
        });
        match open.await.as_deref() {
            Ok(Opening::Open(shared)) => Ok(Arc::clone(shared)),
            Ok(Opening::Not(last)) => Err(refusal::no_connection(last.as_ref())),
            Err(_) => Err(refusal::no_connection(None)),
        }
    }

    pub(super) async fn wire(&self) -> Result<(Arc<Shared>, Arc<Wire>), StoreError> {
        let shared = self.shared().await?;
        let wire = shared.wire().await?;
        Ok((shared, wire))
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.options.prefix)
    }

    pub(super) fn lock_key(&self, name: &str) -> String {
        match self.classic {
            Some(_) => self.key(name),
            None => self.key(&format!("lock:{name}")),
        }
    }

    pub(super) fn marker_key(&self) -> String {
        marker_key(&self.options.prefix)
    }

    /// Asks for a vote, for `limit` at most. `first`: for a claim that was never asked
    /// for before.
    pub(super) async fn ask(
        &self,
        key: &str,
        ask: &Ask,
        terms: &SetTerms,
        limit: Duration,
        first: bool,
    ) -> Result<Vote, StoreError> {
        self.within(limit, async {
            let (shared, wire) = self.wire().await?;
            if let Some(desk) = &self.classic {
                return classic::ask(desk, &wire, &self.lock_key(key), ask, first).await;
            }
            let (key, marker) = (self.lock_key(key), self.marker_key());
            let keys = [&*key, &*marker];
            let keys = if ask.needs_marker() {
                &keys[..]
            } else {
                &keys[..1]
            };
            let inbox: &Inbox = shared.inbox();
            // Read on this connection: a process that has restarted cannot have kept it.
            let run_id = &wire.server.run_id;
            let value = run(&wire, Way::Plain, ask.script(), keys, |call| {
                ask.add(call, run_id, inbox, terms, self.options.retention);
            })
            .await?;
            Ok(read_vote(&value)?.0)
        })
        .await
    }

    /// Whatever is asked, for `limit` at most; says why there was no connection.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        timeout(limit, work).await.unwrap_or_else(|_| {
            let opening = self.opening.borrow();
            Err(match &*opening {
                Opening::Not(Some(last)) => refusal::no_connection(Some(last)),
                _ => StoreError::new(
                    ErrorKind::Unavailable,
                    format!("no answer within {limit:?}"),
                ),
            })
        })
    }
}
