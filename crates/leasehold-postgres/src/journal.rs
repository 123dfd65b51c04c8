//! The journals: rows of a table, and the statements that append to them and read them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::{Inbox, Key, StoreTime};
use leasehold_store::journal::{
    Append, Appended, Doorbell, Entry, Journal, JournalStore, News, Page, PageOf, Position,
    damaged, other_format,
};
use leasehold_store::random::random_u64;
use leasehold_store::{Acknowledged, Acknowledges, Capabilities, Listening, StoreError};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::batch::{Batch, NUMBER_OF_FORMAT, Step, number, split};
use super::errors::{CHANGED, no_answer};
use super::init;
use super::listener::Listener;
use super::options::PostgresOptions;
use super::pool::{Pool, get, params};

/// A row is written anew at each step, and the server compresses one of more than 2 kB each time.
const BASE_AFTER: u64 = 1024;

/// How many records a page has.
const PAGE: i64 = 200;

/// The rows of one client.
pub(crate) struct Rows {
    pub(crate) pool: Arc<Pool>,
    pub(crate) listener: Arc<Listener>,
    inbox: Inbox,
    batch: Batch,
}

leasehold_store::debug!(Rows; |it| pool: it.pool);

const APPEND_AND_RING: &str = "call {schema}.append_and_ring($1, $2, $3, $4, $5, $10, $6, $7, $8, \
    $9, null, null, null, null, null, null, null, null)";

const APPEND_ALL: &str = "select * from {schema}.append_all($1, $2, $3, $4, $5, $6, $7)";

const RING: &str = "select {schema}.notify($1, $2, 0)";

const READ_PAGE: &str = "select k.key, k.touched, n.* from (select key, touched from {schema}.keys \
    where key > $1 and key >= $2 and left(key, length($2)) = $2 \
    and touched <= {schema}.clock() - $3 order by key limit $4) k, \
    {schema}.news(array[k.key], array[null::bigint], array[null::bigint]) n order by k.key";

const FORGET: &str = "delete from {schema}.keys where key = $1 \
    and {schema}.record_at(record, tail_at, tail, $3) = $2 \
    and tail_at + octet_length(tail) = $3";

/// Opens a store, if its schema is there.
pub(crate) async fn open(options: &PostgresOptions) -> Result<JournalStore<Rows>, StoreError> {
    let (pool, commit_when) = (Pool::new(options), options.commit_when());
    let inbox = Inbox::from_random(random_u64());
    let rows = Rows {
        batch: Batch::new(&pool, commit_when),
        listener: Listener::new(pool.clone(), options.listens_at(), &inbox),
        inbox,
        pool,
    };
    init::check(&rows.pool, commit_when).await?;
    Ok(JournalStore::new(rows, options.retention))
}

impl Rows {
    async fn append_one(
        &self,
        part: &Append<'_>,
        since: Option<i64>,
    ) -> Result<Appended, StoreError> {
        let (record, end) = split(part.known);
        let new_base = part.new_base(BASE_AFTER)?.zip(end);
        let new_base = new_base.map(|((base, bytes), end)| (base, end - number(bytes)));
        let (base, replaced) = new_base.unzip();
        let step = Step {
            key: part.key.as_str().to_owned(),
            record,
            end,
            entry: part.bytes.to_vec(),
            since,
            base,
            replaced,
        };
        if part.ring.is_empty() {
            return appended(part.key, &self.batch.take(step).await?);
        }
        let inboxes: Vec<_> = part.ring.iter().map(Inbox::as_str).collect();
        let mut params = step.params(&self.batch).to_vec();
        params.extend(params![inboxes => TEXT_ARRAY]);
        match self.pool.query(APPEND_AND_RING, &params).await? {
            Ok(rows) => appended(part.key, rows.first().ok_or_else(no_answer)?),
            Err(error) if error.code() == Some(&SqlState::PROGRAM_LIMIT_EXCEEDED) => {
                // There is no room for rings, which come behind the entry, and nobody relies on them.
                let row = self.batch.look(part.key, part.known).await?;
                let (_, news) = news(part.key, &row)?;
                let last = news.entries.last();
                match last.is_some_and(|last| last.bytes == part.bytes) {
                    true => taken(part.key, news),
                    false => Err(self.pool.meaning(error)),
                }
            }
            Err(error) => Err(self.pool.meaning(error)),
        }
    }
}

#[async_trait]
impl Journal for Rows {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::queueing("postgres");
        can.durable_tokens = true;
        if self.acknowledged().is_some() {
            can.acknowledges = Acknowledges::GrantsAndRenewals;
        }
        can
    }

    async fn append(
        &self,
        parts: &[Append<'_>],
        unchanged_since: Option<StoreTime>,
    ) -> Result<Appended, StoreError> {
        let since = unchanged_since.map(|since| number(since.0));
        if let [part] = parts {
            return self.append_one(part, since).await;
        }
        // In one order, so that the server does not find these in each other's way.
        let mut order: Vec<_> = (0..parts.len()).collect();
        order.sort_by_key(|place| parts[*place].key);
        let sorted = || order.iter().map(|place| &parts[*place]);
        let keys: Vec<_> = sorted().map(|part| part.key.as_str()).collect();
        let (records, ends): (Vec<_>, Vec<_>) = sorted().map(|part| split(part.known)).unzip();
        let entries: Vec<_> = sorted().map(|part| part.bytes).collect();
        let params = params![
            keys => TEXT_ARRAY, NUMBER_OF_FORMAT => INT4, records => INT8_ARRAY,
            ends => INT8_ARRAY, entries => BYTEA_ARRAY, since => INT8,
            self.batch.commit_when => INT4,
        ];
        let rows = match self.pool.query(APPEND_ALL, &params).await? {
            Ok(rows) => rows,
            Err(error) if error.code().is_some_and(|code| code.code() == CHANGED) => {
                let known: Vec<_> = parts.iter().map(|part| (part.key, part.known)).collect();
                let (at, news) = self.read(&known).await?;
                return Ok(Appended::conflict(at, news));
            }
            Err(error) => return Err(self.pool.meaning(error)),
        };
        let (mut at, mut all) = (StoreTime(0), BTreeMap::new());
        for (place, row) in order.into_iter().zip(&rows) {
            let one = appended(parts[place].key, row)?;
            at = at.max(one.at);
            all.extend(one.news.into_iter().map(|news| (place, news)));
        }
        Ok(Appended {
            at,
            appended: true,
            news: all.into_values().collect(),
        })
    }

    fn acknowledged(&self) -> Option<Acknowledged> {
        self.pool.acknowledged()
    }

    async fn read(
        &self,
        keys: &[(&Key, Option<Position>)],
    ) -> Result<(StoreTime, Vec<News>), StoreError> {
        let rows = match keys {
            [(key, known)] => vec![self.batch.look(key, *known).await?],
            keys => self.batch.news(keys.iter().copied()).await?,
        };
        let each = keys.iter().zip(&rows);
        let read = each.map(|((key, _), row)| news(key, row));
        let (times, all): (Vec<_>, Vec<_>) = read.collect::<Result<_, _>>()?;
        Ok((times.into_iter().max().unwrap_or_default(), all))
    }

    async fn ring(&self, key: &Key, inboxes: &[Inbox]) -> Result<(), StoreError> {
        let names: Vec<_> = inboxes.iter().map(Inbox::as_str).collect();
        let params = params![key.as_str() => TEXT, names => TEXT_ARRAY];
        self.pool.ask(RING, &params).await.map(drop)
    }

    async fn page(&self, of: &PageOf<'_>) -> Result<Page, StoreError> {
        let after = of.after.unwrap_or_default();
        let idle = of.idle_for.map_or(i64::MIN / 2, |idle| {
            i64::try_from(idle.as_micros()).unwrap_or(i64::MAX / 2)
        });
        let params = params![after => TEXT, of.prefix => TEXT, idle => INT8, PAGE => INT8];
        let rows = self.pool.ask(READ_PAGE, &params).await?;
        let mut page = Page {
            at: StoreTime(0),
            records: Vec::new(),
        };
        for row in &rows {
            let (name, touched): (String, i64) = (get(row, 0)?, get(row, 1)?);
            let known = Key::new(&*name).map_err(StoreError::from);
            let known = known.and_then(|key| news(&key, row));
            page.at = known.as_ref().map_or(page.at, |(at, _)| page.at.max(*at));
            let touched = StoreTime(touched.cast_unsigned());
            let news = known.map(|(_, news)| news);
            page.records.push((name, touched, news));
        }
        Ok(page)
    }

    async fn forget(&self, key: &Key, at: Position) -> Result<(), StoreError> {
        let (record, end) = split(Some(at));
        let params = params![key.as_str() => TEXT, record => INT8, end => INT8];
        self.pool.ask(FORGET, &params).await.map(drop)
    }

    fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    fn epoch(&self) -> u64 {
        self.listener.epochs.now()
    }

    fn listens(&self) -> bool {
        self.listener.listens()
    }

    fn doubt(&self, at: StoreTime) {
        self.listener.doubt(at);
    }

    async fn listen(&self, bell: Arc<dyn Doorbell>) -> Result<Box<dyn Listening>, StoreError> {
        self.listener.open(bell).await
    }
}

/// The answer of an append.
fn appended(key: &Key, row: &Row) -> Result<Appended, StoreError> {
    let (at, news) = news(key, row)?;
    match get::<bool>(row, "appended")? {
        true => taken(key, news),
        false => Ok(Appended::conflict(at, vec![news])),
    }
}

/// An append whose entry is the last.
fn taken(key: &Key, mut news: News) -> Result<Appended, StoreError> {
    let ours = news.entries.pop().ok_or_else(|| damaged(key))?;
    news.dead = ours.dead;
    Ok(Appended {
        at: ours.at,
        appended: true,
        news: vec![news],
    })
}

/// What a row says of a journal, and the clock.
fn news(key: &Key, row: &Row) -> Result<(StoreTime, News), StoreError> {
    let at: i64 = get(row, "at")?;
    let Some(base_length) = get::<Option<i64>>(row, "base_length")? else {
        return Ok((StoreTime(at.cast_unsigned()), News::nothing()));
    };
    let format: Result<Option<i32>, _> = row.try_get("format");
    if let Ok(Some(format)) = format
        && format != NUMBER_OF_FORMAT
    {
        return Err(other_format(key, format.cast_unsigned()));
    }
    // There is none where the row is too short for an entry.
    let record: Option<i64> = get(row, "record")?;
    let (ends, since_base): (i64, i64) = (get(row, "ends")?, get(row, "since_base")?);
    let (base, bytes): (Option<Vec<u8>>, &[u8]) = (get(row, "base")?, get(row, "entries")?);
    // Where the base ends beyond them, or before the first, some are missing.
    let is_whole = base.is_none() || i64::try_from(bytes.len()) == Ok(since_base);
    let entries = frames(bytes).filter(|_| is_whole);
    let (record, entries) = record.zip(entries).ok_or_else(|| damaged(key))?;
    let news = News {
        base,
        entries,
        end: Some(Position {
            record: record.cast_unsigned(),
            offset: ends.cast_unsigned(),
        }),
        since_base: since_base.cast_unsigned(),
        base_length: base_length.cast_unsigned(),
        ..News::default()
    };
    Ok((StoreTime(at.cast_unsigned()), news))
}

/// The entries of a journal; `None` if they are cut.
pub(crate) fn frames(mut bytes: &[u8]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (dead, rest) = bytes.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (entry, rest) = rest.split_at_checked(length)?;
        let (at, rest) = rest.split_first_chunk::<8>()?;
        entries.push(Entry {
            at: StoreTime(u64::from_be_bytes(*at)),
            dead: u64::from_be_bytes(*dead),
            bytes: entry.to_vec(),
        });
        bytes = rest;
    }
    Some(entries)
}
