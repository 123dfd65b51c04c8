//! Real servers: a `redis-server` of the test's own, ended with it.
//!
//! ```no_run
//! use leasehold_testkit::server::RedisServer;
//!
//! let server = RedisServer::start();
//! server.command(&["SET", "greeting", "hello"]);
//! assert_eq!(server.query::<String>(&["GET", "greeting"]), "hello");
//! println!("{}", server.url()); // redis://127.0.0.1:<a free port>/
//! ```
//!
//! The program is `redis-server` from the `PATH`, or another [`Program`].
//!
//! Everything here blocks for as long as the server takes, which is milliseconds, and works in
//! asynchronous tests as well: what the testkit itself asks a server goes over a Unix socket that
//! no proxy and no TLS is in the way of, and as a user of its own that no password shuts out.

mod options;
mod port;
mod program;
mod stats;

use std::fmt;
use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use redis::{ConnectionAddr, FromRedisValue, IntoConnectionInfo, RedisConnectionInfo, RedisResult};
use tempfile::TempDir;

use crate::process::{Daemon, PATIENCE};
use crate::tls::Certificates;
pub use options::RedisServerBuilder;
pub(crate) use port::Port;
use program::failure;
pub use program::{Program, in_servers};
pub use stats::{CommandStats, Stats};

/// The user that the testkit itself is on every server, whatever else may log in there.
pub(crate) const ADMIN: &str = "leasehold-testkit";
pub(crate) const ADMIN_PASSWORD: &str = "leasehold-testkit";

/// A running `redis-server` on a loopback port, in a temporary directory.
///
/// It is killed and reaped on drop, and killed by the kernel when the test process ends without
/// dropping it. Its port is reserved for as long as the value lives, also while the server is down:
/// connections are refused then, and nobody else can take the port.
pub struct RedisServer {
    /// The first to be dropped.
    process: Daemon,
    builder: RedisServerBuilder,
    directory: TempDir,
    certificates: Option<Certificates>,
}

/// What becomes of a server's data over a stop or a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// The server finds everything again, whether or not it has persistence.
    Keep,
    /// The server comes back empty, whether or not it has persistence.
    Lose,
}

/// Whether a server with TLS asks its clients for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    /// It does not.
    NotAsked,
    /// It turns away clients without one.
    Required,
}

impl RedisServer {
    /// Starts a server with the defaults of [`RedisServer::builder`].
    ///
    /// # Panics
    ///
    /// When it does not start; the message has its log.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Options for a server. The default keeps nothing on disk, asks for no password and has no
    /// limit on memory.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    /// The URL to connect to, with the password if there is one: `redis://127.0.0.1:<port>/`, or
    /// `rediss:` with TLS.
    pub fn url(&self) -> String {
        match &self.builder.password {
            Some(password) => self.url_with(&format!(":{password}@")),
            None => self.url_with(""),
        }
    }

    /// The URL to connect to as a user; see [`RedisServerBuilder::user`].
    pub fn url_as(&self, user: &str, password: &str) -> String {
        self.url_with(&format!("{user}:{password}@"))
    }

    fn url_with(&self, credentials: &str) -> String {
        let scheme = match self.certificates {
            Some(_) => "rediss",
            None => "redis",
        };
        format!("{scheme}://{credentials}127.0.0.1:{}/", self.port())
    }

    /// The URL of its Unix socket, with the password if there is one:
    /// `redis+unix:///tmp/…/redis.sock`.
    pub fn unix_url(&self) -> String {
        let socket = self.socket();
        match &self.builder.password {
            Some(password) => format!("redis+unix://{}?pass={password}", socket.display()),
            None => format!("redis+unix://{}", socket.display()),
        }
    }

    /// The certificates of a server with TLS.
    ///
    /// # Panics
    ///
    /// When the server was started without [`RedisServerBuilder::tls`].
    pub fn certificates(&self) -> &Certificates {
        let certificates = self.certificates.as_ref();
        certificates.expect("the server was started with `tls`")
    }

    /// Kills the server (SIGKILL), and returns when it is gone.
    ///
    /// # Panics
    ///
    /// When the server is down already.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Stops the server in its tracks: see [`Daemon::pause`].
    ///
    /// # Panics
    ///
    /// When the server is down.
    pub fn stop(&self) {
        self.process.pause();
    }

    /// Lets a stopped server go on: see [`Daemon::resume`].
    ///
    /// # Panics
    ///
    /// When the server is down.
    pub fn cont(&self) {
        self.process.resume();
    }

    /// Shuts the server down in an orderly way, and returns when it is gone; [`Self::start_again`]
    /// brings it back.
    ///
    /// # Panics
    ///
    /// When the server is down, or refuses.
    pub fn shutdown(&self, data: Data) {
        let how = match data {
            Data::Keep => "SAVE",
            Data::Lose => "NOSAVE",
        };
        // The answer to a shutdown is the end of the connection.
        match self.try_command(&["SHUTDOWN", how]) {
            Err(error) if error.is_connection_dropped() => {}
            other => panic!("the server does not shut down: {other:?}\n{}", self.log()),
        }
        self.process.wait_for_end();
        if data == Data::Lose {
            self.lose_data();
        }
    }

    /// Starts a server that is down again, on the same port, with what its persistence has kept:
    /// after a [`kill`](Self::kill), and without persistence, nothing.
    ///
    /// # Panics
    ///
    /// When the server is running, or does not start.
    pub fn start_again(&self) {
        self.launch().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Shuts the server down and starts it again on the same port.
    ///
    /// # Panics
    ///
    /// As [`shutdown`](Self::shutdown) and [`start_again`](Self::start_again).
    pub fn restart(&self, data: Data) {
        self.shutdown(data);
        self.start_again();
    }

    /// Runs a command as an administrator and returns its answer.
    ///
    /// # Panics
    ///
    /// When the server answers with an error, or not within [`PATIENCE`].
    pub fn command(&self, arguments: &[&str]) -> redis::Value {
        self.query(arguments)
    }

    /// Runs a command as an administrator and returns its answer as a type.
    ///
    /// # Panics
    ///
    /// As [`Self::command`], and when the answer is of another type.
    pub fn query<T: FromRedisValue>(&self, arguments: &[&str]) -> T {
        self.try_command(arguments)
            .and_then(|answer| Ok(T::from_redis_value(answer)?))
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    }

    /// Runs a command as an administrator; an answer that is an error is an error.
    ///
    /// # Errors
    ///
    /// What the server answers, or why it does not, such as none within [`PATIENCE`].
    pub fn try_command(&self, arguments: &[&str]) -> RedisResult<redis::Value> {
        let (name, rest) = arguments.split_first().expect("a command has a name");
        redis::cmd(name).arg(rest).query(&mut self.admin()?)
    }

    /// As [`Self::query`], where an answer may be missing: then it says whose.
    pub(crate) fn ask<T: FromRedisValue>(&self, arguments: &[&str]) -> Result<T, String> {
        let answer = self.try_command(arguments);
        let read = answer.and_then(|answer| Ok(T::from_redis_value(answer)?));
        read.map_err(|error| format!("{self:?}: {error}"))
    }

    /// A connection as an administrator, over the Unix socket.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub fn admin(&self) -> RedisResult<redis::Connection> {
        let login = RedisConnectionInfo::default()
            .set_username(ADMIN)
            .set_password(ADMIN_PASSWORD)
            .set_skip_set_lib_name();
        let info = ConnectionAddr::Unix(self.socket()).into_connection_info()?;
        let client = redis::Client::open(info.set_redis_settings(login))?;
        let connection = client.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        Ok(connection)
    }

    /// Waits until `count` replicas have everything that this server has.
    ///
    /// # Panics
    ///
    /// When they do not within [`PATIENCE`].
    pub fn wait_for_replicas(&self, count: usize) {
        // A write, since WAIT waits for what its own connection has written; and half the patience,
        // so that the server's answer comes before our own limit.
        let limit = (PATIENCE / 2).as_millis().to_string();
        let mut connection = self.admin().expect("the server is running");
        let mut pipe = redis::pipe();
        pipe.cmd("PUBLISH").arg(&["leasehold-testkit", ""]).ignore();
        pipe.cmd("WAIT").arg(count).arg(limit);
        let answers: RedisResult<(usize,)> = pipe.query(&mut connection);
        let (reached,) =
            answers.unwrap_or_else(|error| panic!("cannot wait for replicas: {error}"));
        let log = self.log();
        assert!(reached >= count, "{reached} of {count} have come: {log}");
    }

    /// What the server has done since its start, and at what cost; see [`Stats::since`].
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    pub fn stats(&self) -> Stats {
        Stats::parse(&self.query::<String>(&["INFO", "all"]))
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn lose_data(&self) {
        fs::remove_dir_all(self.data()).expect("the data can be removed");
        fs::create_dir(self.data()).expect("the directory can be made");
    }

    /// Starts the process and waits until it answers.
    #[expect(
        clippy::disallowed_methods,
        reason = "a server that is starting has no event to await; and no machine sleeps meanwhile"
    )]
    fn launch(&self) -> Result<(), String> {
        let program = self.builder.program.path()?;
        let failure = |what: String| failure(&program, &what, &self.log());
        let mut command = Command::new(&program);
        command.arg(self.directory.path().join("redis.conf"));
        command.args(&self.builder.arguments).stdin(Stdio::null());
        command.envs(self.builder.environment.iter().cloned());
        let launched = self.process.launch(command);
        launched.map_err(|error| failure(format!("cannot be started: {error}")))?;

        let patience = self.builder.patience.unwrap_or(PATIENCE);
        let limit = Instant::now() + patience;
        // A server that is still reading its data answers with an error.
        while let Err(error) = ping(self.admin()) {
            if let Some(status) = self.process.status() {
                return Err(failure(format!("ended at once: {status}")));
            }
            if Instant::now() > limit {
                return Err(failure(format!(
                    "does not answer within {patience:?}: {error}"
                )));
            }
            thread::sleep(Duration::from_millis(2));
        }
        if !self.builder.on_start.is_empty() {
            let _ = self.try_command(&self.builder.on_start);
        }
        if !self.builder.persistent {
            // The snapshot of an orderly shutdown has served; a crash from here on loses all.
            let _ = fs::remove_file(self.data().join("dump.rdb"));
        }
        Ok(())
    }
}

impl Deref for RedisServer {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.process
    }
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RedisServer")
            .field("url", &self.url())
            .field("pid", &self.process.id())
            .finish_non_exhaustive()
    }
}

fn ping(connection: RedisResult<redis::Connection>) -> RedisResult<()> {
    redis::cmd("PING").exec(&mut connection?)
}
