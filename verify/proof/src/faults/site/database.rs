//! A PostgreSQL server, and the pooler in front of it if there is one.

use std::io;

use leasehold::Access;
use leasehold_store::scheme::Scheme as _;
use leasehold_testkit::postgres::{PgBouncer, Postgres, psql};
use leasehold_testkit::process::Process;
use leasehold_testkit::proxy::Proxy;

use super::pause;
use crate::faults::plan::{Fault, Which};

/// Place 0 is the server, place 1 the pooler. A proxy is in front of each.
#[derive(Debug)]
pub(super) struct Database {
    server: Postgres,
    /// With a pooler, only the sessions that listen go this way.
    direct: Proxy,
    pooler: Option<(PgBouncer, Proxy)>,
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
        }
    }

    /// Where clients find it.
    pub(super) fn url(&self, params: &str) -> String {
        let direct = self.direct.through(&self.server.url());
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

    pub(super) fn proxy(&self, which: Which) -> &Proxy {
        self.pooler(which).map_or(&self.direct, |(_, proxy)| proxy)
    }

    /// Does something to one of them, and returns when it is over.
    pub(super) async fn strike(&self, fault: Fault) {
        match fault {
            Fault::Stop(which, time) => match self.pooler(which) {
                Some((pooler, _)) => {
                    pooler.pause();
                    pause(time).await;
                    pooler.resume();
                }
                None => {
                    self.server.pause();
                    pause(time).await;
                    self.server.resume();
                }
            },
            Fault::Kill(which, time) => match self.pooler(which) {
                Some((pooler, _)) => {
                    pooler.kill();
                    pause(time).await;
                    pooler.start_again(&self.server);
                }
                None => {
                    self.server.kill();
                    pause(time).await;
                    self.server.start_again();
                }
            },
            Fault::Restart(which, _) => match self.pooler(which) {
                Some((pooler, _)) => {
                    pooler.kill();
                    pooler.start_again(&self.server);
                }
                None => {
                    self.server.stop();
                    self.server.start_again();
                }
            },
            Fault::EndSessions => {
                self.run(
                    "select pg_terminate_backend(pid) from pg_stat_activity \
                     where backend_type = 'client backend' and pid <> pg_backend_pid()",
                )
                .await;
            }
            Fault::LockTable(time) => {
                let locked = "lock table leasehold.keys in access exclusive mode";
                let seconds = format!("{}.{:03}", time / 1000, time % 1000);
                self.run(&format!(
                    "begin; {locked}; select pg_sleep({seconds}); commit"
                ))
                .await;
            }
            Fault::DeleteRecords => self.run("delete from leasehold.keys").await,
            _ => {}
        }
    }

    async fn run(&self, sql: &str) {
        let finished = Process::run(psql(&self.server.url(), sql)).await;
        assert!(finished.status.success(), "{finished}");
    }

    /// Ends all that still lasts.
    pub(super) fn heal(&self) {
        self.direct.heal();
        if let Some((_, proxy)) = &self.pooler {
            proxy.heal();
        }
    }
}
