//! Deadlock detection among the claims of a store.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::try_join_all;
use leasehold_core::deadlock::{ClaimState, Deadlocks, KeyClaims};
use leasehold_core::{Capacity, ClaimContext, ClientInfo, Key, Mode, Token};

use crate::error::{Error, ErrorKind, StoreError};
use crate::inspection::{HolderInfo, Inspection, WaiterInfo};
use crate::listing::Listing;
use crate::session::Session;
use crate::sync::{AtomicBool, Ordering, sleep};

/// The shortest and the longest pause between two looks for a deadlock.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// How many keys are read again at a time.
const AT_ONCE: usize = 64;

/// A deadlock: claims that wait for each other. None of them is granted unless one gives up.
///
/// `Display` describes it in one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlock {
    /// The waiting claims: each waits for the next, and the last for the first. They may form
    /// more than one cycle.
    pub claims: Vec<BlockedClaim>,
    /// When the deadlock was found, by the store's clock.
    pub at: SystemTime,
}

/// A waiting claim of a [`Deadlock`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedClaim {
    /// The key that it waits for.
    pub key: Key,
    /// Who waits.
    pub waiter: WaiterInfo,
    /// The keys that its context holds and that other claims of the deadlock wait for. Empty if
    /// other claims only wait behind it in the queue, or for a key that its context would get first.
    pub holds: Vec<(Key, HolderInfo)>,
}

impl Deadlock {
    /// Returns when the deadlock began, which is when the last of its claims began to wait, by
    /// the store's clock.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        let waiters = self.claims.iter().map(|claim| claim.waiter.since);
        waiters.max().unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// How many of its claims have begun to wait after the last claim that this context waits with
    /// for `key`: the youngest has 0. `None`: it has no claim in this deadlock.
    fn younger_than(&self, key: &Key, context: &ClaimContext) -> Option<usize> {
        let order = |it: &BlockedClaim| (it.waiter.since, it.key.clone(), it.waiter.arrival);
        let mine = |claim: &&BlockedClaim| {
            claim.key == *key && claim.waiter.owner.context.as_ref() == Some(context)
        };
        let mine = self.claims.iter().filter(mine).map(order).max()?;
        let younger = self.claims.iter().filter(|claim| order(claim) > mine);
        Some(younger.count())
    }
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claims: Vec<_> = self.claims.iter().map(BlockedClaim::to_string).collect();
        f.write_str(&claims.join("; "))
    }
}

impl fmt::Display for BlockedClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiter = &self.waiter.owner;
        // Of nested pieces of work the outermost: its end ends those within.
        let depth = |(_, holder): &&(Key, HolderInfo)| {
            let context = holder.owner.context.as_ref();
            context.map(|context| context.path().count())
        };
        let Some((_, holder)) = self.holds.iter().min_by_key(depth) else {
            return write!(f, "{} waits for {}", who(waiter), self.key);
        };
        let keys: BTreeSet<_> = self.holds.iter().map(|(key, _)| key.as_str()).collect();
        let keys: Vec<_> = keys.into_iter().collect();
        let (holder, keys) = (&holder.owner, keys.join(", "));
        let key = &self.key;
        write!(f, "{} holds {keys} and waits for {key}", who(holder))?;
        match (holder.host == waiter.host, holder.pid == waiter.pid) {
            (true, true) => Ok(()),
            (true, false) => write!(f, " (in pid {})", waiter.pid),
            (false, _) => write!(f, " (in {})", who(waiter)),
        }
    }
}

/// `deploy (pid 812 on build7)`.
fn who(owner: &ClientInfo) -> String {
    let ClientInfo { host, pid, .. } = owner;
    match &owner.label {
        Some(label) => format!("{label} (pid {pid} on {host})"),
        None => format!("pid {pid} on {host}"),
    }
}

/// Finds the deadlocks of the whole store.
pub(crate) async fn find(session: &Session) -> Result<Vec<Deadlock>, Error> {
    let mut listing = Listing::new(session, "*");
    let mut seen = Vec::new();
    while let Some(page) = listing.next().await? {
        let found = page.keys.into_iter();
        seen.extend(found.filter(|seen| !seen.waiters.is_empty()));
    }
    confirm(session, &seen).await
}

/// Finds the deadlocks among keys that were seen one after the other: what may be one is read
/// again.
pub(crate) async fn confirm(
    session: &Session,
    seen: &[Inspection],
) -> Result<Vec<Deadlock>, Error> {
    let before: Vec<_> = seen.iter().map(claims).collect();
    let stuck = Deadlocks::among(&before).stuck;
    let mut again = Vec::with_capacity(stuck.len());
    for some in stuck.chunks(AT_ONCE) {
        let looks = some.iter().map(|at| &seen[*at].key);
        let looks = looks.map(|key| Inspection::of(session, key));
        again.extend(try_join_all(looks).await?);
    }
    let mut now: Vec<_> = again.iter().map(claims).collect();
    for (now, at) in now.iter_mut().zip(stuck) {
        now.keep_seen_in(&before[at]);
    }
    let looked = again.iter().map(|seen| seen.at).max();
    let at = looked.unwrap_or(SystemTime::UNIX_EPOCH);
    let circles = Deadlocks::among(&now).circles.into_iter();
    let deadlocks = circles.map(|circle| {
        let claims = circle.into_iter().map(|claim| blocked(&again, claim));
        let claims = claims.collect();
        Deadlock { claims, at }
    });
    Ok(deadlocks.collect())
}

fn blocked(seen: &[Inspection], claim: leasehold_core::deadlock::BlockedClaim) -> BlockedClaim {
    let held = |(key, index): (usize, usize)| {
        let seen = &seen[key];
        (seen.key.clone(), seen.holders[index].clone())
    };
    let of = &seen[claim.key];
    let (key, waiter) = (of.key.clone(), of.waiters[claim.waiter].clone());
    let holds = claim.holds.into_iter().map(held).collect();
    BlockedClaim { key, waiter, holds }
}

/// What matters of a key.
fn claims(seen: &Inspection) -> KeyClaims {
    let claim = |index, id: String, owner: &ClientInfo, mode: Mode| ClaimState {
        id,
        index,
        context: owner.context.clone(),
        weight: mode.weight(),
        token: Token::NONE,
        leaves: false,
    };
    let holders = seen.holders.iter().enumerate();
    let holders = holders.map(|(index, it)| ClaimState {
        token: it.token,
        leaves: it.kept,
        ..claim(index, it.id_hint.clone(), &it.owner, it.mode)
    });
    // The ids of a context's claims may begin alike.
    let waiters = seen.waiters.iter().enumerate();
    let waiters = waiters.map(|(at, it)| claim(at, it.arrival.to_string(), &it.owner, it.mode));
    KeyClaims {
        units: seen.permits.map_or(Capacity::LOCK, u64::from),
        holders: holders.collect(),
        waiters: waiters.collect(),
    }
}

/// Hears of the deadlock that a waiting claim is part of.
pub(crate) type Hear = Arc<dyn Fn(&Deadlock) + Send + Sync>;

/// What a waiting claim does about deadlocks.
#[derive(Clone)]
pub(crate) struct DeadlockCheck {
    /// For how long it waits before it looks for one.
    pub(crate) after: Duration,
    /// Without anybody, it gives up in one.
    pub(crate) hear: Option<Hear>,
}

/// Refuses a claim whose deadlocks could never be found.
pub(crate) fn no_context() -> StoreError {
    let message = "deadlock detection needs a context, and this claim has none";
    StoreError::new(ErrorKind::Invalid, message)
        .with_hint("give all claims of one piece of work the same context: `with_context`")
}

impl DeadlockCheck {
    /// Looks for a deadlock again and again. Completes when the claim is to give up: at the first
    /// look that finds one if it is the youngest, and one look later for each that is younger, in
    /// case those do not give up. `told`: that it cannot look was, by this check or by another.
    pub(crate) async fn watch(
        &self,
        session: &Session,
        key: &Key,
        context: &ClaimContext,
        told: &AtomicBool,
    ) -> StoreError {
        let (shortest, longest) = PAUSES;
        let mut pause = self.after.max(shortest);
        let mut looks = 0;
        loop {
            sleep(pause).await;
            // What cannot be read now is read later.
            let found = find_of(session, key, context).await;
            if let Err(error) = &found
                && !error.is_retryable()
                && !told.swap(true, Ordering::Relaxed)
            {
                tracing::warn!(%error, "cannot check for deadlocks");
            }
            let Some((deadlock, younger)) = found.ok().flatten() else {
                looks = 0;
                pause = (pause * 2).min(longest.max(self.after));
                continue;
            };
            if let Some(hear) = &self.hear {
                hear(&deadlock);
            } else if younger <= looks {
                let message = format!("gave up in a deadlock: {deadlock}");
                return StoreError::new(ErrorKind::Deadlock, message);
            }
            looks += 1;
            pause = self.after.max(shortest);
        }
    }
}

/// The deadlock in which this context waits for the key, if there is one.
async fn find_of(
    session: &Session,
    key: &Key,
    context: &ClaimContext,
) -> Result<Option<(Deadlock, usize)>, Error> {
    let seen = Inspection::of(session, key).await?;
    // Most often one look tells that the holders can go on, for all that is known.
    let mut holders = seen.holders.iter();
    if holders.all(|holder| holder.owner.context.is_none()) {
        return Ok(None);
    }
    Ok(find(session).await?.into_iter().find_map(|deadlock| {
        let younger = deadlock.younger_than(key, context)?;
        Some((deadlock, younger))
    }))
}

#[cfg(test)]
mod tests {
    use leasehold_core::Arrival;

    use super::*;

    /// Its id says who has made it.
    fn waiter(context: &ClaimContext, since: u64) -> WaiterInfo {
        WaiterInfo {
            mode: Mode::EXCLUSIVE,
            owner: ClientInfo::new("vm", 1, None).within(Some(context.clone())),
            since: SystemTime::UNIX_EPOCH + Duration::from_secs(since),
            expires_in: Duration::from_secs(10),
            position: 1,
            id_hint: "mac-02".to_owned(),
            arrival: Arrival(since),
        }
    }

    #[test]
    fn a_claim_that_came_since_is_another() {
        let context = ClaimContext::from_random(1);
        let seen = |since| {
            claims(&Inspection {
                key: Key::new("k").unwrap(),
                permits: None,
                last_token: Token::NONE,
                at: SystemTime::UNIX_EPOCH,
                holders: Vec::new(),
                waiters: vec![waiter(&context, since)],
            })
        };
        let before = seen(1);
        for (since, stay) in [(1, 1), (2, 0)] {
            let mut now = seen(since);
            now.keep_seen_in(&before);
            assert_eq!(now.waiters.len(), stay, "since {since}");
        }
    }

    #[test]
    fn claims_of_one_context_for_one_key_count_as_one() {
        let [ours, theirs] = [1, 2].map(ClaimContext::from_random);
        let claim = |key: &str, context: &ClaimContext, since: u64| BlockedClaim {
            key: Key::new(key).unwrap(),
            waiter: waiter(context, since),
            holds: Vec::new(),
        };
        let of = [("x", &ours, 1), ("y", &theirs, 2), ("x", &ours, 3)];
        let deadlock = Deadlock {
            claims: Vec::from(of.map(|(key, context, since)| claim(key, context, since))),
            at: SystemTime::UNIX_EPOCH,
        };
        let younger = |key: &str, context| deadlock.younger_than(&Key::new(key).unwrap(), context);
        assert_eq!(younger("x", &ours), Some(0));
        assert_eq!(younger("y", &theirs), Some(1));
        assert_eq!(younger("y", &ours), None);
    }

    #[test]
    fn of_claims_that_came_at_once_one_is_the_youngest() {
        let contexts = [1, 2].map(ClaimContext::from_random);
        let claim = |(context, arrival)| BlockedClaim {
            key: Key::new("k").unwrap(),
            waiter: WaiterInfo {
                arrival: Arrival(arrival),
                ..waiter(context, 1)
            },
            holds: Vec::new(),
        };
        let deadlock = Deadlock {
            claims: contexts.iter().zip(1..).map(claim).collect(),
            at: SystemTime::UNIX_EPOCH,
        };
        let key = Key::new("k").unwrap();
        let younger = contexts.map(|context| deadlock.younger_than(&key, &context));
        assert_eq!(younger, [Some(1), Some(0)]);
    }

    #[tokio::test]
    async fn of_nested_holders_the_outermost_is_named() {
        let client = crate::connect("memory:").await.unwrap();
        let outer = client.context();
        let inner = client.context_within(&outer);
        let mut holds = Vec::new();
        for (key, context, pid) in [("a", &inner, 2), ("b", &outer, 1)] {
            let lock = client.mutex(key).unwrap().with_context(context);
            let _lease = lock.lock().await.unwrap();
            let mut holder = lock.holders().await.unwrap().remove(0);
            (holder.owner.host, holder.owner.pid) = ("vm".to_owned(), pid);
            holds.push((Key::new(key).unwrap(), holder));
        }
        let held = client.mutex("c").unwrap().lock().await.unwrap();
        let lock = client.mutex("c").unwrap().with_context(&inner);
        let waiting = tokio::spawn(async move { lock.lock().await.map(drop) });
        let mut waiters = Vec::new();
        while waiters.is_empty() {
            waiters = client.inspect("c").await.unwrap().waiters;
        }
        let mut waiter = waiters.remove(0);
        (waiter.owner.host, waiter.owner.pid) = ("vm".to_owned(), 3);
        let key = Key::new("c").unwrap();
        let said = BlockedClaim { key, waiter, holds }.to_string();
        assert_eq!(said, "pid 1 on vm holds a, b and waits for c (in pid 3)");
        let _ = held.release().await.unwrap();
        waiting.await.unwrap().unwrap();
    }
}
