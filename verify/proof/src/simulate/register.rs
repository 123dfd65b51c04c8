//! The resource: values that compare tokens, by the library's own script, on a server
//! that keeps its data. The way to it is disturbed like any other.

use std::time::Duration;

use leasehold::Token;
use leasehold::fence::redis as fenced;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo};
use tokio::time::{sleep, timeout};

use super::book::Outcome;
use super::chance::Chance;
use super::world::Net;

/// The resource's host.
pub(crate) const RESOURCE: &str = "resource";

const PATIENCE: Duration = Duration::from_secs(2);

/// One worker's way to the resource.
pub(crate) struct Register {
    net: Net,
    connection: Option<MultiplexedConnection>,
}

impl Register {
    pub(crate) fn new(net: Net) -> Self {
        Self {
            net,
            connection: None,
        }
    }

    async fn connection(&mut self) -> Option<&mut MultiplexedConnection> {
        if self.connection.is_none() {
            self.connection = timeout(PATIENCE, self.connect()).await.ok().flatten();
        }
        self.connection.as_mut()
    }

    async fn connect(&self) -> Option<MultiplexedConnection> {
        let stream = self.net.dial(RESOURCE).await.ok()?;
        let info = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let opened = MultiplexedConnection::new_with_config(&info, stream, config).await;
        let (connection, driver) = opened.ok()?;
        tokio::spawn(driver);
        Some(connection)
    }

    /// Claims the register with the token, reads, and writes one more: what it wrote,
    /// and what came of it.
    pub(crate) async fn add_one(
        &mut self,
        key: &str,
        token: u64,
        chance: &mut Chance,
    ) -> (u64, Outcome) {
        let register = fenced::Register::at(key);
        let Some(connection) = self.connection().await else {
            return (0, Outcome::Unknown);
        };
        let before = match register.claim(connection, Token::from(token)).await {
            Ok(before) => before,
            Err(error) => return (0, self.failed(&error)),
        };
        let next = 1 + number(before.as_deref());
        sleep(chance.mostly_short(Duration::ZERO..=Duration::from_millis(200))).await;
        let Some(connection) = self.connection().await else {
            return (next, Outcome::Unknown);
        };
        match register
            .set(connection, Token::from(token), next.to_string())
            .await
        {
            Ok(()) => (next, Outcome::Done),
            Err(error) => (next, self.failed(&error)),
        }
    }

    fn failed(&mut self, error: &fenced::Error) -> Outcome {
        if error.fenced().is_some() {
            return Outcome::Fenced;
        }
        self.connection = None;
        Outcome::Unknown
    }

    /// What is in the register; none if it cannot be asked.
    pub(crate) async fn read(&mut self, key: &str) -> Option<u64> {
        let connection = self.connection().await?;
        let stored = fenced::Register::at(key).get(connection).await.ok()?;
        Some(number(stored.value.as_deref()))
    }
}

fn number(value: Option<&[u8]>) -> u64 {
    value
        .and_then(|value| std::str::from_utf8(value).ok()?.parse().ok())
        .unwrap_or(0)
}
