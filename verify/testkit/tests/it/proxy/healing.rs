//! The end of a fault.

use super::*;

#[tokio::test]
async fn heal_ends_every_fault() {
    let (_server, proxy, mut client) = connected().await;
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
    let (_server, proxy, mut client) = connected().await;
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
