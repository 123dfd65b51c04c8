//! The live line on a terminal while we wait.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::duration::spoken;
use crate::output::escape;
use crate::view::ClaimView;

/// Every how many ticks it is worth asking again who holds.
const ASK_EVERY: u32 = 8;

/// One line: the place in the queue, who holds and since when, and how long we have waited.
#[derive(Debug)]
pub(crate) struct Live {
    bar: ProgressBar,
    key: String,
    position: u64,
    held: String,
    ticks: u32,
}

impl Live {
    pub(crate) fn new(key: &str, position: u64) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        Self {
            bar,
            key: key.to_owned(),
            position,
            held: String::new(),
            ticks: 0,
        }
    }

    pub(crate) fn bar(&self) -> ProgressBar {
        self.bar.clone()
    }

    /// The place has changed.
    pub(crate) fn moved(&mut self, position: u64, waited: Duration) {
        self.position = position;
        self.draw(waited);
    }

    /// It was seen which key is in the way, and who holds it.
    pub(crate) fn held(&mut self, key: &str, holders: &[ClaimView], waited: Duration) {
        key.clone_into(&mut self.key);
        self.held = match holders {
            [] => String::new(),
            [first, more @ ..] => {
                let since = first.since();
                let more = if more.is_empty() { "" } else { " and others" };
                format!(", held by {}{more}{since}", first.who())
            }
        };
        self.draw(waited);
    }

    /// Time has passed. Answers whether to ask again who holds.
    pub(crate) fn tick(&mut self, waited: Duration) -> bool {
        self.ticks = self.ticks.wrapping_add(1);
        self.draw(waited);
        self.ticks.is_multiple_of(ASK_EVERY)
    }

    fn draw(&self, waited: Duration) {
        let line = format!(
            "leasehold: waiting for {}, {} (position {}){}",
            self.key,
            spoken(waited),
            self.position,
            self.held
        );
        self.bar.set_message(escape(&line).into_owned());
    }
}
