//! The session that is rung. It holds an advisory lock as long as it lives, by which others see
//! that this client does.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Inbox, Key, Push, StoreTime};
use leasehold_store::journal::Doorbell;
use leasehold_store::journal::listening::{Epochs, connect_again, open_inbox};
use leasehold_store::sync::{AtomicBool, AtomicU64, Ordering, sleep, timeout};
use leasehold_store::{ErrorKind, Listening, StoreError};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_postgres::{AsyncMessage, Client, Config};

use super::errors::no_answer;
use super::pool::{Pool, drive, first, params};

/// How often the session asks itself whether it hears.
const PROBE_PAUSE: Duration = Duration::from_secs(30);

/// How long what is sent and committed may take to be heard. A client waits for its inbox for an operation
/// time-out, 5 s by default, and has to find out within that.
const PROBE_LIMIT: Duration = Duration::from_secs(3);

/// A machine that has lost its power is found dead within 15 s. The lock of the inbox is shared by steps
/// that have looked whether this client lives, until they commit: the server gives up waiting for it.
const KEEP_ALIVE: &str = "set tcp_keepalives_idle = 5; set tcp_keepalives_interval = 3; \
     set tcp_keepalives_count = 3; set tcp_user_timeout = 15000; set idle_session_timeout = 0; \
     set lock_timeout = '4s'";

/// How often who hears nothing looks, and after which pauses it tries to hear.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
const DEAF_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// What is said where nothing is heard, and what to do about it.
pub(crate) const DEAF: &str = "PostgreSQL tells this client nothing, as through a pooler";
pub(crate) const REMEDY: &str = "name a way past it: listen=postgres://host:port/database";

/// What is heard: the name of a key, or nothing for a probe.
type Heard = mpsc::UnboundedReceiver<String>;

pub(crate) struct Listener {
    pool: Arc<Pool>,
    at: Option<Config>,
    inbox: String,
    channel: String,
    /// Numbers the sessions that hear, and the times in which this client looks.
    pub(crate) epochs: Arc<Epochs>,
    /// The server's time when it was shown that this client lives.
    since: AtomicU64,
    doubted: Notify,
    /// Whether others can ring; if not, this client looks.
    hears: AtomicBool,
    has_warned: AtomicBool,
}

/// A session that hears.
struct Session {
    heard: Heard,
    /// The connection, which ends with either.
    _client: Client,
    _connection: JoinSet<()>,
}

impl Listener {
    pub(crate) fn new(pool: Arc<Pool>, at: Option<Config>, inbox: &Inbox) -> Arc<Self> {
        Arc::new(Self {
            pool,
            at,
            inbox: inbox.as_str().to_owned(),
            channel: format!("leasehold_{}", inbox.as_str()),
            epochs: Arc::default(),
            since: AtomicU64::new(0),
            doubted: Notify::new(),
            hears: AtomicBool::new(false),
            has_warned: AtomicBool::new(false),
        })
    }

    /// Whether the session that was opened last hears.
    pub(crate) fn hears(&self) -> bool {
        self.hears.load(Ordering::Acquire)
    }

    /// Whether there is a session that hears now.
    pub(crate) fn listens(&self) -> bool {
        self.hears() && self.epochs.now() != 0
    }

    /// Others have found this client dead: if that was in this session, it is half open.
    pub(crate) fn doubt(&self, at: StoreTime) {
        let in_this_one = self.listens() && at.0 > self.since.load(Ordering::Acquire);
        if in_this_one && self.epochs.end() {
            self.doubted.notify_one();
        }
    }

    pub(crate) async fn open(
        self: &Arc<Self>,
        bell: Arc<dyn Doorbell>,
    ) -> Result<Box<dyn Listening>, StoreError> {
        let session = self.connect().await?;
        self.begin(session.is_some());
        let listener = self.clone();
        let keep = async move { listener.keep(session, &*bell).await };
        Ok(open_inbox(&self.epochs, keep))
    }

    fn begin(&self, hears: bool) {
        self.hears.store(hears, Ordering::Release);
        self.epochs.begin();
    }

    /// Hears, and connects again when the session is lost. Where nothing is heard, looks, and tries
    /// again more and more rarely: a server or a network may only have been slow.
    async fn keep(&self, mut session: Option<Session>, bell: &dyn Doorbell) {
        let mut pause = DEAF_PAUSES.0;
        loop {
            if let Some(session) = &mut session {
                let error = self.hear(session, bell).await;
                tracing::debug!(%error, "the session that listens is lost; another is opened");
                self.epochs.end();
                bell.push(Push::Disconnected);
                pause = DEAF_PAUSES.0;
            }
            let was_deaf = session.is_none();
            let again = async {
                if was_deaf {
                    sleep(pause).await;
                }
                connect_again(|| self.connect()).await
            };
            session = tokio::select! {
                again = again => again,
                never = look(bell), if was_deaf => match never {},
            };
            pause = (2 * pause).min(DEAF_PAUSES.1);
            if session.is_some() || !was_deaf {
                self.begin(session.is_some());
                bell.push(Push::Reset);
            }
        }
    }

    /// Hears until the session is lost.
    async fn hear(&self, session: &mut Session, bell: &dyn Doorbell) -> StoreError {
        let rings = |name: &str| _ = Key::new(name).map(|key| bell.ring(&key));
        loop {
            let hears = tokio::select! {
                name = session.heard.recv() => Ok(name.inspect(|name| rings(name)).is_some()),
                () = self.doubted.notified() => Ok(false),
                () = sleep(PROBE_PAUSE) => self.probe(&mut session.heard, rings).await,
            };
            match hears {
                Ok(true) => {}
                Ok(false) => return lost(),
                Err(error) => return error,
            }
        }
    }

    /// Opens a session, finds out whether it hears, and shows others that it lives. None if it hears
    /// nothing.
    async fn connect(&self) -> Result<Option<Session>, StoreError> {
        let Some(at) = &self.at else {
            return Ok(None);
        };
        let pool = &self.pool;
        let (client, connection) = pool.connect_to(at).await?;
        let (rung, mut heard) = mpsc::unbounded_channel();
        let drive = drive(connection, move |message| {
            if let AsyncMessage::Notification(said) = message {
                // Nobody may hear any more.
                rung.send(said.payload().to_owned()).ok();
            }
        });
        let connection = JoinSet::from_iter([drive]);
        let listen = format!("listen \"{}\"", self.channel);
        pool.told(at, client.batch_execute(&listen)).await?;
        if !self.probe(&mut heard, |_| ()).await? {
            // A pooler gives the session to others.
            let unlisten = client.batch_execute("unlisten *");
            pool.told(at, unlisten).await.ok();
            if !self.has_warned.swap(true, Ordering::AcqRel) {
                tracing::warn!("{DEAF}: waiters look four times a second; {REMEDY}");
            }
            return Ok(None);
        }
        pool.told(at, client.batch_execute(KEEP_ALIVE)).await?;
        let schema = &pool.schema;
        let inbox = params![self.inbox => TEXT];
        // The time is that behind the lock.
        let sql = format!("select {schema}.clock() from pg_advisory_lock({schema}.inbox_lock($1))");
        let rows = pool.told(at, client.query_typed(&sql, &inbox)).await?;
        let now: i64 = first(&rows).ok_or_else(no_answer)?;
        self.since.store(now.cast_unsigned(), Ordering::Release);
        Ok(Some(Session {
            heard,
            _client: client,
            _connection: connection,
        }))
    }

    /// Sends itself something, by another connection: what a session sends itself it hears also
    /// through a pooler. Other rings that come meanwhile go where they belong, also as long as the other
    /// connection is waited for.
    async fn probe(
        &self,
        heard: &mut Heard,
        mut ring: impl FnMut(&str),
    ) -> Result<bool, StoreError> {
        let params = params![self.channel => TEXT];
        let mut asked = pin!(self.pool.ask("select pg_notify($1, '')", &params));
        let mut hears = pin!(async {
            while let Some(name) = heard.recv().await {
                if name.is_empty() {
                    return Ok(true);
                }
                ring(&name);
            }
            Err(lost())
        });
        tokio::select! {
            biased;
            is_heard = &mut hears => {
                // The answer is on its way; not to wait for it would cost a connection.
                let is_heard = is_heard?;
                asked.await.map(|_| is_heard)
            }
            answer = &mut asked => {
                answer?;
                timeout(PROBE_LIMIT, hears).await.unwrap_or(Ok(false))
            }
        }
    }
}

/// Looks again and again, where nothing is heard.
async fn look(bell: &dyn Doorbell) -> Infallible {
    loop {
        sleep(LOOK_PAUSE).await;
        bell.ring_all(usize::MAX);
    }
}

fn lost() -> StoreError {
    StoreError::new(ErrorKind::Unavailable, "the session that listens has ended")
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::super::options::PostgresOptions;
    use super::*;

    /// Others may have all connections, or the server may be slow.
    #[tokio::test]
    async fn rings_are_heard_while_a_probe_waits_for_a_connection() {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("postgres://u@{}/d", silent.local_addr().unwrap());
        let pool = Pool::new(&PostgresOptions::from_url(&url).unwrap());
        let listener = Listener::new(pool, None, &Inbox::from_random(1));
        let (rung, mut heard) = mpsc::unbounded_channel();
        let (rings, mut keys) = mpsc::unbounded_channel();
        rung.send("k".to_owned()).unwrap();
        let probe = listener.probe(&mut heard, |key| rings.send(key.to_owned()).unwrap());
        let key = tokio::select! {
            key = keys.recv() => key,
            _ = probe => keys.try_recv().ok(),
        };
        assert_eq!(key.as_deref(), Some("k"));
    }
}
