//! The servers of a schedule, and how things are done to them.
#![allow(
    clippy::expect_used,
    reason = "a schedule that cannot be carried out fails with its text, as with the testkit"
)]

mod database;
mod keepers;
mod network;
mod replaced;
mod server;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use leasehold::audit::AuditRecord;
use leasehold::store::redis::{RedisOptions, RedisStore, RedlockOptions, RedlockStore};
use leasehold::{Client, Settings};
use leasehold_testkit::deployment::{Cluster, Independent, Sentinels};
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::server::{RedisServer, RedisServerBuilder};
use tokio::time::sleep;

use self::database::Database;
use self::keepers::Keepers;
use self::replaced::replace_under_sentinels;
use super::client::Algorithm;
use super::clock::{Shim, WrongClock};
use super::plan::{Deployment, Fault, Plan, Which};

/// The servers of a schedule, with a proxy in front of each.
#[derive(Debug)]
pub struct Site {
    servers: Servers,
    /// One for each server of those that go by it.
    clocks: Vec<WrongClock>,
    /// Where clients find it.
    pub(super) url: String,
    /// The first key, which decides who is the primary in a cluster.
    first: String,
}

#[derive(Debug)]
enum Servers {
    Files(PathBuf),
    One(RedisServer, Proxy),
    Sentinels(Sentinels),
    Cluster(Cluster),
    Independent(Independent),
    Postgres(Database),
    ZooKeeper(Keepers),
}

/// For how long others are told nothing but `BUSY` at most, before they are.
const BUSY_AFTER: &str = "50";

impl Site {
    /// Starts the servers of a schedule.
    ///
    /// # Errors
    /// Why clocks cannot be made.
    ///
    /// # Panics
    /// When a server does not start.
    pub async fn start(plan: &Plan, shim: &Shim, directory: &Path) -> io::Result<Self> {
        let goes_by_a_clock = match plan.deployment {
            Deployment::Server | Deployment::ServerQuarantine | Deployment::ServerAof => 1,
            Deployment::Postgres | Deployment::PostgresPooled => 1,
            it if it.is_redlock() || it.is_zookeeper() => it.servers(),
            _ => 0,
        };
        let clock = |at: usize| WrongClock::create(&directory.join(format!("clock-{at}")));
        let clocks = (0..goes_by_a_clock).map(clock);
        let clocks = clocks.collect::<io::Result<Vec<_>>>()?;
        let plain = || {
            let server = RedisServer::builder().config("lua-time-limit", BUSY_AFTER);
            // A replica whose connection was torn without a word finds out in time.
            let server = server.config("repl-ping-replica-period", "1");
            server.config("repl-timeout", "3")
        };
        let wrong = |at: usize| preloaded(plain(), shim, &clocks[at]);
        let servers = match plan.deployment {
            Deployment::Local => Servers::Files(directory.join("locks")),
            Deployment::Server | Deployment::ServerQuarantine => one(wrong(0)),
            Deployment::ServerAof => one(wrong(0).persistent()),
            Deployment::Sentinel | Deployment::Acknowledged => {
                let sentinels = Sentinels::builder().server(plain()).behind_proxies();
                Servers::Sentinels(sentinels.start())
            }
            Deployment::Cluster => {
                Servers::Cluster(Cluster::builder().server(plain()).behind_proxies().start())
            }
            it @ (Deployment::Redlock3 | Deployment::Redlock5) => {
                let all = Independent::builder(it.servers()).behind_proxies();
                let all = (0..it.servers()).fold(all, |all, at| all.one(at, wrong(at)));
                Servers::Independent(all.start())
            }
            it @ (Deployment::Postgres | Deployment::PostgresPooled) => {
                let pooled = it == Deployment::PostgresPooled;
                let environment = shim.environment(&clocks[0]);
                Servers::Postgres(Database::start(pooled, &environment))
            }
            Deployment::PostgresStandby => Servers::Postgres(Database::with_standby()),
            Deployment::Zookeeper | Deployment::ZookeeperEnsemble => {
                let environments = clocks.iter().map(|clock| shim.environment(clock));
                Servers::ZooKeeper(Keepers::start(&environments.collect::<Vec<_>>()))
            }
        };
        let first = plan.keys().first().map(|key| (*key).to_owned());
        let mut site = Self {
            servers,
            clocks,
            url: String::new(),
            first: first.unwrap_or_default(),
        };
        site.url = site.url_of(plan);
        site.mark(plan).await?;
        Ok(site)
    }

    fn url_of(&self, plan: &Plan) -> String {
        const LIMITS: &str = "connect_timeout=1s&response_timeout=1s";
        const PATIENT: &str = "connect_timeout=2s&response_timeout=3s";
        let (audit, and_audit) = match plan.algorithm {
            Algorithm::Leasehold => ("?audit=1000000", "&audit=1000000"),
            _ => ("", ""),
        };
        let limits = match plan.deployment.takes_time() {
            true => PATIENT,
            false => LIMITS,
        };
        match &self.servers {
            Servers::Files(directory) => format!("local:{}{audit}", directory.display()),
            Servers::One(_, proxy) => {
                let url = format!("{}?{limits}{and_audit}", proxy.url());
                if plan.quarantine {
                    let ttl = plan.ttl.as_millis();
                    format!("{url}&restart=quarantine&max_ttl={ttl}ms")
                } else {
                    url
                }
            }
            Servers::Postgres(database) => {
                let commit = if plan.is_unsynced() { "async" } else { "sync" };
                database.url(&format!("{limits}&commit={commit}"))
            }
            // The dead are passed over in time.
            Servers::ZooKeeper(keepers) => keepers.url(&format!("{limits}&session_timeout=1s")),
            // It takes time as well, and its clients are as impatient as those of one server.
            Servers::Cluster(cluster) => format!("{}?{LIMITS}{and_audit}", cluster.url()),
            Servers::Sentinels(sentinels) => {
                let url = format!("{}?{limits}{and_audit}", sentinels.url());
                match plan.acknowledge {
                    Some(count) => format!("{url}&acknowledge={count}&acknowledge_timeout=500ms"),
                    None => url,
                }
            }
            Servers::Independent(servers) => {
                let max = super::plan::MAX_TTL;
                let quarantine = if plan.quarantine { 2 * max } else { 0 };
                let url = servers.url();
                let limits = "connect_timeout=1s";
                format!("{url}?max_ttl={max}ms&quarantine={quarantine}ms&{limits}{and_audit}")
            }
        }
    }

    /// What the store has noted, all of it; nothing where it keeps no log.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub async fn audit_log(&self) -> io::Result<Vec<AuditRecord>> {
        if !self.url.contains("audit=") {
            return Ok(Vec::new());
        }
        let patience = Duration::from_secs(20);
        let settings = Settings::default().with_operation_timeout(patience);
        let client = Client::builder().settings(settings).store(self.patient());
        let client = client.connect().await.map_err(io::Error::other)?;
        let log = client.audit_log(None, SystemTime::UNIX_EPOCH);
        let mut log = log.map_err(io::Error::other)?;
        let mut records = Vec::new();
        loop {
            let page = log.next().await.map_err(io::Error::other)?;
            if page.is_empty() {
                return Ok(records);
            }
            records.extend(page);
        }
    }

    /// The URL, for a busy machine that may take its time.
    fn patient(&self) -> String {
        let url = self
            .url
            .replace("connect_timeout=1s", "connect_timeout=20s");
        let url = url.replace("response_timeout=1s", "response_timeout=20s");
        match self.servers {
            Servers::Independent(_) => format!("{url}&node_timeout=20s"),
            _ => url,
        }
    }

    /// Says of servers that would wait before they grant that they are new.
    async fn mark(&self, plan: &Plan) -> io::Result<()> {
        match &self.servers {
            Servers::Independent(_) => {}
            Servers::Postgres(database) => return database.make_schema().await,
            Servers::One(..) if plan.quarantine => {
                let options = RedisOptions::from_url(&self.url).map_err(io::Error::other)?;
                let marked = RedisStore::initialise(options).await;
                return marked.map(drop).map_err(io::Error::other);
            }
            _ => return Ok(()),
        }
        // Nothing is on trial yet.
        let options = RedlockOptions::from_url(&self.patient()).map_err(io::Error::other)?;
        let marked = RedlockStore::initialise(options)
            .await
            .map_err(io::Error::other)?;
        for server in marked {
            server.outcome.map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn server(&self, which: Which) -> &RedisServer {
        match (&self.servers, which) {
            (Servers::One(server, _), _) => server,
            (Servers::Independent(all), Which::At(at)) => &all[at],
            (Servers::Sentinels(all), Which::Replica(at)) => {
                let primary = all.primary_of_one().port();
                let others = all.servers().iter().filter(|it| it.port() != primary);
                let replicas: Vec<_> = others.collect();
                replicas[at % replicas.len()]
            }
            // A fault may strike in the middle of a fail-over that nobody ordered.
            (Servers::Sentinels(all), _) => all.primary_of_one(),
            (Servers::Cluster(all), Which::Replica(at)) => {
                let replicas = all.replicas_of(self.server(Which::Primary));
                replicas[at % replicas.len()]
            }
            (Servers::Cluster(all), _) => all.owner_of(self.slot(all)),
            (_, _) => unreachable!("there is no such server"),
        }
    }

    fn proxy(&self, which: Which) -> &Proxy {
        match &self.servers {
            Servers::One(_, proxy) => proxy,
            Servers::Independent(all) => all.proxy(self.server(which)),
            Servers::Sentinels(all) => all.proxy(self.server(which)),
            Servers::Cluster(all) => all.proxy(self.server(which)),
            Servers::Postgres(database) => database.proxy(which),
            Servers::ZooKeeper(keepers) => keepers.proxy(which),
            Servers::Files(_) => unreachable!("files have no network"),
        }
    }

    fn slot(&self, cluster: &Cluster) -> u16 {
        cluster.slot_of(&format!("leasehold:lock:{}", self.first))
    }

    /// Does something to the servers or the network, and returns when it is over.
    ///
    /// # Panics
    /// When a server does not do what servers do.
    pub async fn befall(&self, fault: Fault) {
        if let Servers::Sentinels(all) = &self.servers {
            // Those that had been stopped may still have to hear who it is.
            all.wait_for_primary().await;
        }
        if self.disturb(fault).await {
            return;
        }
        match (&self.servers, fault) {
            (_, Fault::StepClock(..)) => self.strike(fault).await,
            (Servers::Postgres(database), _) => database.strike(fault).await,
            (Servers::ZooKeeper(keepers), _) => keepers.strike(fault).await,
            (
                Servers::Cluster(all),
                Fault::TakeOver { .. } | Fault::MoveSlot | Fault::KillPrimary | Fault::PromoteStale,
            ) => self.replace_in_cluster(all, fault).await,
            (Servers::Sentinels(all), _) => {
                if !replace_under_sentinels(all, fault).await {
                    self.strike(fault).await;
                }
            }
            _ => self.strike(fault).await,
        }
    }

    /// Ends all that still lasts, and waits until the servers agree that all is well.
    ///
    /// # Panics
    /// When they do not.
    pub async fn heal(&self) {
        match &self.servers {
            Servers::Files(_) => {}
            Servers::One(_, proxy) => proxy.heal(),
            Servers::Postgres(database) => database.heal(),
            Servers::ZooKeeper(keepers) => keepers.heal().await,
            Servers::Independent(all) => all.servers().iter().for_each(|it| all.proxy(it).heal()),
            Servers::Sentinels(all) => {
                all.servers().iter().for_each(|it| all.proxy(it).heal());
                all.wait_for_primary().await;
                all.wait_for_replicas().await;
            }
            Servers::Cluster(all) => {
                all.nodes().iter().for_each(|it| all.proxy(it).heal());
                all.wait_until_ok().await;
            }
        }
    }
}

fn preloaded(builder: RedisServerBuilder, shim: &Shim, clock: &WrongClock) -> RedisServerBuilder {
    let variables = shim.environment(clock);
    variables.iter().fold(builder, |builder, (name, value)| {
        builder.environment(name, value)
    })
}

fn one(builder: RedisServerBuilder) -> Servers {
    let server = builder.start();
    let proxy = Proxy::to(&server);
    Servers::One(server, proxy)
}

async fn pause(millis: u64) {
    sleep(Duration::from_millis(millis)).await;
}
