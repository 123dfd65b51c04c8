//! How a deployment is to be.

use std::marker::PhantomData;
use std::time::Duration;

use super::Independent;
use crate::server::RedisServerBuilder;

/// Options for a deployment: [`Independent`] servers, [`Sentinels`](super::Sentinels) or
/// a [`Cluster`](super::Cluster).
#[derive(Debug)]
#[must_use]
pub struct DeploymentBuilder<D> {
    /// One for each of those that are independent, and one for all others.
    pub(super) servers: Vec<RedisServerBuilder>,
    pub(super) replicas: usize,
    pub(super) down_after: Duration,
    pub(super) behind_proxies: bool,
    deployment: PhantomData<D>,
}

impl<D> DeploymentBuilder<D> {
    pub(super) fn new(servers: usize, replicas: usize, down_after: Duration) -> Self {
        Self {
            servers: vec![RedisServerBuilder::default(); servers],
            replicas,
            down_after,
            behind_proxies: false,
            deployment: PhantomData,
        }
    }

    /// Makes every server like this one. Without TLS. (Sentinels are of the same program.)
    pub fn server(mut self, server: RedisServerBuilder) -> Self {
        self.servers.fill(server);
        self
    }

    /// How many replicas each primary has: two under Sentinels and one in a Cluster, unless said
    /// otherwise. Independent servers have none.
    pub fn replicas(mut self, each: usize) -> Self {
        self.replicas = each;
        self
    }

    /// How long a server does not answer before a Sentinel takes it for down, or another node of its
    /// Cluster (`cluster-node-timeout`): 1 s and 1.5 s, unless said otherwise. Much less, and a busy
    /// machine fails over by itself.
    pub fn down_after(mut self, time: Duration) -> Self {
        self.down_after = time;
        self
    }

    /// Puts a proxy in front of each server, which is what others know it by: clients, Sentinels, the
    /// nodes of its Cluster. For [`cut_off`](super::Members::cut_off), and for all other faults.
    pub fn behind_proxies(mut self) -> Self {
        self.behind_proxies = true;
        self
    }
}

impl DeploymentBuilder<Independent> {
    /// Makes one of the servers like this one.
    ///
    /// # Panics
    ///
    /// When there are not so many.
    pub fn one(mut self, at: usize, server: RedisServerBuilder) -> Self {
        self.servers[at] = server;
        self
    }
}
