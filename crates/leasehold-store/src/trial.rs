//! The trial of the doctor: uses a lock as clients do, each verb once.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Claim, ClaimId, ClaimReply, ClientInfo, Key, Mode, Note, Release, Renew, Rotate,
};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::random::random_u128;
use crate::report::{Finding, Severity};
use crate::{
    Acknowledged, Answer, ErrorKind, LockStore, Push, PushSink, StoreError, Verbs as _, clock,
};

/// How long a push may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long the lock of the trial lives if it is not given back.
pub const TTL: Duration = Duration::from_secs(5);

/// The step without which locks work, and waiters poll.
#[doc(hidden)]
pub const LISTEN: &str = "listen for pushes";

/// The result of using a lock.
#[derive(Debug, Clone, Default)]
pub struct Trial {
    /// The step that failed first, and why.
    pub failed: Option<(&'static str, StoreError)>,
    /// Whether the store says that it has no pushes.
    pub deaf: bool,
    /// How long a push took, if one came.
    pub push: Option<Duration>,
    /// Why the locks could not be listed.
    pub unlisted: Option<StoreError>,
    /// The acknowledgements of a grant, if there is a policy.
    pub acknowledged: Option<Acknowledged>,
}

impl Trial {
    /// A trial that failed at this step.
    #[must_use]
    pub fn failed(step: &'static str, error: StoreError) -> Self {
        Self {
            failed: Some((step, error)),
            ..Self::default()
        }
    }

    /// What came of it, for a store that needs no advice of its own.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        if let Some((step, error)) = &self.failed {
            let mut finding = Finding::of_error("locks", None, error);
            finding.found = format!("cannot {step}: {error}");
            return vec![finding];
        }
        let found = "a lock was acquired, renewed, handed to a waiter, inspected and broken";
        let mut findings = vec![Finding::new(Severity::Fine, "locks", found)];
        if self.push.is_none() && !self.deaf {
            let found = "a push to a waiter was not heard in time";
            let finding = Finding::new(Severity::Warning, "pushes", found);
            findings.push(finding.meaning("waiters ask instead, and hand-offs take seconds"));
        }
        findings
    }
}

/// A key that nobody else uses.
#[must_use]
pub fn key() -> Option<Key> {
    Key::new(format!("leasehold-doctor/{:032x}", random_u128())).ok()
}

/// Uses a lock of the store, at a key that nobody else uses, and leaves what is left there.
#[doc(hidden)]
pub async fn run(store: &impl LockStore) -> Trial {
    match key() {
        Some(key) => take(store, &key, TTL).await,
        None => Trial::default(),
    }
}

/// Uses a lock of the store. What is left at the key is the store's to remove.
pub async fn take(store: &impl LockStore, key: &Key, ttl: Duration) -> Trial {
    let mut trial = Trial::default();
    let done = if store.capabilities().queueing {
        steps(store, key, ttl, &mut trial).await
    } else {
        plain_steps(store, key, ttl).await
    };
    trial.deaf = !store.capabilities().push;
    trial.failed = done.err();
    trial
}

struct Heard(mpsc::UnboundedSender<Push>);

impl PushSink for Heard {
    fn push(&self, push: Push) {
        // Nobody may listen any more.
        self.0.send(push).ok();
    }
}

type Failed = (&'static str, StoreError);

fn release(id: &ClaimId) -> Release {
    Release {
        id: id.clone(),
        hand_off: true,
        settled: false,
        unused: false,
    }
}

/// Where there is no queue.
async fn plain_steps(store: &impl LockStore, key: &Key, ttl: Duration) -> Result<(), Failed> {
    let claim = Claim {
        wait: false,
        ..Claim::new(fresh(), Mode::EXCLUSIVE, ttl)
    };
    granted(store.claim(key, &claim).await)?;
    let renew = Renew::new(claim.id.clone(), claim.lease_ttl);
    done("renew a lock", store.renew(key, &renew).await)?;
    let released = store.release(key, &release(&claim.id)).await;
    done("release a lock", released)?;
    done("inspect a lock", store.inspect(key).await)
}

async fn steps(
    store: &impl LockStore,
    key: &Key,
    ttl: Duration,
    trial: &mut Trial,
) -> Result<(), Failed> {
    let claim = |wait| Claim {
        inbox: Some(store.inbox().clone()),
        wait,
        ..Claim::new(fresh(), Mode::EXCLUSIVE, ttl)
    };
    let (heard, mut pushes) = mpsc::unbounded_channel();
    let listened = store.listen(Arc::new(Heard(heard))).await;
    let _inbox = listened.map_err(|error| (LISTEN, error))?;

    let first = claim(false);
    let taken = store.claim(key, &first).await;
    trial.acknowledged = taken.as_ref().ok().and_then(|answer| answer.acknowledged);
    granted(taken)?;
    let second = claim(true);
    done("wait in the queue", store.claim(key, &second).await)?;
    let to = fresh();
    let mut renew = Renew::new(first.id.clone(), ttl);
    renew.note = Note::new("doctor").ok();
    renew.rotate = Some(Rotate {
        to: to.clone(),
        version: 0,
        adopt: None,
    });
    done("renew a lock", store.renew(key, &renew).await)?;
    done("watch a lock", store.watch(key, TTL).await)?;
    let sent = clock::now();
    done("release a lock", store.release(key, &release(&to)).await)?;
    let hand_off = async {
        while let Some(push) = pushes.recv().await {
            if matches!(push, Push::Granted { .. }) {
                return Some(clock::now().since(sent));
            }
        }
        None
    };
    if store.capabilities().push {
        trial.push = timeout(PATIENCE, hand_off).await.ok().flatten();
    }
    done("stop watching", store.watch(key, Duration::ZERO).await)?;
    done("inspect a lock", store.inspect(key).await)?;
    trial.unlisted = store.list(key.as_str()).await.err();
    let second = release(&second.id);
    done("release a lock", store.release(key, &second).await)?;
    let by = ClientInfo::unknown();
    done("break a lock", store.break_key(key, &by).await)
}

fn fresh() -> ClaimId {
    ClaimId::from_random(random_u128())
}

fn done<R>(step: &'static str, answer: Result<R, StoreError>) -> Result<(), Failed> {
    answer.map(drop).map_err(|error| (step, error))
}

fn granted(answer: Result<Answer<ClaimReply>, StoreError>) -> Result<(), Failed> {
    let step = "acquire a lock";
    match answer {
        Ok(answer) if !answer.holds() => {
            let message = format!("a free lock was not granted: {:?}", answer.reply);
            Err((step, StoreError::new(ErrorKind::Corrupt, message)))
        }
        answer => done(step, answer),
    }
}
