//! Typed methods for the commands of [`LockStore::step`].

use std::time::Duration;

use leasehold_core::{
    BreakReply, Claim, ClaimReply, ClientInfo, Command, Key, Release, ReleaseReply, Renew,
    RenewReply, Reply, ResizeReply, Token, WatchReply,
};

use crate::answer::Answer;
use crate::error::{ErrorKind, StoreError};
use crate::port::LockStore;

/// Declares methods of [`Verbs`]: what each takes beside the key, its reply, what messages call it, and
/// its command.
macro_rules! verbs {
    ($(
        $(#[$doc:meta])* $verb:ident($($given:ident: $ty:ty),+) -> $reply:ty: $called:literal, $command:expr;
    )+) => { $(
        $(#[$doc])*
        fn $verb(&self, key: &Key, $($given: $ty),+) -> impl Future<Output = Stepped<$reply>> + Send {
            take(self, key, $called, $command)
        }
    )+ };
}

/// Typed methods for the commands of a store. Each calls [`LockStore::step`], and every store has
/// them. Each returns its own reply enum, which callers match without a wildcard.
///
/// # Errors
/// Those of [`LockStore`], and `Corrupt` for a reply that does not answer the command.
pub trait Verbs: LockStore {
    verbs! {
        /// See [`Command::Claim`].
        claim(claim: &Claim) -> ClaimReply: "a claim", Command::Claim(claim.clone());
        /// See [`Command::Renew`].
        renew(renew: &Renew) -> RenewReply: "a renewal", Command::Renew(renew.clone());
        /// See [`Command::Release`].
        release(release: &Release) -> ReleaseReply: "a release", Command::Release(release.clone());
        /// See [`Command::Resize`].
        resize(from: u32, to: u32) -> ResizeReply: "a resize", Command::Resize { from, to };
        /// See [`Command::Break`].
        break_key(by: &ClientInfo) -> BreakReply: "a break", Command::Break {
            by: by.clone(),
            only: None,
        };
        /// See [`Command::Break`]; takes the key from the holders with this token only.
        break_grant(token: Token, by: &ClientInfo) -> BreakReply: "a break", Command::Break {
            by: by.clone(),
            only: Some(token),
        };
    }

    /// See [`Command::Watch`]; the inbox is this client's.
    fn watch(&self, key: &Key, ttl: Duration) -> impl Future<Output = Stepped<WatchReply>> + Send {
        let inbox = self.inbox().clone();
        take(self, key, "a watch", Command::Watch { inbox, ttl })
    }
}

impl<S: LockStore + ?Sized> Verbs for S {}

/// Refuses a reply to another command than `verb`.
#[doc(hidden)]
pub fn check_reply<R: TryFrom<Reply, Error = Reply>>(
    reply: Reply,
    verb: &str,
) -> Result<R, StoreError> {
    R::try_from(reply).map_err(|reply| {
        let message = format!("the store answered {reply:?} to {verb}");
        StoreError::new(ErrorKind::Corrupt, message)
    })
}

type Stepped<R> = Result<Answer<R>, StoreError>;

async fn take<R: TryFrom<Reply, Error = Reply>>(
    store: &(impl LockStore + ?Sized),
    key: &Key,
    verb: &str,
    command: Command,
) -> Stepped<R> {
    let answer = store.step(key, &command).await?;
    Ok(Answer {
        reply: check_reply(answer.reply, verb)?,
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
