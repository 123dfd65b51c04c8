//! TLS, which the client crate below would bring with a second provider of cryptography (decision 13).
//! The crate connects to ports of this process on the loopback interface, one for each server, and
//! what it sends goes on to the server encrypted.
//!
//! Others on this machine reach the ports, too, and must not use the certificate or the user of this
//! client. So the crate logs in with a secret, which is replaced by the real login: who does not know
//! it gets no connection.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_store::random::random_u128;
use leasehold_store::sync::{Mutex, lock, sleep, timeout};
use leasehold_store::tls::{Trust, client_config, failure};
use leasehold_store::{ErrorKind, StoreError};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::options::{Route, ZooKeeperOptions};

/// The largest of the first messages.
const LONGEST: usize = 1024;

/// What to do about a server that does not speak TLS.
const PLAIN: &str =
    "use zookeeper:// for a port without TLS, or the port that secureClientPort names";

/// After so long a port is tried again that could take no connection.
const AGAIN: Duration = Duration::from_millis(100);

/// What the connections share.
struct Way {
    options: ZooKeeperOptions,
    /// What those who may pass know.
    secret: [u8; 16],
    /// Whether there was a session before.
    worked: bool,
    failed: Arc<Mutex<Option<StoreError>>>,
}

/// Makes the ports that the client crate connects to, one for each of these endpoints, with a secret of
/// their own. `worked`: whether there was a session before.
pub(crate) async fn open(
    options: &ZooKeeperOptions,
    endpoints: Vec<(String, String)>,
    worked: bool,
) -> Result<Route, StoreError> {
    let way = Arc::new(Way {
        options: options.clone(),
        secret: random_u128().to_be_bytes(),
        worked,
        failed: Arc::default(),
    });
    let (mut ports, mut hosts) = (JoinSet::new(), Vec::new());
    for server in endpoints {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let port = port.and_then(|port| Ok((port.local_addr()?, port)));
        let (address, port) = port.map_err(|error| {
            let message = format!("no port on the loopback interface for TLS: {error}");
            StoreError::new(ErrorKind::Unavailable, message).with_source(error)
        })?;
        hosts.push(address.to_string());
        ports.spawn(take(port, server, way.clone()));
    }
    Ok(Route {
        hosts: hosts.join(","),
        login: Some((SCHEME, way.secret.to_vec())),
        failed: way.failed.clone(),
        ports,
    })
}

/// No scheme of ZooKeeper: with it nobody could log in there by mistake.
const SCHEME: &str = "leasehold-tunnel";

/// The message with which a client logs in, with its number.
fn login(number: [u8; 4], scheme: &str, auth: &[u8]) -> Vec<u8> {
    // The type that the protocol has for it, and one that it does not use.
    let mut message = [number, [0, 0, 0, 100], [0; 4]].concat();
    for part in [scheme.as_bytes(), auth] {
        message.extend(length_of(part));
        message.extend(part);
    }
    [&length_of(&message), &*message].concat()
}

fn length_of(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes()
}

/// Reads a message, with its length.
async fn message(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length).await?;
    let size = u32::from_be_bytes(length) as usize;
    if size > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; size];
    from.read_exact(&mut message).await?;
    Ok([&length, &*message].concat())
}

/// Compares in a time that does not tell where they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differ = |all, (one, other): (&u8, &u8)| all | (one ^ other);
    one.len() == other.len() && one.iter().zip(other).fold(0, differ) == 0
}

/// Takes connections to a server: its name, and where to connect to.
async fn take(port: TcpListener, server: (String, String), way: Arc<Way>) {
    loop {
        match port.accept().await {
            Ok((near, _)) => drop(tokio::spawn(serve(near, server.clone(), way.clone()))),
            Err(error) => {
                tracing::debug!(%error, "cannot take a connection; again soon");
                sleep(AGAIN).await;
            }
        }
    }
}

async fn serve(mut near: TcpStream, (server, to): (String, String), way: Arc<Way>) {
    if let Err(error) = way.carry(&mut near, &server, &to).await {
        tracing::debug!(%server, %error, "a connection with TLS has ended");
        // Before the client crate sees the end of its connection. With TLS 1.3 a server refuses a
        // certificate only after the handshake.
        let ours = error.get_ref().and_then(|error| error.downcast_ref());
        let of_tls = || failure(&error, way.worked, PLAIN);
        if let Some(error) = ours.cloned().or_else(of_tls) {
            *lock(&way.failed) = Some(error);
        }
    }
}

impl Way {
    /// Carries what one of ours sends to the server, and back, until one of them ends.
    async fn carry(&self, near: &mut TcpStream, server: &str, to: &str) -> io::Result<()> {
        near.set_nodelay(true)?;
        let limit = self.options.connect_timeout;
        let far = timeout(limit, async {
            let (hello, shown) = (message(near).await?, message(near).await?);
            let number = shown.get(4..8).and_then(|number| number.try_into().ok());
            let number = number.unwrap_or_default();
            if !is_same(&shown, &login(number, SCHEME, &self.secret)) {
                return Err(io::Error::other("it is not of this client"));
            }
            let mut far = self.dial(server, to).await?;
            let identity = self.options.identity().await;
            let login = match identity.map_err(io::Error::other)? {
                Some(identity) => login(number, "digest", identity.as_bytes()),
                // What the servers know of every client, so that there is an answer.
                None => login(number, "ip", &[]),
            };
            far.write_all(&hello).await?;
            far.flush().await?;
            // A server can answer the login first if it does not have to wait for it, and the client
            // crate then takes that for the answer to its hello.
            near.write_all(&message(&mut far).await?).await?;
            far.write_all(&login).await?;
            far.flush().await?;
            Ok(far)
        });
        let (mut far_reader, mut far_writer) = tokio::io::split(far.await??);
        let (mut near_reader, mut near_writer) = near.split();
        let ended = tokio::select! {
            ended = copy(&mut near_reader, &mut far_writer) => ended,
            ended = copy(&mut far_reader, &mut near_writer) => ended,
        };
        ended.map(drop)
    }

    async fn dial(&self, server: &str, to: &str) -> io::Result<TlsStream<TcpStream>> {
        // The files are read each time, so that they can be renewed.
        let config = client_config(&self.options.access.tls, Trust::Authorities);
        let config = config.map_err(|error| {
            io::Error::other(match self.worked {
                // They may be about to be replaced.
                true => error.into_unavailable(),
                false => error,
            })
        })?;
        let (host, _) = server.rsplit_once(':').unwrap_or((server, ""));
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
        let name = name.map_err(|_| {
            let message = format!("no certificate can be for the host {host:?}");
            let error = StoreError::new(ErrorKind::Invalid, message);
            io::Error::other(error.with_hint("check the host in the URL"))
        })?;
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        let stream = TlsConnector::from(config).connect(name, stream).await;
        stream.map_err(|error| match error.kind() {
            // As a port without TLS does, and a server that is starting.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                let message = format!("{server} closed the connection before TLS was set up");
                let closed = StoreError::new(ErrorKind::Unavailable, message).with_hint(PLAIN);
                io::Error::other(closed.with_source(error))
            }
            _ => error,
        })
    }
}

#[cfg(test)]
mod tests;
