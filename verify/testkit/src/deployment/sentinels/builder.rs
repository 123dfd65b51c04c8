//! How Sentinels and their servers come to be.

use super::super::members::{Members, Reserved};
use super::super::{DeploymentBuilder, until_blocking};
use super::{NAME, Sentinels};
use crate::server::{ADMIN, ADMIN_PASSWORD, RedisServer};

/// How many Sentinels there are, and how many have to agree that the primary is down.
const SENTINELS: usize = 3;
const QUORUM: usize = 2;

/// Waits of a Sentinel that are long in production; Redis 6.2 cannot shorten them. Only replicas that
/// have answered within three of the first, and five of the second, are promoted. A machine that tests
/// is busy: a Sentinel that was not run for two seconds sits out for the last.
const HASTE: &str = "SENTINEL DEBUG info-period 500 ping-period 500 publish-period 200 \
    ask-period 100 tilt-period 1000";

impl DeploymentBuilder<Sentinels> {
    /// Starts everything and waits until the replicas are in sync, and the Sentinels know each
    /// other and them.
    ///
    /// # Panics
    ///
    /// When that does not come true within [`PATIENCE`](crate::process::PATIENCE).
    pub fn start(self) -> Sentinels {
        let server = &self.servers[0];
        let reserved = Reserved::new(1 + self.replicas, false, self.behind_proxies);
        let members = reserved.start(|known, at| match at {
            0 => server.clone(),
            _ => server.clone().replica_of(known.announced(0)),
        });
        let sentinels = Reserved::new(SENTINELS, false, false).start(|known, at| {
            let sentinel = RedisServer::builder().sentinel().on_start(HASTE);
            let sentinel = sentinel.program(server.program.clone());
            let lines = self.lines(at, known, &members).into_iter();
            lines.fold(sentinel, |sentinel, line| {
                sentinel.config("sentinel", &line)
            })
        });
        let deployment = Sentinels {
            sentinels,
            password: server.password.clone(),
            members,
        };
        let all = [deployment.servers(), deployment.sentinels()];
        until_blocking("Sentinels that know all", &all, || deployment.complete());
        let mut goal = None;
        until_blocking("replicas in sync", &all, || deployment.in_sync(&mut goal));
        deployment
    }

    /// What is particular to the Sentinel at that place. It is told whom it would find by itself,
    /// which takes seconds.
    fn lines(&self, at: usize, sentinels: &Reserved, members: &Members) -> Vec<String> {
        let down_after = self.down_after.as_millis();
        let id = |at: usize| format!("{:040x}", sentinels.announced(at));
        let primary = members.port(&members.servers()[0]);
        let replicas = members.servers().len() - 1;
        let mut lines = vec![
            format!("myid {}", id(at)),
            format!("monitor {NAME} 127.0.0.1 {primary} {QUORUM}"),
            format!("down-after-milliseconds {NAME} {down_after}"),
            // A failed attempt is followed by another after twice this.
            format!("failover-timeout {NAME} {}", 2 * down_after),
            format!("parallel-syncs {NAME} {}", replicas.max(1)),
            format!("auth-user {NAME} {ADMIN}"),
            format!("auth-pass {NAME} {ADMIN_PASSWORD}"),
            format!("sentinel-user {ADMIN}"),
            format!("sentinel-pass {ADMIN_PASSWORD}"),
        ];
        for replica in &members.servers()[1..] {
            let port = members.port(replica);
            lines.push(format!("known-replica {NAME} 127.0.0.1 {port}"));
        }
        for other in (0..SENTINELS).filter(|other| *other != at) {
            let (port, id) = (sentinels.announced(other), id(other));
            lines.push(format!("known-sentinel {NAME} 127.0.0.1 {port} {id}"));
        }
        lines
    }
}
