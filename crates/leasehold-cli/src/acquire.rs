//! Getting the lock, and saying so: waiting, giving up, being interrupted.

use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Key;
use leasehold::{Acquire, Client, ErrorKind, Lease, Mutex, OnProgress, Progress, Wait};
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::time::{Instant, interval, timeout};

use crate::cli::AcquireArgs;
use crate::duration::millis;
use crate::failure::Failure;
use crate::output::{Event, Printer};
use crate::signals::Signals;
use crate::view::KeyView;
use crate::waiting::Live;

/// How long asking who holds may take, when it is only for a message.
const CURIOSITY: Duration = Duration::from_secs(1);
/// How often a live line is brought up to date.
const TICK: Duration = Duration::from_millis(250);

/// How it came out.
pub(crate) enum Outcome {
    /// We hold it.
    Granted(Lease),
    /// Not in time.
    Conflict,
    /// A signal ended the waiting. The queue was left.
    Signalled(Signal),
}

/// Refuses what cannot work, before anything is asked of the store.
pub(crate) fn check(key: &str, acquire: &AcquireArgs) -> Result<(), Failure> {
    Key::new(key)?;
    let settings = leasehold::Settings {
        ttl: acquire.ttl,
        ..Default::default()
    };
    Ok(settings.check()?)
}

/// Asks for the lock and waits as long as was said.
pub(crate) async fn acquire(
    client: &Client,
    key: &str,
    asked: &AcquireArgs,
    signals: &mut Signals,
    printer: &Printer,
) -> Result<Outcome, Failure> {
    let wait = match asked.wait {
        _ if asked.no_wait => Wait::No,
        Some(Duration::ZERO) => Wait::No,
        Some(limit) => Wait::For(limit),
        None => Wait::Forever,
    };
    let mut scene = Scene {
        client,
        printer,
        key,
        start: Instant::now(),
        position: 0,
        rejoined: 0,
        announced: false,
        live: None,
    };
    let outcome = scene.play(client.mutex(key)?, wait, signals).await;
    printer.show_live(None);
    match &outcome {
        Ok(Outcome::Granted(lease)) => printer.event(&Event::Acquired {
            key: key.to_owned(),
            token: lease.token().get(),
            waited_ms: millis(lease.waited()),
            announced: scene.announced,
        }),
        Ok(Outcome::Conflict) => scene.conflict(asked.wait.is_some()).await,
        Ok(Outcome::Signalled(signal)) => printer.event(&Event::Withdrawn {
            key: key.to_owned(),
            signal: signal.as_raw(),
            waited_ms: millis(scene.start.elapsed()),
        }),
        Err(_) => {}
    }
    outcome
}

/// What is shown while the lock is asked for.
struct Scene<'a> {
    client: &'a Client,
    printer: &'a Printer,
    key: &'a str,
    start: Instant,
    position: u64,
    rejoined: u32,
    /// Whether a line was written that says that we wait.
    announced: bool,
    live: Option<Live>,
}

/// Somebody is being asked who holds the key, while the waiting goes on.
type Asking<'a> = Pin<Box<dyn Future<Output = Option<KeyView>> + 'a>>;

impl<'a> Scene<'a> {
    async fn play(
        &mut self,
        mutex: Mutex,
        wait: Wait,
        signals: &mut Signals,
    ) -> Result<Outcome, Failure> {
        let (report, mut progress) = watch::channel((0, 0));
        let report: OnProgress = Arc::new(move |now: &Progress| {
            report.send_replace((now.position, now.rejoined));
        });
        let mut asking = pin!(mutex.acquire(Acquire {
            wait,
            progress: Some(report)
        }));
        let mut tick = interval(TICK);
        let mut who: Option<Asking<'a>> = None;
        loop {
            tokio::select! {
                biased;
                answer = &mut asking => return match answer {
                    Ok(Some(lease)) => Ok(Outcome::Granted(lease)),
                    Ok(None) => Ok(Outcome::Conflict),
                    Err(error) if error.kind() == ErrorKind::Timeout => Ok(Outcome::Conflict),
                    Err(error) => Err(error.into()),
                },
                signal = signals.next() => return Ok(Outcome::Signalled(signal)),
                Ok(()) = progress.changed() => {
                    let (position, rejoined) = *progress.borrow_and_update();
                    if self.position == 0 {
                        who = Some(look(self.client, self.key));
                    }
                    self.moved(position, rejoined);
                }
                seen = settled(&mut who) => {
                    who = None;
                    self.seen(seen);
                }
                _ = tick.tick(), if self.live.is_some() => {
                    let live = self.live.as_mut();
                    if live.is_some_and(|live| live.tick(self.start.elapsed())) && who.is_none() {
                        who = Some(look(self.client, self.key));
                    }
                }
            }
        }
    }

    fn moved(&mut self, position: u64, rejoined: u32) {
        self.position = position;
        if rejoined > self.rejoined {
            self.rejoined = rejoined;
            self.printer.event(&Event::Rejoined {
                key: self.key.to_owned(),
                times: rejoined,
            });
        }
        if let Some(live) = &mut self.live {
            live.moved(position, self.start.elapsed());
        }
    }

    /// It is known who holds, or that nobody could say.
    fn seen(&mut self, seen: Option<KeyView>) {
        let holders = seen.map(|seen| seen.holders).unwrap_or_default();
        if let Some(live) = &mut self.live {
            live.held(&holders, self.start.elapsed());
        } else if self.printer.is_live() {
            let mut live = Live::new(self.key, self.position);
            live.held(&holders, self.start.elapsed());
            self.printer.show_live(Some(live.bar()));
            self.live = Some(live);
        } else {
            self.announced = true;
            let (key, position) = (self.key.to_owned(), self.position);
            self.printer.event(&Event::Waiting {
                key,
                position,
                holders,
            });
        }
    }

    async fn conflict(&self, waited: bool) {
        let seen = look(self.client, self.key).await;
        let waited = if waited {
            self.start.elapsed()
        } else {
            Duration::ZERO
        };
        self.printer.event(&Event::Conflict {
            key: self.key.to_owned(),
            waited_ms: millis(waited),
            holders: seen.map(|seen| seen.holders).unwrap_or_default(),
        });
    }
}

fn look<'a>(client: &'a Client, key: &'a str) -> Asking<'a> {
    Box::pin(async move {
        let seen = timeout(CURIOSITY, client.inspect(key)).await.ok()?.ok()?;
        Some(KeyView::from(&seen))
    })
}

async fn settled(who: &mut Option<Asking<'_>>) -> Option<KeyView> {
    match who {
        Some(who) => who.await,
        None => pending().await,
    }
}
