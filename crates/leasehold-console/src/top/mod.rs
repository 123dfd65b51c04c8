//! The locks of a store on a full screen, as they change.

mod columns;
mod keys;
mod model;
mod view;

use std::mem::ManuallyDrop;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{io, iter};

use crossterm::cursor::Show;
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste, EventStream};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use futures_util::StreamExt as _;
use futures_util::future::OptionFuture;
use leasehold::Client;
use ratatui::backend::CrosstermBackend;
use ratatui::{DefaultTerminal, Frame, Terminal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::keys::Action;
use self::model::Model;
use crate::ConsoleError;
use crate::breaking::break_if;
use crate::feed::{self, Load, send_if_other};
use crate::histories::Histories;
use crate::lock_table::Update;
use crate::view::{KeyView, same_holders};

/// How often the screen is drawn without news, as times go on.
const TICK: Duration = Duration::from_secs(1);
/// How long answers are gathered before the screen is drawn, at least. With very many locks, which
/// take long to sort, it is so many times as long as a drawing takes.
const GATHER: Duration = Duration::from_millis(50);
const GATHER_FACTOR: u32 = 9;

/// What is shown, and how.
#[derive(Debug)]
pub struct TopOptions {
    /// Whose locks.
    pub store: String,
    /// Which keys.
    pub pattern: String,
    /// How often the store is asked.
    pub interval: Duration,
    /// Whether colours may be used.
    pub colour: bool,
}

/// Shows the locks on standard output, until the user quits or `end` comes. `suspend` stops this
/// process as Ctrl-Z does. Answers also what came of breaks, where the user has not seen it.
pub async fn top<E>(
    client: Client,
    options: TopOptions,
    end: impl Future<Output = E>,
    suspend: fn(),
) -> (Result<(), ConsoleError>, Vec<String>) {
    let mut top = Top {
        model: Model::new(&options.pattern),
        histories: Histories::new(client.clone(), options.interval),
        options,
        client,
        suspend,
        load: Load::default(),
        shows: watch::Sender::default(),
        breaking: JoinSet::new(),
    };
    let ended = tokio::select! {
        ended = top.run() => ended,
        _ = end => Ok(()),
    };
    // The user may have quit before the answer to a break.
    let mut broke = Vec::new();
    while let Some(told) = top.breaking.join_next().await {
        broke.extend(told);
    }
    (ended, broke)
}

struct Top {
    model: Model,
    options: TopOptions,
    client: Client,
    suspend: fn(),
    histories: Histories,
    load: Load,
    /// The keys on the screen.
    shows: watch::Sender<Vec<String>>,
    /// Locks that are being broken; tells what came of it.
    breaking: JoinSet<String>,
}

impl Top {
    async fn run(&mut self) -> Result<(), ConsoleError> {
        let mut updates = self.read();
        let enter = || Screen::enter().map_err(ConsoleError::Terminal);
        let mut screen = enter()?;
        let mut input = EventStream::new();
        let (mut draw_at, mut gather) = (Instant::now(), GATHER);
        loop {
            let now = Instant::now();
            if draw_at <= now {
                let (model, options) = (&mut self.model, &self.options);
                let draw = |frame: &mut Frame<'_>| view::draw(model, options, now, frame);
                screen.draw(draw).map_err(ConsoleError::Terminal)?;
                gather = GATHER.max(now.elapsed() * GATHER_FACTOR);
                draw_at = Instant::now() + TICK;
                send_if_other(&self.shows, self.model.shown());
                self.follow();
            }
            let history = self.model.history.as_mut();
            let history = history.map(|(_, known)| known.changed());
            tokio::select! {
                typed = input.next() => {
                    let Some(event) = typed else { return Ok(()) };
                    let event = event.map_err(ConsoleError::Terminal)?;
                    draw_at = Instant::now();
                    match self.model.typed(&event, draw_at) {
                        Some(Action::Quit) => return Ok(()),
                        Some(Action::Suspend) => {
                            // Until the shell continues us, the terminal is its.
                            drop(screen);
                            (self.suspend)();
                            screen = enter()?;
                        }
                        // What comes for another pattern comes too late.
                        Some(Action::Read) => updates = self.read(),
                        Some(Action::Break(seen)) => {
                            self.breaking.spawn(break_key(self.client.clone(), seen));
                        }
                        None => {}
                    }
                }
                told = updates.recv() => {
                    let Some(update) = told else { return Ok(()) };
                    let taken = self.model.take(update, Instant::now());
                    taken.map_err(ConsoleError::Store)?;
                    draw_at = draw_at.min(Instant::now() + gather);
                }
                Some(Ok(())) = OptionFuture::from(history) => {
                    draw_at = draw_at.min(Instant::now() + gather);
                }
                Some(told) = self.breaking.join_next() => {
                    draw_at = Instant::now();
                    let others = iter::from_fn(|| self.breaking.try_join_next());
                    let all = iter::once(told).chain(others);
                    let all = all.map(|told| told.unwrap_or_else(|error| error.to_string()));
                    let all: Vec<_> = all.collect();
                    self.model.tell(all.join("; "), draw_at);
                }
                () = sleep_until(draw_at) => {}
            }
        }
    }

    /// Begins to read the locks that match the filter.
    fn read(&self) -> mpsc::Receiver<Update> {
        let (client, interval) = (self.client.clone(), self.options.interval);
        let (load, shown) = (self.load.clone(), Some(self.shows.subscribe()));
        feed::begin(client, interval, load, &self.model.pattern, shown)
    }

    /// Follows the history of the key whose details are shown.
    fn follow(&mut self) {
        let key = self.model.details.as_ref().map(|(key, _)| key);
        if key != self.model.history.as_ref().map(|(key, _)| key) {
            let follow = |key: &String| Some((key.clone(), self.histories.follow(key)?));
            self.model.history = key.and_then(follow);
        }
    }
}

/// Standard output as a full screen. The terminal is as it was before when this is dropped, and when
/// anything panics.
///
/// The drop of `DefaultTerminal` would write once more, and panic where nothing can be written.
struct Screen(ManuallyDrop<DefaultTerminal>);

/// Whether there is one: it is left once, whoever leaves it.
static ENTERED: AtomicBool = AtomicBool::new(false);

impl Screen {
    fn enter() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let hook = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                // Else the message would be on the screen that is left.
                leave();
                hook(panic);
            }));
        });
        check_size()?;
        enable_raw_mode()?;
        ENTERED.store(true, Ordering::Relaxed);
        let mut out = io::stdout();
        let entered = execute!(out, EnterAlternateScreen, EnableBracketedPaste)
            .and_then(|()| Terminal::new(CrosstermBackend::new(out)));
        let entered = entered.map(|terminal| Self(ManuallyDrop::new(terminal)));
        entered.inspect_err(|_| leave())
    }

    fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if !ENTERED.load(Ordering::Relaxed) {
            return Err(io::Error::other("another part of leasehold has failed"));
        }
        check_size()?;
        self.0.draw(draw).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Refuses a terminal that claims to be larger than any is: copies of all its cells are kept.
fn check_size() -> io::Result<()> {
    let (columns, rows) = size()?;
    let fits = u32::from(columns) * u32::from(rows) < 1 << 21;
    let claimed = format!("it says that it has {columns} columns and {rows} rows");
    fits.then_some(()).ok_or_else(|| io::Error::other(claimed))
}

fn leave() {
    if ENTERED.swap(false, Ordering::Relaxed) {
        let mut out = io::stdout();
        // A terminal that has gone needs nothing.
        let _ = execute!(out, DisableBracketedPaste, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Breaks the lock as `leasehold break` does, if its holders are still those that were named in
/// the question. Answers what came of it.
async fn break_key(client: Client, asked: Box<KeyView>) -> String {
    let are_these = |now: &KeyView| same_holders(&now.holders, &asked.holders);
    let broke = break_if(&client, &asked.key, None, are_these).await;
    broke.map_or_else(|error| error.to_string(), |(_, said)| said)
}

#[cfg(test)]
mod tests;
