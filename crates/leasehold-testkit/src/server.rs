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
//! The program is `redis-server` from the `PATH`, or what [`PROGRAM`] names.
//!
//! Everything here blocks for as long as the server takes, which is milliseconds, and works in
//! asynchronous tests as well: what the testkit itself asks a server goes over a Unix socket that
//! no proxy and no TLS is in the way of, and as a user of its own that no password shuts out.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{ConnectionAddr, FromRedisValue, IntoConnectionInfo, RedisConnectionInfo, RedisResult};
use rustix::process::{Pid, Signal, WaitIdOptions};
use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::process::{PATIENCE, spawn_tied, wait_for_change};
use crate::tls::Certificates;

/// The environment variable that names the `redis-server` to test with.
pub const PROGRAM: &str = "LEASEHOLD_REDIS_SERVER";

/// The user that the testkit itself is on every server, whatever else may log in there.
const ADMIN: &str = "leasehold-testkit";
const ADMIN_PASSWORD: &str = "leasehold-testkit";

/// A running `redis-server` on a loopback port, in a temporary directory.
///
/// It is killed and reaped on drop, and killed by the kernel when the test process ends without
/// dropping it. Its port is reserved for as long as the value lives, also while the server is down:
/// connections are refused then, and nobody else can take the port.
pub struct RedisServer {
    builder: RedisServerBuilder,
    directory: TempDir,
    port: Port,
    certificates: Option<Certificates>,
    child: Option<Child>,
    stopped: AtomicBool,
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
        RedisServerBuilder {
            program: std::env::var_os(PROGRAM)
                .map_or_else(|| PathBuf::from("redis-server"), PathBuf::from),
            persistent: false,
            password: None,
            tls: None,
            config: Vec::new(),
            patience: PATIENCE,
        }
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
        let scheme = if self.certificates.is_some() {
            "rediss"
        } else {
            "redis"
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

    /// The TCP port, which stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port.address().port()
    }

    /// The loopback address and the port.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The certificates of a server with TLS.
    ///
    /// # Panics
    ///
    /// When the server was started without [`RedisServerBuilder::tls`].
    pub fn certificates(&self) -> &Certificates {
        self.certificates
            .as_ref()
            .expect("the server was started with `tls`")
    }

    /// The process id.
    ///
    /// # Panics
    ///
    /// When the server is down.
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// Everything the server has logged since its first start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Kills the server (SIGKILL), and returns when it is gone.
    ///
    /// # Panics
    ///
    /// When the server is down already.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("the server is running");
        child.kill().expect("a child can be killed");
        child.wait().expect("a child can be waited for");
        self.stopped = AtomicBool::new(false);
    }

    /// Stops the server in its tracks (SIGSTOP): connections stay open and are even accepted, by
    /// the kernel, but nothing is answered. Returns when it stands still.
    ///
    /// # Panics
    ///
    /// When the server is down.
    pub fn stop(&self) {
        self.set_stopped(true, Signal::STOP, WaitIdOptions::STOPPED);
    }

    /// Lets a stopped server go on (SIGCONT), with what has been sent to it meanwhile.
    ///
    /// # Panics
    ///
    /// When the server is down.
    pub fn cont(&self) {
        self.set_stopped(false, Signal::CONT, WaitIdOptions::CONTINUED);
    }

    fn set_stopped(&self, stopped: bool, signal: Signal, change: WaitIdOptions) {
        let pid = self.child_pid();
        // The kernel reports a change only; a second signal of a kind makes none.
        if self.stopped.swap(stopped, Ordering::SeqCst) != stopped {
            rustix::process::kill_process(pid, signal).expect("a child can be signalled");
            wait_for_change(pid, change);
        }
    }

    /// Shuts the server down in an orderly way, and returns when it is gone; [`Self::start_again`]
    /// brings it back.
    ///
    /// # Panics
    ///
    /// When the server is down, or refuses.
    pub fn shutdown(&mut self, data: Data) {
        let how = match data {
            Data::Keep => "SAVE",
            Data::Lose => "NOSAVE",
        };
        // The answer to a shutdown is the end of the connection.
        match self.try_command(&["SHUTDOWN", how]) {
            Err(error) if error.is_connection_dropped() => {}
            other => panic!("the server does not shut down: {other:?}\n{}", self.log()),
        }
        let mut child = self.child.take().expect("the server is running");
        child.wait().expect("a child can be waited for");
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
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "the server is running");
        self.launch().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Shuts the server down and starts it again on the same port.
    ///
    /// # Panics
    ///
    /// As [`shutdown`](Self::shutdown) and [`start_again`](Self::start_again).
    pub fn restart(&mut self, data: Data) {
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
        let (reached,): (usize,) = redis::pipe()
            .cmd("PUBLISH")
            .arg("leasehold-testkit")
            .arg("")
            .ignore()
            .cmd("WAIT")
            .arg(count)
            .arg(limit)
            .query(&mut connection)
            .unwrap_or_else(|error| panic!("cannot wait for replicas: {error}"));
        assert!(
            reached >= count,
            "{reached} of {count} replicas have come\n{}",
            self.log()
        );
    }

    /// What the server has done since its start, and at what cost; see [`Stats::since`].
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    pub fn stats(&self) -> Stats {
        Stats::parse(&self.query::<String>(&["INFO", "all"]))
    }

    fn child(&self) -> &Child {
        self.child.as_ref().expect("the server is running")
    }

    fn child_pid(&self) -> Pid {
        Pid::from_child(self.child())
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
    fn launch(&mut self) -> Result<(), StartError> {
        let log = open_log(&self.directory.path().join("log"))
            .map_err(|error| self.failure(format!("has no log: {error}")))?;
        let mut command = Command::new(&self.builder.program);
        command
            .arg(self.directory.path().join("redis.conf"))
            .stdin(std::process::Stdio::null())
            .stdout(
                log.try_clone()
                    .map_err(|error| self.failure(error.to_string()))?,
            )
            .stderr(log);
        let mut child = spawn_tied(command)
            .map_err(|error| self.failure(format!("cannot be started: {error}")))?;

        let limit = Instant::now() + self.builder.patience;
        // A server that is still reading its data answers with an error.
        while let Err(error) = ping(self.admin()) {
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                return Err(self.failure(format!("ended at once: {status}")));
            }
            if Instant::now() > limit {
                let _ = child.kill();
                let _ = child.wait();
                let patience = self.builder.patience;
                return Err(self.failure(format!("does not answer within {patience:?}: {error}")));
            }
            thread::sleep(Duration::from_millis(2));
        }
        self.child = Some(child);
        if !self.builder.persistent {
            // The snapshot of an orderly shutdown has served; a crash from here on loses all.
            let _ = fs::remove_file(self.data().join("dump.rdb"));
        }
        Ok(())
    }

    fn failure(&self, what: String) -> StartError {
        StartError {
            program: self.builder.program.clone(),
            what,
            log: self.log(),
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RedisServer")
            .field("url", &self.url())
            .field("pid", &self.child.as_ref().map(Child::id))
            .finish_non_exhaustive()
    }
}

/// Options for a [`RedisServer`].
#[derive(Clone, Debug)]
pub struct RedisServerBuilder {
    program: PathBuf,
    persistent: bool,
    password: Option<String>,
    tls: Option<ClientCertificate>,
    config: Vec<String>,
    patience: Duration,
}

impl RedisServerBuilder {
    /// Another program than [`PROGRAM`] says.
    #[must_use]
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// Keeps every write on disk before it is answered: an append-only file, synced always. Such a
    /// server finds its data again after a [`kill`](RedisServer::kill).
    #[must_use]
    pub fn persistent(mut self) -> Self {
        self.persistent = true;
        self
    }

    /// Asks the default user for a password (`requirepass`), which [`RedisServer::url`] then
    /// carries: letters and digits, please.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.config("requirepass", password)
    }

    /// Adds a user by its rules: `user("alice", "on >secret ~app:* &app:* +@all")`. Those of
    /// `default`, for clients that do not log in, start with nothing too: `"on nopass ~* +@all"`.
    #[must_use]
    pub fn user(self, name: &str, rules: &str) -> Self {
        self.config("user", &format!("{name} {rules}"))
    }

    /// Serves TLS, and TLS only, with certificates made for this server.
    #[must_use]
    pub fn tls(mut self, clients: ClientCertificate) -> Self {
        self.tls = Some(clients);
        self
    }

    /// Follows the server of this testkit on `port`; see [`RedisServer::wait_for_replicas`].
    #[must_use]
    pub fn replica_of(self, port: u16) -> Self {
        self.config("replicaof", &format!("127.0.0.1 {port}"))
    }

    /// Any other line of the configuration file: `config("maxmemory", "2mb")`. Later lines win.
    #[must_use]
    pub fn config(mut self, directive: &str, value: &str) -> Self {
        self.config.push(format!("{directive} {value}"));
        self
    }

    /// How long to wait for a server that does not answer: [`PATIENCE`], unless said otherwise.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    ///
    /// When it does not start; the message has its log.
    pub fn start(self) -> RedisServer {
        self.try_start().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    ///
    /// When it does not; the error has its log.
    pub fn try_start(self) -> Result<RedisServer, StartError> {
        let directory = tempfile::Builder::new()
            .prefix("leasehold-redis-")
            // Redis may not be started by the user it runs as.
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .expect("a temporary directory can be made");
        let port = Port::reserve();
        let certificates = self.tls.map(|_| Certificates::generate(directory.path()));
        let mut server = RedisServer {
            builder: self,
            directory,
            port,
            certificates,
            child: None,
            stopped: AtomicBool::new(false),
        };
        fs::create_dir(server.data()).expect("the directory can be made");
        fs::write(
            server.directory.path().join("redis.conf"),
            configuration(&server),
        )
        .expect("the configuration can be written");
        server.launch()?;
        Ok(server)
    }
}

/// The text of `redis.conf`.
fn configuration(server: &RedisServer) -> String {
    let RedisServer {
        builder,
        certificates,
        ..
    } = server;
    let quoted = |path: &Path| format!("{:?}", path.display().to_string());
    let port = server.port();
    let mut lines = vec![
        "bind 127.0.0.1".to_owned(),
        format!("unixsocket {}", quoted(&server.socket())),
        format!("dir {}", quoted(&server.data())),
        "save \"\"".to_owned(),
        format!("user {ADMIN} on >{ADMIN_PASSWORD} allkeys allchannels allcommands"),
        // Replication among servers of this testkit: as its own user, at once, and without a copy
        // on disk that would come back after a crash.
        format!("masteruser {ADMIN}"),
        format!("masterauth {ADMIN_PASSWORD}"),
        "repl-diskless-sync-delay 0".to_owned(),
        "rdb-del-sync-files yes".to_owned(),
    ];
    if builder.persistent {
        lines.extend(["appendonly yes".to_owned(), "appendfsync always".to_owned()]);
    }
    match (&builder.tls, certificates) {
        (Some(clients), Some(certificates)) => {
            let asked = match clients {
                ClientCertificate::NotAsked => "no",
                ClientCertificate::Required => "yes",
            };
            lines.extend([
                "port 0".to_owned(),
                format!("tls-port {port}"),
                format!("tls-ca-cert-file {}", quoted(&certificates.authority.path)),
                format!(
                    "tls-cert-file {}",
                    quoted(&certificates.server_certificate.path)
                ),
                format!("tls-key-file {}", quoted(&certificates.server_key.path)),
                format!("tls-auth-clients {asked}"),
            ]);
        }
        _ => lines.push(format!("port {port}")),
    }
    lines.extend(builder.config.iter().cloned());
    lines.join("\n") + "\n"
}

fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn ping(connection: RedisResult<redis::Connection>) -> RedisResult<()> {
    redis::cmd("PING").exec(&mut connection?)
}

/// Why a server did not start.
#[derive(Debug)]
pub struct StartError {
    program: PathBuf,
    what: String,
    log: String,
}

impl fmt::Display for StartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, what, log } = self;
        let program = program.display();
        writeln!(out, "`{program}` {what}")?;
        writeln!(out, "hint: install Redis, or name its server in {PROGRAM}")?;
        if log.contains("tls-") && log.contains("Bad directive") {
            writeln!(out, "hint: this server was built without TLS")?;
        }
        write!(out, "--- its log\n{log}")
    }
}

impl std::error::Error for StartError {}

/// What a server has done, and at what cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// CPU time, user and system, of the thread that runs the commands.
    pub cpu: Duration,
    /// Per command in lower case, subcommands as `client|info`. The testkit's own questions are
    /// among them (`info`, `auth`).
    pub commands: BTreeMap<String, CommandStats>,
}

/// What a server has done of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandStats {
    /// How often it ran.
    pub calls: u64,
    /// How long that took in all, by the clock: more than CPU time on a busy machine.
    pub time: Duration,
    /// How often it was turned away before it ran (no permission, out of memory, …).
    pub rejected: u64,
    /// How often it ran and failed.
    pub failed: u64,
}

impl Stats {
    /// What was done of a command: nothing, if it is not listed.
    pub fn command(&self, name: &str) -> CommandStats {
        self.commands.get(name).copied().unwrap_or_default()
    }

    /// What has been done since `earlier`, of the same run of the same server.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let commands = self.commands.iter().map(|(name, now)| {
            let before = earlier.command(name);
            let since = CommandStats {
                calls: now.calls - before.calls,
                time: now.time - before.time,
                rejected: now.rejected - before.rejected,
                failed: now.failed - before.failed,
            };
            (name.clone(), since)
        });
        let commands = commands
            .filter(|(_, since)| *since != CommandStats::default())
            .collect();
        Self {
            cpu: self.cpu - earlier.cpu,
            commands,
        }
    }

    /// Reads the answer to `INFO`.
    fn parse(info: &str) -> Self {
        let mut stats = Self::default();
        for (name, value) in info.lines().filter_map(|line| line.trim().split_once(':')) {
            if let "used_cpu_user_main_thread" | "used_cpu_sys_main_thread" = name {
                stats.cpu += Duration::from_secs_f64(value.parse().expect("seconds"));
            } else if let Some(command) = name.strip_prefix("cmdstat_") {
                stats
                    .commands
                    .insert(command.to_owned(), CommandStats::parse(value));
            }
        }
        stats
    }
}

impl CommandStats {
    /// Reads `calls=2,usec=10,usec_per_call=5.00,rejected_calls=0,failed_calls=1`.
    fn parse(fields: &str) -> Self {
        let field = |name: &str| {
            let mut fields = fields.split(',').filter_map(|field| field.split_once('='));
            let value = fields
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.parse());
            value.and_then(Result::ok).unwrap_or_default()
        };
        Self {
            calls: field("calls"),
            time: Duration::from_micros(field("usec")),
            rejected: field("rejected_calls"),
            failed: field("failed_calls"),
        }
    }
}

/// A free loopback port that nobody else is given, also while nothing listens on it.
///
/// A socket is bound to it and never listens: the kernel hands the port to nobody who asks for a
/// free one, refuses connections to it, and lets a server bind it too, which sets `SO_REUSEADDR` as
/// servers do. (That is so on Linux. Elsewhere the port is merely chosen, and could be taken.)
#[derive(Debug)]
pub(crate) struct Port {
    _reservation: Option<TcpSocket>,
    address: SocketAddr,
}

impl Port {
    pub(crate) fn reserve() -> Self {
        let reserve = || {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
            let address = socket.local_addr()?;
            let _reservation = cfg!(target_os = "linux").then_some(socket);
            io::Result::Ok(Self {
                _reservation,
                address,
            })
        };
        reserve().expect("a port can be reserved")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}
