//! Typed methods for the commands of [`LockStore::step`].

use std::time::Duration;

use leasehold_core::{
    BreakReply, Claim, ClaimReply, ClientInfo, Command, Key, Release, ReleaseReply, Renew,
    RenewReply, Reply, ResizeReply, Token, WatchReply,
};

use crate::answer::Answer;
use crate::error::{ErrorKind, StoreError};
use crate::port::LockStore;

/// Typed methods for the commands of a store. Each calls [`LockStore::step`], and every store has
/// them. Each returns its own reply enum, which callers match without a wildcard.
///
/// # Errors
/// Those of [`LockStore`], and `Corrupt` for a reply that does not answer the command.
pub trait Verbs: LockStore {
    /// See [`Command::Claim`].
    fn claim(&self, key: &Key, claim: &Claim) -> impl Future<Output = Stepped<ClaimReply>> + Send {
        take(self, key, "a claim", Command::Claim(claim.clone()))
    }

    /// See [`Command::Renew`].
    fn renew(&self, key: &Key, renew: &Renew) -> impl Future<Output = Stepped<RenewReply>> + Send {
        take(self, key, "a renewal", Command::Renew(renew.clone()))
    }

    /// See [`Command::Release`].
    fn release(
        &self,
        key: &Key,
        release: &Release,
    ) -> impl Future<Output = Stepped<ReleaseReply>> + Send {
        take(self, key, "a release", Command::Release(release.clone()))
    }

    /// See [`Command::Resize`].
    fn resize(
        &self,
        key: &Key,
        from: u32,
        to: u32,
    ) -> impl Future<Output = Stepped<ResizeReply>> + Send {
        take(self, key, "a resize", Command::Resize { from, to })
    }

    /// See [`Command::Watch`]; the inbox is this client's.
    fn watch(&self, key: &Key, ttl: Duration) -> impl Future<Output = Stepped<WatchReply>> + Send {
        let inbox = self.inbox().clone();
        take(self, key, "a watch", Command::Watch { inbox, ttl })
    }

    /// See [`Command::Break`].
    fn break_key(
        &self,
        key: &Key,
        by: &ClientInfo,
    ) -> impl Future<Output = Stepped<BreakReply>> + Send {
        let (by, only) = (by.clone(), None);
        take(self, key, "a break", Command::Break { by, only })
    }

    /// See [`Command::Break`]; takes the key from the holders with this token only.
    fn break_grant(
        &self,
        key: &Key,
        token: Token,
        by: &ClientInfo,
    ) -> impl Future<Output = Stepped<BreakReply>> + Send {
        let (by, only) = (by.clone(), Some(token));
        take(self, key, "a break", Command::Break { by, only })
    }
}

impl<S: LockStore + ?Sized> Verbs for S {}

type Stepped<R> = Result<Answer<R>, StoreError>;

async fn take<R: TryFrom<Reply, Error = Reply>>(
    store: &(impl LockStore + ?Sized),
    key: &Key,
    verb: &str,
    command: Command,
) -> Stepped<R> {
    let answer = store.step(key, &command).await?;
    let reply = R::try_from(answer.reply).map_err(|reply| {
        let message = format!("the store answered {reply:?} to {verb}");
        StoreError::new(ErrorKind::Corrupt, message)
    })?;
    Ok(Answer {
        reply,
        at: answer.at,
        epoch: answer.epoch,
        acknowledged: answer.acknowledged,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;

    /// As if the store had taken one command for another.
    #[tokio::test]
    async fn a_reply_to_another_command_is_corrupt() {
        let (store, key) = (MemoryStore::new(), Key::new("k").unwrap());
        let by = ClientInfo::unknown();
        let command = Command::Break { by, only: None };
        let broken: Stepped<ClaimReply> = take(&store, &key, "a claim", command).await;
        let error = broken.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let message = error.to_string();
        assert!(
            message.starts_with("the store answered Broken {"),
            "{message}"
        );
        assert!(message.ends_with(" to a claim"), "{message}");
    }
}
