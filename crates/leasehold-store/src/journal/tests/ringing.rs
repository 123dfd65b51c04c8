//! Whom a client rings, on a journal that writes it down.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Command, Inbox, Key, Push, StoreTime};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::super::entry::{self, Steps};
use super::super::{
    Append, Appended, Doorbell, Entry, Journal, JournalStore, News, Page, PageOf, Position,
};
use super::{SECOND, inbox, news, release};
use crate::error::{ErrorKind, StoreError};
use crate::port::{Capabilities, Listening, PushSink};
use crate::records::{Records as _, Step};
use crate::sync::{Mutex, lock, timeout};

const PATIENCE: Duration = Duration::from_secs(60);
const START: StoreTime = StoreTime(1_700_000_000_000_000);

struct OneKey {
    entries: Mutex<Vec<Entry>>,
    inbox: Inbox,
    rung: UnboundedSender<Vec<Inbox>>,
    bell: Mutex<Option<Arc<dyn Doorbell>>>,
    /// How many reads fail, and as what.
    failing: AtomicU32,
    failure: ErrorKind,
}

impl fmt::Debug for OneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&*lock(&self.entries)).finish()
    }
}

impl OneKey {
    fn store() -> (JournalStore<Self>, UnboundedReceiver<Vec<Inbox>>) {
        Self::failing_as(ErrorKind::Unavailable)
    }

    fn failing_as(failure: ErrorKind) -> (JournalStore<Self>, UnboundedReceiver<Vec<Inbox>>) {
        let (rung, heard) = unbounded_channel();
        let key = Self {
            entries: Mutex::default(),
            inbox: Inbox::from_random(1),
            rung,
            bell: Mutex::default(),
            failing: AtomicU32::new(0),
            failure,
        };
        (JournalStore::new(key, Duration::from_secs(60)), heard)
    }

    /// Others ask.
    fn others(&self, command: Command) {
        let steps = Steps {
            listens: true,
            ring: Vec::new().into(),
            commands: vec![command].into(),
        };
        self.write(&entry::encode(&steps).unwrap());
    }

    fn news(&self, known: Option<Position>) -> News {
        let entries = lock(&self.entries);
        let seen = known.map_or(0, |known| usize::try_from(known.offset).unwrap());
        let base = known.is_none().then(Vec::new);
        news(base, entries[seen..].to_vec(), entries.len() as u64)
    }

    fn write(&self, steps: &[u8]) {
        let entry = Entry {
            at: START,
            dead: 0,
            bytes: steps.to_vec(),
        };
        lock(&self.entries).push(entry);
    }
}

#[async_trait]
impl Journal for OneKey {
    fn capabilities(&self) -> Capabilities {
        Capabilities::queueing("one key")
    }

    async fn append(
        &self,
        parts: &[Append<'_>],
        _unchanged_since: Option<StoreTime>,
    ) -> Result<Appended, StoreError> {
        self.write(parts[0].bytes);
        let mut news = self.news(parts[0].known);
        news.entries.pop();
        Ok(Appended {
            at: START,
            appended: true,
            news: vec![news],
        })
    }

    async fn read(
        &self,
        keys: &[(&Key, Option<Position>)],
    ) -> Result<(StoreTime, Vec<News>), StoreError> {
        let left = self.failing.load(Ordering::Relaxed);
        if left > 0 {
            self.failing.store(left - 1, Ordering::Relaxed);
            return Err(StoreError::new(self.failure, "not now"));
        }
        let news = keys.iter().map(|(_, known)| self.news(*known));
        Ok((START, news.collect()))
    }

    async fn ring(&self, _key: &Key, inboxes: &[Inbox]) -> Result<(), StoreError> {
        self.rung.send(inboxes.to_vec()).unwrap();
        Ok(())
    }

    async fn page(&self, _of: &PageOf<'_>) -> Result<Page, StoreError> {
        let (at, records) = (START, Vec::new());
        Ok(Page { at, records })
    }

    async fn forget(&self, _key: &Key, _at: Position) -> Result<(), StoreError> {
        Ok(())
    }

    fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    fn epoch(&self) -> u64 {
        1
    }

    async fn listen(&self, bell: Arc<dyn Doorbell>) -> Result<Box<dyn Listening>, StoreError> {
        *lock(&self.bell) = Some(bell);
        Ok(Box::new(Open))
    }
}

struct Open;

impl Listening for Open {}

fn claim(number: u64) -> Command {
    Command::Claim(super::claim(number, inbox(number), 60 * SECOND))
}

async fn step(store: &JournalStore<OneKey>, command: Command) {
    let key = Key::new("k").unwrap();
    let taken = store.transact(&[&key], Step::One(&command)).await.unwrap();
    let _ = taken.taken.unwrap();
}

/// Who came while a client did not look is rung once its step has shown them, and who is next then and
/// asks in time is left alone.
#[tokio::test]
async fn whom_a_step_did_not_foretell_is_rung_behind_it() {
    let (store, mut heard) = OneKey::store();
    step(&store, claim(1)).await;
    store.journal().others(claim(2));
    store.journal().others(claim(3));
    step(&store, release(1)).await;
    let rung = timeout(PATIENCE, heard.recv()).await.unwrap();
    assert_eq!(rung, Some(vec![Inbox::from_random(2)]));
}

struct Pushes(UnboundedSender<Push>);

impl PushSink for Pushes {
    fn push(&self, push: Push) {
        self.0.send(push).unwrap();
    }
}

/// Whoever has rung does not ring again, also where somebody is about to look.
#[tokio::test]
async fn a_look_that_fails_is_tried_again() {
    for looks in [false, true] {
        let (store, _rung) = OneKey::store();
        let (sink, mut pushes) = unbounded_channel();
        let _listening = store.listen(Arc::new(Pushes(sink))).await.unwrap();
        let journal = store.journal();
        journal.others(claim(2));
        step(&store, claim(1)).await;
        journal.others(release(2));
        journal.failing.store(2, Ordering::Relaxed);
        let (bell, key) = (lock(&journal.bell).clone().unwrap(), Key::new("k").unwrap());
        let mut looking = store.look(&key);
        tokio::select! {
            biased;
            _ = &mut looking, if looks => {}
            () = std::future::ready(()) => {}
        }
        bell.ring(&key);
        let push = timeout(PATIENCE, pushes.recv()).await.unwrap();
        assert!(matches!(push, Some(Push::Granted { .. })), "{push:?}");
    }
}

/// What is damaged stays so, and whoever reads it again and again only loads the server.
#[tokio::test]
async fn a_look_at_what_is_damaged_is_not_tried_again() {
    let (store, mut rung) = OneKey::store();
    let (sink, _pushes) = unbounded_channel();
    let listening = store.listen(Arc::new(Pushes(sink))).await.unwrap();
    store.journal().write(&[0; entry::HEAD]);
    let bell = lock(&store.journal().bell).clone().unwrap();
    bell.ring(&Key::new("k").unwrap());
    drop((store, listening));
    // Who tries again keeps the journal.
    assert_eq!(timeout(PATIENCE, rung.recv()).await.unwrap(), None);
}

/// The backend may be what finds it damaged: the next step reads it again before it appends.
#[tokio::test]
async fn nothing_is_appended_to_what_could_not_be_read() {
    let (store, _rung) = OneKey::failing_as(ErrorKind::Corrupt);
    let (journal, key) = (store.journal(), Key::new("k").unwrap());
    journal.failing.store(2, Ordering::Relaxed);
    store.look(&key).await.unwrap_err();
    let claim = claim(1);
    let refused = store.transact(&[&key], Step::One(&claim)).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(lock(&journal.entries).is_empty());
    step(&store, claim).await;
    assert_eq!(lock(&journal.entries).len(), 1);
}

/// A client's sink keeps its store: a store that kept the sink would keep both, and their connections.
#[tokio::test]
async fn who_does_not_listen_any_more_is_let_go() {
    let (store, _rung) = OneKey::store();
    let (sink, mut pushes) = unbounded_channel();
    let listening = store.listen(Arc::new(Pushes(sink))).await.unwrap();
    assert_eq!(pushes.try_recv().unwrap_err(), TryRecvError::Empty);
    drop(listening);
    assert_eq!(pushes.try_recv().unwrap_err(), TryRecvError::Disconnected);
    drop(store);
}
