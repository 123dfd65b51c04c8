//! A primary with replicas, under Sentinels.

mod builder;

use std::collections::HashMap;
use std::ops::Deref;
use std::time::Duration;

use tokio::time::Instant;

use super::members::Members;
use super::{DeploymentBuilder, replication, until};
use crate::server::RedisServer;

/// What the Sentinels call the primary.
const NAME: &str = "main";

/// After how long a fail-over that was ordered is ordered again.
const AGAIN: Duration = Duration::from_secs(2);

/// One primary with replicas, and three Sentinels that watch them and fail over.
///
/// A fail-over after the primary was killed takes two to three seconds: a second until it counts as
/// down (see [`DeploymentBuilder::down_after`]), and up to one more until a Sentinel begins.
///
/// The Sentinels are servers as well, that can be killed, stopped and started again.
#[derive(Debug)]
pub struct Sentinels {
    members: Members,
    sentinels: Members,
    password: Option<String>,
}

/// The port of the primary that a Sentinel names.
fn named_by(sentinel: &RedisServer) -> Result<u16, String> {
    let (_, port): (String, u16) = ask(sentinel, &["get-master-addr-by-name", NAME])?;
    Ok(port)
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
    pub fn builder() -> DeploymentBuilder<Self> {
        DeploymentBuilder::new(1, 2, Duration::from_secs(1))
    }

    /// The URL of the primary by way of the Sentinels, with the servers' password if there is one:
    /// `redis-sentinel://[:password@]127.0.0.1:<port>,…/main`.
    pub fn url(&self) -> String {
        let password = self.password.as_ref();
        self.sentinels.url("redis-sentinel", password) + NAME
    }

    /// The Sentinels, in the order of the URL.
    pub fn sentinels(&self) -> &[RedisServer] {
        self.sentinels.servers()
    }

    /// The primary, as the Sentinels see it now; it may be down.
    ///
    /// # Panics
    ///
    /// When those that are up do not agree.
    pub fn primary(&self) -> &RedisServer {
        self.named().unwrap_or_else(|why| panic!("{why}"))
    }

    /// The primary as the first Sentinel that is up sees it now: in the middle of a fail-over the
    /// others may still name another.
    ///
    /// # Panics
    ///
    /// When no Sentinel is up, or it names none of these servers.
    pub fn primary_of_one(&self) -> &RedisServer {
        let mut up = self.sentinels.up();
        let named = up.next().ok_or_else(|| "no Sentinel is up".to_owned());
        let named = named.and_then(named_by);
        let primary = named.and_then(|port| self.members.known_as(port));
        primary.unwrap_or_else(|why| panic!("{why}"))
    }

    /// All servers but the [`primary`](Self::primary), up or down.
    ///
    /// # Panics
    ///
    /// When the Sentinels do not agree on the primary.
    pub fn replicas(&self) -> Vec<&RedisServer> {
        let primary = self.primary().port();
        let others = self.servers().iter().filter(|it| it.port() != primary);
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

    /// Waits until every other server that is up and not cut off follows the primary, and has everything that the
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
    pub async fn fail_over(&self) -> &RedisServer {
        let old = self.primary();
        let sentinel = self.sentinels.up().next();
        let sentinel = sentinel.expect("a Sentinel is up");
        let mut ordered: Option<Instant> = None;
        self.until("a fail-over", || {
            let port = named_by(sentinel)?;
            // An attempt may come to nothing: no replica has answered in time, say.
            if port == self.members.port(old) && ordered.is_none_or(|at| at.elapsed() > AGAIN) {
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
        let is_it = |it: &RedisServer| it.port() == server.port();
        let priority = |it: &RedisServer| if is_it(it) { "1" } else { "100" };
        for it in self.members.reachable() {
            it.command(&["CONFIG", "SET", "replica-priority", priority(it)]);
        }
        self.until("Sentinels that know whom to prefer", || {
            let primary = self.named()?.port();
            for sentinel in self.sentinels.up() {
                for replica in known_replicas(sentinel)? {
                    let port = replica["port"].parse().unwrap_or_default();
                    let it = self.members.known_as(port)?;
                    let matters = it.is_up() && it.port() != primary;
                    if matters && replica["slave-priority"] != priority(it) {
                        return Err(format!("{replica:?}"));
                    }
                }
            }
            Ok(())
        })
        .await;
    }

    async fn until<T>(&self, what: &'static str, check: impl FnMut() -> Result<T, String>) -> T {
        until(what, &[self.servers(), self.sentinels()], check).await
    }

    /// The server that all Sentinels that are up name.
    fn named(&self) -> Result<&RedisServer, String> {
        let mut named = None;
        for sentinel in self.sentinels.up() {
            let port = named_by(sentinel)?;
            if *named.get_or_insert(port) != port {
                return Err(format!("the Sentinels name {named:?} and {port}"));
            }
        }
        self.members.known_as(named.ok_or("no Sentinel is up")?)
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
        let port = self.members.port(primary);
        let mut reached = u64::MAX;
        for replica in (self.members.reachable()).filter(|it| it.port() != primary.port()) {
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
        for sentinel in self.sentinels() {
            let _: String = ask(sentinel, &["ckquorum", NAME])?;
            let replicas = known_replicas(sentinel)?;
            let sound = |it: &&Replica| it["flags"] == "slave" && it["master-link-status"] == "ok";
            if replicas.iter().filter(sound).count() + 1 < self.servers().len() {
                return Err(format!("{sentinel:?} knows {replicas:?}"));
            }
        }
        self.named().map(drop)
    }
}

/// The primary and the replicas: first the one that was the primary at the start. A Sentinel is not behind
/// a proxy: to [`stop`](RedisServer::stop) it comes nearest to cutting it off.
impl Deref for Sentinels {
    type Target = Members;

    fn deref(&self) -> &Members {
        &self.members
    }
}

/// A replica, as a Sentinel knows it.
type Replica = HashMap<String, String>;

fn known_replicas(sentinel: &RedisServer) -> Result<Vec<Replica>, String> {
    ask(sentinel, &["replicas", NAME])
}

fn ask<T: redis::FromRedisValue>(sentinel: &RedisServer, what: &[&str]) -> Result<T, String> {
    sentinel.ask(&[&["SENTINEL"], what].concat())
}
