//! The same by the other engine: a journal per key, in a map that all clients share.
//!
//! Replace the map with what appends to your records in one round trip. The toy understands
//! nothing of what it keeps.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_store::core::{Inbox, Key, StoreTime};
use leasehold_store::journal::{
    Append, Appended, Doorbell, Entry, Journal, JournalStore, News, Page, PageOf, Position,
};
use leasehold_store::{Capabilities, Listening, StoreError, clock, random::random_u64};

/// How long an idle key keeps its last token.
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a journal gets at least before a base takes the place of its entries.
pub const BASE_AFTER: u64 = 16 * 1024;

/// Where the journals are. All clones are one place.
#[derive(Debug, Clone, Default)]
pub struct Shelf(Arc<Mutex<Contents>>);

#[derive(Default)]
struct Contents {
    records: BTreeMap<String, Record>,
    /// How many there have been: a key that is used again gets another one.
    made: u64,
    /// Those that are open, each with the number of its connection.
    inboxes: BTreeMap<Inbox, (u64, Arc<dyn Doorbell>)>,
    epochs: u64,
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.records.keys()).finish()
    }
}

#[derive(Debug, Default)]
struct Record {
    number: u64,
    base: Vec<u8>,
    /// Up to which entry the base goes.
    base_at: u64,
    /// The entries, also some from before the base: clients that are a little behind need no base.
    entries: Vec<Entry>,
    /// How many entries have been dropped.
    dropped: u64,
    touched: StoreTime,
}

impl Record {
    fn end(&self) -> Position {
        Position {
            record: self.number,
            offset: self.dropped + self.entries.len() as u64,
        }
    }

    fn entries_since(&self, offset: u64) -> &[Entry] {
        let skipped = usize::try_from(offset - self.dropped).unwrap_or(usize::MAX);
        self.entries.get(skipped..).unwrap_or_default()
    }

    fn bytes_since_base(&self) -> u64 {
        let entries = self.entries_since(self.base_at);
        entries.iter().map(|entry| entry.bytes.len() as u64).sum()
    }

    /// Takes a base in the place of the entries up to there, unless there is a later one.
    fn take_base(&mut self, base: Vec<u8>, at: Position) {
        if self.number == at.record && self.base_at < at.offset {
            let dropped = usize::try_from(self.base_at - self.dropped).unwrap_or_default();
            self.entries.drain(..dropped);
            self.dropped = self.base_at;
            self.base = base;
            self.base_at = at.offset;
        }
    }

    fn news_since(&self, known: Option<Position>) -> News {
        let follows = |known: &Position| {
            known.record == self.number
                && (self.dropped..=self.end().offset).contains(&known.offset)
        };
        let known = known.filter(follows).map(|known| known.offset);
        News {
            base: known.is_none().then(|| self.base.clone()),
            entries: self.entries_since(known.unwrap_or(self.base_at)).to_vec(),
            end: Some(self.end()),
            since_base: self.bytes_since_base(),
            base_length: self.base.len() as u64,
            ..News::default()
        }
    }
}

impl Contents {
    fn news_since(&self, key: &Key, known: Option<Position>) -> News {
        let record = self.records.get(key.as_str());
        record.map_or_else(News::nothing, |record| record.news_since(known))
    }

    /// Rings an inbox, if somebody listens there.
    fn ring(&self, key: &Key, inbox: &Inbox) -> bool {
        let open = self.inboxes.get(inbox);
        open.map(|(_, bell)| bell.ring(key)).is_some()
    }
}

impl Shelf {
    /// Another client.
    #[must_use]
    pub fn client(&self) -> JournalStore<ToyJournal> {
        JournalStore::new(self.journal(), RETENTION)
    }

    /// What another client has of it.
    #[must_use]
    pub fn journal(&self) -> ToyJournal {
        ToyJournal {
            shelf: self.clone(),
            inbox: Inbox::from_random(random_u64()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> StoreTime {
    StoreTime(0) + clock::wall()
}

/// What one client has of a [`Shelf`].
#[derive(Debug)]
pub struct ToyJournal {
    shelf: Shelf,
    inbox: Inbox,
}

impl ToyJournal {
    /// Takes a base that comes by itself, as from a backend that writes a record anew at each step.
    pub fn take_base(&self, key: &Key, base: Vec<u8>, at: Position) {
        if let Some(record) = self.shelf.lock().records.get_mut(key.as_str()) {
            record.take_base(base, at);
        }
    }
}

#[async_trait]
impl Journal for ToyJournal {
    fn capabilities(&self) -> Capabilities {
        Capabilities::queueing("toy journal")
    }

    async fn append(
        &self,
        parts: &[Append<'_>],
        unchanged_since: Option<StoreTime>,
    ) -> Result<Appended, StoreError> {
        let bases = parts.iter().map(|part| part.new_base(BASE_AFTER));
        let bases = bases.collect::<Result<Vec<_>, _>>()?;
        let mut shelf = self.shelf.lock();
        let at = now();
        let news = |part: &Append<'_>| shelf.news_since(part.key, part.known);
        let mut news: Vec<_> = parts.iter().map(news).collect();
        let unchanged = parts
            .iter()
            .zip(&news)
            .all(|(part, news)| news.end == part.known);
        let appended = unchanged_since.is_none_or(|since| unchanged && since <= at);
        if !appended {
            return Ok(Appended { at, appended, news });
        }
        for ((part, news), base) in parts.iter().zip(&mut news).zip(bases) {
            if news.end.is_none() {
                shelf.made += 1;
                let number = shelf.made;
                let record = Record {
                    number,
                    ..Record::default()
                };
                shelf.records.insert(part.key.to_string(), record);
            }
            for (bit, inbox) in part.ring.iter().enumerate() {
                news.dead |= u64::from(!shelf.ring(part.key, inbox)) << bit;
            }
            if let Some(record) = shelf.records.get_mut(part.key.as_str()) {
                if let Some(((base, _), known)) = base.zip(part.known) {
                    record.take_base(base, known);
                }
                record.entries.push(Entry {
                    at,
                    dead: news.dead,
                    bytes: part.bytes.to_vec(),
                });
                record.touched = at;
                news.end = Some(record.end());
                news.since_base = record.bytes_since_base();
                news.base_length = record.base.len() as u64;
            }
        }
        Ok(Appended { at, appended, news })
    }

    async fn read(
        &self,
        keys: &[(&Key, Option<Position>)],
    ) -> Result<(StoreTime, Vec<News>), StoreError> {
        let shelf = self.shelf.lock();
        let news = keys
            .iter()
            .map(|(key, known)| shelf.news_since(key, *known));
        Ok((now(), news.collect()))
    }

    async fn ring(&self, key: &Key, inboxes: &[Inbox]) -> Result<(), StoreError> {
        let shelf = self.shelf.lock();
        for inbox in inboxes {
            shelf.ring(key, inbox);
        }
        Ok(())
    }

    async fn page(&self, of: &PageOf<'_>) -> Result<Page, StoreError> {
        let shelf = self.shelf.lock();
        let at = now();
        let wanted = |(name, record): &(&String, &Record)| {
            let idle = at.since(record.touched);
            name.starts_with(of.prefix)
                && of.after.is_none_or(|after| name.as_str() > after)
                && of.idle_for.is_none_or(|least| idle >= least)
        };
        let records = shelf.records.iter().filter(wanted).take(100);
        let row = |(name, record): (&String, &Record)| {
            (name.clone(), record.touched, Ok(record.news_since(None)))
        };
        Ok(Page {
            at,
            records: records.map(row).collect(),
        })
    }

    async fn forget(&self, key: &Key, at: Position) -> Result<(), StoreError> {
        let mut shelf = self.shelf.lock();
        if shelf.news_since(key, None).end == Some(at) {
            shelf.records.remove(key.as_str());
        }
        Ok(())
    }

    fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    fn epoch(&self) -> u64 {
        let shelf = self.shelf.lock();
        shelf.inboxes.get(&self.inbox).map_or(0, |open| open.0)
    }

    async fn listen(&self, bell: Arc<dyn Doorbell>) -> Result<Box<dyn Listening>, StoreError> {
        let mut shelf = self.shelf.lock();
        shelf.epochs += 1;
        let open = (shelf.epochs, bell);
        shelf.inboxes.insert(self.inbox.clone(), open);
        Ok(Box::new(Open(self.shelf.clone(), self.inbox.clone())))
    }
}

/// An open inbox; it ends with this value.
struct Open(Shelf, Inbox);

impl Listening for Open {}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.lock().inboxes.remove(&self.1);
    }
}
