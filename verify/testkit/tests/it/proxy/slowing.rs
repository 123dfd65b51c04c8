//! What comes late.

use super::*;

const DELAY: Duration = Duration::from_millis(150);

#[tokio::test]
async fn a_delay_to_the_server_makes_requests_late() {
    let (server, proxy, mut client) = connected().await;
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
    let (server, proxy, mut client) = connected().await;
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
    let (server, proxy, mut client) = connected().await;
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
    let (server, proxy, mut client) = connected().await;
    client.send("SUBSCRIBE news").await;
    let confirmed = "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n";
    client.hears(confirmed).await;
    proxy.hold(ToClient);
    assert_eq!(server.query::<u64>(&["PUBLISH", "news", "hello"]), 1);
    client.hears_nothing().await;
    proxy.resume(ToClient);
    let message = "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nhello\r\n";
    client.hears(message).await;
}

#[tokio::test]
async fn a_held_request_arrives_even_if_its_client_has_given_up() {
    let (server, proxy, mut client) = connected().await;
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
    let (server, proxy, mut client) = connected().await;
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
    let (_server, proxy, mut client) = connected().await;
    let held = proxy.hold_request(|command| command.is("PING"), 1);
    client.send("PING").await;
    held.wait().await;
    proxy.resume(ToServer);
    client.hears("+PONG\r\n").await;
}
