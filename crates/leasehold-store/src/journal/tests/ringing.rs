//! Whom a client rings, on a journal that writes it down.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Claim, ClaimId, Command, Inbox, Key, Mode, Release, StoreTime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::super::entry::{self, Steps};
use super::super::{
    Append, Appended, Doorbell, Entry, Journal, JournalStore, News, Page, PageOf, Position,
};
use crate::error::StoreError;
use crate::port::{Capabilities, Listening};
use crate::records::{Records as _, Step};
use crate::sync::{Mutex, lock};

const START: StoreTime = StoreTime(1_700_000_000_000_000);

#[derive(Debug)]
struct OneKey {
    entries: Mutex<Vec<Entry>>,
    inbox: Inbox,
    rung: UnboundedSender<Vec<Inbox>>,
}

impl OneKey {
    fn news(&self, known: Option<Position>) -> News {
        let entries = lock(&self.entries);
        let seen = known.map_or(0, |known| usize::try_from(known.offset).unwrap());
        News {
            base: known.is_none().then(Vec::new),
            entries: entries[seen..].to_vec(),
            end: Some(Position {
                record: 1,
                offset: u64::try_from(entries.len()).unwrap(),
            }),
            ..News::default()
        }
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
        let news = keys.iter().map(|(_, known)| self.news(*known));
        Ok((START, news.collect()))
    }

    async fn ring(&self, _key: &Key, inboxes: &[Inbox]) -> Result<(), StoreError> {
        self.rung.send(inboxes.to_vec()).unwrap();
        Ok(())
    }

    async fn page(&self, _of: &PageOf<'_>) -> Result<Page, StoreError> {
        Ok(Page {
            at: START,
            records: Vec::new(),
        })
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

    async fn listen(&self, _bell: Arc<dyn Doorbell>) -> Result<Box<dyn Listening>, StoreError> {
        Ok(Box::new(Open))
    }
}

struct Open;

impl Listening for Open {}

fn claim(number: u64) -> Command {
    Command::Claim(Claim {
        wait: true,
        inbox: Some(Inbox::from_random(number)),
        ..Claim::new(
            ClaimId::from_random(number.into()),
            Mode::EXCLUSIVE,
            Duration::from_secs(60),
        )
    })
}

/// Who came while a client did not look is rung once its step has shown them, and who is next then and
/// asks in time is left alone.
#[tokio::test]
async fn whom_a_step_did_not_foretell_is_rung_behind_it() {
    let (rung, mut heard) = unbounded_channel();
    let store = JournalStore::new(
        OneKey {
            entries: Mutex::default(),
            inbox: Inbox::from_random(1),
            rung,
        },
        Duration::from_secs(60),
    );
    let key = Key::new("k").unwrap();
    let step = async |command: Command| {
        let taken = store.transact(&[&key], Step::One(&command)).await.unwrap();
        taken.taken.unwrap()
    };
    step(claim(1)).await;
    for others in [2, 3] {
        let steps = Steps {
            listens: true,
            ring: Vec::new().into(),
            commands: vec![claim(others)].into(),
        };
        store.journal().write(&entry::encode(&steps).unwrap());
    }
    step(Command::Release(Release {
        id: ClaimId::from_random(1),
        hand_off: true,
        settled: true,
        unused: false,
    }))
    .await;
    assert_eq!(heard.recv().await, Some(vec![Inbox::from_random(2)]));
}
