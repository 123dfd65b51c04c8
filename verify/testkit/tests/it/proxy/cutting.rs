//! Connections that end.

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
        let error = end.rest().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn refuse_turns_new_ones_away_until_accept() {
    let (_server, proxy, mut old) = connected().await;
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
    let (server, proxy, mut client) = connected().await;
    let held = proxy.hold_request(|command| command.is("SET"), 1);
    client.send("SET k late").await;
    held.wait().await;
    proxy.half_open(End::Server);
    client.hears_the_end().await;
    Client::connect(&proxy).await.works().await;

    assert_eq!(value(&server, "k"), None);
    let before = proxy.counts().bytes_to_server;
    held.release();
    proxy.wait_for(|it| it.bytes_to_server > before).await;
    server.command(&["SET", "done", "yes"]);
    assert_eq!(value(&server, "k").as_deref(), Some("late"));
}
