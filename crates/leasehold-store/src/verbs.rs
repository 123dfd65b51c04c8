//! The port's one step, by the name of what is asked.

use std::time::Duration;

use leasehold_core::{Claim, Command, Key, Release, Renew};

use crate::error::StoreError;
use crate::port::{Answer, LockStore};

/// The commands of a store by name: each is one [`LockStore::step`], and every store has them.
///
/// # Errors
/// Those of [`LockStore`].
pub trait Verbs: LockStore {
    /// See [`Command::Claim`].
    fn claim(&self, key: &Key, claim: &Claim) -> impl Future<Output = Stepped> + Send {
        self.take(key, Command::Claim(claim.clone()))
    }

    /// See [`Command::Renew`].
    fn renew(&self, key: &Key, renew: &Renew) -> impl Future<Output = Stepped> + Send {
        self.take(key, Command::Renew(renew.clone()))
    }

    /// See [`Command::Release`].
    fn release(&self, key: &Key, release: &Release) -> impl Future<Output = Stepped> + Send {
        self.take(key, Command::Release(release.clone()))
    }

    /// See [`Command::Resize`].
    fn resize(&self, key: &Key, from: u32, to: u32) -> impl Future<Output = Stepped> + Send {
        self.take(key, Command::Resize { from, to })
    }

    /// See [`Command::Watch`]; the inbox is this client's.
    fn watch(&self, key: &Key, ttl: Duration) -> impl Future<Output = Stepped> + Send {
        let inbox = self.inbox().clone();
        self.take(key, Command::Watch { inbox, ttl })
    }

    /// See [`Command::Break`].
    fn break_key(&self, key: &Key) -> impl Future<Output = Stepped> + Send {
        self.take(key, Command::Break)
    }

    /// Takes the step of a command that is made for it.
    fn take(&self, key: &Key, command: Command) -> impl Future<Output = Stepped> + Send {
        async move { self.step(key, &command).await }
    }
}

impl<S: LockStore + ?Sized> Verbs for S {}

type Stepped = Result<Answer, StoreError>;
