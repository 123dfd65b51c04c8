//! `leasehold top`: the locks of a store on a full screen, as they change.

mod columns;
mod model;
mod row;
mod screen;
#[cfg(test)]
mod tests;
mod view;

use std::io::{self, IsTerminal};
use std::time::Duration;

use crossterm::event::EventStream;
use futures_util::StreamExt as _;
use futures_util::future::OptionFuture;
use leasehold::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use self::model::{Action, Model};
use self::screen::Screen;
use self::view::ViewOptions;
use super::break_key::{break_seen, outcome};
use crate::args::TopArgs;
use crate::connect::connect;
use crate::failure::Failure;
use crate::feed::{self, Wanted, history};
use crate::output::Printer;
use crate::signals::Signals;
use crate::view::{KeyView, held_by, same_claims};
use crate::{exit, sys};

/// How often the screen is drawn without news, as times go on.
const TICK: Duration = Duration::from_secs(1);
/// How long answers are gathered before the screen is drawn, at least. With very many locks, which
/// take long to sort, it is so many times as long as a drawing takes.
const GATHER: Duration = Duration::from_millis(50);
const GATHER_FACTOR: u32 = 9;

/// Shows the locks until `q` or a signal.
pub(crate) async fn top(args: &TopArgs, printer: &Printer) -> Result<u8, Failure> {
    check_terminal()?;
    let client = connect(&args.store).await?;
    let signals = Signals::listen()?;
    let mut top = Top {
        model: Model::new(&args.keys.pattern),
        options: ViewOptions {
            store: client.store_url().to_owned(),
            colour: std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()),
            interval: args.interval,
        },
        client,
        start: Instant::now(),
        breaking: None,
    };
    let done = top.run(signals).await;
    // The user may have quit before the answer to a break.
    if let Some(Ok(told)) = OptionFuture::from(top.breaking).await {
        printer.notice(&told);
    }
    done.map(|()| exit::OK)
}

/// Refuses what cannot show a full screen.
fn check_terminal() -> Result<(), Failure> {
    let hint = "use leasehold ls --watch, or ls --json for programs";
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(Failure::usage("not a terminal: top needs one to show its screen").hint(hint));
    }
    match std::env::var("TERM") {
        Ok(term) if !matches!(&*term, "" | "dumb") => Ok(()),
        Ok(term) => Err(Failure::usage(format!(
            "the terminal cannot show a full screen: TERM is {term:?}"
        ))
        .hint(hint)),
        Err(_) => Err(Failure::usage("the terminal is unknown: TERM is not set").hint(hint)),
    }
}

struct Top {
    model: Model,
    options: ViewOptions,
    client: Client,
    start: Instant,
    /// A lock that is being broken; tells what came of it.
    breaking: Option<JoinHandle<String>>,
}

impl Top {
    async fn run(&mut self, mut signals: Signals) -> Result<(), Failure> {
        let (want, wants) = watch::channel(self.wants());
        let mut updates = feed::begin(self.client.clone(), self.options.interval, wants);
        let (want_history, key) = watch::channel(None);
        let mut history = history::begin(self.client.clone(), self.options.interval, key);
        let mut screen = enter()?;
        let mut input = EventStream::new();
        let mut draw_at = Instant::now();
        let mut gather = GATHER;
        loop {
            let now = Instant::now();
            if draw_at <= now {
                self.draw(&mut screen)?;
                gather = GATHER.max(now.elapsed() * GATHER_FACTOR);
                draw_at = Instant::now() + TICK;
                send_if_other(&want, self.wants());
                let key = self.model.details.as_ref().map(|(key, _)| key.to_string());
                send_if_other(&want_history, key);
            }
            tokio::select! {
                typed = input.next() => {
                    let Some(event) = typed else { return Ok(()) };
                    let event = event.map_err(|error| lost(&error))?;
                    draw_at = Instant::now();
                    match self.model.typed(&event, self.now()) {
                        Some(Action::Quit) => return Ok(()),
                        Some(Action::Suspend) => suspend(&mut screen)?,
                        Some(Action::Break(seen)) => {
                            self.breaking = Some(tokio::spawn(break_key(self.client.clone(), seen)));
                        }
                        None => {}
                    }
                }
                told = updates.recv() => {
                    let Some((round, update)) = told else { return Ok(()) };
                    if round == self.model.round {
                        self.model.take(update, self.now())?;
                        draw_at = draw_at.min(Instant::now() + gather);
                    }
                }
                Some(told) = history.recv() => {
                    self.model.history = Some(told);
                    draw_at = draw_at.min(Instant::now() + gather);
                }
                Some(told) = OptionFuture::from(self.breaking.as_mut()) => {
                    self.breaking = None;
                    self.model.tell(told.unwrap_or_else(|error| error.to_string()), self.now());
                    draw_at = Instant::now();
                }
                _ = signals.next() => return Ok(()),
                () = sleep_until(draw_at) => {}
            }
        }
    }

    fn draw(&mut self, screen: &mut Screen) -> Result<(), Failure> {
        let now = self.now();
        let drawn = screen.draw(|frame| {
            let area = frame.area();
            view::draw(
                &mut self.model,
                &self.options,
                now,
                area,
                frame.buffer_mut(),
            );
        });
        drawn.map_err(|error| lost(&error))
    }

    fn wants(&self) -> Wanted {
        Wanted {
            round: self.model.round,
            pattern: self.model.pattern.clone(),
            shown: self.model.shown(),
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

fn send_if_other<T: PartialEq>(to: &watch::Sender<T>, value: T) {
    to.send_if_modified(|last| {
        let changed = *last != value;
        *last = value;
        changed
    });
}

fn enter() -> Result<Screen, Failure> {
    Screen::enter(&io::stdout()).map_err(|error| lost(&error))
}

/// Gives the terminal back to the shell until the shell continues us.
fn suspend(screen: &mut Screen) -> Result<(), Failure> {
    screen.leave();
    sys::stop_self();
    *screen = enter()?;
    Ok(())
}

/// Breaks the lock as `leasehold break` does, if its holders are still those that were named in
/// the question. Answers what came of it.
async fn break_key(client: Client, asked: Box<KeyView>) -> String {
    let key = &*asked.key;
    let work = async {
        let seen = KeyView::from(&client.inspect(key).await?);
        if !same_claims(&seen.holders, &asked.holders) {
            let held = held_by(&seen.holders).unwrap_or_else(|| "free".to_owned());
            return Ok(format!("nothing was broken: now {key} is {held}"));
        }
        Ok(outcome(key, &break_seen(&client, &seen, None).await?))
    };
    work.await
        .unwrap_or_else(|error: leasehold::Error| error.to_string())
}

fn lost(error: &io::Error) -> Failure {
    Failure::new(exit::OUTPUT, format!("cannot use the terminal: {error}"))
}
