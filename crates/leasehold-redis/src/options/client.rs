//! Options from what the crate `redis` connects with.

use leasehold_core::Invalid;
use redis::{Client, ConnectionAddr, ConnectionInfo};

use super::RedisOptions;

/// Takes address, database and login, and nothing else that the client was set to. One with certificates
/// of its own, or that checks none, is refused: set those of [`RedisOptions::access`].
///
/// ```
/// use leasehold::store::redis::RedisOptions;
/// let client = redis::Client::open("redis://alice:secret@host/2")?;
/// let options = RedisOptions::try_from(&client)?.prefix("app:");
/// assert_eq!(options.redacted_url(), "redis://alice:***@host:6379/2?prefix=app%3A");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl TryFrom<&Client> for RedisOptions {
    type Error = Invalid;

    fn try_from(client: &Client) -> Result<Self, Invalid> {
        client.get_connection_info().try_into()
    }
}

impl TryFrom<ConnectionInfo> for RedisOptions {
    type Error = Invalid;

    fn try_from(info: ConnectionInfo) -> Result<Self, Invalid> {
        Self::try_from(&info)
    }
}

impl TryFrom<&ConnectionInfo> for RedisOptions {
    type Error = Invalid;

    fn try_from(info: &ConnectionInfo) -> Result<Self, Invalid> {
        let mut options = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Self::tcp(host, *port),
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            } => Self::tls(host, *port),
            ConnectionAddr::Unix(path) => Self::unix(path),
            _ => {
                let why = "the certificates of an existing client cannot be read";
                let hint = "make the options of a URL, and set the certificates in `access`";
                return Err(Invalid::new(why, hint));
            }
        };
        let settings = info.redis_settings();
        options.db = settings.db();
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let (user, password) = (owned(settings.username()), owned(settings.password()));
        options.access.set_login(user, password);
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;

    /// They would be left out without a word.
    #[test]
    fn a_client_that_trusts_others_than_we_would_is_refused() {
        let client = |insecure| {
            let (host, port, tls_params) = ("h".to_owned(), 1, None);
            let address = ConnectionAddr::TcpTls {
                host,
                port,
                insecure,
                tls_params,
            };
            RedisOptions::try_from(address.into_connection_info().unwrap())
        };
        assert_eq!(client(false).unwrap().redacted_url(), "rediss://h:1/0");
        assert!(client(true).unwrap_err().message.contains("certificates"));
    }
}
