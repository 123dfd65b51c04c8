//! The contract of a store and the guarantees of the library, on a primary with Sentinels.
#![cfg(feature = "redis")]

use leasehold_testkit::deployment::Sentinels;

use crate::redis_support::case::{Case, suites};
use crate::redis_support::*;

type Shared = Sentinels;

fn start(program: Program) -> Shared {
    let server = RedisServer::builder().program(program);
    // Nothing fails here, and a busy machine must not look like it.
    let patient = Duration::from_secs(20);
    let builder = Sentinels::builder().server(server).down_after(patient);
    builder.replicas(1).start()
}

fn fresh(deployment: &'static Shared) -> Case {
    Case::at(&deployment.url(), [deployment.primary()])
}

/// A deployment for each case: some count tasks, and those that hear of fail-overs
/// must be told from those of other cases.
struct Watched(Sentinels);

#[async_trait]
impl Fixture for Watched {
    async fn client(&self) -> Arc<dyn LockStore> {
        let options = RedisOptions::from_url(&self.0.url()).expect("a good URL");
        let before = self.listeners();
        let store = RedisStore::connect(options).await.expect("the store opens");
        // The task that hears of fail-overs is there from now on, and counted as such.
        let listens = async {
            while self.listeners().is_subset(&before) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let listens = timeout(Duration::from_secs(20), listens).await;
        listens.expect("a Sentinel is listened to");
        Arc::new(store)
    }
}

impl leasehold_testkit::facade::Fixture for Watched {
    fn open_inboxes(&self) -> Option<usize> {
        let channels: Vec<String> = self.0.primary().query(&["PUBSUB", "CHANNELS", "lease*"]);
        Some(channels.len())
    }
}

impl Watched {
    /// Who listens to a Sentinel. One that has just left may still be among them.
    fn listeners(&self) -> BTreeSet<(u16, String)> {
        let mut listeners = BTreeSet::new();
        for sentinel in self.0.sentinels() {
            let clients: String = sentinel.query(&["CLIENT", "LIST"]);
            let listening = clients.lines().filter(|line| line.contains(" sub=1 "));
            let ids = listening.filter_map(|line| line.split(' ').next());
            listeners.extend(ids.map(|id| (sentinel.port(), id.to_owned())));
        }
        listeners
    }
}

suites! {
    redis: Default { contract: [contract] fresh }
    valkey: Valkey { contract: [contract] fresh }
    oldest: OldestRedis { contract: [contract] fresh }
}

mod facade {
    leasehold_testkit::facade!(@quick super::Watched(super::Sentinels::start()));
}
