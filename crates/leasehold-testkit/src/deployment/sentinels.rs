//! A primary with replicas, under Sentinels.

use std::time::{Duration, Instant};

use super::{listed, replication, until, until_blocking};
use crate::server::{ADMIN, ADMIN_PASSWORD, Port, RedisServer, RedisServerBuilder};

/// What the Sentinels call the primary.
const NAME: &str = "main";

/// How many Sentinels there are, and how many have to agree that the primary is down.
const SENTINELS: usize = 3;
const QUORUM: usize = 2;

/// After how long a fail-over that was ordered is ordered again.
const AGAIN: Duration = Duration::from_secs(2);

/// Waits of a Sentinel that are long in production; Redis 6.2 cannot shorten them.
const HASTE: [&str; 12] = [
    "SENTINEL",
    "DEBUG",
    // Only replicas that have answered within three of these, and five of those below, are promoted.
    "info-period",
    "500",
    "ping-period",
    "500",
    "publish-period",
    "200",
    "ask-period",
    "100",
    // A machine that tests is busy: a Sentinel that was not run for two seconds sits out for this.
    "tilt-period",
    "1000",
];

/// One primary with replicas, and three Sentinels that watch them and fail over.
///
/// A fail-over after the primary was killed takes two to three seconds: a second until it counts as
/// down (see [`SentinelsBuilder::down_after`]), and up to one more until a Sentinel begins.
///
/// The Sentinels are servers as well, that can be killed, stopped and started again.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
    password: Option<String>,
}

impl Sentinels {
    /// Starts a deployment with the defaults of [`Sentinels::builder`].
    ///
    /// # Panics
    ///
    /// When a server does not start, or they do not find each other within [`PATIENCE`](crate::process::PATIENCE).
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Options for a deployment: by default with two replicas, without passwords.
    pub fn builder() -> SentinelsBuilder {
        SentinelsBuilder {
            server: RedisServer::builder(),
            replicas: 2,
            sentinel_password: None,
            down_after: Duration::from_secs(1),
        }
    }

    /// The URL of the primary by way of the Sentinels, with the servers' password if there is one:
    /// `redis-sentinel://[:password@]127.0.0.1:<port>,…/main`. The Sentinels' own password is not
    /// in it.
    pub fn url(&self) -> String {
        let credentials = self.password.as_ref().map(|word| format!(":{word}@"));
        let sentinels = listed(&self.sentinels);
        format!(
            "redis-sentinel://{}{sentinels}/{NAME}",
            credentials.unwrap_or_default()
        )
    }

    /// What the Sentinels call the primary.
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// The primary and the replicas: first the one that was the primary at the start.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The Sentinels, in the order of the URL.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The primary, as the Sentinels see it now; it may be down.
    ///
    /// # Panics
    ///
    /// When those that are up do not agree.
    pub fn primary(&self) -> &RedisServer {
        self.named().unwrap_or_else(|why| panic!("{why}"))
    }

    /// All servers but the [`primary`](Self::primary), up or down.
    ///
    /// # Panics
    ///
    /// When the Sentinels do not agree on the primary.
    pub fn replicas(&self) -> Vec<&RedisServer> {
        let primary = self.primary().port();
        let others = self.servers.iter().filter(|it| it.port() != primary);
        others.collect()
    }

    /// Waits until all Sentinels that are up name the same primary, and it is up and one.
    ///
    /// # Panics
    ///
    /// When they do not within [`PATIENCE`](crate::process::PATIENCE).
    pub async fn wait_for_primary(&self) -> &RedisServer {
        self.until("a primary", || self.working_primary()).await
    }

    /// Waits until all Sentinels that are up name the same primary, another one than `old`, and it
    /// is up and one.
    ///
    /// # Panics
    ///
    /// When they do not within [`PATIENCE`](crate::process::PATIENCE).
    pub async fn wait_for_another_primary(&self, old: &RedisServer) -> &RedisServer {
        self.until("another primary", || self.another_primary(old))
            .await
    }

    /// Waits until every other server that is up follows the primary, and has everything that the
    /// primary had when the last of them came.
    ///
    /// # Panics
    ///
    /// When they do not within [`PATIENCE`](crate::process::PATIENCE).
    pub async fn wait_for_replicas(&self) {
        let mut goal = None;
        self.until("replicas in sync", || self.in_sync(&mut goal))
            .await;
    }

    /// Has the Sentinels promote a replica while the primary works (`SENTINEL FAILOVER`), and waits
    /// until they agree on the new one. What the old primary grants meanwhile is lost.
    ///
    /// # Panics
    ///
    /// When they do not within [`PATIENCE`](crate::process::PATIENCE).
    #[expect(
        clippy::disallowed_methods,
        reason = "no machine sleeps while it is tested"
    )]
    pub async fn fail_over(&self) -> &RedisServer {
        let old = self.primary();
        let sentinel = self.sentinels.iter().find(|it| it.is_up());
        let sentinel = sentinel.expect("a Sentinel is up");
        let mut ordered: Option<Instant> = None;
        self.until("a fail-over", || {
            let (_, port): (String, u16) = ask(sentinel, &["get-master-addr-by-name", NAME])?;
            // An attempt may come to nothing: no replica has answered in time, say.
            if port == old.port() && ordered.is_none_or(|at| at.elapsed() > AGAIN) {
                // Refused while another fail-over is under way.
                let _: String = ask(sentinel, &["failover", NAME])?;
                ordered = Some(Instant::now());
            }
            self.another_primary(old)
        })
        .await
    }

    /// Has the Sentinels prefer this server at the next fail-over (its priority is 1, that of all
    /// others that are up 100), and waits until they know: up to ten seconds with Redis 6.2.
    ///
    /// # Panics
    ///
    /// When they do not within [`PATIENCE`](crate::process::PATIENCE).
    pub async fn prefer(&self, server: &RedisServer) {
        let up = || self.servers.iter().filter(|it| it.is_up());
        let priority = |it: &RedisServer| {
            if it.port() == server.port() {
                "1"
            } else {
                "100"
            }
        };
        for it in up() {
            it.command(&["CONFIG", "SET", "replica-priority", priority(it)]);
        }
        self.until("Sentinels that know whom to prefer", || {
            let primary = self.named()?.port();
            for sentinel in self.sentinels.iter().filter(|it| it.is_up()) {
                for replica in known_replicas(sentinel)? {
                    let found = up().find(|it| it.port() == replica.port && it.port() != primary);
                    if let Some(it) = found
                        && replica.priority != priority(it)
                    {
                        return Err(format!("{replica:?}"));
                    }
                }
            }
            Ok(())
        })
        .await;
    }

    async fn until<T>(&self, what: &'static str, check: impl FnMut() -> Result<T, String>) -> T {
        until(what, &[&self.servers, &self.sentinels], check).await
    }

    /// The server that all Sentinels that are up name.
    fn named(&self) -> Result<&RedisServer, String> {
        let mut named = None;
        for sentinel in self.sentinels.iter().filter(|it| it.is_up()) {
            let (_, port): (String, u16) = ask(sentinel, &["get-master-addr-by-name", NAME])?;
            if *named.get_or_insert(port) != port {
                return Err(format!("the Sentinels name {named:?} and {port}"));
            }
        }
        let port = named.ok_or("no Sentinel is up")?;
        let mut servers = self.servers.iter();
        let server = servers.find(|server| server.port() == port);
        server.ok_or_else(|| format!("the Sentinels name {port}, a stranger"))
    }

    fn working_primary(&self) -> Result<&RedisServer, String> {
        let primary = self.named()?;
        if !primary.is_up() {
            return Err(format!("{primary:?} is not up"));
        }
        let replication = replication(primary)?;
        if replication.is_primary() {
            Ok(primary)
        } else {
            Err(format!("{primary:?} is none: {replication:?}"))
        }
    }

    fn another_primary(&self, old: &RedisServer) -> Result<&RedisServer, String> {
        let primary = self.working_primary()?;
        if primary.port() == old.port() {
            return Err("it is still the old one".to_owned());
        }
        Ok(primary)
    }

    /// Whether all servers follow the primary up to `goal`: its port, and what it has.
    fn in_sync(&self, goal: &mut Option<(u16, u64)>) -> Result<(), String> {
        let primary = self.working_primary()?;
        let port = primary.port();
        let up = self.servers.iter().filter(|it| it.is_up());
        let mut reached = u64::MAX;
        for replica in up.filter(|it| it.port() != port) {
            let replication = replication(replica)?;
            if !replication.follows(port) {
                return Err(format!("{replica:?} does not follow: {replication:?}"));
            }
            reached = reached.min(replication.offset());
        }
        let now = (port, replication(primary)?.offset());
        let goal = goal.get_or_insert(now);
        if goal.0 != port {
            *goal = now;
        }
        if reached < goal.1 {
            return Err(format!("{reached} of {} bytes are there", goal.1));
        }
        Ok(())
    }

    /// Whether every Sentinel knows every other, and every replica.
    fn complete(&self) -> Result<(), String> {
        for sentinel in &self.sentinels {
            let _: String = ask(sentinel, &["ckquorum", NAME])?;
            let replicas = known_replicas(sentinel)?;
            let sound = |replica: &&Replica| replica.flags == "slave" && replica.link == "ok";
            if replicas.iter().filter(sound).count() + 1 < self.servers.len() {
                return Err(format!("{sentinel:?} knows {replicas:?}"));
            }
        }
        self.named().map(drop)
    }
}

/// A replica, as a Sentinel knows it.
#[derive(Debug, Default)]
struct Replica {
    port: u16,
    flags: String,
    link: String,
    priority: String,
}

fn known_replicas(sentinel: &RedisServer) -> Result<Vec<Replica>, String> {
    let replicas: Vec<Vec<(String, String)>> = ask(sentinel, &["replicas", NAME])?;
    let read = replicas.into_iter().map(|fields| {
        let mut replica = Replica::default();
        for (name, value) in fields {
            match name.as_str() {
                "port" => replica.port = value.parse().unwrap_or_default(),
                "flags" => replica.flags = value,
                "master-link-status" => replica.link = value,
                "slave-priority" => replica.priority = value,
                _ => {}
            }
        }
        replica
    });
    Ok(read.collect())
}

fn ask<T: redis::FromRedisValue>(sentinel: &RedisServer, what: &[&str]) -> Result<T, String> {
    let answer = sentinel.try_command(&[&["SENTINEL"], what].concat());
    let read = answer.and_then(|answer| Ok(T::from_redis_value(answer)?));
    read.map_err(|error| format!("{sentinel:?}: {error}"))
}

/// Options for [`Sentinels`].
#[derive(Clone, Debug)]
pub struct SentinelsBuilder {
    server: RedisServerBuilder,
    replicas: usize,
    sentinel_password: Option<String>,
    down_after: Duration,
}

impl SentinelsBuilder {
    /// Makes the primary and every replica like this one; the Sentinels are of the same program.
    #[must_use]
    pub fn server(mut self, server: RedisServerBuilder) -> Self {
        self.server = server;
        self
    }

    /// How many replicas follow the primary: two, unless said otherwise.
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Has the Sentinels ask their clients for a password (letters and digits, please).
    #[must_use]
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel_password = Some(password.to_owned());
        self
    }

    /// How long a server does not answer before a Sentinel takes it for down: one second, unless
    /// said otherwise. Much less, and a busy machine fails over by itself.
    #[must_use]
    pub fn down_after(mut self, time: Duration) -> Self {
        self.down_after = time;
        self
    }

    /// Starts everything and waits until the replicas are in sync, and the Sentinels know each
    /// other and them.
    ///
    /// # Panics
    ///
    /// When that does not come true within [`PATIENCE`](crate::process::PATIENCE).
    pub fn start(self) -> Sentinels {
        let primary = self.server.clone().start();
        let follower = self.server.clone().replica_of(primary.port());
        let mut servers = vec![primary];
        servers.extend((0..self.replicas).map(|_| follower.clone().start()));

        let ports: Vec<_> = (0..SENTINELS).map(|_| Port::reserve()).collect();
        let numbers: Vec<_> = ports.iter().map(|port| port.address().port()).collect();
        let sentinels = ports.into_iter().enumerate().map(|(at, port)| {
            let mut sentinel = RedisServer::builder()
                .program(self.server.program.clone())
                .sentinel()
                .on_start(&HASTE);
            if let Some(password) = &self.sentinel_password {
                sentinel = sentinel.password(password);
            }
            for line in self.lines(at, &numbers, &servers) {
                sentinel = sentinel.config("sentinel", &line);
            }
            sentinel.start_at(port)
        });
        let deployment = Sentinels {
            sentinels: sentinels.collect(),
            password: self.server.password,
            servers,
        };
        let all = [&deployment.servers[..], &deployment.sentinels];
        until_blocking("Sentinels that know all", &all, || deployment.complete());
        let mut goal = None;
        until_blocking("replicas in sync", &all, || deployment.in_sync(&mut goal));
        deployment
    }

    /// What is particular to the Sentinel at that place. It is told whom it would find by itself,
    /// which takes seconds.
    fn lines(&self, at: usize, sentinels: &[u16], servers: &[RedisServer]) -> Vec<String> {
        let down_after = self.down_after.as_millis();
        let id = |port: u16| format!("{port:040x}");
        let primary = servers[0].port();
        let mut lines = vec![
            format!("myid {}", id(sentinels[at])),
            format!("monitor {NAME} 127.0.0.1 {primary} {QUORUM}"),
            format!("down-after-milliseconds {NAME} {down_after}"),
            // A failed attempt is followed by another after twice this.
            format!("failover-timeout {NAME} {}", 2 * down_after),
            format!("parallel-syncs {NAME} {}", self.replicas.max(1)),
            format!("auth-user {NAME} {ADMIN}"),
            format!("auth-pass {NAME} {ADMIN_PASSWORD}"),
            format!("sentinel-user {ADMIN}"),
            format!("sentinel-pass {ADMIN_PASSWORD}"),
        ];
        for replica in &servers[1..] {
            lines.push(format!("known-replica {NAME} 127.0.0.1 {}", replica.port()));
        }
        for other in sentinels.iter().filter(|port| **port != sentinels[at]) {
            lines.push(format!(
                "known-sentinel {NAME} 127.0.0.1 {other} {}",
                id(*other)
            ));
        }
        lines
    }
}
