//! The proxy of the testkit: every fault against a real server, and seen from both ends.

mod cutting;
mod healing;
mod losing;
mod passing;
mod slowing;

use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::Duration;

use leasehold_testkit::process::PATIENCE;
use leasehold_testkit::proxy::{Direction, Peers, Proxy};
use leasehold_testkit::server::RedisServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};

use Direction::{ToClient, ToServer};

/// How long "nothing comes" is watched. Too short hides a defect now and then; it reports none that
/// is not there.
const SILENCE: Duration = Duration::from_millis(50);

/// A client that says exactly what the test says, and hears exactly what is delivered.
struct Client(TcpStream);

impl Client {
    async fn connect(proxy: &Proxy) -> Self {
        Self(TcpStream::connect(proxy.address()).await.unwrap())
    }

    /// One write, of one or several commands: `"SET k v|GET k"`.
    async fn send(&mut self, commands: &str) {
        let mut bytes = Vec::new();
        for command in commands.split('|') {
            bytes.extend_from_slice(&packed(command));
        }
        self.0.write_all(&bytes).await.unwrap();
    }

    async fn hears(&mut self, expected: &str) {
        let mut heard = vec![0; expected.len()];
        let read = timeout(PATIENCE, self.0.read_exact(&mut heard)).await;
        read.expect("an answer comes in time")
            .expect("an answer comes");
        assert_eq!(String::from_utf8_lossy(&heard), expected);
    }

    async fn hears_nothing(&mut self) {
        let mut byte = [0];
        let heard = timeout(SILENCE, self.0.read(&mut byte)).await;
        assert!(heard.is_err(), "it hears {heard:?}, {byte:?}");
    }

    async fn hears_the_end(&mut self) {
        assert_eq!(self.rest().await.unwrap(), "");
    }

    /// All that still comes, to the end.
    async fn rest(&mut self) -> std::io::Result<String> {
        let mut rest = String::new();
        let end = timeout(PATIENCE, self.0.read_to_string(&mut rest)).await;
        end.expect("the end comes in time").map(|_| rest)
    }

    async fn works(&mut self) {
        self.send("PING").await;
        self.hears("+PONG\r\n").await;
    }
}

fn packed(command: &str) -> Vec<u8> {
    let mut cmd = redis::Cmd::new();
    cmd.arg(command.split(' ').collect::<Vec<_>>());
    cmd.get_packed_command()
}

/// The sockets of both ends of a proxied connection, without a server between.
async fn both_ends() -> (Proxy, Client, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap());
    let client = Client::connect(&proxy).await;
    let (server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    (proxy, client, Client(server))
}

fn server_and_proxy() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    (server, proxy)
}

async fn connected() -> (RedisServer, Proxy, Client) {
    let (server, proxy) = server_and_proxy();
    let client = Client::connect(&proxy).await;
    (server, proxy, client)
}

fn value(server: &RedisServer, key: &str) -> Option<String> {
    server.query(&["GET", key])
}
