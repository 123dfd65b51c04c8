//! Lost connections and lost pushes.

use super::*;

#[tokio::test]
async fn a_queue_outlives_its_connection() {
    let (_server, proxy, ours, other) = proxied(lasting(), lasting()).await;

    for released_while_cut in [false, true] {
        let first = lock(&other).await;
        let token = first.token();
        let line = Line::of(&[&ours], &other, 20).await;
        let before = proxy.counts().connections;
        if released_while_cut {
            proxy.refuse();
        }
        proxy.cut();
        if released_while_cut {
            let _ = first.release().await.unwrap();
            proxy.accept();
        } else {
            proxy.wait_for(|counts| counts.connections > before).await;
            let _ = first.release().await.unwrap();
        }
        let served = line.all_served().await;
        served.assert_rising(token);
        assert_eq!(served.order.len(), 20, "nobody twice");
        let rejoined = served.rejoined;
        eprintln!("released while cut: {released_while_cut}, rejoined: {rejoined}");
        if rejoined == 0 {
            served.assert_in_order();
        } else {
            // The grant found nobody: after a second the others may go on.
            assert!(released_while_cut, "nobody loses his place");
        }
        standing(&other, 0, 0).await;
    }
}

#[tokio::test]
async fn a_grant_whose_push_was_lost_is_found_after_the_reset() {
    // No heartbeat and no lapse would find it within the limit.
    let minutes = ttl(9 * LIMIT).with_waiter_ttl(9 * LIMIT);
    let (_server, proxy, ours, other) = proxied(minutes.clone(), minutes).await;

    let (first, next) = contended(&other, &ours, KEY).await;
    sleep(ms(200)).await;
    proxy.hold(Direction::ToClient);
    let old = first.token();
    let _ = first.release().await.unwrap();
    let seen = other.inspect(KEY).await.unwrap();
    assert_eq!((seen.holders.len(), seen.waiters.len()), (1, 0), "granted");
    assert!(seen.holders[0].token > old);
    sleep(ms(200)).await;
    assert!(!next.is_finished(), "nobody has told it");
    proxy.cut();
    proxy.resume(Direction::ToClient);
    let cut = Instant::now();
    let lease = granted(next).await;
    eprintln!("found {:?} after the cut", cut.elapsed());
    assert_eq!(lease.token(), seen.holders[0].token);
    assert_eq!(lease.rejoined(), 0);
    assert!(lease.is_valid());
    leaves_nothing(lease, &other).await;
}

/// A process that was stopped finds its answers beside time-outs that are over: those count. What is
/// polled first, as this test is, has not been served by then.
#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "the thread is to stand still")]
async fn answers_that_came_while_the_process_stood_still_are_heard() {
    let server = RedisServer::start();
    for (operation, response) in [(200, 200), (200, 5_000), (5_000, 200)] {
        let proxy = Proxy::to(&server);
        let url = format!("{}?response_timeout={response}ms", proxy.url());
        let settings = Settings::default().with_operation_timeout(ms(operation));
        let client = client_with(&url, settings).await;
        let lease = lock(&client).await;
        proxy.hold(Direction::ToClient);
        let asked = proxy.counts().requests + 2;
        let mutex = client.mutex("other").unwrap();
        let locks = tokio::spawn(async move { mutex.lock().await });
        tokio::spawn(async move {
            proxy.wait_for(|counts| counts.requests >= asked).await;
            proxy.resume(Direction::ToClient);
            std::thread::sleep(ms(600));
            std::future::pending::<()>().await;
        });
        lease.renew().await.unwrap();
        assert!(locks.await.unwrap().unwrap().release().await.is_ok());
        assert_eq!(lease.release().await.unwrap(), Released::Held);
    }
}
