//! The proxy of the testkit: every fault against a real server, and seen from both ends.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "helpers of tests are tests"
)]

use std::io::ErrorKind;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use leasehold_testkit::process::{PATIENCE, Process};
use leasehold_testkit::proxy::{Direction, End, Peers, Proxy};
use leasehold_testkit::server::{ClientCertificate, RedisServer};
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

fn value(server: &RedisServer, key: &str) -> Option<String> {
    server.query(&["GET", key])
}

mod passing {
    use super::*;

    #[tokio::test]
    async fn what_a_replica_is_sent_comes_at_once() {
        let (_proxy, mut replica, mut primary) = both_ends().await;
        replica.send("PSYNC ? -1").await;
        primary
            .hears("*3\r\n$5\r\nPSYNC\r\n$1\r\n?\r\n$2\r\n-1\r\n")
            .await;
        // All data of the primary: so many bytes, and no line end behind them.
        let data = "+FULLRESYNC 4711 0\r\n$5\r\nREDIS";
        primary.0.write_all(data.as_bytes()).await.unwrap();
        replica.hears(data).await;
    }

    #[test]
    fn a_blocking_client_works_through_its_url() {
        let server = RedisServer::builder().password("secret").start();
        let proxy = Proxy::to(&server);
        assert_eq!(
            proxy.url(),
            format!("redis://:secret@127.0.0.1:{}/", proxy.port())
        );
        let mut client = redis::Client::open(proxy.url())
            .unwrap()
            .get_connection()
            .unwrap();
        redis::cmd("SET")
            .arg("k")
            .arg("v")
            .exec(&mut client)
            .unwrap();
        assert_eq!(value(&server, "k").as_deref(), Some("v"));
        assert_eq!(proxy.counts().connections, 1);
    }

    #[tokio::test]
    async fn commands_bytes_and_connections_are_counted() {
        let (_server, proxy) = server_and_proxy();
        let mut first = Client::connect(&proxy).await;
        first.send("SET k v|GET k").await;
        first.hears("+OK\r\n$1\r\nv\r\n").await;
        Client::connect(&proxy).await.works().await;

        drop(first);
        let counts = proxy
            .wait_for(|counts| counts.connections == 2 && counts.open == 0)
            .await;
        assert_eq!((counts.requests, counts.answers), (3, 3));
        let sent = packed("SET k v").len() + packed("GET k").len() + packed("PING").len();
        assert_eq!(counts.bytes_to_server, sent as u64);
        assert_eq!(
            counts.bytes_to_client,
            "+OK\r\n$1\r\nv\r\n+PONG\r\n".len() as u64
        );
    }

    #[tokio::test]
    async fn the_nth_command_of_a_kind_is_an_event() {
        let (_server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        client.send("SET orders/1 v").await;
        client.hears("+OK\r\n").await;

        let second = proxy.request(|command| command.is("set") && command.has("orders/"), 2);
        client.send("SET orders/2 v|GET orders/2|SET other v").await;
        client.hears("+OK\r\n$1\r\nv\r\n+OK\r\n").await;
        assert!(!second.has_happened());
        let mut other = Client::connect(&proxy).await;
        other.send("SET orders/3 v").await;
        second.wait().await;
        other.hears("+OK\r\n").await;
    }

    #[tokio::test]
    async fn a_command_is_seen_whole_however_it_is_sent() {
        let (_server, proxy) = server_and_proxy();
        let seen = proxy.request(
            |command| command.arguments() == [&b"GET"[..], b"a key"] && command.connection() == 1,
            1,
        );
        let mut client = Client::connect(&proxy).await;
        for byte in b"*2\r\n$3\r\nGET\r\n$5\r\na key\r\n" {
            assert!(!seen.has_happened());
            client.0.write_all(&[*byte]).await.unwrap();
        }
        client.hears("$-1\r\n").await;
        assert!(seen.has_happened());
    }

    #[tokio::test]
    async fn the_end_of_one_side_is_told_to_the_other() {
        let (_proxy, client, mut server) = both_ends().await;
        drop(client);
        server.hears_the_end().await;

        let (proxy, mut client, server) = both_ends().await;
        drop(server);
        client.hears_the_end().await;
        proxy.wait_for(|counts| counts.open == 0).await;
    }

    #[tokio::test]
    async fn what_a_server_says_before_it_ends_arrives() {
        let (server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        client.send("PING|CLIENT KILL TYPE normal SKIPME no").await;
        assert!(client.rest().await.unwrap().starts_with("+PONG\r\n"));
        drop(server);
    }

    #[tokio::test]
    async fn tls_passes_uncut() {
        let server = RedisServer::builder()
            .tls(ClientCertificate::NotAsked)
            .start();
        let proxy = Proxy::to(&server);
        assert_eq!(proxy.url(), format!("rediss://127.0.0.1:{}/", proxy.port()));
        let mut cli = Command::new("redis-cli");
        cli.args([
            "-h",
            "127.0.0.1",
            "-p",
            &proxy.port().to_string(),
            "--tls",
            "--cacert",
        ]);
        cli.arg(&server.certificates().authority.path).arg("PING");
        assert_eq!(Process::run(cli).await.stdout, "PONG\n");
        assert_eq!(proxy.counts().requests, 0);
    }

    #[tokio::test]
    async fn a_server_that_is_down_is_a_reset() {
        let (server, proxy) = server_and_proxy();
        server.kill();
        let error = match TcpStream::connect(proxy.address()).await {
            Ok(stream) => Client(stream).rest().await.unwrap_err(),
            Err(already) => already,
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        server.start_again();
        Client::connect(&proxy).await.works().await;
    }

    #[tokio::test]
    async fn drop_ends_connections_and_port() {
        let (proxy, mut client, mut server) = both_ends().await;
        let address = proxy.address();
        drop(proxy);
        client.hears_the_end().await;
        server.hears_the_end().await;
        let error = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
}

mod cutting {
    use super::*;

    #[tokio::test]
    async fn cut_ends_both_ends_of_all_and_new_ones_work() {
        let (server, proxy) = server_and_proxy();
        let (mut one, mut two) = (Client::connect(&proxy).await, Client::connect(&proxy).await);
        one.works().await;
        two.works().await;
        proxy.cut();
        assert_eq!(proxy.counts().open, 0);
        one.hears_the_end().await;
        two.hears_the_end().await;
        Client::connect(&proxy).await.works().await;
        drop(server);

        let (proxy, mut client, mut server) = both_ends().await;
        proxy.cut();
        client.hears_the_end().await;
        server.hears_the_end().await;
    }

    #[tokio::test]
    async fn cut_ends_connections_that_nobody_has_accepted_yet() {
        let (_server, proxy) = server_and_proxy();
        for _ in 0..50 {
            let mut client = Client::connect(&proxy).await;
            proxy.cut();
            client.hears_the_end().await;
        }
    }

    #[tokio::test]
    async fn reset_is_an_error_at_both_ends() {
        let (proxy, mut client, mut server) = both_ends().await;
        proxy.reset();
        for end in [&mut client, &mut server] {
            assert_eq!(
                end.rest().await.unwrap_err().kind(),
                ErrorKind::ConnectionReset
            );
        }
    }

    #[tokio::test]
    async fn refuse_turns_new_ones_away_until_accept() {
        let (_server, proxy) = server_and_proxy();
        let mut old = Client::connect(&proxy).await;
        old.works().await;
        proxy.refuse();
        let error = TcpStream::connect(proxy.address()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        old.works().await;
        proxy.accept();
        Client::connect(&proxy).await.works().await;
        assert_eq!(proxy.counts().connections, 2);
    }

    #[tokio::test]
    async fn half_open_leaves_one_end_in_the_dark() {
        // The server has vanished: the client may talk, and hears nothing, not even an end.
        let (proxy, mut client, mut server) = both_ends().await;
        proxy.half_open(End::Client);
        server.hears_the_end().await;
        client.send("PING").await;
        client.hears_nothing().await;
        drop(client);
        proxy.wait_for(|counts| counts.open == 0).await;

        // The client has vanished: the server keeps a connection that nobody uses.
        let (proxy, mut client, mut server) = both_ends().await;
        proxy.half_open(End::Server);
        client.hears_the_end().await;
        server.send("message").await;
        server.hears_nothing().await;
        drop(server);
        proxy.wait_for(|counts| counts.open == 0).await;
    }

    #[tokio::test]
    async fn half_open_spares_new_connections_and_what_is_held_for_a_server() {
        let (server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        let held = proxy.hold_request(|command| command.is("SET"), 1);
        client.send("SET k late").await;
        held.wait().await;
        proxy.half_open(End::Server);
        client.hears_the_end().await;
        Client::connect(&proxy).await.works().await;

        assert_eq!(value(&server, "k"), None);
        let before = proxy.counts().bytes_to_server;
        held.release();
        proxy
            .wait_for(|counts| counts.bytes_to_server > before)
            .await;
        server.command(&["SET", "done", "yes"]);
        assert_eq!(value(&server, "k").as_deref(), Some("late"));
    }
}

mod slowing {
    use super::*;

    const DELAY: Duration = Duration::from_millis(150);

    #[tokio::test]
    async fn a_delay_to_the_server_makes_requests_late() {
        let (server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        client.works().await;
        let seen = proxy.request(|command| command.is("SET"), 1);
        proxy.delay(ToServer, DELAY);
        let sent = Instant::now();
        client.send("SET k v").await;
        seen.wait().await;
        let on_its_way = value(&server, "k");
        // On a machine busy enough the question itself may have come later than the command.
        assert!(on_its_way.is_none() || sent.elapsed() >= DELAY);
        client.hears("+OK\r\n").await;
        assert!(sent.elapsed() >= DELAY, "{:?}", sent.elapsed());
    }

    #[tokio::test]
    async fn a_delay_to_the_client_makes_answers_late_and_keeps_their_order() {
        let (server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        client.works().await;
        proxy.delay(ToClient, DELAY);
        let sent = Instant::now();
        client.send("INCR k").await;
        proxy.wait_for(|counts| counts.answers == 2).await;
        assert_eq!(value(&server, "k").as_deref(), Some("1"));
        proxy.delay(ToClient, Duration::ZERO);
        client.send("INCR k").await;
        client.hears(":1\r\n:2\r\n").await;
        assert!(sent.elapsed() >= DELAY, "{:?}", sent.elapsed());
    }

    #[tokio::test]
    async fn what_is_held_for_the_server_arrives_late_and_in_order() {
        let (server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        client.works().await;
        proxy.hold(ToServer);
        let seen = proxy.request(|command| command.is("INCR"), 2);
        client.send("SET k 1|INCR k").await;
        client.send("INCR k").await;
        seen.wait().await;
        client.hears_nothing().await;
        assert_eq!(value(&server, "k"), None);
        proxy.resume(ToServer);
        client.hears("+OK\r\n:2\r\n:3\r\n").await;
        client.works().await;
    }

    #[tokio::test]
    async fn what_is_held_for_the_client_has_been_done() {
        let (server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        client.send("SUBSCRIBE news").await;
        client
            .hears("*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n")
            .await;
        proxy.hold(ToClient);
        assert_eq!(server.query::<u64>(&["PUBLISH", "news", "hello"]), 1);
        client.hears_nothing().await;
        proxy.resume(ToClient);
        client
            .hears("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nhello\r\n")
            .await;
    }

    #[tokio::test]
    async fn a_held_request_arrives_even_if_its_client_has_given_up() {
        let (server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        proxy.hold(ToServer);
        let seen = proxy.request(|command| command.is("SET"), 1);
        client.send("SET k late").await;
        seen.wait().await;
        drop(client);
        assert_eq!(value(&server, "k"), None);
        proxy.resume(ToServer);
        proxy.wait_for(|counts| counts.open == 0).await;
        assert_eq!(value(&server, "k").as_deref(), Some("late"));
    }

    #[tokio::test]
    async fn one_command_can_be_held_and_what_follows_it_on_its_connection() {
        let (server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        let held = proxy.hold_request(|command| command.is("SET"), 2);
        client.send("SET a 1|GET a|SET b 1|SET c 1").await;
        held.wait().await;
        client.hears("+OK\r\n$1\r\n1\r\n").await;
        client.hears_nothing().await;
        Client::connect(&proxy).await.works().await;
        assert_eq!((value(&server, "b"), value(&server, "c")), (None, None));
        held.release();
        client.hears("+OK\r\n+OK\r\n").await;
        client.works().await;
    }

    #[tokio::test]
    async fn resume_releases_a_held_command_too() {
        let (_server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        let held = proxy.hold_request(|command| command.is("PING"), 1);
        client.send("PING").await;
        held.wait().await;
        proxy.resume(ToServer);
        client.hears("+PONG\r\n").await;
    }
}

mod losing {
    use super::*;

    #[tokio::test]
    async fn a_black_hole_to_the_server_loses_requests_and_keeps_the_connection() {
        let (server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        client.works().await;
        proxy.black_hole(ToServer);
        let seen = proxy.request(|command| command.is("SET"), 1);
        client.send("SET k v").await;
        seen.wait().await;
        client.hears_nothing().await;
        assert_eq!(proxy.counts().open, 1);

        // Healed: not for the connection that has lost something.
        proxy.heal();
        client.send("SET k v").await;
        client.hears_nothing().await;
        Client::connect(&proxy).await.works().await;
        assert_eq!(value(&server, "k"), None);
        // But that it ends gets through.
        drop(client);
        proxy.wait_for(|counts| counts.open == 0).await;
    }

    #[tokio::test]
    async fn a_black_hole_to_the_client_loses_answers_of_what_was_done() {
        let (server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        client.works().await;
        proxy.black_hole(ToClient);
        client.send("SET k v").await;
        proxy.wait_for(|counts| counts.answers == 2).await;
        client.hears_nothing().await;
        assert_eq!(value(&server, "k").as_deref(), Some("v"));
        // Not even that the server ends is told.
        drop(server);
        client.hears_nothing().await;
    }

    #[tokio::test]
    async fn a_partition_concerns_some_peers_and_ends() {
        let (server, proxy) = server_and_proxy();
        let from = |address: [u8; 4]| {
            let address = IpAddr::from(address);
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind((address, 0).into()).unwrap();
            (Peers::At(address), socket.connect(proxy.address()))
        };
        let (here, one) = from([127, 0, 0, 1]);
        let (there, other) = from([127, 0, 0, 2]);
        let (mut one, mut other) = (Client(one.await.unwrap()), Client(other.await.unwrap()));
        one.works().await;
        other.works().await;
        proxy.isolate(there);
        let seen = proxy.request(|command| command.is("SET"), 1);
        other.send("SET k v").await;
        seen.wait().await;
        other.hears_nothing().await;
        let mut late = Client(from([127, 0, 0, 2]).1.await.unwrap());
        late.send("SET k v").await;
        late.hears_nothing().await;
        one.works().await;
        assert_eq!(value(&server, "k"), None);

        proxy.isolate(here);
        proxy.rejoin(there);
        assert!(other.rest().await.is_err(), "what has lost bytes is reset");
        Client(from([127, 0, 0, 2]).1.await.unwrap()).works().await;
        one.send("PING").await;
        one.hears_nothing().await;
        proxy.isolate(Peers::All);
        proxy.rejoin(Peers::All);
        assert!(one.rest().await.is_err());
        Client::connect(&proxy).await.works().await;
        assert_eq!(value(&server, "k"), None);
    }

    #[tokio::test]
    async fn a_swallowed_reply_belongs_to_a_command_that_was_executed() {
        let (server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        let lost = proxy.swallow_reply_of(|command| command.is("INCR"), 2);
        // The first is answered; the second executed; what follows it is not.
        client.send("INCR k|PING|INCR k|INCR k|SET after 1").await;
        assert_eq!(client.rest().await.unwrap(), ":1\r\n+PONG\r\n");
        lost.wait().await;
        assert_eq!(value(&server, "k").as_deref(), Some("2"));
        assert_eq!(value(&server, "after"), None);
        // Once.
        let mut again = Client::connect(&proxy).await;
        again.send("INCR k").await;
        again.hears(":3\r\n").await;
    }

    #[tokio::test]
    async fn the_answer_is_waited_for_and_found_among_pushes() {
        for hello in ["HELLO 2", "HELLO 3"] {
            let (server, proxy) = server_and_proxy();
            let mut subscriber = Client::connect(&proxy).await;
            subscriber.send(hello).await;
            let seen = proxy.request(|command| command.is("SUBSCRIBE"), 1);
            subscriber.send("SUBSCRIBE one two").await;
            seen.wait().await;
            let lost = proxy.swallow_reply_of(|command| command.is("PING"), 1);
            // Two confirmations and a message come before the answer to the ping, and arrive.
            server.stop();
            subscriber.send("PING").await;
            proxy.wait_for(|counts| counts.requests == 3).await;
            assert!(!lost.has_happened());
            server.cont();
            lost.wait().await;
            let heard = subscriber.rest().await.unwrap();
            assert!(
                heard.contains("subscribe\r\n$3\r\ntwo\r\n"),
                "{hello}: {heard}"
            );
            assert!(!heard.to_lowercase().contains("pong"), "{hello}: {heard}");
        }
    }

    #[tokio::test]
    async fn a_message_is_no_answer() {
        let (server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        client.send("HELLO 3|SUBSCRIBE news").await;
        let confirmed = async {
            while server.query::<u64>(&["PUBLISH", "news", "hello"]) == 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, confirmed).await.unwrap();
        // To its own subscriber a server sends the message first and the answer behind it.
        let lost = proxy.swallow_reply_of(|command| command.is("PUBLISH"), 1);
        client.send("PUBLISH news answer|SET k v").await;
        lost.wait().await;
        let heard = client.rest().await.unwrap();
        assert!(heard.ends_with("$6\r\nanswer\r\n"), "{heard}");
        assert_eq!(value(&server, "k"), None);
    }

    #[tokio::test]
    async fn the_answer_of_a_subscription_can_be_swallowed() {
        let (server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        let lost = proxy.swallow_reply_of(|command| command.is("SUBSCRIBE"), 1);
        client.send("HELLO 3|PING|SUBSCRIBE one two").await;
        lost.wait().await;
        let heard = client.rest().await.unwrap();
        assert!(heard.ends_with("+PONG\r\n"), "{heard}");
        drop(server);
    }

    #[tokio::test]
    async fn a_refused_subscription_is_answered_by_one_error() {
        let server = RedisServer::builder()
            .user("default", "on nopass ~* +@all")
            .start();
        let proxy = Proxy::to(&server);
        let mut client = Client::connect(&proxy).await;
        let lost = proxy.swallow_reply_of(|command| command.is("PING"), 1);
        client.send("SUBSCRIBE one two|GET k|PING").await;
        lost.wait().await;
        let heard = client.rest().await.unwrap();
        assert!(
            heard.starts_with("-NOPERM") && heard.ends_with("$-1\r\n"),
            "{heard}"
        );
    }

    #[tokio::test]
    async fn several_replies_can_be_swallowed_in_a_row() {
        let (server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        client.works().await;
        let lost = proxy.swallow_replies(2);
        client.send("INCR k").await;
        proxy.wait_for(|counts| counts.answers == 2).await;
        client.hears_nothing().await;
        assert!(!lost.has_happened());
        client.send("INCR k|INCR k").await;
        client.hears_the_end().await;
        lost.wait().await;
        assert_eq!(value(&server, "k").as_deref(), Some("2"));
    }

    #[tokio::test]
    async fn a_swallowed_request_was_not_executed_and_looks_the_same() {
        let (server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        let lost = proxy.swallow_request(|command| command.is("INCR"), 2);
        client.send("INCR k|PING|INCR k|SET after 1").await;
        assert_eq!(client.rest().await.unwrap(), ":1\r\n+PONG\r\n");
        lost.wait().await;
        assert_eq!(value(&server, "k").as_deref(), Some("1"));
        assert_eq!(value(&server, "after"), None);
        Client::connect(&proxy).await.works().await;
    }

    #[tokio::test]
    async fn a_large_answer_is_swallowed_whole() {
        let (server, proxy) = server_and_proxy();
        server.command(&["SETRANGE", "big", "3000000", "x"]);
        let mut client = Client::connect(&proxy).await;
        let lost = proxy.swallow_reply_of(|command| command.is("GET"), 2);
        client.send("GET big|GET big").await;
        lost.wait().await;
        let heard = client.rest().await.unwrap();
        assert_eq!(heard.len(), "$3000001\r\n".len() + 3_000_001 + 2);
    }
}

mod healing {
    use super::*;

    #[tokio::test]
    async fn heal_ends_every_fault() {
        let (_server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        client.works().await;
        proxy.refuse();
        proxy.hold(ToServer);
        proxy.delay(ToClient, PATIENCE);
        let never = proxy.swallow_reply_of(|command| command.is("PING"), 1);
        proxy.heal();
        client.works().await;
        Client::connect(&proxy).await.works().await;
        assert!(!never.has_happened());
    }

    #[tokio::test]
    async fn heal_delivers_what_was_held() {
        let (_server, proxy) = server_and_proxy();
        let mut client = Client::connect(&proxy).await;
        let held = proxy.hold_request(|command| command.is("PING"), 1);
        client.send("PING").await;
        held.wait().await;
        proxy.hold(ToClient);
        proxy.heal();
        client.hears("+PONG\r\n").await;
    }

    #[tokio::test]
    #[should_panic(expected = "an answer was swallowed. The proxy was healed or dropped")]
    async fn an_event_that_cannot_happen_any_more_is_not_waited_for() {
        let (_server, proxy) = server_and_proxy();
        let never = proxy.swallow_reply_of(|command| command.is("PING"), 1);
        proxy.heal();
        never.wait().await;
    }
}
