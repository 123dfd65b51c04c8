//! Steps on several keys that are due at the same time go in one statement, and so do looks at them.
//! Each is answered for itself.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Key;
use leasehold_store::journal::{FORMAT, Position};
use leasehold_store::sync::{Mutex, lock, timeout};
use leasehold_store::{ErrorKind, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_postgres::Row;

use super::errors::no_answer;
use super::pool::{Param, Pool, get, params};

/// How many statements may be under way that append. What is asked meanwhile goes with the next.
const UNDER_WAY: usize = 3;

/// How many may that read. A client that hears nothing looks at all its keys again and again, and its
/// renewals have to get past that where the server is slow.
const READ_UNDER_WAY: usize = 1;

/// How long a step that goes alone keeps its room. One that takes longer waits for a lock on its row.
const ROOM_FOR: Duration = Duration::from_millis(100);

/// How many steps or looks a statement may have.
const MOST: usize = 64;

/// The format, as PostgreSQL keeps it.
pub(crate) const NUMBER_OF_FORMAT: i32 = FORMAT.cast_signed();

/// What waits for room, each with who is to be answered.
struct Waiting<T, A> {
    waiting: Mutex<Vec<(T, oneshot::Sender<A>)>>,
    room: Arc<Semaphore>,
}

impl<T, A> Waiting<T, A> {
    fn new(under_way: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            room: Arc::new(Semaphore::new(under_way)),
        }
    }

    /// Asks one. Whoever has room first sends all that wait by then.
    async fn ask<S>(
        &self,
        one: T,
        send: impl FnOnce(Vec<(T, oneshot::Sender<A>)>, Option<OwnedSemaphorePermit>) -> S,
    ) -> Result<A, StoreError>
    where
        S: Future<Output = ()>,
    {
        let (answer, mut answered) = oneshot::channel();
        lock(&self.waiting).push((one, answer));
        let answer = tokio::select! {
            biased;
            answer = &mut answered => answer,
            room = self.room.clone().acquire_owned() => {
                send(self.oldest(), room.ok()).await;
                answered.await
            }
        };
        answer.map_err(|_| no_answer())
    }

    /// Those that have waited longest.
    fn oldest(&self) -> Vec<(T, oneshot::Sender<A>)> {
        let mut waiting = lock(&self.waiting);
        let count = waiting.len().min(MOST);
        waiting.drain(..count).collect()
    }
}

/// What is appended to a key that a client knows up to a record's end.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) key: String,
    pub(crate) record: Option<i64>,
    pub(crate) end: Option<i64>,
    pub(crate) entry: Vec<u8>,
    /// Appended only if nothing has changed since then.
    pub(crate) since: Option<i64>,
    /// A base for all up to `end`, if it is due.
    pub(crate) base: Option<Vec<u8>>,
    /// Where the last base ends. The new one is taken if that is still so.
    pub(crate) replaced: Option<i64>,
}

impl Step {
    /// The parameters of the function `append`.
    pub(crate) fn params<'a>(&'a self, batch: &'a Batch) -> [Param<'a>; 9] {
        params![
            self.key => TEXT, NUMBER_OF_FORMAT => INT4, self.record => INT8, self.end => INT8,
            self.entry => BYTEA, self.since => INT8, batch.commit_when => INT4,
            self.base => BYTEA, self.replaced => INT8,
        ]
    }
}

/// What becomes of a step that waited.
enum Outcome {
    Taken(Result<Row, StoreError>),
    /// It goes alone, and whoever asked for it sends it.
    Alone(Step, Option<OwnedSemaphorePermit>),
}

type Answer = oneshot::Sender<Outcome>;

/// A look at a key, from where a client knows it.
type Look = (Key, Option<Position>);

/// The steps and the looks that wait.
pub(crate) struct Batch {
    pool: Arc<Pool>,
    steps: Waiting<Step, Outcome>,
    looks: Waiting<Look, Result<Row, StoreError>>,
    /// When the commit of a step counts, as the functions of the schema have it.
    pub(crate) commit_when: i32,
}

const ONE: &str = "select *, case when $7 <> 0 then {schema}.commit_when($7) end \
                   from {schema}.append($1, $2, $3, $4, $5, 0, $6, null, $8, $9)";
const SEVERAL: &str = "select * from {schema}.append_each($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const NEWS: &str = "select * from {schema}.news($1, $2, $3)";

impl Batch {
    pub(crate) fn new(pool: &Arc<Pool>, commit_when: i32) -> Self {
        Self {
            pool: pool.clone(),
            steps: Waiting::new(UNDER_WAY),
            looks: Waiting::new(READ_UNDER_WAY),
            commit_when,
        }
    }

    /// Takes a step.
    pub(crate) async fn take(&self, step: Step) -> Result<Row, StoreError> {
        let send = |steps, room| self.send(steps, room);
        let (step, room) = match self.steps.ask(step, send).await? {
            Outcome::Taken(row) => return row,
            Outcome::Alone(step, room) => (step, room),
        };
        let mut sent = pin!(self.send_alone(&step));
        if let Ok(row) = timeout(ROOM_FOR, &mut sent).await {
            return row;
        }
        drop(room);
        sent.await
    }

    /// Looks at a key.
    pub(crate) async fn look(&self, key: &Key, known: Option<Position>) -> Result<Row, StoreError> {
        let send = |looks: Vec<(Look, _)>, room| async move {
            let keys = looks.iter().map(|((key, known), _)| (key, *known));
            let rows = self.news(keys).await;
            let mut rows = rows.map(Vec::into_iter);
            for (_, answer) in looks {
                let row = rows.as_mut().map_err(|error| error.clone());
                let row = row.and_then(|rows| rows.next().ok_or_else(no_answer));
                // Who has asked may have given up.
                oneshot::Sender::send(answer, row).ok();
            }
            // Behind the answers: who has one does not send for nothing.
            drop(room);
        };
        self.looks.ask((key.clone(), known), send).await?
    }

    /// What there is of these keys from where they are known.
    pub(crate) async fn news(
        &self,
        keys: impl Iterator<Item = (&Key, Option<Position>)>,
    ) -> Result<Vec<Row>, StoreError> {
        let keys = keys.map(|(key, known)| (key.as_str(), split(known)));
        let (names, known): (Vec<_>, Vec<_>) = keys.unzip();
        let (records, ends): (Vec<_>, Vec<_>) = known.into_iter().unzip();
        let params = params![names => TEXT_ARRAY, records => INT8_ARRAY, ends => INT8_ARRAY];
        self.pool.ask(NEWS, &params).await
    }

    /// Takes several steps in one statement. One alone, and those that it has left out, go alone.
    async fn send(&self, mut steps: Vec<(Step, Answer)>, mut room: Option<OwnedSemaphorePermit>) {
        let mut taken = HashMap::new();
        if steps.len() > 1 {
            // In one order, so that the server does not find these in each other's way.
            steps.sort_by(|(one, _), (other, _)| one.key.cmp(&other.key));
            match self.send_together(&steps).await {
                Ok(rows) => taken = rows,
                // One of them is to blame, and nobody knows which: the server has taken none.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Refused | ErrorKind::Unsupported) => {}
                Err(error) => {
                    for (_, answer) in steps {
                        answer.send(Outcome::Taken(Err(error.clone()))).ok();
                    }
                    return;
                }
            }
            // What is left waits for somebody else, and nobody for that.
            room = None;
        }
        for (step, answer) in steps {
            let outcome = match taken.remove(&step.key) {
                Some(row) => Outcome::Taken(Ok(row)),
                None => Outcome::Alone(step, room.take()),
            };
            // Who has asked may have given up.
            answer.send(outcome).ok();
        }
    }

    async fn send_alone(&self, step: &Step) -> Result<Row, StoreError> {
        let rows = self.pool.ask(ONE, &step.params(self)).await?;
        rows.into_iter().next().ok_or_else(no_answer)
    }

    async fn send_together(
        &self,
        steps: &[(Step, Answer)],
    ) -> Result<HashMap<String, Row>, StoreError> {
        let steps = steps.iter().map(|(step, _)| step);
        let keys: Vec<_> = steps.clone().map(|step| &*step.key).collect();
        let records: Vec<_> = steps.clone().map(|step| step.record).collect();
        let ends: Vec<_> = steps.clone().map(|step| step.end).collect();
        let entries: Vec<_> = steps.clone().map(|step| &*step.entry).collect();
        let since: Vec<_> = steps.clone().map(|step| step.since).collect();
        let bases: Vec<_> = steps.clone().map(|step| step.base.as_deref()).collect();
        let replaced: Vec<_> = steps.map(|step| step.replaced).collect();
        let params = params![
            keys => TEXT_ARRAY, NUMBER_OF_FORMAT => INT4, records => INT8_ARRAY,
            ends => INT8_ARRAY, entries => BYTEA_ARRAY, since => INT8_ARRAY,
            self.commit_when => INT4, bases => BYTEA_ARRAY, replaced => INT8_ARRAY,
        ];
        let rows = self.pool.ask(SEVERAL, &params).await?;
        let named = rows.into_iter().map(|row| Ok((get(&row, "key")?, row)));
        named.collect()
    }
}

/// A number as PostgreSQL keeps it.
pub(crate) fn number(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}

/// A position as the statements take it: the record, and its end.
pub(crate) fn split(known: Option<Position>) -> (Option<i64>, Option<i64>) {
    let known = known.map(|known| (known.record.cast_signed(), number(known.offset)));
    known.unzip()
}
