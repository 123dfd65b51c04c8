//! Servers that have nothing in common: what a quorum is made of.

use std::ops::Deref;
use std::time::Duration;

use super::DeploymentBuilder;
use super::members::{Members, Reserved};

/// Servers that know nothing of each other.
///
/// ```no_run
/// use leasehold_testkit::deployment::Independent;
/// use leasehold_testkit::server::Data;
///
/// let servers = Independent::start(5);
/// servers[0].kill();
/// servers[1].stop();
/// servers[2].restart(Data::Lose);
/// println!("{}", servers.url()); // redlock://127.0.0.1:…,127.0.0.1:…/
/// ```
#[derive(Debug)]
pub struct Independent {
    members: Members,
}

impl Independent {
    /// Starts so many servers with the defaults of [`Independent::builder`].
    ///
    /// # Panics
    ///
    /// When one does not start.
    pub fn start(count: usize) -> Self {
        Self::builder(count).start()
    }

    /// Options for so many servers; by default each is as
    /// [`RedisServer::builder`](crate::server::RedisServer::builder) makes it.
    pub fn builder(count: usize) -> DeploymentBuilder<Self> {
        DeploymentBuilder::new(count, 0, Duration::ZERO)
    }

    /// The URL of all of them, each with its password if it has one:
    /// `redlock://[:password@]127.0.0.1:<port>,…/`.
    pub fn url(&self) -> String {
        let each = self.servers().iter().map(|server| {
            let own = server.address().to_string();
            let announced = self.members.address(server).to_string();
            let url = server.url().replacen(&own, &announced, 1);
            let (_, place) = url.split_once("://").expect("a URL has a scheme");
            place.trim_end_matches('/').to_owned()
        });
        format!("redlock://{}/", each.collect::<Vec<_>>().join(","))
    }
}

/// In the order of the URL; `independent[0]` is the first of them.
impl Deref for Independent {
    type Target = Members;

    fn deref(&self) -> &Members {
        &self.members
    }
}

impl DeploymentBuilder<Independent> {
    /// Starts the servers and waits until they answer.
    ///
    /// # Panics
    ///
    /// When one does not start; the message has its log.
    pub fn start(self) -> Independent {
        let reserved = Reserved::new(self.servers.len(), false, self.behind_proxies);
        Independent {
            members: reserved.start(|_, at| self.servers[at].clone()),
        }
    }
}
