//! PgBouncer, a pool of connections in front of a server.

use std::env;
use std::fs;
use std::net::TcpStream;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use super::{Postgres, sql_at, url};
use crate::deployment::until_blocking;
use crate::process::Daemon;
use crate::server::Port;

/// A running PgBouncer on a loopback port: one connection to the server for each transaction.
/// Killed on drop, and when the test process ends.
///
/// The program is the one that is installed, or the one named by `LEASEHOLD_PGBOUNCER`.
#[derive(Debug)]
pub struct PgBouncer {
    process: Daemon,
}

impl PgBouncer {
    /// Starts one in front of `postgres`, for all of its databases.
    pub fn start(postgres: &Postgres) -> Self {
        Self::start_with(postgres, "")
    }

    /// The same with more lines of configuration, such as `max_client_conn = 500` and
    /// `default_pool_size = 2`.
    pub fn start_with(postgres: &Postgres, config: &str) -> Self {
        let port = Port::reserve();
        let (own, server) = (port.address().port(), postgres.port());
        let lines = format!(
            "[databases]\n\
             * = host=127.0.0.1 port={server} user=postgres\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {own}\n\
             unix_socket_dir =\n\
             auth_type = any\n\
             pool_mode = transaction\n\
             {config}\n"
        );
        fs::write(file(postgres, own, "ini"), lines).expect("the configuration can be written");
        let process = Daemon::new(port, file(postgres, own, "log"), false);
        let pool = Self { process };
        pool.start_again(postgres);
        pool
    }

    /// Adds lines of configuration, which count when it is started again.
    pub fn configure(&self, postgres: &Postgres, config: &str) {
        let file = file(postgres, self.port(), "ini");
        let lines = fs::read_to_string(&file).expect("it was started with a file");
        fs::write(file, lines + config + "\n").expect("the configuration can be written");
    }

    /// Starts one that was killed again, on the same port, and returns when it accepts connections.
    /// `postgres` is its server.
    pub fn start_again(&self, postgres: &Postgres) {
        let mut command = postgres.scratch.command(program());
        command.arg(file(postgres, self.port(), "ini"));
        let launched = self.process.launch(command);
        launched.expect("pgbouncer can be started: scripts/test --install");
        until_blocking("PgBouncer to accept connections", &[], || {
            self.process.must_run();
            let connected = TcpStream::connect(self.address());
            connected.map_err(|error| format!("{error}\n{}", self.log()))
        });
    }

    /// The URL of the database `postgres`.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The URL of a database of the server; see [`Postgres::database`].
    pub fn url_of(&self, database: &str) -> String {
        url(self.address(), database)
    }

    /// As [`Postgres::sql`], through the pool.
    pub fn sql(&self, text: &str) -> String {
        sql_at(&self.url(), text)
    }
}

impl Deref for PgBouncer {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.process
    }
}

fn file(postgres: &Postgres, own: u16, ending: &str) -> PathBuf {
    postgres.scratch.path(&format!("pgbouncer-{own}.{ending}"))
}

fn program() -> PathBuf {
    let named = env::var_os("LEASEHOLD_PGBOUNCER").map(PathBuf::from);
    // Debian's place for it is not in the PATH of every user.
    let debian = Path::new("/usr/sbin/pgbouncer");
    let found = named.or_else(|| debian.exists().then(|| debian.to_owned()));
    found.unwrap_or_else(|| "pgbouncer".into())
}
