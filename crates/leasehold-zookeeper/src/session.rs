//! The session of a client, and the clock of the servers as it knows it.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Invalid, Moment, StoreTime};
use leasehold_store::sync::{AtomicBool, Mutex, Ordering, Runtime, check_runtime, lock, timeout};
use leasehold_store::{ErrorKind, StoreError, clock};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Mutex as Turn;
use tokio::task::{AbortHandle, JoinSet};
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Error, Permission};

use super::errors;
use super::node::{CLOCK, INBOXES, KEYS, time_of};
use super::options::{Route, ZooKeeperOptions};

/// After so long the time of the servers is asked for again.
const FRESH: Duration = Duration::from_secs(60);

/// How long a server may take to say why it gives no session.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

/// The session that a client has, or the next one.
pub(crate) struct Sessions {
    pub(crate) options: ZooKeeperOptions,
    current: Turn<Option<Arc<Session>>>,
    /// The time at the servers when they last told it, and when that was heard.
    told: Mutex<Option<(StoreTime, Moment)>>,
    /// Whether the nodes were not there when they were needed.
    pub(crate) has_made_nodes: AtomicBool,
}

/// A session, as long as anybody has it.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// Where its tasks run.
    pub(crate) runtime: Runtime,
    /// Ends with the session, and with its runtime.
    keeper: AbortHandle,
    /// Those of its way to the servers, if it is encrypted.
    _ports: JoinSet<()>,
}

impl Session {
    fn is_over(&self) -> bool {
        self.keeper.is_finished() || self.client.state().is_terminated()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

leasehold_store::debug!(Sessions; |it| options: it.options);

impl Sessions {
    pub(crate) fn new(options: ZooKeeperOptions) -> Self {
        Self {
            options,
            current: Turn::default(),
            told: Mutex::default(),
            has_made_nodes: AtomicBool::new(false),
        }
    }

    /// The session. Opens one if there is none, or the last has expired.
    pub(crate) async fn get(&self) -> Result<Arc<Session>, StoreError> {
        let runtime = check_runtime()?;
        let mut current = self.current.lock().await;
        if let Some(session) = current.as_ref().filter(|session| !session.is_over()) {
            return Ok(session.clone());
        }
        *current = None;
        let (client, ports) = self.open().await?;
        let mut state = client.state_watcher();
        let keeper = runtime.spawn(async move { while !state.changed().await.is_terminated() {} });
        let session = Arc::new(Session {
            client,
            keeper: keeper.abort_handle(),
            runtime,
            _ports: ports,
        });
        Ok(current.insert(session).clone())
    }

    async fn open(&self) -> Result<(Client, JoinSet<()>), StoreError> {
        let options = &self.options;
        let begun = clock::of_machine();
        let endpoints = options.endpoints().await;
        let looked = clock::of_machine().since(begun);
        let route = match options.encrypted {
            #[cfg(feature = "tls")]
            true => {
                let worked = lock(&self.told).is_some();
                super::tunnel::open(options, endpoints, worked).await?
            }
            #[cfg(not(feature = "tls"))]
            true => {
                return Err(leasehold_store::unsupported(
                    "this build of leasehold has no TLS",
                    "build it with the feature `tls-ring`",
                ));
            }
            false => options.route(endpoints).await?,
        };
        let left = options.connect_timeout.saturating_sub(looked);
        let connected = self.connect(&route, left).await;
        let of_tls = |error| lock(&route.failed).take().unwrap_or(error);
        let client = connected.map_err(of_tls)?;
        let client = client.chroot(&*options.chroot);
        let client = client.map_err(|_| Invalid::plain("the URL has no path of a node"))?;
        // Also the first word about the time.
        self.ask_time(&client).await?;
        Ok((client, route.ports))
    }

    async fn connect(&self, route: &Route, limit: Duration) -> Result<Client, StoreError> {
        let mut connector = Client::connector()
            .with_session_timeout(self.options.session_timeout)
            .with_fail_eagerly();
        if let Some((scheme, secret)) = &route.login {
            connector = connector.with_auth(scheme, secret);
        }
        let connect = async {
            match connector.connect(&route.hosts).await {
                Err(Error::NoHosts | Error::Timeout) => {
                    Err(errors::unreachable(&self.causes().await, &self.options))
                }
                connected => connected.map_err(|error| self.meaning(error)),
            }
        };
        let connected = timeout(limit, connect).await;
        connected.map_err(|_| self.late("gave no session"))?
    }

    /// Why the servers give no session, which the client crate does not say.
    async fn causes(&self) -> String {
        let probe = |server: String| async move {
            let cause = timeout(PROBE_LIMIT, cause(&server)).await;
            let cause = cause.unwrap_or(Ok("no answer in time"));
            cause.map_or_else(|error| error.to_string(), str::to_owned)
        };
        let mut causes = self.options.of_each(probe).await;
        causes.sort_unstable();
        causes.dedup();
        causes.join(", ")
    }

    /// Makes the nodes in which others are made.
    pub(crate) async fn make_nodes(&self, client: &Client) -> Result<(), StoreError> {
        let options = CreateMode::Persistent.with_acls(self.acls());
        // From the root: the chroot may not be there yet.
        let root = client.clone().chroot("/").map_err(|_| errors::none())?;
        for node in [KEYS, INBOXES, CLOCK] {
            let path = format!("{}{node}", self.options.chroot);
            self.ask(root.mkdir(&path, &options)).await?;
        }
        self.has_made_nodes.store(true, Ordering::Release);
        let stat = self.ask(client.set_data(CLOCK, b"", None)).await?;
        self.hear(time_of(&stat));
        Ok(())
    }

    /// Who may use the nodes: if there is an identity, nobody without it.
    pub(crate) fn acls(&self) -> Acls<'static> {
        match self.options.has_identity() {
            true => Acls::creator_all(),
            false => Acls::anyone_all(),
        }
    }

    /// Whether whoever reaches the servers may remove the locks: who made the nodes may have had no
    /// identity.
    pub(crate) async fn are_open(&self, client: &Client) -> Result<bool, StoreError> {
        let (anyone, remove) = (AuthId::anyone(), Permission::DELETE);
        let is_open = |acl: &Acl| *acl.auth_id() == anyone && acl.permission().has(remove);
        let acls = self.answer(client.get_acl(KEYS)).await?;
        Ok(acls.is_ok_and(|(acls, _)| acls.iter().any(is_open)))
    }

    pub(crate) async fn ask<T>(
        &self,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, StoreError> {
        let answer = self.answer(asked).await?;
        answer.map_err(|error| self.meaning(error))
    }

    /// As [`ask`](Self::ask); nothing where the answer is that error.
    pub(crate) async fn ask_unless<T>(
        &self,
        expected: &Error,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<Option<T>, StoreError> {
        match self.answer(asked).await? {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error == *expected => Ok(None),
            Err(error) => Err(self.meaning(error)),
        }
    }

    /// As [`ask`](Self::ask), where an error of ZooKeeper may mean something.
    pub(crate) async fn answer<T>(&self, asked: impl Future<Output = T>) -> Result<T, StoreError> {
        let answer = timeout(self.options.response_timeout, asked).await;
        answer.map_err(|_| self.late("did not answer"))
    }

    pub(crate) fn meaning(&self, error: impl Into<Error>) -> StoreError {
        errors::meaning(error.into(), &self.options)
    }

    fn late(&self, what: &str) -> StoreError {
        let message = format!("ZooKeeper at {} {what} in time", self.options.hosts());
        StoreError::new(ErrorKind::Unavailable, message)
    }

    /// The servers have told the time.
    pub(crate) fn hear(&self, at: StoreTime) {
        *lock(&self.told) = Some((at, clock::of_machine()));
    }

    /// The time at the servers: what they told last, and what has passed since. It may be later
    /// there by as long as a request takes, and earlier where a clock has stepped back. ZooKeeper tells
    /// it to those who write only, in milliseconds.
    pub(crate) async fn now(&self, client: &Client) -> Result<StoreTime, StoreError> {
        let told = *lock(&self.told);
        if let Some((at, heard)) = told {
            let passed = clock::of_machine().since(heard);
            if passed < FRESH {
                let begun = u64::from(passed.subsec_nanos() % 1_000_000);
                return Ok(at + passed.saturating_sub(Duration::from_nanos(begun)));
            }
        }
        self.ask_time(client).await?;
        let told = *lock(&self.told);
        Ok(told.map_or(StoreTime(0), |(at, _)| at))
    }

    /// Lets the servers tell the time. Makes the nodes where they are not there, or not any more.
    async fn ask_time(&self, client: &Client) -> Result<(), StoreError> {
        let set = client.set_data(CLOCK, b"", None);
        match self.ask_unless(&Error::NoNode, set).await? {
            Some(stat) => self.hear(time_of(&stat)),
            None => self.make_nodes(client).await?,
        }
        Ok(())
    }
}

/// What becomes of a connection to a server that gives no session.
async fn cause(server: &str) -> io::Result<&'static str> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(b"srvr").await?;
    let mut said = Vec::new();
    stream.take(256).read_to_end(&mut said).await?;
    Ok(match said.starts_with(b"This ZooKeeper instance is not") {
        true => "a server serves no requests (its ensemble may have no majority)",
        false => "a server gives no session",
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use leasehold_testkit::zookeeper::ZooKeeper;
    use tokio::net::TcpListener;

    use super::*;

    /// The client crate says only that there are no hosts.
    #[tokio::test]
    async fn who_gets_no_session_is_told_why() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = server.local_addr().unwrap();
        let url = format!("zookeeper://127.0.0.1:1,{address}");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = server.accept().await {
                let mut asked = [0; 4];
                if stream.read_exact(&mut asked).await.is_ok() && asked == *b"srvr" {
                    let said = b"This ZooKeeper instance is not currently serving requests\n";
                    let _ = stream.write_all(said).await;
                }
            }
        });
        let sessions = Sessions::new(ZooKeeperOptions::from_url(&url).unwrap());
        let said = sessions.get().await.err().unwrap().to_string();
        assert!(said.contains("reached: Connection refused"), "{said}");
        assert!(said.contains(", a server serves no requests"), "{said}");
    }

    /// As an administrator does it, while a client has asked nothing for a while.
    #[tokio::test]
    async fn nodes_that_were_removed_are_made_again_by_who_asks_for_the_time() {
        let server = ZooKeeper::shared();
        let url = server.url_of(&server.chroot());
        let sessions = Sessions::new(ZooKeeperOptions::from_url(&url).unwrap());
        let session = sessions.get().await.unwrap();
        session.client.delete(CLOCK, None).await.unwrap();
        *lock(&sessions.told) = None;
        let told = sessions.now(&session.client).await;
        assert!(told.is_ok_and(|at| at > StoreTime(0)));
        let clock = session.client.check_stat(CLOCK).await.unwrap();
        assert!(clock.is_some());
    }
}
