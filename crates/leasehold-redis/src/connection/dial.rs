//! Opens connections to servers; no other code does.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::select_ok;
use futures_util::stream::FuturesUnordered;
use leasehold_store::fork::NotInherited;
use leasehold_store::sync::timeout;
use leasehold_store::{ErrorKind, StoreError};
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{RedisResult, Value};
use tokio::net::{TcpStream, UnixStream, lookup_host};

use super::socket::{Socket, Stream};
use super::target::Target;
use crate::errors;
use crate::options::RedisAddress;

/// After how long without a sign of life a peer is asked for one, and how often then.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(5));

/// Opens a connection and logs in. `resp3`: speaks RESP3; else the server sends no pushes.
pub(super) async fn dial(target: &Target, resp3: bool) -> RedisResult<Socket> {
    let opened = timeout(target.opening, async {
        let socket = Socket::start(open(target).await?, target.answer, target.push.clone());
        login(&socket, target, resp3).await?;
        Ok(socket)
    });
    let late = || Err(io::Error::from(io::ErrorKind::TimedOut).into());
    opened.await.unwrap_or_else(|_| late())
}

async fn login(socket: &Socket, target: &Target, resp3: bool) -> RedisResult<()> {
    let login = &target.login;
    let mut greeting = redis::pipe();
    if resp3 {
        greeting.cmd("HELLO").arg(3);
    }
    if let Some(password) = login.password() {
        let user = login.username();
        match resp3 {
            true => greeting.arg("AUTH").arg(user.unwrap_or("default")),
            false => greeting.cmd("AUTH").arg(user),
        };
        greeting.arg(password);
    }
    if login.db() != 0 {
        greeting.cmd("SELECT").arg(login.db());
    }
    for answer in socket.ask_all(greeting.cmd_iter()).await? {
        if let Value::ServerError(error) = answer {
            return Err(errors::of_greeting(error));
        }
    }
    Ok(())
}

/// Opens a connection.
pub(super) async fn open(target: &Target) -> io::Result<Stream> {
    #[cfg(feature = "simulation")]
    if let Some(dialled) = simulated(&target.address) {
        return Ok(Stream::new(tokio::io::split(dialled.await?), None));
    }
    match &target.address {
        RedisAddress::Tcp { host, port, .. } => {
            let stream = tcp(host, *port, target.answer).await?;
            #[cfg(feature = "tls")]
            if let Some(config) = target.tls.clone() {
                let name = rustls::pki_types::ServerName::try_from(host.clone());
                let name = name.map_err(io::Error::other)?;
                let stream = tokio_rustls::TlsConnector::from(config).connect(name, stream);
                let stream = stream.await?;
                let not_inherited = NotInherited::connection(stream.get_ref().0.as_fd());
                return Ok(Stream::new(tokio::io::split(stream), not_inherited));
            }
            let not_inherited = NotInherited::connection(stream.as_fd());
            Ok(Stream::new(stream.into_split(), not_inherited))
        }
        RedisAddress::Unix(path) => {
            let stream = UnixStream::connect(path).await?;
            let not_inherited = NotInherited::connection(stream.as_fd());
            Ok(Stream::new(stream.into_split(), not_inherited))
        }
        // What they name is connected to.
        RedisAddress::Sentinel(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Connects to whichever of the host's addresses answers first. `patience`: how long an answer
/// may take.
async fn tcp(host: &str, port: u16, patience: Duration) -> io::Result<TcpStream> {
    let addresses = lookup_host((host, port)).await?;
    let tries: Vec<_> = addresses
        .map(|address| Box::pin(TcpStream::connect(address)))
        .collect();
    if tries.is_empty() {
        return Err(io::Error::other(errors::NO_ADDRESS));
    }
    let (stream, _) = select_ok(tries).await?;
    stream.set_nodelay(true)?;
    let (idle, interval) = KEEPALIVE;
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(interval);
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(2 * patience))?;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = patience;
    Ok(stream)
}

/// A stream that a simulation brings.
#[cfg(feature = "simulation")]
fn simulated(address: &RedisAddress) -> Option<leasehold_store::simulation::Dialled> {
    match address {
        RedisAddress::Tcp { host, port, .. } => {
            Some(leasehold_store::simulation::world()?.dial(host, *port))
        }
        _ => None,
    }
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
    let mut failed = errors::no_connection_to("a server");
    loop {
        asked.extend(nodes.next().map(&ask));
        // The last one is waited for.
        let limit = match nodes.len() {
            0 => Duration::MAX,
            _ => HEDGE,
        };
        match timeout(limit, asked.next()).await {
            // It takes long.
            Err(_) => {}
            Ok(Some(Ok(answer))) => return Ok(answer),
            Ok(Some(Err(error))) => {
                let refused = |error: &StoreError| error.kind() != ErrorKind::Unavailable;
                if refused(&error) || !refused(&failed) {
                    failed = error;
                }
            }
            Ok(None) => return Err(failed),
        }
    }
}
