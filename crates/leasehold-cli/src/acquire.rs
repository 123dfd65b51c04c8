//! Getting the lock, and saying so: waiting, giving up, being interrupted.

use std::future::pending;
use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{Any, Client, Deadlock, ErrorKind, MultiLease, Wait};
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep_until, timeout};

use crate::duration::millis;
use crate::failure::Failure;
use crate::lock_request::{Acquired, LockRequest};
use crate::output::{Acknowledgements, Event, Keys, Printer};
use crate::retries::Retries;
use crate::session::Session;
use crate::signals::Signals;
use crate::view::{ClaimView, KeyView};
use crate::waiting::{Live, not_at_once};
use crate::{lease_status, sys};

/// How long asking who holds may take, when it is only for a message.
const HOLDER_LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it may take at the end of the waiting: without an answer the store counts as out of
/// reach, and not the key as busy.
const FINAL_LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a live line is brought up to date.
const LIVE_LINE_INTERVAL: Duration = Duration::from_millis(250);
/// How often a changed position is said where there is no live line; `-v` says each change.
const POSITION_REPORT_INTERVAL: Duration = Duration::from_secs(30);

/// How it came out.
pub(crate) enum Outcome {
    /// We hold it.
    Granted(MultiLease<Any>),
    /// Not in time.
    Conflict,
    /// A signal ended the waiting. The queue was left.
    Signalled(Signal),
}

/// Asks for the lock and waits as long as was said, through outages of the store too.
pub(crate) async fn acquire(
    session: &mut Session<'_>,
    request: &LockRequest,
    printer: &Printer,
) -> Result<Outcome, Failure> {
    let keys = Keys::from(&*request.keys);
    tracing::info!(leasehold.key = %keys, "asking");
    let mut ui = AcquireUi {
        client: &session.client,
        printer,
        request,
        retries: &mut session.retries,
        position: 0,
        rejoined: 0,
        rejoined_before: 0,
        left_queue: false,
        announced: false,
        news: News::default(),
        live: None,
    };
    let ended = ui.acquire_with_retries(&mut session.signals).await;
    ui.live = None;
    printer.show_live(None);
    Ok(match ended? {
        Ending::Got(Acquired { held, recovered }) => {
            ui.retries.usable();
            printer.event(&Event::Acquired {
                keys,
                tokens: lease_status::tokens(&held),
                waited_ms: millis(ui.retries.waited(held.waited())),
                acknowledged: lease_status::acknowledged(&held).map(Acknowledgements::from),
                recovered,
                announced: ui.announced || ui.retries.was_interrupted(),
            });
            Outcome::Granted(held)
        }
        Ending::Busy | Ending::TimedOut => {
            ui.busy().await?;
            Outcome::Conflict
        }
        Ending::Signalled(signal) => {
            printer.event(&Event::Withdrawn {
                keys,
                signal: signal.as_raw(),
                waited_ms: millis(ui.retries.elapsed()),
            });
            Outcome::Signalled(signal)
        }
    })
}

enum Ending {
    Got(Acquired),
    /// The store says so.
    Busy,
    /// It was not granted in time; whether the store is still there is not known.
    TimedOut,
    Signalled(Signal),
}

/// What is shown while the lock is asked for.
struct AcquireUi<'a, 'p> {
    client: &'a Client,
    printer: &'a Printer,
    request: &'a LockRequest,
    retries: &'a mut Retries<'p>,
    position: u64,
    /// How often the place in the queue was lost, all in all.
    rejoined: u32,
    /// The same before this try.
    rejoined_before: u32,
    /// Whether an outage has cost us our place, and we have no other yet.
    left_queue: bool,
    /// Whether a line was written that says that we wait.
    announced: bool,
    /// What is said of the position after that line.
    news: News,
    live: Option<Live>,
}

/// What is in the way.
struct Seen {
    view: KeyView,
    /// Why the store grants nothing, although nobody holds the key.
    closed: Option<Failure>,
    /// Why the waiting would never end, if it would not.
    endless: Option<Failure>,
}

/// Somebody is being asked who holds the key, while the waiting goes on.
type Asking<'a> = Pin<Box<dyn Future<Output = Result<Seen, Failure>> + 'a>>;

impl<'a> AcquireUi<'a, '_> {
    /// Looks who holds it, to say so.
    fn look(&self) -> Asking<'a> {
        let start = self.retries.start();
        look(self.client, self.request, start, HOLDER_LOOKUP_TIMEOUT)
    }

    /// The same for a line; the first time not before the wait is worth a line.
    fn look_for_line(&self, first: bool) -> Asking<'a> {
        let looked = self.look();
        let in_vain = |seen: &Seen| seen.closed.is_some() || seen.endless.is_some();
        match first && !self.printer.is_live() {
            true => Box::pin(not_at_once(looked, in_vain)),
            false => looked,
        }
    }

    /// Tries until there is an answer, or the time is over.
    async fn acquire_with_retries(&mut self, signals: &mut Signals) -> Result<Ending, Failure> {
        loop {
            let wait = self.retries.left();
            let tried = self.try_acquire(wait, signals).await;
            let unheard = self.position == 0 && wait != Wait::No;
            let failure = match tried {
                Ok(Ending::TimedOut) if unheard => match self.retries.outage() {
                    Some(failure) => return Err(self.retries.gave_up(failure)),
                    // The time was shorter than an answer takes: it may be free.
                    None => continue,
                },
                Err(failure) if unheard && failure.passing && self.retries.are_over() => continue,
                Ok(Ending::TimedOut) => {
                    let looked = look(
                        self.client,
                        self.request,
                        self.retries.start(),
                        FINAL_LOOKUP_TIMEOUT,
                    );
                    let failure = match looked.await {
                        Ok(seen) => seen.closed,
                        Err(failure) => Some(failure).filter(|failure| failure.passing),
                    };
                    return match failure {
                        Some(failure) => Err(self.retries.gave_up(failure)),
                        None => Ok(Ending::TimedOut),
                    };
                }
                Ok(ending) => return Ok(ending),
                Err(failure) => failure,
            };
            self.interrupted();
            if let Some(signal) = self.retries.pause(failure, signals).await? {
                return Ok(Ending::Signalled(signal));
            }
        }
    }

    /// One try.
    async fn try_acquire(&mut self, wait: Wait, signals: &mut Signals) -> Result<Ending, Failure> {
        let (report, mut progress) = watch::channel((0, 0));
        let (tell, mut deadlock) = watch::channel(None);
        let how = self.request.how(wait, move |found| tell_news(&tell, found));
        let how = how.on_progress(move |now| {
            report.send_replace((now.position, now.rejoined));
        });
        let (client, request) = (self.client, self.request);
        let asking = request.acquire(client, how);
        let mut asking = pin!(self.retries.time_limit().of(asking));
        let mut tick = interval(LIVE_LINE_INTERVAL);
        let mut answers = self.retries.not_now().listen();
        let mut who = request.looks_first(client, wait).then(|| self.look());
        loop {
            tokio::select! {
                biased;
                answer = &mut asking => return match answer {
                    Ok(Ok(Some(got))) => Ok(Ending::Got(got)),
                    Ok(Ok(None)) => Ok(Ending::Busy),
                    Ok(Err(error)) if error.kind() == ErrorKind::Timeout => Ok(Ending::TimedOut),
                    Ok(Err(error)) => Err(error.into()),
                    Err(silent) => Err(silent),
                },
                signal = signals.next() => return Ok(Ending::Signalled(signal)),
                Ok(()) = progress.changed() => {
                    let (position, rejoined) = *progress.borrow_and_update();
                    let first = self.position == 0;
                    if self.moved(position, rejoined) || first {
                        who = Some(self.look_for_line(first));
                    }
                }
                Ok(()) = deadlock.changed() => {
                    let deadlock = deadlock.borrow_and_update().clone().unwrap_or_default();
                    let keys = Keys::from(&*request.keys);
                    self.printer.event(&Event::Deadlocked { keys, deadlock });
                }
                failure = self.retries.follow(&mut answers), if wait != Wait::No => {
                    return Err(failure);
                }
                () = self.news.due(), if self.news.is_pending() => self.tell_position(),
                seen = settled(&mut who) => {
                    who = None;
                    if let Ok(Seen { endless: Some(failure), .. }) = seen {
                        return Err(failure);
                    }
                    if self.position != 0 {
                        self.seen(seen.ok());
                    }
                }
                _ = tick.tick(), if self.live.is_some() => {
                    let live = self.live.as_mut();
                    let elapsed = self.retries.elapsed();
                    if live.is_some_and(|live| live.tick(elapsed)) && who.is_none() {
                        who = Some(self.look());
                    }
                }
            }
        }
    }

    /// A try has failed: whatever place we had is gone.
    fn interrupted(&mut self) {
        self.left_queue |= self.position != 0;
        self.rejoined_before = self.rejoined;
        self.position = 0;
        self.live = None;
        self.printer.show_live(None);
    }

    /// We stand there. Answers whether we have a new place, at the end.
    fn moved(&mut self, position: u64, rejoined: u32) -> bool {
        self.position = position;
        let lost = u32::from(std::mem::take(&mut self.left_queue));
        self.rejoined_before += lost;
        let rejoined = self.rejoined_before + rejoined;
        let anew = rejoined > self.rejoined;
        if anew {
            self.rejoined = rejoined;
            self.printer.event(&Event::Rejoined {
                keys: Keys::from(&*self.request.keys),
                times: rejoined,
            });
        }
        if let Some(live) = &mut self.live {
            live.moved(position, self.retries.elapsed());
        } else if self.announced && self.news.moved(position, self.printer.is_verbose()) {
            self.tell_position();
        }
        anew
    }

    /// Says where we stand now, where no live line does.
    fn tell_position(&mut self) {
        self.news.told(self.position);
        self.printer.event(&Event::Moved {
            key: self.request.key().to_owned(),
            position: self.position,
            waited_ms: millis(self.retries.elapsed()),
        });
    }

    /// It is known who holds, or that nobody could say.
    fn seen(&mut self, seen: Option<Seen>) {
        match &seen {
            Some(Seen {
                closed: Some(closed),
                ..
            }) => return self.retries.unusable(closed),
            Some(_) => self.retries.answered(),
            None => {}
        }
        let view = seen.map(|seen| seen.view);
        if self.live.is_none() && self.printer.is_live() {
            let live = Live::new(self.request.key(), self.position);
            self.printer.show_live(Some(live.bar()));
            self.live = Some(live);
        }
        if let Some(live) = &mut self.live {
            let key = view.as_ref().map(|view| &*view.key);
            let key = key.unwrap_or_else(|| self.request.key());
            live.held(key, view.as_ref(), self.retries.elapsed());
        } else {
            let (key, holders) = self.blocking(view);
            self.announced = true;
            self.news.told(self.position);
            self.printer.event(&Event::Waiting {
                key,
                position: self.position,
                holders,
            });
        }
    }

    /// Says who has it. In an outage, where that is nobody else, it is the outage's failure.
    async fn busy(&mut self) -> Result<(), Failure> {
        let seen = self.look().await;
        let view = seen.ok().map(|seen| seen.view);
        if let (Some(least), Some(view)) = (self.request.once, &view) {
            self.printer.event(&Event::skipped(view, least));
            return Ok(());
        }
        let others = view.as_ref().is_some_and(|view| !view.holders.is_empty());
        if let Some(failure) = self.retries.outage().filter(|_| !others) {
            return Err(self.retries.gave_up(failure));
        }
        let waited = match self.request.patience.wait {
            Wait::For(_) => self.retries.elapsed(),
            _ => Duration::ZERO,
        };
        let (key, holders) = self.blocking(view);
        self.printer.event(&Event::Conflict {
            key,
            waited_ms: millis(waited),
            holders,
        });
        Ok(())
    }

    /// The key that is in the way, and who holds it.
    fn blocking(&self, view: Option<KeyView>) -> (String, Vec<ClaimView>) {
        match view {
            Some(view) => (view.key, view.holders),
            None => (self.request.key().to_owned(), Vec::new()),
        }
    }
}

/// When the position is said again where there is no live line: a queue that moves fast is not to
/// fill a log.
#[derive(Debug, Default)]
struct News {
    /// The position that was said last, and when.
    told: Option<(u64, Instant)>,
    /// Whether it is another one now.
    pending: bool,
}

impl News {
    /// We stand there. Answers whether to say so now.
    fn moved(&mut self, position: u64, at_once: bool) -> bool {
        let Some((told, at)) = self.told else {
            return false;
        };
        self.pending = told != position;
        self.pending && (at_once || at.elapsed() >= POSITION_REPORT_INTERVAL)
    }

    fn told(&mut self, position: u64) {
        self.told = Some((position, Instant::now()));
        self.pending = false;
    }

    fn is_pending(&self) -> bool {
        self.pending
    }

    /// Completes when a position that has changed is to be said.
    fn due(&self) -> impl Future<Output = ()> + use<> {
        let told = self.told.map_or_else(Instant::now, |(_, at)| at);
        sleep_until(told + POSITION_REPORT_INTERVAL)
    }
}

/// Looks at the key; of several at the one that we wait for, or that is not free.
fn look<'a>(
    client: &'a Client,
    request: &'a LockRequest,
    start: Instant,
    limit: Duration,
) -> Asking<'a> {
    let looked = async move {
        let seen = join_all(request.keys.iter().map(|key| client.inspect(key))).await;
        let endless = request.endless(seen.iter().flatten());
        let (pid, host) = (std::process::id(), sys::host());
        // Another process may have had our number before us.
        let oldest = start.elapsed() + Duration::from_secs(1);
        let ours = |claim: &ClaimView| {
            let owner = claim.owner.as_ref();
            let named = owner.is_some_and(|owner| owner.pid == pid && owner.host == host);
            named && claim.age.unwrap_or_default() <= oldest
        };
        let view = seen.iter().flatten().map(KeyView::from).min_by_key(|view| {
            let waits = view.waiters.iter().any(ours);
            let free = view.holders.iter().all(ours) && view.waiters.is_empty();
            (!waits, free)
        });
        let Some(mut view) = view else {
            // There is a key, so there is an error.
            let failure = seen.into_iter().find_map(Result::err);
            return Err(failure.map_or_else(|| Failure::unanswered(limit), Failure::from));
        };
        let waits = view.waiters.iter().any(ours);
        let waits_for_nobody = waits && view.holders.is_empty();
        let closed = match waits_for_nobody {
            true => request.closed(client).await,
            false => None,
        };
        // What was granted too late for us is ours, and nobody to be blamed.
        let holders = std::mem::take(&mut view.holders).into_iter();
        view.holders = holders.filter(|claim| !ours(claim)).collect();
        Ok(Seen {
            view,
            closed,
            endless,
        })
    };
    Box::pin(async move {
        let looked = timeout(limit, looked).await;
        looked.unwrap_or_else(|_| Err(Failure::unanswered(limit)))
    })
}

/// Passes on a deadlock, unless it is the one that was passed on before.
fn tell_news(told: &watch::Sender<Option<String>>, found: &Deadlock) {
    let found = Some(found.to_string());
    told.send_if_modified(|told| {
        *told != found && {
            *told = found;
            true
        }
    });
}

async fn settled(who: &mut Option<Asking<'_>>) -> Result<Seen, Failure> {
    match who {
        Some(who) => who.await,
        None => pending().await,
    }
}
