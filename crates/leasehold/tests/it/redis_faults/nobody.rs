//! Servers that are down, or do not allow a subscription.

use std::fmt::Debug;

use super::*;
use leasehold::Error;

/// Runs to its end, which is told.
async fn timed<T>(what: &str, work: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let done = soon(what, work).await;
    eprintln!("MEASURED {what}: {:?}", started.elapsed());
    assert!(started.elapsed() < ms(10_000), "{what} in bounded time");
    done
}

/// Nobody answers, which is found out in bounded time.
async fn unanswered<T: Debug>(what: &str, work: impl Future<Output = Result<T, Error>>) {
    let error = fails(timed(what, work).await, ErrorKind::Unavailable, &[]);
    eprintln!("{what}: {error}");
}

/// Nobody answers, or the limit was over before that was found out.
fn unanswered_or_late(error: &Error) {
    let kinds = [ErrorKind::Unavailable, ErrorKind::Timeout];
    assert!(kinds.contains(&error.kind()), "{error}");
}

#[tokio::test]
async fn a_server_that_died_for_good_lets_nobody_hang() {
    let server = RedisServer::start();
    let settings = Settings::default().with_waiter_ttl(ms(1_000));
    let settings = settings.with_operation_timeout(ms(500));
    let ours = client_with(&server.url(), settings.clone()).await;
    let other = client_with(&server.url(), settings).await;
    let (lease, next) = contended(&other, &ours, KEY).await;
    let kept = other.mutex("kept").unwrap().lock().await.unwrap();
    let (key, limited) = (ours.mutex(KEY).unwrap(), ours.mutex(KEY).unwrap());
    let within = tokio::spawn(async move { limited.lock_within(ms(2_000)).await });
    standing(&other, 1, 2).await;
    server.kill();

    let ((), within) = tokio::join!(
        unanswered("lock() of one who waits", async { next.await.unwrap() }),
        timed("lock_within(2 s) of one who waits", within),
    );
    unanswered_or_late(&within.unwrap().unwrap_err());
    unanswered("lock()", key.lock()).await;
    let within = timed("lock_within(200 ms)", key.lock_within(ms(200))).await;
    unanswered_or_late(&within.unwrap_err());
    unanswered("try_lock()", key.try_lock()).await;
    unanswered("inspect()", ours.inspect(KEY)).await;
    assert!(lease.is_valid(), "by its clock");
    unanswered("release()", lease.release()).await;
    let done = timed("shutdown(1 s)", other.shutdown(ms(1_000))).await;
    assert_eq!(done.released, 0);
    assert!(done.unconfirmed >= 1, "{done:?}");
    assert!(!kept.is_valid());
    let _ = timed("shutdown(1 s) of who waited", ours.shutdown(ms(1_000))).await;
}

#[tokio::test]
async fn a_server_that_is_not_up_is_told_in_one_sentence() {
    let server = RedisServer::start();
    server.kill();
    let url = server.url();
    let opened = soon("an answer", connect(&url)).await;
    let said = ["cannot connect to 127.0.0.1:", ": connection refused"];
    fails(opened, ErrorKind::Unavailable, &said);
    let connected = soon("an answer", leasehold::connect(&url)).await;
    let error = fails(connected, ErrorKind::Unavailable, &[]);
    let text = error.to_string();
    eprintln!("{text} / {:?}", error.hint());
    assert_eq!(text.lines().count(), 1);
    assert!(text.contains(&server.address().to_string()), "{text}");
    let is_technical = text.contains("Error") || text.contains('{');
    assert!(!is_technical && text.len() < 120, "{text}");
    assert!(error.hint().is_some_and(|hint| hint.contains("running")));

    // Once it is up, all is well.
    server.start_again();
    let client = client(&url).await;
    assert_eq!(lock(&client).await.release().await.unwrap(), Released::Held);
}

/// Who may not subscribe is served all the same: it asks for its place with pauses, and does not
/// try to listen again.
#[tokio::test]
async fn a_client_that_may_not_listen_asks_from_time_to_time() {
    let rules = "on >secret ~* +@all resetchannels";
    let server = RedisServer::builder().user("deaf", rules).start();
    let deaf = client_with(&server.url_as("deaf", "secret"), ttl(ms(3_000))).await;
    let other = client(&server.url()).await;
    let (first, next) = contended(&other, &deaf, KEY).await;
    let before = server.stats();
    sleep(ms(2_000)).await;
    let since = server.stats().since(&before);
    let asked = since.command("evalsha").calls;
    eprintln!("in 2 s it asked {asked} times");
    // A sixteenth of the time for which it has waited lies between two.
    assert!((1..60).contains(&asked), "{asked} times");
    assert_eq!(since.command("subscribe").rejected, 0);
    give_back(hand_over(first, next).await).await;
}
