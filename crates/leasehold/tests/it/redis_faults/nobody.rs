//! Servers that are down, or do not allow a subscription.

use super::*;

/// Runs to its end, which is told.
async fn timed<T>(what: &str, work: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let done = soon(what, work).await;
    eprintln!("MEASURED {what}: {:?}", started.elapsed());
    assert!(started.elapsed() < ms(10_000), "{what} in bounded time");
    done
}

#[tokio::test]
async fn a_server_that_died_for_good_lets_nobody_hang() {
    let server = RedisServer::start();
    let settings = Settings::default()
        .with_waiter_ttl(ms(1_000))
        .with_operation_timeout(ms(500));
    let ours = client_with(&server.url(), settings.clone()).await;
    let other = client_with(&server.url(), settings).await;
    let lease = lock(&other).await;
    let kept = other.mutex("kept").unwrap().lock().await.unwrap();
    let (key, limited) = (ours.mutex(KEY).unwrap(), ours.mutex(KEY).unwrap());
    let next = waiting(&ours);
    standing(&other, 1, 1).await;
    let within = tokio::spawn(async move { limited.lock_within(ms(2_000)).await });
    standing(&other, 1, 2).await;
    server.kill();

    let (next, within) = tokio::join!(
        timed("lock() of one who waits", next),
        timed("lock_within(2 s) of one who waits", within),
    );
    let error = next.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    eprintln!("lock: {error}");
    let error = within.unwrap().unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout),
        "{error}"
    );
    let error = timed("lock()", key.lock()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = timed("lock_within(200 ms)", key.lock_within(ms(200)))
        .await
        .unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout),
        "{error}"
    );
    let error = timed("try_lock()", key.try_lock()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = timed("inspect()", ours.inspect(KEY)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(lease.is_valid(), "by its clock");
    let error = timed("release()", lease.release()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    eprintln!("release: {error}");
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
    let options = RedisOptions::from_url(&url).unwrap();
    let error = soon("an answer", RedisStore::connect(options))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = soon("an answer", Client::builder().store(&url).connect())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    eprintln!("{text} / {:?}", error.hint());
    assert_eq!(text.lines().count(), 1);
    assert!(text.contains(&server.address().to_string()), "{text}");
    assert!(
        !text.contains("Error") && !text.contains('{') && text.len() < 120,
        "{text}"
    );
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
    let first = lock(&other).await;
    let next = waiting(&deaf);
    standing(&other, 1, 1).await;
    let before = server.stats();
    sleep(ms(2_000)).await;
    let since = server.stats().since(&before);
    let asked = since.command("evalsha").calls;
    eprintln!("in 2 s it asked {asked} times");
    // A sixteenth of the time for which it has waited lies between two.
    assert!((1..60).contains(&asked), "{asked} times");
    assert_eq!(since.command("subscribe").rejected, 0);
    let _ = first.release().await.unwrap();
    let lease = granted(next).await;
    let _ = lease.release().await.unwrap();
}
