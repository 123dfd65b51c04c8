//! What gets lost, and nobody is told.

use super::*;

#[tokio::test]
async fn a_black_hole_to_the_server_loses_requests_and_keeps_the_connection() {
    let (server, proxy, mut client) = connected().await;
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
    let (server, proxy, mut client) = connected().await;
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
    let (server, proxy, mut client) = connected().await;
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
        let (server, proxy, mut subscriber) = connected().await;
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
        let confirmed = heard.contains("subscribe\r\n$3\r\ntwo\r\n");
        assert!(confirmed, "{hello}: {heard}");
        assert!(!heard.to_lowercase().contains("pong"), "{hello}: {heard}");
    }
}

#[tokio::test]
async fn a_message_is_no_answer() {
    let (server, proxy, mut client) = connected().await;
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
    let (server, proxy, mut client) = connected().await;
    let lost = proxy.swallow_reply_of(|command| command.is("SUBSCRIBE"), 1);
    client.send("HELLO 3|PING|SUBSCRIBE one two").await;
    lost.wait().await;
    let heard = client.rest().await.unwrap();
    assert!(heard.ends_with("+PONG\r\n"), "{heard}");
    drop(server);
}

#[tokio::test]
async fn a_refused_subscription_is_answered_by_one_error() {
    let builder = RedisServer::builder().user("default", "on nopass ~* +@all");
    let server = builder.start();
    let proxy = Proxy::to(&server);
    let mut client = Client::connect(&proxy).await;
    let lost = proxy.swallow_reply_of(|command| command.is("PING"), 1);
    client.send("SUBSCRIBE one two|GET k|PING").await;
    lost.wait().await;
    let heard = client.rest().await.unwrap();
    let both = heard.starts_with("-NOPERM") && heard.ends_with("$-1\r\n");
    assert!(both, "{heard}");
}

#[tokio::test]
async fn several_replies_can_be_swallowed_in_a_row() {
    let (server, proxy, mut client) = connected().await;
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
    let (server, proxy, mut client) = connected().await;
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
