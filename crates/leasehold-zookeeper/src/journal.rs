//! The steps: transactions that compare the version of a key's node and set it, and the inboxes that
//! are rung with it.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::{Inbox, Key, StoreTime};
use leasehold_store::journal::{
    Append, Appended, Doorbell, Entry, Journal, JournalStore, News, Page, PageOf, Position, damaged,
};
use leasehold_store::random::random_u64;
use leasehold_store::{Capabilities, ErrorKind, Listening, StoreError, clock};
use zookeeper_client::{Client, Error, MultiReadResult, MultiWriteError, MultiWriteResult, Stat};

use super::errors;
use super::inbox::Bell;
use super::node::{self, KEYS, end_of, path_of, path_of_inbox, time_of, version_of};
use super::options::ZooKeeperOptions;
use super::room::{Late, Room};
use super::session::Sessions;
use super::transaction::Transaction;

/// How many nodes are read at once for a page, and how many bytes of them it has, about. ZooKeeper
/// gives the names of all for each page, and does not tell which of them have waiters.
const AT_ONCE: usize = 50;
const PAGE: usize = 1 << 20;

/// A node whose version is greater is made again: versions have 31 bits.
const LAST_VERSION: i32 = 1 << 30;

/// The nodes, as one client has them.
pub(crate) struct Nodes {
    pub(crate) sessions: Arc<Sessions>,
    inbox: Inbox,
    bell: Arc<Bell>,
    room: Room,
    last_version: i32,
}

leasehold_store::debug!(Nodes; |it| sessions: it.sessions);

/// Opens a store, and a session.
pub(crate) async fn open(options: &ZooKeeperOptions) -> Result<JournalStore<Nodes>, StoreError> {
    let nodes = Nodes::new(options);
    nodes.sessions.get().await?;
    Ok(JournalStore::new(nodes, options.retention))
}

/// What a node is, if it is there and may be read.
type Found = Result<Option<(Vec<u8>, Stat)>, StoreError>;

/// What came of a transaction.
enum Tried<'a> {
    /// With what the nodes are now: also their records and contents.
    Done(Vec<(Stat, (u64, Vec<u8>))>),
    /// Somebody has changed a key since.
    Changed,
    /// Nobody listens there.
    Dead(&'a Inbox),
}

impl Nodes {
    fn new(options: &ZooKeeperOptions) -> Self {
        let inbox = Inbox::from_random(random_u64());
        let sessions = Arc::new(Sessions::new(options.clone()));
        Self {
            bell: Arc::new(Bell::new(sessions.clone(), &inbox)),
            sessions,
            inbox,
            room: Room::default(),
            last_version: LAST_VERSION,
        }
    }

    /// Takes a step, where nobody has died but these.
    async fn attempt<'a>(
        &self,
        client: &'a Client,
        parts: &'a [Append<'a>],
        floor: StoreTime,
        dead: &[&Inbox],
    ) -> Result<Tried<'a>, StoreError> {
        let unusable = |error: Error| self.sessions.meaning(error);
        let mut transaction = Transaction::new(client);
        let (mut contents, most) = (Vec::new(), self.sessions.options.maxbuffer / 2);
        for part in parts {
            let is_last = |known: &Position| version_of(*known) >= self.last_version;
            let known = part.known.filter(|known| !is_last(known));
            let record = known.map_or_else(random_u64, |known| known.record);
            let kept = part.kept.filter(|_| known.is_some());
            let step = Entry {
                at: floor,
                dead: mask(part, dead),
                bytes: part.bytes.to_vec(),
            };
            let content = node::add(record, kept, &step, || part.base(), most)?;
            let changed = transaction.change(&self.sessions, part, record, &content);
            changed.map_err(unusable)?;
            contents.push((record, content));
        }
        for part in parts {
            for inbox in part.ring.iter().filter(|inbox| !dead.contains(inbox)) {
                transaction.ring(part.key, inbox).map_err(unusable)?;
            }
        }
        self.check_size(parts, transaction.bytes)?;
        let rings = transaction.rings;
        let results = match self.sessions.answer(transaction.writer.commit()).await? {
            Ok(results) => results,
            Err(MultiWriteError::OperationFailed { index, source }) => {
                return match (rings.get(index).copied().flatten(), source) {
                    (Some(inbox), Error::NoNode) => Ok(Tried::Dead(inbox)),
                    (_, Error::NoNode | Error::BadVersion | Error::NodeExists) => {
                        Ok(Tried::Changed)
                    }
                    (_, error) => Err(unusable(error)),
                };
            }
            Err(error) => return Err(self.sessions.meaning(error)),
        };
        // Those of the rings come behind.
        let stats = results.into_iter().filter_map(|result| match result {
            MultiWriteResult::SetData { stat } => Some(stat),
            _ => None,
        });
        Ok(Tried::Done(stats.zip(contents).collect()))
    }

    /// A request that is too large would end the connection. A third is left for those who are in the
    /// queue: they renew and leave.
    fn check_size(&self, parts: &[Append<'_>], bytes: usize) -> Result<(), StoreError> {
        let limit = self.sessions.options.maxbuffer;
        let most = |part: &Append<'_>| if part.grows() { limit / 3 * 2 } else { limit };
        match parts.iter().find(|part| bytes > most(part)) {
            Some(part) => Err(errors::too_large(part.key, part.claims(), limit)),
            None => Ok(()),
        }
    }

    /// Reads nodes, all at one time.
    async fn read_nodes(&self, client: &Client, keys: &[Key]) -> Result<Vec<Found>, StoreError> {
        let sessions = &self.sessions;
        let mut reader = client.new_multi_reader();
        for key in keys {
            let added = reader.add_get_data(&path_of(key));
            added.map_err(|error| sessions.meaning(error))?;
        }
        let results = sessions.ask(reader.commit()).await?;
        let found = results.into_iter().map(|result| match result {
            MultiReadResult::Data { data, stat } => Ok(Some((data, stat))),
            MultiReadResult::Error { err: Error::NoNode } => Ok(None),
            MultiReadResult::Error { err } => Err(sessions.meaning(err)),
            _ => Err(errors::none()),
        });
        Ok(found.collect())
    }

    async fn news(
        &self,
        client: &Client,
        keys: &[(&Key, Option<Position>)],
    ) -> Result<(StoreTime, Vec<News>), StoreError> {
        let names: Vec<_> = keys.iter().map(|(key, _)| (*key).clone()).collect();
        let found = self.read_nodes(client, &names).await?;
        let mut at = self.sessions.now(client).await?;
        let mut all = Vec::with_capacity(keys.len());
        for ((key, known), found) in keys.iter().zip(found) {
            let found = found?;
            self.room.see(key, found.as_ref().map(|(_, stat)| stat));
            all.push(match found {
                Some((bytes, stat)) => {
                    at = at.max(time_of(&stat));
                    node::news(key, &bytes, (stat.version, time_of(&stat)), *known)?
                }
                None => News::nothing(),
            });
        }
        Ok((at, all))
    }
}

fn known_of<'a>(parts: &[Append<'a>]) -> Vec<(&'a Key, Option<Position>)> {
    parts.iter().map(|part| (part.key, part.known)).collect()
}

/// Whether the journals end where the client knows that they do.
fn are_known(parts: &[Append<'_>], news: &[News]) -> bool {
    let mut all = parts.iter().zip(news);
    all.all(|(part, news)| part.known == news.end)
}

/// Which of the inboxes of a part are dead.
fn mask(part: &Append<'_>, dead: &[&Inbox]) -> u64 {
    let places = part.ring.iter().enumerate();
    let of = |(place, inbox)| u64::from(dead.contains(&inbox)) << place;
    places.map(of).fold(0, |all, one| all | one)
}

#[async_trait]
impl Journal for Nodes {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::queueing("zookeeper");
        can.durable_tokens = true;
        can
    }

    async fn append(
        &self,
        parts: &[Append<'_>],
        unchanged_since: Option<StoreTime>,
    ) -> Result<Appended, StoreError> {
        let client = &self.sessions.get().await?.client;
        for part in parts.iter().filter(|part| part.grows() && !part.is_late()) {
            self.room.give(&self.sessions, client, part.key).await;
        }
        let late = parts.iter().filter(|part| part.is_late());
        let wants = |part: &Append<'_>| Late::new(&self.sessions, client, part.key, &self.inbox);
        let _late: Vec<_> = late.map(wants).collect();
        // ZooKeeper cannot compare the time: a step that it takes earlier than this is void.
        let floor = unchanged_since.unwrap_or_default();
        if parts.iter().any(|part| part.known.is_none()) {
            // What is there is the base of the step.
            let (at, news) = self.read(&known_of(parts)).await?;
            if !are_known(parts, &news) {
                return Ok(Appended::conflict(at, news));
            }
        }
        let mut dead = Vec::new();
        let done = loop {
            match self.attempt(client, parts, floor, &dead).await? {
                Tried::Done(done) => break done,
                Tried::Changed => {
                    // The server that has told of the conflict has seen what was in between.
                    let (at, news) = self.news(client, &known_of(parts)).await?;
                    if are_known(parts, &news) {
                        // Nothing has changed, and yet a step cannot be taken: nodes are missing.
                        match parts.iter().find(|part| part.known.is_some()) {
                            Some(part) => return Err(damaged(part.key)),
                            None => self.sessions.make_nodes(client).await?,
                        }
                    }
                    return Ok(Appended::conflict(at, news));
                }
                Tried::Dead(inbox) => dead.push(inbox),
            }
        };
        let told = done.iter().map(|(stat, ..)| time_of(stat)).max();
        let told = told.unwrap_or_default();
        self.sessions.hear(told);
        let mut news = Vec::with_capacity(parts.len());
        for (part, (stat, (record, content))) in parts.iter().zip(done) {
            self.room
                .see(part.key, Some(&stat).filter(|_| !part.is_late()));
            // The client has taken the steps itself.
            let end = end_of(record, stat.version);
            let mut all = node::news(part.key, &content, (stat.version, told), Some(end))?;
            all.dead = mask(part, &dead);
            news.push(all);
        }
        Ok(Appended {
            at: told,
            appended: told >= floor,
            news,
        })
    }

    async fn read(
        &self,
        keys: &[(&Key, Option<Position>)],
    ) -> Result<(StoreTime, Vec<News>), StoreError> {
        let client = &self.sessions.get().await?.client;
        // Both are on their way at once: the server that is read first catches up with the leader.
        let synced = client.sync(KEYS);
        let (synced, news) = tokio::join!(self.sessions.ask(synced), self.news(client, keys));
        synced?;
        news
    }

    async fn ring(&self, key: &Key, inboxes: &[Inbox]) -> Result<(), StoreError> {
        let client = &self.sessions.get().await?.client;
        for inbox in inboxes {
            let rung = client.set_data(&path_of_inbox(inbox), key.as_str().as_bytes(), None);
            self.sessions.ask_unless(&Error::NoNode, rung).await?;
        }
        Ok(())
    }

    async fn page(&self, of: &PageOf<'_>) -> Result<Page, StoreError> {
        let client = &self.sessions.get().await?.client;
        let names = client.list_children(KEYS);
        // An administrator may have removed it.
        let names = self.sessions.ask_unless(&Error::NoNode, names).await?;
        let names = names.unwrap_or_default();
        let keys = names.iter().filter_map(|name| node::key_of(name));
        let mut keys: Vec<_> = keys.collect();
        keys.retain(|key| {
            let is_next = of.after.is_none_or(|after| key.as_str() > after);
            is_next && key.as_str().starts_with(of.prefix)
        });
        keys.sort_unstable();
        let mut page = Page {
            at: self.sessions.now(client).await?,
            records: Vec::new(),
        };
        let (mut size, begun) = (0, clock::now());
        for keys in keys.chunks(AT_ONCE) {
            let found = self.read_nodes(client, keys).await?;
            for (key, found) in keys.iter().zip(found) {
                let found = match found.transpose() {
                    Some(Err(lost)) if lost.kind() == ErrorKind::Unavailable => return Err(lost),
                    Some(found) => found,
                    None => continue,
                };
                size += found.as_ref().map_or(0, |(bytes, _)| bytes.len());
                let touched = found.as_ref().map_or(page.at, |(_, stat)| time_of(stat));
                // The servers may be ahead of what is known of their time.
                page.at = page.at.max(touched);
                let is_idle = |least| page.at.since(touched) >= least;
                if of.idle_for.is_none_or(is_idle) {
                    let news = found.and_then(|(bytes, stat)| {
                        node::news(key, &bytes, (stat.version, touched), None)
                    });
                    page.records.push((key.to_string(), touched, news));
                }
            }
            // Who asks for a page does not wait for long, and what is idle goes a few at a time.
            let is_late = clock::now().since(begun) >= self.sessions.options.response_timeout / 4;
            let is_enough = size >= PAGE || is_late || of.idle_for.is_some();
            if is_enough && !page.records.is_empty() {
                break;
            }
        }
        Ok(page)
    }

    async fn forget(&self, key: &Key, at: Position) -> Result<(), StoreError> {
        let client = &self.sessions.get().await?.client;
        let mut transaction = Transaction::new(client);
        let removed = transaction.remove(key, at);
        removed.map_err(|error| self.sessions.meaning(error))?;
        match self.sessions.answer(transaction.writer.commit()).await? {
            Ok(_) | Err(MultiWriteError::OperationFailed { .. }) => Ok(()),
            Err(error) => Err(self.sessions.meaning(error)),
        }
    }

    fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    fn epoch(&self) -> u64 {
        self.bell.epochs.now()
    }

    fn doubt(&self, _at: StoreTime) {
        self.bell.doubted.notify_one();
    }

    async fn listen(&self, bell: Arc<dyn Doorbell>) -> Result<Box<dyn Listening>, StoreError> {
        self.bell.open(bell).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::{Claim, ClaimId, ClaimReply, Mode, Release};
    use leasehold_store::Verbs as _;
    use leasehold_testkit::zookeeper::ZooKeeper;

    use super::*;

    /// For each page the names of all are asked for.
    #[tokio::test]
    async fn a_page_has_more_nodes_than_are_read_at_once() {
        let server = ZooKeeper::shared();
        let url = server.url_of(&server.chroot());
        let options = ZooKeeperOptions::from_url(&format!("{url}?response_timeout=1h")).unwrap();
        let store = JournalStore::new(Nodes::new(&options), options.retention);
        for number in 0..=AT_ONCE {
            let key = Key::new(format!("k{number}")).unwrap();
            let ttl = Duration::from_secs(60);
            let claim = Claim::new(ClaimId::from_random(1), Mode::EXCLUSIVE, ttl);
            let _claimed = store.claim(&key, &claim).await.unwrap();
        }
        let page = store.journal().page(&PageOf::default()).await.unwrap();
        assert_eq!(page.records.len(), AT_ONCE + 1);
    }

    /// Versions end, and a node that is made again in time goes on with the queue.
    #[tokio::test]
    async fn a_node_is_made_again_before_its_versions_end() {
        let server = ZooKeeper::shared();
        let url = server.url_of(&server.chroot());
        let options = ZooKeeperOptions::from_url(&url).unwrap();
        let client = || {
            let nodes = Nodes {
                last_version: 4,
                ..Nodes::new(&options)
            };
            JournalStore::new(nodes, options.retention)
        };
        let (clients, key) = ([client(), client()], Key::new("k").unwrap());
        let (mut last, mut records) = (None, Vec::new());
        for number in 0..20_u32 {
            let client = &clients[usize::from(number % 3 == 0)];
            let id = ClaimId::from_random(u128::from(number));
            let ttl = Duration::from_secs(60);
            let claim = Claim::new(id.clone(), Mode::EXCLUSIVE, ttl);
            let answer = client.claim(&key, &claim).await.unwrap();
            let ClaimReply::Standing(standing) = answer.reply else {
                panic!("{answer:?}");
            };
            assert!(standing.token > last, "{number}: {standing:?}");
            last = standing.token;
            let release = Release {
                id,
                hand_off: true,
                settled: true,
                unused: false,
            };
            let _released = client.release(&key, &release).await.unwrap();
            let session = client.journal().sessions.get().await.unwrap();
            let children = session.client.list_children(&path_of(&key)).await.unwrap();
            let stat = session.client.check_stat(&path_of(&key)).await.unwrap();
            assert!(stat.unwrap().version <= 4);
            assert_eq!(children.len(), 1, "{children:?}");
            records.extend(children);
        }
        records.dedup();
        assert_eq!(records.len(), 40 / 4, "{records:?}");
    }
}
