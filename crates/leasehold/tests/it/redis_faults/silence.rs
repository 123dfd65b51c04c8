//! Silent and slow servers.

use super::*;

/// Waits until the lease is lost; says when, beside the end of its validity.
async fn lost_in_time(lease: &Lease) -> (Loss, Instant) {
    let end = Instant::now() + lease.remaining();
    let loss = soon("the loss", lease.lost()).await;
    let at = Instant::now();
    eprintln!("lost ({loss}) {} ms after validity's end", after(at, end));
    assert!(at <= end + BUSY, "no later than validity's end");
    assert!(!lease.is_valid());
    (loss, at)
}

#[tokio::test]
async fn a_client_in_a_black_hole_gives_up_before_others_get_the_key() {
    let short = ttl(ms(1_000));
    let (_server, proxy, ours, other) = proxied(short.clone(), short).await;

    let (lease, next) = contended(&ours, &other, KEY).await;
    sleep(ms(1_500)).await;
    assert!(lease.is_valid(), "kept beyond its TTL until here");
    proxy.black_hole(Direction::ToServer);
    proxy.black_hole(Direction::ToClient);
    // What was on its way has come.
    sleep(ms(20)).await;
    let end = Instant::now() + lease.remaining();
    // A renewal whose answer was not to come may have been the last.
    let seen = other.inspect(KEY).await.unwrap();
    let freed = Instant::now() + seen.holders[0].expires_in;
    let others = async {
        let next = granted(next).await;
        assert!(!lease.is_valid(), "one at a time");
        (next, Instant::now())
    };
    let ((loss, lost), (next, granted)) = tokio::join!(lost_in_time(&lease), others);
    assert_eq!(loss, Loss::Unanswered);
    eprintln!(
        "the next {} ms after it, {} ms after the end",
        after(granted, lost),
        after(granted, end)
    );
    assert!(granted >= end);
    assert!(granted <= freed + ms(300) + BUSY, "as soon as it is free");
    assert!(next.token() > lease.token());
    assert!(next.is_valid());
    let _ = next.release().await.unwrap();
    proxy.heal();
    drop(lease);
    standing(&other, 0, 0).await;
}

/// Nothing is answered, and no end of the connection is told: a server, or a balancer before it,
/// that has vanished. Then it is back at the same address.
async fn comes_back_from_silence(settings: Settings) {
    let (_server, proxy, ours, other) = proxied(settings, lasting()).await;
    let lease = lock(&ours).await;
    proxy.half_open();
    let silent = Instant::now();
    let key = ours.mutex(KEY).unwrap();
    soon("the loss", lease.lost()).await;
    drop(lease);
    let mut tries = 1;
    // The time-outs of requests and of the ping that follows them add up.
    let lease = timeout(3 * LIMIT, async {
        loop {
            match key.lock().await {
                Ok(lease) => return lease,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable);
                    tries += 1;
                }
            }
        }
    })
    .await
    .expect("a lease over a new connection");
    eprintln!("after silence: {tries} tries, {:?}", silent.elapsed());
    leaves_nothing(lease, &other).await;
}

tests! {
    #[tokio::test]
    fn a_client_comes_back_from_a_connection_that_fell_silent() {
        comes_back_from_silence(ttl(ms(1_500)))
    }
    fn an_impatient_client_comes_back_from_a_connection_that_fell_silent() {
        comes_back_from_silence(ttl(ms(1_500)).with_operation_timeout(ms(500)))
    }
}

/// A lease that was over when its answer came is not handed out as if it held.
#[tokio::test]
async fn a_lease_that_comes_too_late_is_not_handed_out() {
    let (_server, proxy, ours, other) = proxied(ttl(ms(500)), lasting()).await;
    proxy.delay(Direction::ToClient, ms(700));
    let mutex = ours.mutex(KEY).unwrap();
    let locked = soon("an answer", mutex.lock()).await;
    fails(locked, ErrorKind::Unavailable, &["too slow"]);
    let tried = soon("an answer", mutex.try_lock()).await;
    fails(tried, ErrorKind::Unavailable, &[]);
    proxy.heal();
    standing(&other, 0, 0).await;
    assert!(lock(&ours).await.is_valid());
}

#[tokio::test]
async fn slow_answers_keep_a_lease() {
    let (_server, proxy, ours, other) = proxied(ttl(ms(6_000)), lasting()).await;

    let lease = lock(&ours).await;
    proxy.delay(Direction::ToServer, ms(500));
    proxy.delay(Direction::ToClient, ms(500));
    let mut least = Duration::MAX;
    let started = Instant::now();
    while started.elapsed() < ms(9_000) {
        sleep(ms(20)).await;
        least = least.min(lease.remaining());
        assert!(lease.is_valid(), "after {:?}", started.elapsed());
    }
    eprintln!("with answers after 1 s, {least:?} of 6 s were left at the least");
    let seen = other.inspect(KEY).await.unwrap();
    assert_eq!(seen.holders[0].token, lease.token());
    let released = soon("an answer", lease.release()).await;
    assert_eq!(released.unwrap(), Released::Held);
    standing(&other, 0, 0).await;
}
