//! Data loss of the server.

use super::*;

/// A holder and waiters of several clients, under a server that loses the record.
async fn forgets(lose: impl FnOnce(&RedisServer)) {
    let server = RedisServer::start();
    let settings = ttl(ms(6_000));
    let ours = client_with(&server.url(), settings.clone()).await;
    let other = client_with(&server.url(), settings).await;

    let lease = lock(&ours).await;
    let line = Line::of(&[&ours, &other], &other, 6).await;
    lose(&server);
    let at = Instant::now();
    let (loss, served) = tokio::join!(soon("the loss", lease.lost()), line.all_served());
    let (took, rejoined) = (at.elapsed(), served.rejoined);
    eprintln!("all over after {took:?}, rejoined: {rejoined}");
    assert_eq!(loss, Loss::Gone);
    assert!(!lease.is_valid());
    assert_eq!(served.order.len(), 6);
    assert!(rejoined >= 6, "each has joined again: {rejoined}");
    served.assert_rising(lease.token());
    assert_eq!(lease.release().await.unwrap(), Released::AlreadyGone);
    standing(&other, 0, 0).await;

    let lease = lock(&ours).await;
    assert!(lease.token() > *served.tokens.last().unwrap());
    assert_eq!(lease.release().await.unwrap(), Released::Held);
}

fn evict(server: &RedisServer) {
    let keys: Vec<String> = server.query(&["KEYS", &format!("*lock:{KEY}")]);
    assert_eq!(keys.len(), 1);
    assert_eq!(server.query::<u64>(&["DEL", &keys[0]]), 1);
}

tests! {
    #[tokio::test]
    fn a_flushed_server_tells_its_holders_and_serves_its_waiters() {
        forgets(|server| drop(server.command(&["FLUSHALL"])))
    }
    fn a_server_that_restarts_without_data_tells_its_holders_and_serves_its_waiters() {
        forgets(|server| server.restart(Data::Lose))
    }
    fn an_evicted_record_is_told_to_its_holder_and_its_waiters_are_served() { forgets(evict) }
}

/// For comparison: with its data, a restart costs nobody anything.
#[tokio::test]
async fn a_server_that_restarts_with_its_data_goes_on_where_it_was() {
    let server = RedisServer::start();
    let (ours, other) = (client(&server.url()).await, client(&server.url()).await);
    let lease = lock(&ours).await;
    let line = Line::of(&[&ours, &other], &other, 6).await;
    server.restart(Data::Keep);
    until("a renewal", async || lease.renew().await.is_ok()).await;
    standing(&other, 1, 6).await;
    let token = lease.token();
    assert_eq!(lease.release().await.unwrap(), Released::Held);
    let served = line.all_served().await;
    served.assert_rising(token);
    assert_eq!(served.rejoined, 0);
    served.assert_in_order();
}
