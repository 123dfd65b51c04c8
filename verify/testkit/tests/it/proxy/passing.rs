//! What goes through unharmed.

use super::*;

#[tokio::test]
async fn commands_and_connections_are_counted() {
    let (_server, proxy, mut first) = connected().await;
    first.send("SET k v|GET k").await;
    first.hears("+OK\r\n$1\r\nv\r\n").await;
    Client::connect(&proxy).await.works().await;

    drop(first);
    let counts = proxy
        .wait_for(|counts| counts.connections == 2 && counts.open == 0)
        .await;
    assert_eq!((counts.requests, counts.answers), (3, 3));
}

#[tokio::test]
async fn the_nth_command_of_a_kind_is_an_event() {
    let (_server, proxy, mut client) = connected().await;
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
    let (server, _proxy, mut client) = connected().await;
    client.send("PING|CLIENT KILL TYPE normal SKIPME no").await;
    assert!(client.rest().await.unwrap().starts_with("+PONG\r\n"));
    drop(server);
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
