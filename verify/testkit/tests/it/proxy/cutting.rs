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
async fn half_open_lets_a_client_talk_and_hear_nothing_not_even_an_end() {
    let (proxy, mut client, mut server) = both_ends().await;
    proxy.half_open();
    server.hears_the_end().await;
    client.send("PING").await;
    client.hears_nothing().await;
    drop(client);
    proxy.wait_for(|counts| counts.open == 0).await;
}
