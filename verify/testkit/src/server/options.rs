//! How a server is to be, and the configuration file that says so.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use super::port::Port;
use super::{ADMIN, ADMIN_PASSWORD, ClientCertificate, Program, RedisServer};
use crate::process::Daemon;
use crate::scratch::Scratch;
use crate::tls::Certificates;

/// Options for a [`RedisServer`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct RedisServerBuilder {
    pub(crate) program: Program,
    pub(super) arguments: Vec<&'static str>,
    pub(super) on_start: Vec<&'static str>,
    pub(super) environment: Vec<(String, String)>,
    pub(super) persistent: bool,
    pub(crate) password: Option<String>,
    tls: Option<ClientCertificate>,
    cluster: bool,
    config: Vec<String>,
    pub(super) patience: Option<Duration>,
}

impl RedisServerBuilder {
    /// Another program than [`Program::Default`].
    pub fn program(mut self, program: impl Into<Program>) -> Self {
        self.program = program.into();
        self
    }

    /// Keeps every write on disk before it is answered: an append-only file, synced always. Such a
    /// server finds its data again after a [`kill`](RedisServer::kill).
    pub fn persistent(mut self) -> Self {
        self.persistent = true;
        self
    }

    /// Asks the default user for a password (`requirepass`), which [`RedisServer::url`] then
    /// carries: letters and digits, please.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.config("requirepass", password)
    }

    /// Adds a user by its rules: `user("alice", "on >secret ~app:* &app:* +@all")`. Those of
    /// `default`, for clients that do not log in, start with nothing too: `"on nopass ~* +@all"`.
    pub fn user(self, name: &str, rules: &str) -> Self {
        self.config("user", &format!("{name} {rules}"))
    }

    /// Serves TLS, and TLS only, with certificates made for this server.
    pub fn tls(mut self, clients: ClientCertificate) -> Self {
        self.tls = Some(clients);
        self
    }

    /// Follows the server of this testkit on `port`; see [`RedisServer::wait_for_replicas`].
    pub fn replica_of(self, port: u16) -> Self {
        self.config("replicaof", &format!("127.0.0.1 {port}"))
    }

    /// Any other line of the configuration file: `config("maxmemory", "2mb")`. Later lines win.
    pub fn config(mut self, directive: &str, value: &str) -> Self {
        self.config.push(format!("{directive} {value}"));
        self
    }

    /// A variable in the environment of the server, such as `LD_PRELOAD`.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Is a Sentinel, which keeps no data and speaks of other servers.
    pub fn sentinel(mut self) -> Self {
        self.arguments.push("--sentinel");
        self
    }

    /// Is a node of a Cluster. What it knows of the others is not among the data that it can lose.
    pub fn cluster(mut self) -> Self {
        self.cluster = true;
        self
    }

    /// Connects to other servers from this loopback address.
    pub(crate) fn source_address(self, address: IpAddr) -> Self {
        // Before Redis 7 it is the first one of those that are listened on.
        if self.program.is_before_7() {
            self.config("bind", &format!("{address} 127.0.0.1"))
        } else {
            self.config("bind-source-addr", &address.to_string())
        }
    }

    /// A command that the server is given after each start. An old one that does not know it goes
    /// without.
    pub(crate) fn on_start(mut self, command: &'static str) -> Self {
        self.on_start = command.split(' ').collect();
        self
    }

    /// How long to wait for a server that does not answer: [`PATIENCE`](crate::process::PATIENCE),
    /// unless said otherwise.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
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
    pub fn try_start(self) -> Result<RedisServer, String> {
        let port = if self.cluster {
            Port::reserve_with_bus()
        } else {
            Port::reserve()
        };
        self.try_start_at(port)
    }

    /// As [`Self::start`], on a port that is reserved already.
    pub(crate) fn start_at(self, port: Port) -> RedisServer {
        self.try_start_at(port)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_start_at(self, port: Port) -> Result<RedisServer, String> {
        let directory = tempfile::Builder::new()
            .prefix("redis-")
            // Redis may not be started by the user it runs as.
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in(of_this_process())
            .expect("a temporary directory can be made");
        let certificates = self.tls.map(|_| Certificates::generate(directory.path()));
        let server = RedisServer {
            process: Daemon::new(port, directory.path().join("log"), false),
            builder: self,
            directory,
            certificates,
        };
        fs::create_dir(server.data()).expect("the directory can be made");
        let file = server.directory.path().join("redis.conf");
        let written = fs::write(file, configuration(&server));
        written.expect("the configuration can be written");
        server.launch()?;
        Ok(server)
    }
}

/// The text of `redis.conf`.
fn configuration(server: &RedisServer) -> String {
    let (builder, port) = (&server.builder, server.port());
    let quoted = |path: &Path| format!("{:?}", path.display().to_string());
    let (socket, data) = (quoted(&server.socket()), quoted(&server.data()));
    // Replication among servers of this testkit: as its own user, at once, and without a copy
    // on disk that would come back after a crash.
    let mut text = format!(
        "bind 127.0.0.1\n\
         unixsocket {socket}\n\
         dir {data}\n\
         save \"\"\n\
         user {ADMIN} on >{ADMIN_PASSWORD} allkeys allchannels allcommands\n\
         masteruser {ADMIN}\n\
         masterauth {ADMIN_PASSWORD}\n\
         repl-diskless-sync-delay 0\n\
         rdb-del-sync-files yes\n"
    );
    if builder.persistent {
        text += "appendonly yes\nappendfsync always\n";
    }
    if builder.cluster {
        let known = quoted(&server.directory.path().join("nodes.conf"));
        text += &format!("cluster-enabled yes\ncluster-config-file {known}\n");
    }
    if let (Some(clients), Some(it)) = (&builder.tls, &server.certificates) {
        let asked = match clients {
            ClientCertificate::NotAsked => "no",
            ClientCertificate::Required => "yes",
        };
        let files = [&it.authority, &it.server_certificate, &it.server_key];
        let [authority, certificate, key] = files.map(|file| quoted(&file.path));
        text += &format!(
            "port 0\n\
             tls-port {port}\n\
             tls-ca-cert-file {authority}\n\
             tls-cert-file {certificate}\n\
             tls-key-file {key}\n\
             tls-auth-clients {asked}\n"
        );
    } else {
        text += &format!("port {port}\n");
    }
    text + &builder.config.join("\n") + "\n"
}

/// Where all servers of this process have their directories: those of servers that are never dropped
/// go with it, too.
fn of_this_process() -> &'static Path {
    static DIRECTORY: LazyLock<Scratch> = LazyLock::new(|| {
        let scratch = Scratch::new("redis", None);
        let readable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(scratch.directory(), readable).expect("it is ours");
        scratch
    });
    DIRECTORY.directory()
}
