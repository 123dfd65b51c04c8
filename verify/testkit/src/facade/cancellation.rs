//! Any future of any kind can be dropped at any await point: nothing is left.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use leasehold::{Client, Error, ErrorKind, Owner};
use tokio::task::JoinSet;

use super::{Fixture, Outcome, client_with, knows_all_kinds, no_inbox_is_open, soon, ttl, until};
use crate::dice::Dice;

/// How many live at a time.
const AT_ONCE: usize = 32;

/// Polls a future so often at most, then drops it where it is.
async fn cut_short<T>(work: impl Future<Output = T>, mut polls: u64) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        let polled = work.as_mut().poll(cx).map(Some);
        // The last poll may be cut at once, not when it would go on.
        if polls == 0 && polled.is_pending() {
            cx.waker().wake_by_ref();
        }
        polled
    })
    .await
}

const KINDS: &str = "mutex rwlock semaphore reentrant multi election identity";

/// One life of a lock, from the claim to the release.
async fn life(kind: &str, client: Client, mut dice: Dice) -> Result<(), Error> {
    match kind {
        "mutex" => {
            let lock = client.mutex(format!("m/{}", dice.roll(3)))?;
            let lease = match dice.roll(3) {
                0 => match lock.lock_within(Duration::from_millis(5)).await {
                    // A busy machine does not always answer in the grace for a first answer.
                    Err(error) if error.kind() == ErrorKind::Unavailable => return Ok(()),
                    locked => locked?,
                },
                _ => lock.lock().await?,
            };
            lease.renew().await?;
            lease.release().await.map(drop)
        }
        "rwlock" => {
            let lock = client.rwlock(format!("rw/{}", dice.roll(3)))?;
            match dice.roll(3) {
                0 => {
                    let reader = lock.write().await?.downgrade().await?;
                    reader.release().await.map(drop)
                }
                1 => lock.write().await?.release().await.map(drop),
                _ => lock.read().await?.release().await.map(drop),
            }
        }
        "semaphore" => {
            let lock = client.semaphore(format!("s/{}", dice.roll(3)), 3)?;
            let take = 1 + u32::try_from(dice.roll(3)).unwrap_or(0);
            lock.acquire_many(take).await?.release().await.map(drop)
        }
        "reentrant" => {
            let owner = Owner::parse(&format!("{:032x}", 1 + dice.roll(3)))?;
            let lock = client.reentrant("re", &owner)?;
            let outer = lock.lock().await?;
            let inner = lock.lock().await?;
            let _ = outer.release().await?;
            inner.release().await.map(drop)
        }
        "multi" => {
            let keys = ["mu/1", "mu/2", "mu/3"];
            let from = usize::try_from(dice.roll(3)).unwrap_or(0);
            let lock = client.multi([keys[from], keys[(from + 1) % 3]])?;
            match dice.roll(3) {
                0 => match lock.try_lock().await? {
                    Some(lease) => lease.release().await.map(drop),
                    None => Ok(()),
                },
                _ => lock.lock().await?.release().await.map(drop),
            }
        }
        "election" => {
            let election = client.election(format!("el/{}", dice.roll(2)))?;
            if dice.roll(4) == 0 {
                let mut leaders = election.observe();
                leaders.next().await?;
                return Ok(());
            }
            if !client.capabilities().owners {
                return election.campaign("").await?.resign().await.map(drop);
            }
            let leadership = election.campaign("me").await?;
            leadership.proclaim("still me").await?;
            leadership.resign().await.map(drop)
        }
        "identity" => {
            // Parts that nobody takes over are left to their TTL: a short one, on
            // many keys, so that few wait for it.
            let lock = client.mutex(format!("id/{}", dice.roll(1000)))?;
            let lock = lock.with_ttl(Duration::from_secs(2));
            let lease = lock.lock().await?;
            lease.rotate().await?;
            let parts = lease.into_parts().await?;
            let lease = lock.adopt(&parts).await?;
            lease.release().await.map(drop)
        }
        _ => unreachable!("{kind} is no kind of lock"),
    }
}

/// The kinds of stores that have only plain exclusive claims.
const EXCLUSIVE: [&str; 2] = ["mutex", "election"];

/// Random cancellations of each kind ([`Fixture::cancellations`]) leave no claim, no task
/// and no open inbox.
pub async fn cancellations_leave_nothing(fixture: &dyn Fixture) -> Outcome {
    let settings = ttl(Duration::from_secs(20));
    let client = || client_with(fixture, settings.clone());
    let clients = [client().await, client().await, client().await];
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    let mut dice = Dice(1);
    let all = knows_all_kinds(fixture).await;
    for kind in KINDS.split(' ') {
        if !all && !EXCLUSIVE.contains(&kind) {
            continue;
        }
        let mut cut = 0;
        let mut lives: JoinSet<Option<Result<(), Error>>> = JoinSet::new();
        let mut begun = 0;
        while cut < fixture.cancellations() {
            while lives.len() < AT_ONCE {
                let client = clients[begun % clients.len()].clone();
                begun += 1;
                dice.roll(2);
                let work = life(kind, client, dice.clone());
                lives.spawn(cut_short(work, dice.roll(12)));
            }
            let ended = soon(kind, lives.join_next()).await.ok_or("a life")?;
            match ended? {
                None => cut += 1,
                Some(Ok(())) => {}
                Some(Err(error)) => assert!(
                    match error.kind() {
                        ErrorKind::Timeout => true,
                        // Its TTL is short: a busy machine does not keep up.
                        ErrorKind::Lost | ErrorKind::Unavailable => kind == "identity",
                        _ => false,
                    },
                    "{kind}: {error}"
                ),
            }
        }
        lives.abort_all();
        while lives.join_next().await.is_some() {}
        let is_free = async || clients[0].list("*").await.expect("a list").is_empty();
        until(kind, 5, is_free).await;
    }
    let none_is_left = async || metrics.num_alive_tasks() <= before;
    until("no task left", 20, none_is_left).await;
    no_inbox_is_open(fixture).await;
    Ok(())
}
