//! Getting the lock, and saying so: waiting, giving up, being interrupted.

use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::future::{OptionFuture, join_all};
use leasehold::{Any, Client, Deadlock, ErrorKind, MultiLease};
use leasehold_console::feed::send_if_other;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, interval, sleep, sleep_until, timeout};

use crate::duration::spoken;
use crate::exit::{self, Status};
use crate::failure::Failure;
use crate::lease_status;
use crate::lock_request::{Acquired, LockRequest};
use crate::output::{Event, Printer};
use crate::retries::Retries;
use crate::session::Session;
use crate::signals::Signals;
use crate::view::{ClaimView, KeyView};
use crate::waiting::{Live, SHORT_WAIT};

/// How long asking who holds may take, when it is only for a message.
const HOLDER_LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it may take at the end of the waiting: without an answer the store counts as out of
/// reach, and not the key as busy.
const FINAL_LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a live line is brought up to date.
const LIVE_LINE_INTERVAL: Duration = Duration::from_millis(250);
/// How often a changed position is said where there is no live line; `-v` says each change.
const POSITION_REPORT_INTERVAL: Duration = Duration::from_secs(30);

impl Session<'_> {
    /// Asks for the lock, and does the work under it.
    pub(crate) async fn hold(
        &mut self,
        request: &LockRequest,
        work: impl AsyncFnOnce(&mut Self, MultiLease<Any>) -> Result<Status, Failure>,
    ) -> Result<Status, Failure> {
        match self.acquire(request).await {
            Ok(Some(held)) => work(self, held).await,
            Ok(None) => Ok(request.conflict.into()),
            // It gave up in a deadlock.
            Err(failure) if failure.status == exit::CONFLICT => Err(Failure {
                status: request.conflict,
                ..failure
            }),
            Err(failure) => Err(failure),
        }
    }

    /// Asks for the lock and waits as long as was said, through outages of the store too. `None`:
    /// another has it, and that was said.
    pub(crate) async fn acquire(
        &mut self,
        request: &LockRequest,
    ) -> Result<Option<MultiLease<Any>>, Failure> {
        tracing::info!(leasehold.key = %request.keys.join(", "), "asking");
        let printer = self.printer;
        let mut ui = AcquireUi {
            client: &self.client,
            printer,
            request,
            retries: &mut self.retries,
            signals: &mut self.signals,
            position: 0,
            rejoined: 0,
            rejoined_before: 0,
            told: None,
            live: None,
        };
        let got = ui.acquire_with_retries().await?;
        let Some(Acquired { held, recovered }) = got else {
            return ui.busy().await.map(|()| None);
        };
        ui.retries.usable();
        let waited = match ui.retries.interrupted {
            true => ui.retries.elapsed(),
            // The library knows of its own waiting only.
            false => held.waited(),
        };
        let announced = ui.told.is_some() || ui.retries.interrupted;
        printer.event(Event::acquired(
            &request.keys,
            &lease_status::tokens(&held),
            waited,
            lease_status::acknowledged(&held),
            (recovered, announced),
        ));
        Ok(Some(held))
    }
}

/// What is shown while the lock is asked for.
struct AcquireUi<'a, 'p> {
    client: &'a Client,
    printer: &'a Printer,
    request: &'a LockRequest,
    retries: &'a mut Retries<'p>,
    signals: &'a mut Signals,
    position: u64,
    /// How often the place in the queue was lost, all in all.
    rejoined: u32,
    /// The same before this try, with the place that an outage has cost us.
    rejoined_before: u32,
    /// The position that a line said last, and when.
    told: Option<(u64, Instant)>,
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
    /// Looks at the key; of several at the one that we wait for, or that is not free.
    fn look(&self, limit: Duration) -> Asking<'a> {
        let (client, request) = (self.client, self.request);
        let silent = move || {
            Failure::unanswered(format!("the store did not answer within {}", spoken(limit)))
        };
        let looked = async move {
            let seen = join_all(request.keys.iter().map(|key| client.inspect(key))).await;
            let endless = request.endless(seen.iter().flatten());
            // Another process may have our number, before us or in another container of this host.
            let us = Some(request.context(client).to_string());
            let ours = |claim: &ClaimView| {
                let owner = claim.owner.as_ref();
                owner.is_some_and(|owner| owner.context == us)
            };
            let view = seen.iter().flatten().map(KeyView::from).min_by_key(|view| {
                let waits = view.waiters.iter().any(ours);
                let free = view.holders.iter().all(ours) && view.waiters.is_empty();
                (!waits, free)
            });
            let Some(mut view) = view else {
                // There is a key, so there is an error.
                let failure = seen.into_iter().find_map(Result::err);
                return Err(failure.map_or_else(silent, Failure::from));
            };
            let waits = view.waiters.iter().any(ours);
            let waits_for_nobody = waits && view.holders.is_empty();
            let closed = waits_for_nobody.then(|| request.closed(client));
            let closed = OptionFuture::from(closed).await.flatten();
            // What was granted too late for us is ours, and nobody to be blamed.
            view.holders.retain(|claim| !ours(claim));
            Ok(Seen {
                view,
                closed,
                endless,
            })
        };
        Box::pin(async move {
            let looked = timeout(limit, looked).await;
            looked.unwrap_or_else(|_| Err(silent()))
        })
    }

    /// The same for a line; the first time not before the wait is worth a line.
    fn look_for_line(&self, first: bool) -> Asking<'a> {
        let looked = self.look(HOLDER_LOOKUP_TIMEOUT);
        let waits = first && !self.printer.is_live();
        Box::pin(async move {
            let seen = looked.await;
            let is_in_vain = |seen: &Seen| seen.closed.is_some() || seen.endless.is_some();
            if waits && !seen.as_ref().is_ok_and(is_in_vain) {
                sleep(SHORT_WAIT).await;
            }
            seen
        })
    }

    /// Tries until there is an answer, or the time is over. `None`: another has it.
    async fn acquire_with_retries(&mut self) -> Result<Option<Acquired>, Failure> {
        loop {
            let wait = self.retries.left();
            let tried = self.try_acquire(wait).await;
            self.live = None;
            self.printer.show_live(None);
            let unheard = self.position == 0 && !wait.is_zero();
            let failure = match tried {
                Ok(None) if unheard => match self.retries.outage() {
                    Some(failure) => return Err(self.retries.gave_up(failure)),
                    // The time was shorter than an answer takes: it may be free.
                    None => continue,
                },
                Err(failure) if unheard && failure.passing && self.retries.are_over() => continue,
                // Whether the store is still there is not known.
                Ok(None) if !wait.is_zero() => {
                    let looked = self.look(FINAL_LOOKUP_TIMEOUT);
                    let seen = tokio::select! {
                        signal = self.signals.next() => return Err(self.retries.ended_by(signal)),
                        seen = looked => seen,
                    };
                    let failure = match seen {
                        Ok(seen) => seen.closed,
                        Err(failure) => Some(failure).filter(|failure| failure.passing),
                    };
                    return failure.map_or(Ok(None), |why| Err(self.retries.gave_up(why)));
                }
                Ok(got) => return Ok(got),
                Err(failure) => failure,
            };
            // Whatever place we had is gone.
            if std::mem::take(&mut self.position) != 0 {
                self.rejoined_before = self.rejoined + 1;
            }
            self.retries.pause(failure, self.signals).await?;
        }
    }

    /// One try. `None`: it was not granted in so long.
    async fn try_acquire(&mut self, wait: Duration) -> Result<Option<Acquired>, Failure> {
        let (report, mut progress) = watch::channel((0, 0));
        let (tell, mut deadlock) = watch::channel(None);
        let hear = move |found: &Deadlock| send_if_other(&tell, Some(found.to_string()));
        let how = self.request.how(wait, hear).map(|how| {
            how.on_progress(move |now| _ = report.send_replace((now.position, now.rejoined)))
        });
        let (client, request) = (self.client, self.request);
        let (limit, silent) = self.retries.time_limit(request.patience.wait);
        let mut asking = pin!(timeout(limit, request.acquire(client, how)));
        let mut tick = interval(LIVE_LINE_INTERVAL);
        // Who waits for the key follows the outage.
        let mut over = pin!(self.retries.over());
        let mut answers = self.retries.not_now.listen();
        let mut who = request
            .looks_first(client, wait)
            .then(|| self.look(HOLDER_LOOKUP_TIMEOUT));
        loop {
            let news_due = OptionFuture::from(self.news_due());
            tokio::select! {
                biased;
                answer = &mut asking => return match answer.map_err(|_| silent)? {
                    Err(error) if error.kind() == ErrorKind::Timeout => Ok(None),
                    answer => Ok(answer?),
                },
                signal = self.signals.next() => return Err(self.retries.ended_by(signal)),
                Ok(()) = progress.changed() => {
                    let (position, rejoined) = *progress.borrow_and_update();
                    let first = self.position == 0;
                    if self.moved(position, rejoined) || first {
                        who = Some(self.look_for_line(first));
                    }
                }
                Ok(()) = deadlock.changed() => {
                    let deadlock = deadlock.borrow_and_update().clone().unwrap_or_default();
                    self.printer.event(Event::deadlocked(&request.keys, &deadlock));
                }
                failure = self.retries.follow(&mut answers), if !wait.is_zero() => {
                    return Err(failure);
                }
                Some(why) = &mut over, if request.patience.wait.is_zero() => return Err(why),
                Some(()) = news_due => self.tell_position(),
                Some(seen) = OptionFuture::from(who.as_mut()) => {
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
                        who = Some(self.look(HOLDER_LOOKUP_TIMEOUT));
                    }
                }
            }
        }
    }

    /// We stand there. Answers whether we have a new place, at the end.
    fn moved(&mut self, position: u64, rejoined: u32) -> bool {
        self.position = position;
        let rejoined = self.rejoined_before + rejoined;
        let anew = rejoined > self.rejoined;
        if anew {
            self.rejoined = rejoined;
            let keys = &self.request.keys;
            self.printer.event(Event::rejoined(keys, rejoined));
        }
        if let Some(live) = &mut self.live {
            live.moved(position, self.retries.elapsed());
        }
        anew
    }

    /// Completes when a position is to be said that has changed: a queue that moves fast is not to fill
    /// a log.
    fn news_due(&self) -> Option<Sleep> {
        let (told, at) = self.told.filter(|_| self.position != 0)?;
        let pause = match self.printer.is_verbose() {
            true => Duration::ZERO,
            false => POSITION_REPORT_INTERVAL,
        };
        (told != self.position).then(|| sleep_until(at + pause))
    }

    /// Says where we stand now, where no live line does.
    fn tell_position(&mut self) {
        self.told = Some((self.position, Instant::now()));
        let (key, waited) = (self.request.key(), self.retries.elapsed());
        self.printer.event(Event::moved(key, self.position, waited));
    }

    /// It is known who holds, or that nobody could say.
    fn seen(&mut self, seen: Option<Seen>) {
        match seen.as_ref().map(|seen| &seen.closed) {
            Some(Some(closed)) => return self.retries.unusable(closed),
            Some(None) => self.retries.answered(),
            None => {}
        }
        let (key, holders) = self.blocking(seen.map(|seen| seen.view));
        if self.live.is_none() && self.printer.is_live() {
            let live = Live::new(self.request.key(), self.position);
            self.printer.show_live(Some(live.bar.clone()));
            self.live = Some(live);
        }
        if let Some(live) = &mut self.live {
            live.held(&key, holders, self.retries.elapsed());
        } else {
            self.told = Some((self.position, Instant::now()));
            self.printer
                .event(Event::waiting(&key, self.position, &holders));
        }
    }

    /// Says who has it. In an outage, where that is nobody else, it is the outage's failure.
    async fn busy(&mut self) -> Result<(), Failure> {
        let seen = self.look(HOLDER_LOOKUP_TIMEOUT).await;
        let view = seen.ok().map(|seen| seen.view);
        if let (Some(least), Some(view)) = (self.request.once, &view) {
            self.printer.event(Event::skipped(view, least));
            return Ok(());
        }
        let others = view.as_ref().is_some_and(|view| !view.holders.is_empty());
        if let Some(failure) = self.retries.outage().filter(|_| !others) {
            return Err(self.retries.gave_up(failure));
        }
        let waited = match self.request.patience.wait {
            Duration::ZERO | Duration::MAX => Duration::ZERO,
            _ => self.retries.elapsed(),
        };
        let (key, holders) = self.blocking(view);
        self.printer.event(Event::conflict(&key, waited, &holders));
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
