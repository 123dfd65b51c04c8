//! The one place where a connection to a server is opened.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult};

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
    let stream = leasehold_store::simulation::dial(host, *port)?;
    let opened = tokio::time::timeout(limit, async {
        let settings = info.redis_settings();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(settings, stream.await?, config.clone()).await?;
        tokio::spawn(driver);
        Ok(connection)
    });
    let late = || Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
    Some(opened.await.unwrap_or_else(|_| late()))
}
