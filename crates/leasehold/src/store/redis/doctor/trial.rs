//! Uses a lock as clients do, every verb once.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Claim, ClaimId, Key, Mode, Note, Release, Renew, Reply, Rotate, Token};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::facts::Trial;
use crate::clock;
use crate::error::{ErrorKind, StoreError};
use crate::store::redis::options::SHORTEST_RETENTION;
use crate::store::redis::{RedisOptions, RedisStore};
use crate::store::{Answer, LockStore, Push, PushSink};

/// How long a push may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long the lock of the trial lives if we do not come to give it back.
const TTL: Duration = Duration::from_secs(5);

pub(super) async fn run(options: &RedisOptions) -> Trial {
    let mut trial = Trial::default();
    let options = RedisOptions {
        // What is left of the trial's keys vanishes soon.
        retention: SHORTEST_RETENTION,
        ..options.clone()
    };
    match RedisStore::connect(options).await {
        Ok(store) => {
            if let Err(failed) = steps(&store, &mut trial).await {
                trial.failed = Some(failed);
            }
        }
        Err(error) => trial.failed = Some(("open the store", error)),
    }
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

async fn steps(store: &RedisStore, trial: &mut Trial) -> Result<(), Failed> {
    let name = format!("leasehold-doctor/{}", uuid::Uuid::new_v4());
    let key = Key::new(name).map_err(|invalid| ("name a key", invalid.into()))?;
    let claim = |wait| Claim {
        inbox: Some(store.inbox().clone()),
        wait,
        ..Claim::new(fresh(), Mode::Exclusive, TTL)
    };
    let release = |id: &ClaimId| Release {
        id: id.clone(),
        hand_off: true,
        settled: false,
        unused: false,
    };
    let (heard, mut pushes) = mpsc::unbounded_channel();
    let listened = store.listen(Arc::new(Heard(heard))).await;
    let _ear = listened.map_err(|error| ("listen for pushes", error))?;

    let first = claim(false);
    token("take a lock", store.claim(&key, &first).await)?;
    let second = claim(true);
    done("stand in line", store.claim(&key, &second).await)?;
    let to = fresh();
    let renew = Renew {
        note: Note::new("doctor").ok(),
        rotate: Some(Rotate {
            to: to.clone(),
            version: 0,
            adopt: None,
        }),
        ..Renew::new(first.id.clone(), TTL)
    };
    done("renew a lock", store.renew(&key, &renew).await)?;
    done("watch a lock", store.watch(&key, TTL).await)?;
    let sent = clock::now();
    done("release a lock", store.release(&key, &release(&to)).await)?;
    let granted = async {
        while let Some(push) = pushes.recv().await {
            if matches!(push, Push::Granted { .. }) {
                return Some(clock::now().since(sent));
            }
        }
        None
    };
    trial.push = timeout(PATIENCE, granted).await.ok().flatten();
    done("stop watching", store.watch(&key, Duration::ZERO).await)?;
    let looked = store.inspect(&key).await;
    looked.map_err(|error| ("look at a lock", error))?;
    let listed = store.list(key.as_str()).await;
    listed.map_err(|error| ("list the locks", error))?;
    let second = release(&second.id);
    done("release a lock", store.release(&key, &second).await)?;
    done("break a lock", store.break_key(&key).await)?;
    Ok(())
}

fn fresh() -> ClaimId {
    ClaimId::from_random(uuid::Uuid::new_v4().as_u128())
}

fn done(step: &'static str, answer: Result<Answer, StoreError>) -> Result<Reply, Failed> {
    answer
        .map(|answer| answer.reply)
        .map_err(|error| (step, error))
}

fn token(step: &'static str, answer: Result<Answer, StoreError>) -> Result<Token, Failed> {
    match done(step, answer)? {
        Reply::Standing(standing) if standing.token.is_some() => {
            Ok(standing.token.unwrap_or_default())
        }
        other => {
            let message = format!("a free lock was not granted: {other:?}");
            Err((step, StoreError::new(ErrorKind::Corrupt, message)))
        }
    }
}
