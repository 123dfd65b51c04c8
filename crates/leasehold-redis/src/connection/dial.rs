//! Opens connections to servers; no other code does.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_store::{ErrorKind, StoreError};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult};
use tokio::time::timeout;

use crate::errors;

/// Opens a connection, within `limit`.
pub(crate) async fn dial(
    client: &Client,
    config: AsyncConnectionConfig,
    limit: Duration,
) -> RedisResult<MultiplexedConnection> {
    #[cfg(feature = "simulation")]
    if let Some(connection) = simulated(client, &config, limit).await {
        return connection;
    }
    let config = config.set_connection_timeout(Some(limit));
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// The same over a stream that a simulation brings.
#[cfg(feature = "simulation")]
async fn simulated(
    client: &Client,
    config: &AsyncConnectionConfig,
    limit: Duration,
) -> Option<RedisResult<MultiplexedConnection>> {
    let info = client.get_connection_info();
    let redis::ConnectionAddr::Tcp(host, port) = info.addr() else {
        return None;
    };
    let stream = leasehold_store::simulation::world()?.dial(host, *port);
    let opened = timeout(limit, async {
        let settings = info.redis_settings();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(settings, stream.await?, config.clone()).await?;
        tokio::spawn(driver);
        Ok(connection)
    });
    let late = || Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
    Some(opened.await.unwrap_or_else(|_| late()))
}

/// After this another node is asked too.
const HEDGE: Duration = Duration::from_millis(250);

/// Asks one after the other, the next as soon as one has failed or takes long.
/// The first answer, or the last refusal, or the last error.
pub(crate) async fn first_answer<A, T, F>(
    nodes: Vec<A>,
    ask: impl Fn(A) -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut nodes = nodes.into_iter();
    let mut asked = FuturesUnordered::new();
    let mut failed: Option<StoreError> = None;
    loop {
        if let Some(node) = nodes.next() {
            asked.push(ask(node));
        }
        let answer = if nodes.len() == 0 {
            asked.next().await
        } else {
            match timeout(HEDGE, asked.next()).await {
                Ok(answer) => answer,
                Err(_) => continue,
            }
        };
        match answer {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(error)) => {
                let refused = |error: &StoreError| error.kind() != ErrorKind::Unavailable;
                if refused(&error) || !failed.as_ref().is_some_and(refused) {
                    failed = Some(error);
                }
            }
            None => return Err(failed.unwrap_or_else(|| errors::no_connection(None))),
        }
    }
}
