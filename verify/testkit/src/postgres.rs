//! Real PostgreSQL servers, ended with the test.
//!
//! ```no_run
//! use leasehold_testkit::postgres::{Postgres, sql_at};
//!
//! let server = Postgres::shared();
//! let url = server.url_of(&server.database()); // postgres://postgres@127.0.0.1:<port>/fresh_1
//! sql_at(&url, "create table greetings as select 'hello' as text");
//! assert_eq!(sql_at(&url, "select text from greetings"), "hello");
//! ```
//!
//! The programs are those of the newest version in `/usr/lib/postgresql`, or in the directory named
//! by `LEASEHOLD_POSTGRES_BIN`. Everything here blocks, a start for some tenths of a second; and
//! panics, with the log or with what the program says, if it cannot do what it is for.

mod pgbouncer;

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::ops::Deref;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::process::Signal;
use tokio::runtime::Builder;

use crate::deployment::until_blocking;
use crate::process::{Daemon, PATIENCE, Process};
use crate::scratch::{Owner, Scratch};
use crate::server::Port;
use crate::tls::Certificates;
pub use pgbouncer::PgBouncer;

/// A running PostgreSQL on a loopback port, in a temporary directory, with the superuser `postgres`
/// who needs no password.
///
/// It is killed on drop, and also when the test process ends without dropping it: nothing of it is
/// left. Its port is reserved for as long as the value lives, as that of a
/// [`RedisServer`](crate::server::RedisServer).
#[derive(Debug)]
pub struct Postgres {
    /// The first to be dropped.
    process: Daemon,
    scratch: Scratch,
    databases: AtomicU32,
    environment: Vec<(String, String)>,
}

impl Postgres {
    /// Starts a server whose commits are durable.
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// The same with more lines of `postgresql.conf`, such as `max_connections = 10`.
    pub fn start_with(config: &str) -> Self {
        Self::start_in(config, Vec::new())
    }

    /// The same with more variables in its environment, also when it is started again.
    pub fn start_in(config: &str, environment: Vec<(String, String)>) -> Self {
        Self::of(Self::prepare(), config, environment)
    }

    /// The same with a certificate, for connections that ask for TLS.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    pub fn start_encrypted(certificates: &Certificates) -> Self {
        let scratch = Self::prepare();
        scratch.write_secret("server.crt", &certificates.server_certificate.text);
        scratch.write_secret("server.key", &certificates.server_key.text);
        let here = |name: &str| scratch.path(name).display().to_string();
        let (certificate, key) = (here("server.crt"), here("server.key"));
        let config = format!("ssl = on\nssl_cert_file = '{certificate}'\nssl_key_file = '{key}'");
        Self::of(scratch, &config, Vec::new())
    }

    /// The data of a server that is new.
    fn prepare() -> Scratch {
        // To copy the data of a new server is faster than to make it.
        static TEMPLATE: LazyLock<Scratch> = LazyLock::new(|| {
            let scratch = scratch();
            let mut initdb = scratch.command(program("initdb"));
            initdb.args("-D data -N -A trust -U postgres -E UTF8 --no-locale".split(' '));
            output(initdb);
            scratch
        });
        let scratch = scratch();
        let mut copy = scratch.command("cp");
        copy.arg("-a").arg(TEMPLATE.path("data")).arg("data");
        output(copy);
        scratch
    }

    /// The server that the tests of this process share, each with a [`database`](Self::database) of
    /// its own. Its commits outlive the server and not the machine, whose disk nobody waits for: one
    /// that is busy takes tenths of a second for each, and leases end meanwhile.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<Postgres> = LazyLock::new(|| Postgres::start_with("fsync = off"));
        &SHARED
    }

    /// Starts a streaming replica of `primary`, which answers queries.
    pub fn replica_of(primary: &Self) -> Self {
        let scratch = scratch();
        let mut copy = scratch.command(program("pg_basebackup"));
        copy.args("-D data -R -c fast --no-sync -h 127.0.0.1 -U postgres -p".split(' '));
        copy.arg(primary.port().to_string());
        output(copy);
        Self::of(scratch, "", Vec::new())
    }

    /// Starts a server with the data that is in the directory.
    fn of(scratch: Scratch, config: &str, environment: Vec<(String, String)>) -> Self {
        let port = Port::reserve();
        let number = port.address().port();
        // Nothing outside of the directory: no socket, no shared memory with a name.
        let lines = format!(
            "\nlisten_addresses = '127.0.0.1'\n\
             port = {number}\n\
             unix_socket_directories = ''\n\
             dynamic_shared_memory_type = mmap\n\
             shared_buffers = 16MB\n\
             max_connections = 400\n\
             wal_level = replica\n\
             fsync = on\n\
             synchronous_commit = on\n\
             {config}\n"
        );
        let file = scratch.path("data/postgresql.conf");
        let file = OpenOptions::new().append(true).open(file);
        file.and_then(|mut file| file.write_all(lines.as_bytes()))
            .expect("the configuration can be written");
        let server = Self {
            process: Daemon::new(port, scratch.path("log"), true),
            scratch,
            databases: AtomicU32::new(0),
            environment,
        };
        server.start_again();
        server
    }

    /// The URL of the database `postgres`: `postgres://postgres@127.0.0.1:<port>/postgres`.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The URL of a database.
    pub fn url_of(&self, database: &str) -> String {
        url(self.address(), database)
    }

    /// Makes a fresh database, and returns its name.
    pub fn database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("fresh_{number}");
        self.sql(&format!("create database {name}"));
        name
    }

    /// Runs SQL in the database `postgres`; see [`sql_at`].
    pub fn sql(&self, text: &str) -> String {
        sql_at(&self.url(), text)
    }

    /// Shuts the server down in an orderly way (fast: it ends the sessions), and returns when it is
    /// gone.
    pub fn stop(&self) {
        self.process.signal(Signal::INT);
        self.process.wait_for_end();
    }

    /// Starts a server that is down again, on the same port, with what has been committed.
    pub fn start_again(&self) {
        let mut command = self.scratch.command(program("postgres"));
        command.args(["-D", "data"]).envs(self.environment.clone());
        let launched = self.process.launch(command);
        launched.expect("postgres can be started");
        let pid = self.pid().to_string();
        let file = self.scratch.path("data/postmaster.pid");
        until_blocking("PostgreSQL to accept connections", &[], || {
            self.process.must_run();
            // Whose file it is, and how far that one is: the previous server may have left its own.
            let status = fs::read_to_string(&file).unwrap_or_default();
            let mut lines = status.lines();
            let ready = lines.next() == Some(&pid) && lines.nth(6).map(str::trim) == Some("ready");
            ready.then_some(()).ok_or_else(|| self.log())
        });
    }
}

impl Deref for Postgres {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.process
    }
}

/// Runs SQL with `psql` and returns what it prints: a line for each row, with `|` between values.
pub fn sql_at(url: &str, text: &str) -> String {
    output(psql(url, text))
}

/// A command that runs SQL in a session of its own, then that of each further `-c`, and fails at the
/// first error.
pub fn psql(url: &str, text: &str) -> Command {
    let mut psql = Command::new(program("psql"));
    psql.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", text])
        .env("PGCONNECT_TIMEOUT", PATIENCE.as_secs().to_string());
    psql
}

fn url(server: SocketAddr, database: &str) -> String {
    format!("postgres://postgres@{server}/{database}")
}

/// A directory of PostgreSQL's user.
fn scratch() -> Scratch {
    Scratch::new("postgres", user())
}

/// The user and group of the servers, if the tests run as root, which PostgreSQL refuses to be.
fn user() -> Option<Owner> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("there are users");
    let mut users = users.lines().map(|line| line.split(':'));
    let mut found = users
        .find_map(|mut fields| (fields.next() == Some("postgres")).then(|| fields.skip(1)))
        .expect("root needs a user `postgres` to start PostgreSQL as");
    let mut number = || found.next()?.parse().ok();
    Some((number()?, number()?))
}

/// A program of PostgreSQL.
fn program(name: &str) -> PathBuf {
    static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| {
        if let Some(named) = env::var_os("LEASEHOLD_POSTGRES_BIN") {
            return named.into();
        }
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let complete = versions.flatten().map(|version| version.path().join("bin"));
        let complete = complete.filter(|programs| programs.join("postgres").is_file());
        let number = |programs: &PathBuf| {
            let version = programs.parent()?.file_name()?.to_str()?;
            version.parse::<u32>().ok()
        };
        complete.max_by_key(number).expect(
            "PostgreSQL is not in /usr/lib/postgresql: `scripts/test --install` gets it, \
             and LEASEHOLD_POSTGRES_BIN can name another directory of its programs",
        )
    });
    PROGRAMS.join(name)
}

/// Runs a command to its end, and returns what it prints.
fn output(command: Command) -> String {
    // In a thread of its own: the caller's may be that of a runtime.
    let run = thread::spawn(|| {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(Process::run(command))
    });
    let finished = run.join().unwrap_or_else(|panic| resume_unwind(panic));
    assert!(finished.status.success(), "{finished}");
    finished.stdout.trim_end().to_owned()
}
