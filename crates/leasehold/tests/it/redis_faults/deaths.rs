//! Crashes of client processes.

use super::*;

/// Not a test by itself: what the other process does. It waits in line as often as its role says.
#[tokio::test]
async fn role() {
    let Some((waiters, url)) = my_role() else {
        return;
    };
    let waiters: usize = waiters.parse().unwrap();
    let client = client(&url).await;
    let mut all = Vec::new();
    // Every other place is somebody else's.
    for n in 0..waiters {
        standing(&client, 1, 2 * n).await;
        all.push(waiting(&client));
    }
    for waiting in all {
        drop(granted(waiting).await);
    }
}

/// So many waiters of one process are killed, each with a live one behind it, once all have waited
/// for that long, and have said that they listen: how long it takes from the release until all who
/// live were served.
async fn delay_by_the_dead(dead: usize, waited: Duration) -> Duration {
    let server = RedisServer::start();
    let holder = client(&server.url()).await;
    let live = client(&server.url()).await;
    let first = lock(&holder).await;
    let (role, waiters) = ("redis_faults::deaths::role", dead.to_string());
    let process = Process::spawn(in_role(role, &waiters, &server.url()));
    let mut line = Line::default();
    for n in 0..dead {
        standing(&holder, 1, 2 * n + 1).await;
        line.join(&live);
    }
    standing(&holder, 1, 2 * dead).await;
    // Holders open an inbox as well, after a while.
    until("three inboxes", async || inboxes(&server) == 3).await;
    until("all have asked again", async || {
        let seen = holder.inspect(KEY).await.unwrap();
        let mut waiters = seen.waiters.iter();
        waiters.all(|it| seen.at + it.expires_in > it.since + LIVES)
    })
    .await;
    sleep(waited).await;
    process.signal(Signal::KILL);
    process.wait().await;
    until("two inboxes", async || inboxes(&server) == 2).await;

    let token = first.token();
    let released = Instant::now();
    assert_eq!(first.release().await.unwrap(), Released::Held);
    let served = line.all_served().await;
    let delay = released.elapsed();
    assert_eq!(served.order.len(), dead);
    served.assert_in_order();
    assert_eq!(served.rejoined, 0);
    served.assert_rising(token);
    standing(&holder, 0, 0).await;
    delay
}

async fn passed_over(dead: usize, waited: Duration, limit: Duration) {
    let delay = delay_by_the_dead(dead, waited).await;
    eprintln!("MEASURED {dead} dead among as many live ones, after {waited:?}: {delay:?}");
    assert!(delay <= limit + BUSY);
}

tests! {
    #[tokio::test]
    fn a_dead_waiter_is_passed_over_by_the_release() { passed_over(1, UNHEARD_CUT, ms(300)) }
    fn ten_dead_waiters_of_one_process_are_passed_over() { passed_over(10, UNHEARD_CUT, ms(800)) }
    fn a_waiter_that_died_young_is_passed_over_by_the_release() {
        passed_over(1, Duration::ZERO, ms(300))
    }
}
