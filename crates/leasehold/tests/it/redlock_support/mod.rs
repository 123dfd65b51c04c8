//! Helpers of the tests of Redlock: independent servers.

use leasehold::store::redis::{RedlockOptions, RedlockStore};
pub(crate) use leasehold_testkit::server::{Data, Program, RedisServer};

pub(crate) use crate::steps::*;

/// So many servers that are known to be new: Redis, Valkey and the oldest Redis in
/// turn, which have to agree with each other.
pub(crate) struct Set {
    pub(crate) servers: Vec<RedisServer>,
    parameters: String,
}

impl Set {
    pub(crate) async fn start(servers: usize, parameters: &str) -> Self {
        let set = Self::unmarked(servers, parameters);
        set.init().await;
        set
    }

    pub(crate) fn unmarked(servers: usize, parameters: &str) -> Self {
        Self::of(Program::ALL.into_iter().cycle().take(servers), parameters)
    }

    pub(crate) fn of(programs: impl IntoIterator<Item = Program>, parameters: &str) -> Self {
        let start = |program| RedisServer::builder().program(program).start();
        Self {
            servers: programs.into_iter().map(start).collect(),
            parameters: parameters.to_owned(),
        }
    }

    pub(crate) fn url(&self) -> String {
        let members = members(self.servers.iter().map(|it| it.port()));
        format!("redlock://{members}/?{}", self.parameters)
    }

    pub(crate) fn options(&self) -> RedlockOptions {
        RedlockOptions::from_url(&self.url()).unwrap()
    }

    pub(crate) async fn init(&self) {
        for marked in RedlockStore::initialise(self.options()).await.unwrap() {
            let (left, server) = (marked.outcome.unwrap().left(), marked.server);
            assert_eq!(left, Duration::ZERO, "{server}");
        }
    }

    pub(crate) async fn store(&self) -> RedlockStore {
        RedlockStore::connect(self.options()).await.unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        self.client_with(Settings::default()).await
    }

    pub(crate) async fn client_with(&self, settings: Settings) -> Client {
        client_with(&self.url(), settings).await
    }
}

/// The servers with these ports, as a URL names them.
pub(crate) fn members(ports: impl IntoIterator<Item = u16>) -> String {
    let members = ports.into_iter().map(|port| format!("127.0.0.1:{port}"));
    members.collect::<Vec<_>>().join(",")
}

pub(crate) fn claim(store: &RedlockStore, number: u128, ttl: Duration) -> Claim {
    Claim {
        inbox: Some(store.inbox().clone()),
        owner: ClientInfo::new("host", 7, Some("a label")),
        wait: false,
        ..Claim::new(id(number), Mode::EXCLUSIVE, ttl)
    }
}

pub(crate) fn renew(number: u128, ttl: Duration) -> Renew {
    Renew::new(id(number), ttl)
}

pub(crate) fn token(reply: impl Into<Reply>) -> Token {
    match reply.into() {
        Reply::Standing(standing) => standing.token.expect("granted"),
        other => panic!("{other:?} where a grant was due"),
    }
}
