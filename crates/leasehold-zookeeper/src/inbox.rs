//! Where a client is rung: an ephemeral node that others set to the key that they ring for.
//!
//! If it is missing, others know that nobody listens. Its version tells how often it was rung: a watch
//! tells of some changes only once, and then the client looks at every key.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Inbox, Key, Push};
use leasehold_store::journal::Doorbell;
use leasehold_store::journal::listening::{Epochs, connect_again, open_inbox};
use leasehold_store::sync::sleep;
use leasehold_store::{Listening, StoreError};
use tokio::sync::{Notify, mpsc};
use zookeeper_client::{AddWatchMode, CreateMode, Error, EventType, SessionState, Stat};

use super::node::path_of_inbox;
use super::session::{Session, Sessions};

/// How many keys are looked at before it is known which one was rung for.
const FEW: usize = 4;

/// When the inbox is read again that could not be read. What it was rung for is not told once more.
const AGAIN: Duration = Duration::from_secs(1);

/// The inbox of a client.
pub(crate) struct Bell {
    sessions: Arc<Sessions>,
    path: String,
    /// Numbers the nodes that were made.
    pub(crate) epochs: Arc<Epochs>,
    /// Others have found no node.
    pub(crate) doubted: Notify,
}

/// An open inbox.
struct Node {
    session: Arc<Session>,
    path: String,
    /// What has happened to it; ends with the node, its session or its runtime.
    news: mpsc::UnboundedReceiver<EventType>,
    /// How often it had been rung when it was read last.
    rung: i32,
}

impl Drop for Node {
    fn drop(&mut self) {
        // One that is gone may be the next one's by now. This goes before what is asked next, and need not
        // be waited for: if it cannot be removed, it goes with the session.
        if !self.news.is_closed() {
            drop(self.session.client.delete(&self.path, None));
        }
    }
}

impl Bell {
    pub(crate) fn new(sessions: Arc<Sessions>, inbox: &Inbox) -> Self {
        Self {
            sessions,
            path: path_of_inbox(inbox),
            epochs: Arc::default(),
            doubted: Notify::new(),
        }
    }

    pub(crate) async fn open(
        self: &Arc<Self>,
        bell: Arc<dyn Doorbell>,
    ) -> Result<Box<dyn Listening>, StoreError> {
        let node = self.make().await?;
        self.epochs.begin();
        let kept = self.clone();
        let keep = async move { kept.keep(node, &*bell).await };
        Ok(open_inbox(&self.epochs, keep))
    }

    /// Listens, also over sessions that expire.
    async fn keep(&self, mut node: Node, bell: &dyn Doorbell) {
        loop {
            self.hear(&mut node, bell).await;
            self.epochs.end();
            bell.push(Push::Disconnected);
            // It must not remove the next one.
            drop(node);
            node = connect_again(|| self.make()).await;
            self.epochs.begin();
            bell.push(Push::Reset);
        }
    }

    /// Rings the bell until the node or its session is gone.
    async fn hear(&self, node: &mut Node, bell: &dyn Doorbell) {
        loop {
            let read = node.session.client.get_data(&self.path);
            let read = self.sessions.ask_unless(&Error::NoNode, read).await;
            let is_read = read.is_ok();
            match read {
                Ok(Some((content, stat))) => node.rung = ring(node.rung, &content, &stat, bell),
                Ok(None) => return node.news.close(),
                Err(error) => tracing::debug!(%error, "cannot read the inbox; again soon"),
            }
            loop {
                let news = tokio::select! {
                    news = node.news.recv() => news,
                    () = self.doubted.notified() => break,
                    () = sleep(AGAIN), if !is_read => break,
                };
                match news {
                    // To look at a few keys is as quick as to find out which it is.
                    Some(EventType::NodeDataChanged) if bell.ring_all(FEW) => {}
                    Some(_) => break,
                    None => return,
                }
            }
            // One look for all that has happened until now.
            while node.news.try_recv().is_ok() {}
        }
    }

    /// Makes the node, and watches it.
    async fn make(&self) -> Result<Node, StoreError> {
        let sessions = &self.sessions;
        let session = sessions.get().await?;
        let client = &session.client;
        let options = CreateMode::Ephemeral.with_acls(sessions.acls());
        loop {
            let made = client.create(&self.path, b"", &options);
            match sessions.answer(made).await? {
                Ok(_) => break,
                // Of a session that nobody has any more.
                Err(Error::NodeExists) => {
                    let removed = client.delete(&self.path, None);
                    sessions.ask_unless(&Error::NoNode, removed).await?;
                }
                Err(Error::NoNode) => sessions.make_nodes(client).await?,
                Err(error) => return Err(sessions.meaning(error)),
            }
        }
        let watched = client.watch(&self.path, AddWatchMode::Persistent);
        let mut watcher = sessions.ask(watched).await?;
        let (tell, news) = mpsc::unbounded_channel();
        let (client, path) = (client.clone(), self.path.clone());
        // A watcher may be asked only as long as its session has a runtime.
        session.runtime.spawn(async move {
            loop {
                let event = tokio::select! {
                    event = watcher.changed() => event,
                    () = tell.closed() => return,
                };
                let is_over = event.event_type == EventType::NodeDeleted
                    || event.session_state.is_terminated();
                // The client crate does not ask anew for a watch like this one after a new connection.
                if event.session_state == SessionState::SyncConnected
                    && event.event_type == EventType::Session
                    && let Ok(again) = client.watch(&path, AddWatchMode::Persistent).await
                {
                    watcher = again;
                }
                if is_over || tell.send(event.event_type).is_err() {
                    return;
                }
            }
        });
        Ok(Node {
            session,
            path: self.path.clone(),
            news,
            rung: 0,
        })
    }
}

/// Rings for the key in the node, or for all if there were others. Returns how often it has been rung
/// now.
fn ring(rung: i32, content: &[u8], stat: &Stat, bell: &dyn Doorbell) -> i32 {
    let key = str::from_utf8(content).ok();
    let key = key.and_then(|key| Key::new(key).ok());
    match (stat.version.wrapping_sub(rung), key) {
        (0, _) => {}
        (1, Some(key)) => bell.ring(&key),
        _ => _ = bell.ring_all(usize::MAX),
    }
    stat.version
}

#[cfg(test)]
mod tests {
    use leasehold_store::PushSink;
    use leasehold_store::sync::{AtomicBool, Ordering, timeout};
    use leasehold_testkit::proxy::{Direction, Proxy};
    use leasehold_testkit::zookeeper::ZooKeeper;
    use tokio::task::JoinSet;

    use super::super::options::ZooKeeperOptions;
    use super::*;

    /// Hears for which key it was rung; none as long as that is not known.
    struct Rung {
        proxy: Proxy,
        /// Whether the server falls silent before it is asked which key it is.
        holds: AtomicBool,
        keys: mpsc::UnboundedSender<Option<Key>>,
    }

    impl PushSink for Rung {
        fn push(&self, _: Push) {}
    }

    impl Doorbell for Rung {
        fn ring(&self, key: &Key) {
            self.keys.send(Some(key.clone())).unwrap();
        }

        fn ring_all(&self, _: usize) -> bool {
            if self.holds.load(Ordering::Relaxed) {
                self.proxy.hold(Direction::ToClient);
            }
            self.keys.send(None).unwrap();
            false
        }
    }

    fn sessions(url: &str) -> Arc<Sessions> {
        Arc::new(Sessions::new(ZooKeeperOptions::from_url(url).unwrap()))
    }

    async fn rung_for(heard: &mut mpsc::UnboundedReceiver<Option<Key>>) -> Option<String> {
        let next = timeout(Duration::from_secs(60), heard.recv()).await;
        let key = next.expect("it is rung in time").unwrap();
        key.map(|key| key.to_string())
    }

    /// The news of it has come, and the server is slow then.
    #[tokio::test]
    async fn a_ring_is_heard_though_the_inbox_could_not_be_read_at_once() {
        let server = ZooKeeper::shared();
        let proxy = Proxy::start(server.address());
        let url = server.url_of(&server.chroot());
        let far = url.replacen(&server.hosts(), &proxy.address().to_string(), 1);
        let near = sessions(&url).get().await.unwrap();
        let far = sessions(&format!("{far}?session_timeout=60s&response_timeout=2s"));
        let bell = Arc::new(Bell::new(far.clone(), &Inbox::from_random(1)));
        let (keys, mut heard) = mpsc::unbounded_channel();
        let holds = AtomicBool::new(false);
        let rung = Arc::new(Rung { proxy, holds, keys });
        let _listening = bell.open(rung.clone()).await.unwrap();
        let ring = async |key: &str| near.client.set_data(&bell.path, key.as_bytes(), None).await;
        // Once its news comes before it is read, nothing is read any more: what was read before its news
        // is read again behind it.
        let in_order = [None, Some("first".to_owned())];
        let mut both = [None, None];
        while both != in_order {
            ring("first").await.unwrap();
            both = [rung_for(&mut heard).await, rung_for(&mut heard).await];
            assert!(in_order.iter().all(|one| both.contains(one)), "{both:?}");
        }

        rung.holds.store(true, Ordering::Relaxed);
        ring("k").await.unwrap();
        assert_eq!(rung_for(&mut heard).await, None);
        // It is asked later than the inbox is read, and gives up later.
        let session = far.get().await.unwrap();
        let late = far.ask(session.client.check_stat(&bell.path)).await;
        assert!(late.is_err(), "{late:?}");
        rung.holds.store(false, Ordering::Relaxed);
        rung.proxy.resume(Direction::ToClient);
        assert_eq!(rung_for(&mut heard).await.as_deref(), Some("k"));
    }

    /// The end of its node and its own may both be known when it is its turn.
    #[tokio::test]
    async fn an_inbox_that_is_closed_does_not_end_the_next_one() {
        let server = ZooKeeper::shared();
        let sessions = sessions(&server.url_of(&server.chroot()));
        let (keys, mut heard) = mpsc::unbounded_channel();
        let (proxy, holds) = (Proxy::start(server.address()), AtomicBool::new(false));
        let rung = Arc::new(Rung { proxy, holds, keys });
        for number in 0..16 {
            let bell = Arc::new(Bell::new(sessions.clone(), &Inbox::from_random(number)));
            let mut node = bell.make().await.unwrap();
            let set = node.session.client.set_data(&bell.path, b"k", None);
            set.await.unwrap();
            let (tell, news) = mpsc::unbounded_channel();
            node.news = news;
            let (kept, rung) = (bell.clone(), rung.clone());
            let mut keeps = JoinSet::from_iter([async move { kept.keep(node, &*rung).await }]);
            // It waits for news by now.
            assert_eq!(rung_for(&mut heard).await.as_deref(), Some("k"));
            bell.epochs.begin();
            drop(tell);
            keeps.shutdown().await;
            assert_ne!(bell.epochs.now(), 0);
        }
    }
}
