//! A PostgreSQL server, and the pooler in front of it or the standby behind it if there is one.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::Access;
use leasehold_store::scheme::Scheme as _;
use leasehold_testkit::postgres::{PgBouncer, Postgres, psql};
use leasehold_testkit::process::{Daemon, Process};
use leasehold_testkit::proxy::Proxy;

use super::pause;
use crate::faults::plan::{Fault, Which};

/// Place 0 is the server, place 1 the pooler or the standby. A proxy is in front of each.
#[derive(Debug)]
pub(super) struct Database {
    server: Postgres,
    /// With a pooler, only the sessions that listen go this way.
    direct: Proxy,
    pooler: Option<(PgBouncer, Proxy)>,
    standby: Option<Box<(Postgres, Proxy)>>,
    /// Whether the standby has taken the place of the server, which is dead.
    is_replaced: AtomicBool,
}

/// A server that comes back is used at once.
const POOL: &str = "max_client_conn = 1000\nserver_login_retry = 1";

impl Database {
    pub(super) fn start(pooled: bool, environment: &[(String, String)]) -> Self {
        let server = Postgres::start_in("", environment.to_vec());
        let pooler = pooled.then(|| {
            let pooler = PgBouncer::start_with(&server, POOL);
            let proxy = Proxy::start(pooler.address());
            (pooler, proxy)
        });
        Self {
            direct: Proxy::start(server.address()),
            server,
            pooler,
            standby: None,
            is_replaced: AtomicBool::new(false),
        }
    }

    pub(super) fn with_standby() -> Self {
        let mut database = Self::start(false, &[]);
        let server = &database.server;
        let standby = Postgres::replica_of(server);
        let proxy = Proxy::start(standby.address());
        // What the standby is called does not matter. It has not been promoted yet.
        server.sql("alter system set synchronous_standby_names = '*'");
        server.sql("select pg_reload_conf()");
        database.standby = Some(Box::new((standby, proxy)));
        database
    }

    /// Where clients find it.
    pub(super) fn url(&self, params: &str) -> String {
        let direct = self.direct.through(&self.server.url());
        if let Some((_, standby)) = self.standby.as_deref() {
            let both = format!("{},{}", self.direct.address(), standby.address());
            return format!("postgres://postgres@{both}/postgres?{params}");
        }
        match &self.pooler {
            None => format!("{direct}?{params}"),
            Some((pooler, proxy)) => {
                let url = proxy.through(&pooler.url());
                format!("{url}?{params}&listen={direct}")
            }
        }
    }

    pub(super) async fn make_schema(&self) -> io::Result<()> {
        let (url, access) = (self.server.url(), Access::default());
        let made = leasehold_postgres::Postgres.initialise(&url, &access).await;
        made.map(drop).map_err(io::Error::other)
    }

    fn pooler(&self, which: Which) -> Option<&(PgBouncer, Proxy)> {
        self.pooler.as_ref().filter(|_| which == Which::At(1))
    }

    /// The server at a place; after a fail-over there is one.
    fn server(&self, which: Which) -> &Postgres {
        let is_replaced = self.is_replaced.load(Ordering::Acquire);
        match self.standby.as_deref() {
            Some((standby, _)) if is_replaced || which == Which::At(1) => standby,
            _ => &self.server,
        }
    }

    pub(super) fn proxy(&self, which: Which) -> &Proxy {
        match self.standby.as_deref() {
            Some((_, proxy)) if which == Which::At(1) => proxy,
            _ => self.pooler(which).map_or(&self.direct, |(_, proxy)| proxy),
        }
    }

    /// Lets the standby take the place of the server, which does nothing any more.
    async fn replace(&self) {
        let Some((standby, _)) = self.standby.as_deref() else {
            return;
        };
        let alone = "alter system set synchronous_standby_names = ''";
        for text in [alone, "select pg_reload_conf()", "select pg_promote()"] {
            self.run(standby, text).await;
        }
        self.is_replaced.store(true, Ordering::Release);
    }

    /// Does something to one of them, and returns when it is over.
    pub(super) async fn strike(&self, fault: Fault) {
        match fault {
            Fault::Stop(which, time) => {
                let process: &Daemon = match self.pooler(which) {
                    Some((pooler, _)) => pooler,
                    None => self.server(which),
                };
                process.pause();
                pause(time).await;
                process.resume();
            }
            Fault::Kill(which, time) => self.restart(which, |it| it.kill(), time).await,
            Fault::Restart(which, _) => self.restart(which, Postgres::stop, 0).await,
            Fault::KillPrimary | Fault::StopPrimary if self.is_replaced.load(Ordering::Acquire) => {
            }
            Fault::KillPrimary => {
                self.server.kill();
                self.replace().await;
            }
            Fault::StopPrimary => {
                self.server.pause();
                pause(500).await;
                self.replace().await;
                // Somebody sees to it that it does not come back.
                self.server.kill();
            }
            Fault::EndSessions => {
                self.run(
                    self.server(Which::At(0)),
                    "select pg_terminate_backend(pid) from pg_stat_activity \
                     where backend_type = 'client backend' and pid <> pg_backend_pid()",
                )
                .await;
            }
            Fault::LockTable(time) => {
                let locked = "lock table leasehold.keys in access exclusive mode";
                let seconds = format!("{}.{:03}", time / 1000, time % 1000);
                let text = format!("begin; {locked}; select pg_sleep({seconds}); commit");
                self.run(self.server(Which::At(0)), &text).await;
            }
            Fault::DeleteRecords => {
                let all = "delete from leasehold.keys";
                self.run(self.server(Which::At(0)), all).await;
            }
            _ => {}
        }
    }

    /// Ends one of them, and starts it again after so many milliseconds.
    async fn restart(&self, which: Which, end: fn(&Postgres), time: u64) {
        if let Some((pooler, _)) = self.pooler(which) {
            pooler.kill();
            pause(time).await;
            return pooler.start_again(&self.server);
        }
        end(self.server(which));
        pause(time).await;
        self.server(which).start_again();
    }

    async fn run(&self, server: &Postgres, sql: &str) {
        let finished = Process::run(psql(&server.url(), sql)).await;
        assert!(finished.status.success(), "{finished}");
    }

    /// Ends all that still lasts.
    pub(super) fn heal(&self) {
        self.direct.heal();
        let beside = self.pooler.iter().map(|(_, proxy)| proxy);
        let behind = self.standby.iter().map(|standby| &standby.1);
        beside.chain(behind).for_each(Proxy::heal);
    }
}
