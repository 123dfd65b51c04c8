//! ZooKeeper: one server, or three that elect a leader. A proxy is in front of each.

use std::sync::Arc;

use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::zookeeper::Ensemble;
use tokio::task::spawn_blocking;
use zookeeper_client::{Client, Error};

use super::pause;
use crate::faults::plan::{Data, Fault, Which};

#[derive(Debug)]
pub(super) struct Keepers {
    servers: Arc<Ensemble>,
    proxies: Vec<Proxy>,
}

/// Where the keys are.
const KEYS: &str = "/leasehold/keys";

type Environment = [(String, String); 2];

impl Keepers {
    /// Starts as many servers as there are environments: one, or three.
    pub(super) fn start(environments: &[Environment]) -> Self {
        let each = environments.iter().map(|environment| environment.to_vec());
        let servers = Ensemble::start_parting(each.collect());
        let places = 0..environments.len();
        let proxies = places.map(|at| Proxy::start(servers.server(at).address()));
        Self {
            proxies: proxies.collect(),
            servers: Arc::new(servers),
        }
    }

    /// Where clients find it.
    pub(super) fn url(&self, params: &str) -> String {
        let hosts = self.proxies.iter().map(|proxy| proxy.address().to_string());
        let hosts: Vec<_> = hosts.collect();
        format!("zookeeper://{}?{params}", hosts.join(","))
    }

    pub(super) fn proxy(&self, which: Which) -> &Proxy {
        &self.proxies[place(which)]
    }

    /// Does something to a server, and returns when it is over.
    pub(super) async fn strike(&self, fault: Fault) {
        match fault {
            Fault::Stop(which, time) => self.stop(place(which), async || pause(time).await).await,
            Fault::Kill(which, time) => {
                let meanwhile = async || pause(time).await;
                self.kill(place(which), Data::Kept, meanwhile).await;
            }
            Fault::Restart(which, data) => self.kill(place(which), data, async || {}).await,
            Fault::KillPrimary => {
                let leader = self.led().await;
                self.kill(leader, Data::Kept, async || self.led().await)
                    .await;
            }
            Fault::StopPrimary => {
                let leader = self.led().await;
                self.stop(leader, async || self.led().await).await;
            }
            Fault::Part(which, time) => self.part(place(which), async || pause(time).await).await,
            Fault::CutOffPrimary => {
                let leader = self.led().await;
                self.part(leader, async || self.led().await).await;
            }
            Fault::DeleteRecords => self.delete_keys().await.expect("keys can be deleted"),
            _ => {}
        }
    }

    async fn stop<T>(&self, at: usize, meanwhile: impl AsyncFnOnce() -> T) {
        self.servers.server(at).pause();
        meanwhile().await;
        self.servers.server(at).resume();
    }

    async fn part<T>(&self, at: usize, meanwhile: impl AsyncFnOnce() -> T) {
        self.servers.part(at);
        meanwhile().await;
        self.servers.join();
    }

    /// A server takes a second to start, in which others go on.
    async fn kill<T>(&self, at: usize, data: Data, meanwhile: impl AsyncFnOnce() -> T) {
        self.servers.server(at).kill();
        meanwhile().await;
        if data == Data::Lost {
            self.servers.server(at).lose_data();
        }
        let servers = self.servers.clone();
        let started = spawn_blocking(move || servers.start_again(at)).await;
        started.expect("the server starts");
    }

    /// Waits until there is a leader, and returns its place.
    async fn led(&self) -> usize {
        self.servers.until_led().await
    }

    /// Deletes the nodes of all keys, one by one as somebody would who tidies up.
    async fn delete_keys(&self) -> Result<(), Error> {
        let client = Client::connect(&self.servers.hosts()).await?;
        for name in children(&client, KEYS).await? {
            delete(&client, &format!("{KEYS}/{name}")).await?;
        }
        Ok(())
    }

    /// Ends all that still lasts.
    pub(super) async fn heal(&self) {
        self.proxies.iter().for_each(Proxy::heal);
        self.led().await;
    }
}

/// None where it is gone, or the server has lost its data.
async fn children(client: &Client, path: &str) -> Result<Vec<String>, Error> {
    match client.list_children(path).await {
        Err(Error::NoNode) => Ok(Vec::new()),
        names => names,
    }
}

/// Deletes it with what is in it: locks go on meanwhile, and may add to it.
async fn delete(client: &Client, path: &str) -> Result<(), Error> {
    let mut deleted = client.delete(path, None).await;
    for _ in 0..100 {
        if !matches!(deleted, Err(Error::NotEmpty)) {
            break;
        }
        for name in children(client, path).await? {
            let _gone_or_not: Result<(), Error> =
                client.delete(&format!("{path}/{name}"), None).await;
        }
        deleted = client.delete(path, None).await;
    }
    match deleted {
        Err(Error::NoNode) => Ok(()),
        deleted => deleted,
    }
}

/// The place of a server that a fault names; the leader is found when it is struck.
fn place(which: Which) -> usize {
    match which {
        Which::At(at) => at,
        Which::Primary | Which::Replica(_) => unreachable!("servers are named by their places"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold::Settings;

    use super::*;
    use crate::faults::clock::{Shim, WrongClock};

    /// Its clients reach it all the time, and it believes for a while that it leads.
    #[tokio::test]
    async fn a_leader_that_is_cut_off_from_the_others_is_followed_by_another() {
        let directory = tempfile::tempdir().unwrap();
        let shim = Shim::compile(directory.path()).unwrap();
        let environments = [0, 1, 2].map(|at| {
            let clock = WrongClock::create(&directory.path().join(format!("clock-{at}")));
            shim.environment(&clock.unwrap())
        });
        let keepers = Keepers::start(&environments);
        let leader = keepers.led().await;
        let old = keepers.servers.server(leader).url();
        let held = leasehold::connect(&old).await.unwrap();
        let lease = held.mutex("k").unwrap().with_ttl(Duration::from_secs(3));
        let lease = lease.lock().await.unwrap();
        keepers
            .part(leader, async || {
                let next = keepers.led().await;
                assert_ne!(next, leader);
                let other = keepers.servers.server(next).url();
                let other = leasehold::connect(&other).await.unwrap();
                let taken = other.mutex("k").unwrap().lock().await.unwrap();
                assert!(!lease.is_valid() && taken.token() > lease.token());
            })
            .await;
        keepers.led().await;
        assert!(held.mutex("k").unwrap().lock().await.unwrap().is_valid());
    }

    /// Whoever has last heard the time before it stepped back believes it to be later than it is.
    #[tokio::test]
    async fn a_lease_is_kept_where_the_clock_of_the_server_has_stepped_back() {
        let directory = tempfile::tempdir().unwrap();
        let shim = Shim::compile(directory.path()).unwrap();
        let clock = WrongClock::create(&directory.path().join("clock")).unwrap();
        let keepers = Keepers::start(&[shim.environment(&clock)]);
        let url = keepers.url("session_timeout=30s&connect_timeout=30s");
        let client = async || {
            let settings = Settings::default().with_ttl(Duration::from_secs(2));
            let builder = leasehold::Client::builder().settings(settings);
            builder.store(&url).connect().await.unwrap()
        };
        let early = client().await;
        clock.step_to(-5_000_000).unwrap();
        let late = client().await;
        let lease = late.mutex("k").unwrap().lock().await.unwrap();
        let taken = early.mutex("k").unwrap().try_lock().await.unwrap();
        assert!(taken.is_none(), "{taken:?} beside {lease:?}");
    }
}
