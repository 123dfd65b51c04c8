//! Steps on several keys that are due at the same time go in one statement. Each is taken or refused
//! for itself.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use leasehold_core::Key;
use leasehold_store::journal::FORMAT;
use leasehold_store::sync::{Mutex, lock};
use leasehold_store::{ErrorKind, StoreError};
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::errors::no_answer;
use super::pool::{Param, Pool, get};

/// How many statements may be under way. What is asked meanwhile goes with the next.
const UNDER_WAY: usize = 3;

/// How many steps a statement may have.
const MOST: usize = 64;

/// What is appended to a key that a client knows up to a record's end.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) key: Key,
    pub(crate) record: Option<i64>,
    pub(crate) end: Option<i64>,
    pub(crate) entry: Vec<u8>,
    /// Appended only if nothing has changed since then.
    pub(crate) since: Option<i64>,
}

type Answer = oneshot::Sender<Result<Row, StoreError>>;

/// The steps that wait.
pub(crate) struct Batch {
    pool: Arc<Pool>,
    waiting: Mutex<Vec<(Step, Answer)>>,
    room: Semaphore,
    is_async: bool,
    one: String,
    several: String,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}

impl Batch {
    pub(crate) fn new(pool: &Arc<Pool>, is_async: bool) -> Self {
        let schema = &pool.schema;
        Self {
            pool: pool.clone(),
            waiting: Mutex::default(),
            room: Semaphore::new(UNDER_WAY),
            is_async,
            one: format!(
                "select * from {schema}.append($1, $2, $3, $4, $5, 0, $6, null), \
                 set_config('synchronous_commit', case when $7 then 'off' else \
                 current_setting('synchronous_commit') end, true)"
            ),
            several: format!("select * from {schema}.append_each($1, $2, $3, $4, $5, $6, $7)"),
        }
    }

    /// Takes a step. Whoever has room first takes along all that wait by then.
    pub(crate) async fn take(&self, step: Step) -> Result<Row, StoreError> {
        let (answer, mut answered) = oneshot::channel();
        lock(&self.waiting).push((step, answer));
        tokio::select! {
            biased;
            answer = &mut answered => return answer.unwrap_or_else(|_| Err(no_answer())),
            room = self.room.acquire() => self.send(self.oldest(), room.ok()).await,
        }
        answered.await.unwrap_or_else(|_| Err(no_answer()))
    }

    /// Those that have waited longest.
    fn oldest(&self) -> Vec<(Step, Answer)> {
        let mut waiting = lock(&self.waiting);
        let count = waiting.len().min(MOST);
        waiting.drain(..count).collect()
    }

    async fn send(&self, mut steps: Vec<(Step, Answer)>, mut room: Option<SemaphorePermit<'_>>) {
        if steps.len() > 1 {
            steps = self.take_together(steps).await;
            // What is left waits for somebody else, and nobody for that.
            room = None;
        }
        for (step, answer) in steps {
            // Who has asked may have given up.
            answer.send(self.send_alone(&step).await).ok();
        }
        drop(room);
    }

    /// Takes steps in one statement. Returns those that it has left out.
    async fn take_together(&self, mut steps: Vec<(Step, Answer)>) -> Vec<(Step, Answer)> {
        // In one order, so that the server does not find these in each other's way.
        steps.sort_by(|(one, _), (other, _)| one.key.cmp(&other.key));
        let rows = self.send_together(steps.iter().map(|(step, _)| step)).await;
        let mut taken: HashMap<_, _> = match rows {
            Ok(rows) => rows.into_iter().collect(),
            // One of them is to blame, and nobody knows which: the server has taken none.
            Err(error) if matches!(error.kind(), ErrorKind::Refused | ErrorKind::Unsupported) => {
                return steps;
            }
            Err(error) => {
                for (_, answer) in steps {
                    answer.send(Err(error.clone())).ok();
                }
                return Vec::new();
            }
        };
        let mut left = Vec::new();
        for (step, answer) in steps {
            match taken.remove(step.key.as_str()) {
                Some(row) => _ = answer.send(Ok(row)),
                None => left.push((step, answer)),
            }
        }
        left
    }

    async fn send_alone(&self, step: &Step) -> Result<Row, StoreError> {
        let params: [Param<'_>; 7] = [
            (&step.key.as_str(), Type::TEXT),
            (&FORMAT.cast_signed(), Type::INT4),
            (&step.record, Type::INT8),
            (&step.end, Type::INT8),
            (&step.entry, Type::BYTEA),
            (&step.since, Type::INT8),
            (&self.is_async, Type::BOOL),
        ];
        let rows = self.pool.ask(&self.one, &params).await?;
        rows.into_iter().next().ok_or_else(no_answer)
    }

    async fn send_together(
        &self,
        steps: impl Iterator<Item = &Step> + Clone,
    ) -> Result<Vec<(String, Row)>, StoreError> {
        let keys: Vec<_> = steps.clone().map(|step| step.key.as_str()).collect();
        let records: Vec<_> = steps.clone().map(|step| step.record).collect();
        let ends: Vec<_> = steps.clone().map(|step| step.end).collect();
        let entries: Vec<_> = steps.clone().map(|step| &*step.entry).collect();
        let since: Vec<_> = steps.map(|step| step.since).collect();
        let params: [Param<'_>; 7] = [
            (&keys, Type::TEXT_ARRAY),
            (&FORMAT.cast_signed(), Type::INT4),
            (&records, Type::INT8_ARRAY),
            (&ends, Type::INT8_ARRAY),
            (&entries, Type::BYTEA_ARRAY),
            (&since, Type::INT8_ARRAY),
            (&self.is_async, Type::BOOL),
        ];
        let rows = self.pool.ask(&self.several, &params).await?;
        let named = rows.into_iter().map(|row| Ok((get(&row, "key")?, row)));
        named.collect()
    }
}
