//! Real ZooKeeper servers, ended with the test.
//!
//! ```no_run
//! use leasehold_testkit::zookeeper::ZooKeeper;
//!
//! let server = ZooKeeper::shared();
//! let url = server.url_of(&server.chroot()); // zookeeper://127.0.0.1:<port>/fresh_1
//! assert!(server.ask("srvr").unwrap().contains("Mode: standalone"));
//! ```
//!
//! `java` runs the jars of Debian's `libzookeeper-java`, or the class path in
//! `LEASEHOLD_ZOOKEEPER_CLASSPATH`. Everything here blocks unless it is `async`: a start takes half a
//! second, that of an [`Ensemble`] some seconds. It panics, with the log, if it cannot do what it is
//! for.

mod ensemble;
mod java;
mod secure;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::deployment::{Answer, until_blocking};
use crate::process::Daemon;
use crate::scratch::Scratch;
use crate::server::Port;
use crate::tls::Certificates;
pub use ensemble::Ensemble;
use secure::Known;

/// How long to wait for the answer to a four-letter word. A server that is starting can lose one, so
/// whoever waits for an answer has to ask again.
const ANSWER: Duration = Duration::from_millis(500);

/// Asks with more patience each time: on a busy machine an answer takes long as well.
fn patiently<T>(mut ask: impl FnMut(Duration) -> Answer<T>) -> impl FnMut() -> Answer<T> {
    let mut limit = ANSWER;
    move || {
        let answer = ask(limit);
        limit = (2 * limit).min(8 * ANSWER);
        answer
    }
}

/// A running ZooKeeper server on a loopback port, in a temporary directory.
///
/// Its writes are durable. It expires sessions five times a second, and grants time-outs from 400 ms
/// to 60 s. All four-letter words are allowed, and any number of connections.
///
/// It is killed on drop, and also when the test process ends without dropping it: nothing of it is
/// left. Its ports are reserved for as long as the value lives, as that of a
/// [`RedisServer`](crate::server::RedisServer).
#[derive(Debug)]
pub struct ZooKeeper {
    /// The first to be dropped.
    process: Daemon,
    /// For TLS, or for the other servers of an ensemble.
    more_ports: Vec<Port>,
    scratch: Scratch,
    /// Who asks at the port for TLS.
    known: Option<Known>,
    chroots: AtomicU32,
    environment: Vec<(String, String)>,
}

impl ZooKeeper {
    /// Starts a server that stands alone.
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// The same with more lines of `zoo.cfg`, which override the testkit's: `maxSessionTimeout=1000`.
    pub fn start_with(config: &str) -> Self {
        let server = Self::prepare(Vec::new(), Vec::new());
        server.configure(config);
        server.start_again();
        server
    }

    /// Starts a server with a second port, for TLS (see [`Self::secure_hosts`]), whose clients need no
    /// certificate.
    pub fn start_encrypted(certificates: &Certificates) -> Self {
        Self::start_encrypted_with(certificates, "")
    }

    /// The same with more lines of `zoo.cfg`, such as `ssl.clientAuth=need`.
    pub fn start_encrypted_with(certificates: &Certificates, config: &str) -> Self {
        let mut server = Self::prepare(vec![Port::reserve()], Vec::new());
        server.known = Some(Known::of(certificates));
        let (key, certificate) = (&certificates.server_key, &certificates.server_certificate);
        let identity = format!("{}{}", key.text, certificate.text);
        server.scratch.write_secret("server.pem", &identity);
        let trusted = &certificates.authority.text;
        server.scratch.write_secret("authority.pem", trusted);
        let here = |name: &str| server.scratch.path(name).display().to_string();
        let (identity, trusted) = (here("server.pem"), here("authority.pem"));
        let port = server.secure_port();
        server.configure(&format!(
            "secureClientPort={port}\n\
             secureClientPortAddress=127.0.0.1\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={identity}\n\
             ssl.keyStore.type=PEM\n\
             ssl.trustStore.location={trusted}\n\
             ssl.trustStore.type=PEM\n\
             ssl.clientAuth=none\n\
             {config}"
        ));
        server.start_again();
        server
    }

    /// The server that the tests of this process share, each below a [`chroot`](Self::chroot) of its
    /// own. Its writes outlive the server and not the machine, whose disk nobody waits for.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<ZooKeeper> =
            LazyLock::new(|| ZooKeeper::start_with("forceSync=no"));
        &SHARED
    }

    /// A server that is not configured yet, and does not run.
    fn prepare(more_ports: Vec<Port>, environment: Vec<(String, String)>) -> Self {
        let scratch = Scratch::new("zookeeper", None);
        fs::create_dir(scratch.path("data")).expect("a directory can be made");
        Self {
            process: Daemon::new(Port::reserve(), scratch.path("log"), false),
            more_ports,
            scratch,
            known: None,
            chroots: AtomicU32::new(0),
            environment,
        }
    }

    fn configure(&self, config: &str) {
        let (data, port) = (self.scratch.path("data"), self.port());
        // Sessions expire at a multiple of the tick only.
        let lines = format!(
            "dataDir={}\n\
             clientPort={port}\n\
             clientPortAddress=127.0.0.1\n\
             admin.enableServer=false\n\
             4lw.commands.whitelist=*\n\
             maxClientCnxns=0\n\
             tickTime=200\n\
             minSessionTimeout=400\n\
             maxSessionTimeout=60000\n\
             {config}\n",
            data.display()
        );
        let written = fs::write(self.scratch.path("zoo.cfg"), lines);
        written.expect("the configuration can be written");
    }

    /// What clients connect to: `127.0.0.1:<port>`.
    pub fn hosts(&self) -> String {
        self.address().to_string()
    }

    /// The port for TLS of a server that was started with [`Self::start_encrypted`].
    pub fn secure_port(&self) -> u16 {
        self.secure_address().port()
    }

    /// What clients with TLS connect to.
    pub fn secure_hosts(&self) -> String {
        self.secure_address().to_string()
    }

    /// Where it listens for clients with TLS.
    pub fn secure_address(&self) -> SocketAddr {
        let port = self.more_ports.first();
        port.expect("the server was started with TLS").address()
    }

    /// The URL of its root: `zookeeper://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        self.url_of("")
    }

    /// The URL of a chroot: `zookeeper://127.0.0.1:<port>/fresh_1`.
    pub fn url_of(&self, chroot: &str) -> String {
        format!("zookeeper://{}{chroot}", self.hosts())
    }

    /// The path of a node that nobody else uses, such as `/fresh_1`; it does not exist yet.
    pub fn chroot(&self) -> String {
        let number = self.chroots.fetch_add(1, Ordering::Relaxed) + 1;
        format!("/fresh_{number}")
    }

    /// Sends a four-letter word (`srvr`, `mntr`, `cons`, `dump`, …), and returns the answer.
    ///
    /// # Errors
    ///
    /// Why there is none, such as that the server is down, or took more than half a second.
    pub fn ask(&self, word: &str) -> io::Result<String> {
        self.ask_within(word, ANSWER)
    }

    fn ask_within(&self, word: &str, limit: Duration) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address(), limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(word.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// What it is while it serves sessions: `standalone`, `leader` or `follower`.
    fn mode(&self, limit: Duration) -> Result<String, String> {
        let answer = self.ask_within("srvr", limit);
        // The port for TLS is opened later than the other.
        let answer = answer.and_then(|answer| match &self.known {
            Some(known) => known.ask(self.secure_address(), "srvr", limit),
            None => Ok(answer),
        });
        let answer = answer.map_err(|error| error.to_string())?;
        let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "));
        mode.map(str::to_owned).ok_or(answer)
    }

    /// Loses all that a server that is down has written. Its configuration stays.
    pub fn lose_data(&self) {
        assert_eq!(self.process.id(), None, "the server is running");
        let written = fs::remove_dir_all(self.scratch.path("data/version-2"));
        written.expect("a server that has run has written something");
    }

    /// Starts a server that is down again, on the same port, with what has been written; returns when
    /// it serves sessions.
    pub fn start_again(&self) {
        self.launch();
        let started = patiently(|limit| self.started(limit));
        until_blocking("ZooKeeper to serve sessions", &[], started);
    }

    fn launch(&self) {
        let mut command = java::command(&self.scratch);
        command.envs(self.environment.clone());
        let launched = self.process.launch(command);
        launched.expect("`java` can be started: is it in the PATH?");
    }

    /// What it is, or why it does not serve yet; panics if it never will.
    fn started(&self, limit: Duration) -> Result<String, String> {
        self.process.must_run();
        self.mode(limit)
            .map_err(|why| format!("{why}\n{}", self.log()))
    }
}

impl Deref for ZooKeeper {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.process
    }
}
