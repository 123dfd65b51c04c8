//! Runs: the hold passes from one claim of a client to the next without the server.
#![cfg(feature = "redis")]

use crate::redis_support::*;
use leasehold_testkit::server::Data;

const SOON: Duration = Duration::from_secs(20);

async fn client(server: &RedisServer) -> Client {
    client_at(&server.url()).await
}

/// A server that is stopped for a while must not end what this is about.
async fn client_at(url: &str) -> Client {
    client_with(url, Settings::default().with_operation_timeout(SOON)).await
}

/// A server, a client that holds `k`, and another.
async fn held() -> (RedisServer, Client, Client, Lease) {
    let server = RedisServer::start();
    let (holder, other) = (client(&server).await, client(&server).await);
    let lease = holder.mutex("k").unwrap().lock().await.unwrap();
    (server, holder, other, lease)
}

/// Waits for `k`, and is in line as the last of so many.
async fn waiter(of: &Client, seen_by: &Client, place: usize) -> Waiting {
    let waiter = waiting(of, "k");
    in_line(seen_by, "k", place).await;
    // Answers come in order: its own has come, too, and the server may stand still.
    let _ = of.inspect("k").await.unwrap();
    waiter
}

/// Long before a hold would lapse.
async fn lease(waiter: Waiting) -> Lease {
    timeout(SOON, granted(waiter)).await.expect("its turn")
}

#[tokio::test]
async fn a_run_goes_on_while_the_server_stands_still() {
    let (server, client_a, other, mut held) = held().await;
    let mut line = Vec::new();
    for place in 1..=3 {
        line.push(waiter(&client_a, &other, place).await);
    }
    server.stop();
    let mut releases = Vec::new();
    for waiter in line {
        let token = held.token();
        releases.push(tokio::spawn(held.release()));
        held = lease(waiter).await;
        assert!(held.is_valid() && held.token() > token);
    }
    let token = held.token();
    server.cont();
    for release in releases {
        let _ = timeout(SOON, release).await.unwrap().unwrap().unwrap();
    }
    assert!(try_lock(&other, "k").await.is_none());
    let _ = held.release().await.unwrap();
    let next = other.mutex("k").unwrap().try_lock().await.unwrap().unwrap();
    assert!(next.token() > token);
}

/// What has become of the server when a lease of a run is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    /// It does not answer, and nothing else is known of it.
    Paused,
    /// The connection is lost, and there is no other yet.
    Disconnected,
    /// There is another, and its first answers may have been of another server.
    Reconnected,
}

/// After a lost connection another server may answer, which may have granted the key to others.
#[tokio::test]
async fn a_run_goes_on_without_the_server_unless_a_connection_was_lost() {
    for state in [Server::Paused, Server::Disconnected, Server::Reconnected] {
        let server = RedisServer::start();
        // An answer that is late would lose the connection, too.
        let url = format!("{}?response_timeout=5m", server.url());
        let (client_a, other) = (client_at(&url).await, client(&server).await);
        let held = client_a.mutex("k").unwrap().lock().await.unwrap();
        let mut waiter = waiter(&client_a, &other, 1).await;
        match state {
            Server::Paused => server.stop(),
            Server::Disconnected => {
                server.shutdown(Data::Keep);
                until("the loss", async || client_a.inspect("k").await.is_err()).await;
            }
            Server::Reconnected => {
                server.restart(Data::Keep);
                until("the return", async || client_a.inspect("k").await.is_ok()).await;
                server.stop();
            }
        }
        let token = held.token();
        let release = tokio::spawn(held.release());
        let goes_on = state == Server::Paused;
        let limit = match goes_on {
            true => SOON,
            false => Duration::from_millis(200),
        };
        let early = timeout(limit, &mut waiter).await;
        assert_eq!(early.is_ok(), goes_on, "{state:?}");
        match state {
            Server::Disconnected => server.start_again(),
            Server::Paused | Server::Reconnected => server.cont(),
        }
        let released = timeout(SOON, release).await.unwrap().unwrap();
        assert_eq!(released.unwrap(), Released::Held, "{state:?}");
        let next = match early {
            Ok(next) => next.unwrap().unwrap(),
            Err(_) => lease(waiter).await,
        };
        assert!(next.token() > token, "{state:?}");
    }
}

#[tokio::test]
async fn who_comes_between_two_of_a_client_is_served_between_them() {
    let (_server, client_a, client_b, held) = held().await;
    let first = waiter(&client_a, &client_b, 1).await;
    let second = waiter(&client_b, &client_a, 2).await;
    let third = waiter(&client_a, &client_b, 3).await;
    let mut token = held.token();
    let mut next = held;
    for waiter in [first, second, third] {
        assert!(!waiter.is_finished());
        let _ = next.release().await.unwrap();
        next = lease(waiter).await;
        assert!(next.token() > token);
        token = next.token();
    }
}

/// Who knows the id of a lease may have adopted it meanwhile.
#[tokio::test]
async fn a_lease_whose_id_was_told_is_not_passed_on() {
    let (server, client_a, other, held) = held().await;
    let mut waiter = waiter(&client_a, &other, 1).await;
    drop(held.parts().unwrap());
    server.stop();
    let release = tokio::spawn(held.release());
    let early = timeout(Duration::from_millis(200), &mut waiter).await;
    assert!(early.is_err(), "the server has not said so");
    server.cont();
    let _ = release.await.unwrap().unwrap();
    drop(lease(waiter).await);
}

#[tokio::test]
async fn a_run_whose_holder_is_broken_goes_on_under_higher_tokens() {
    let (_server, client_a, other, held) = held().await;
    let first = waiter(&client_a, &other, 1).await;
    let second = waiter(&client_a, &other, 2).await;
    let broken = other.break_key("k").await.unwrap();
    assert_eq!(timeout(SOON, held.lost()).await.unwrap(), Loss::Revoked);
    let first = lease(first).await;
    assert!(first.token() > broken.token, "{broken:?}");
    let token = first.token();
    let _ = first.release().await.unwrap();
    assert!(lease(second).await.token() > token);
}

#[tokio::test]
async fn who_leaves_a_run_holds_up_nobody() {
    let (_server, client_a, other, held) = held().await;
    let first = waiter(&client_a, &other, 1).await;
    let second = waiter(&client_a, &other, 2).await;
    let last = waiter(&other, &client_a, 3).await;
    first.abort();
    in_line(&other, "k", 2).await;
    let _ = held.release().await.unwrap();
    let _ = lease(second).await.release().await.unwrap();
    drop(lease(last).await);
}

/// What a client leaves behind that dies: all of its run goes with it.
#[tokio::test]
async fn a_dead_client_holds_up_nobody_with_its_run() {
    let server = RedisServer::start();
    let other = client(&server).await;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = server.url();
    let begin = runtime.spawn(async move {
        let dies = leasehold::connect(&url).await.unwrap();
        let lock = dies.mutex("k").unwrap();
        let lock = lock.with_ttl(Duration::from_secs(1));
        let held = lock.lock().await.unwrap();
        for _ in 0..20 {
            let lock = lock.clone();
            tokio::spawn(async move { lock.lock().await });
        }
        (dies, held)
    });
    let _dead = begin.await.unwrap();
    in_line(&other, "k", 20).await;
    let last = waiter(&other, &other, 21).await;
    runtime.shutdown_background();
    drop(lease(last).await);
}
