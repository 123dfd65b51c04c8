//! The live line on a terminal while we wait.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::termios::tcgetwinsize;
use tokio::time::Instant;
use unicode_width::UnicodeWidthStr;

use crate::duration::spoken;
use crate::output::{cut, escape, takes_more};
use crate::view::ClaimView;

/// A shorter wait is not said where there is no live line.
pub(crate) const SHORT_WAIT: Duration = Duration::from_millis(300);

/// Every how many ticks it is worth asking again who holds.
const ASK_EVERY: u32 = 8;

/// The width of a terminal that does not tell it.
const USUAL_WIDTH: usize = 80;

/// The least that is left of a key or a name that is cut.
const SHORTEST: usize = 6;

/// One line: the position in the queue, who holds and for how long, and how long we have waited.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) bar: ProgressBar,
    key: String,
    position: u64,
    waited: Duration,
    /// Those who hold the key, of whom the first is named; nobody where that is not known.
    holders: Vec<ClaimView>,
    /// When the holder was seen.
    seen: Instant,
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
            key: escape(key).into_owned(),
            position,
            waited: Duration::ZERO,
            holders: Vec::new(),
            seen: Instant::now(),
            ticks: 0,
        }
    }

    /// The position has changed.
    pub(crate) fn moved(&mut self, position: u64, waited: Duration) {
        self.position = position;
        self.draw(waited);
    }

    /// It was seen which key is in the way, and who holds it.
    pub(crate) fn held(&mut self, key: &str, holders: Vec<ClaimView>, waited: Duration) {
        self.key = escape(key).into_owned();
        self.holders = holders;
        self.seen = Instant::now();
        self.draw(waited);
    }

    /// Time has passed. Answers whether to ask again who holds.
    pub(crate) fn tick(&mut self, waited: Duration) -> bool {
        self.ticks = self.ticks.wrapping_add(1);
        self.draw(waited);
        self.ticks.is_multiple_of(ASK_EVERY)
    }

    fn draw(&mut self, waited: Duration) {
        self.waited = waited;
        let size = tcgetwinsize(std::io::stderr()).ok();
        let width = size.map_or(0, |size| usize::from(size.ws_col));
        let width = if width == 0 { USUAL_WIDTH } else { width };
        let line = self.fitted(width, self.seen.elapsed());
        if takes_more(&std::io::stderr()) {
            self.bar.set_message(line);
        }
    }

    /// The line in at most that many columns: the position and who holds for how long are kept.
    fn fitted(&self, width: usize, since_seen: Duration) -> String {
        let fits = |line: &String| line.width() <= width;
        let long = |key: &str, name: &str| {
            let held = self.holding((" held by ", " for "), name, since_seen);
            let (position, waited) = (self.position, spoken(self.waited));
            format!("leasehold: waiting for {key}, position {position}, {waited};{held}")
        };
        let short = |key: &str, name: &str| {
            let held = self.holding((" ", ", "), name, since_seen);
            format!("{key} #{}:{held}", self.position)
        };
        let named = |name: fn(&ClaimView) -> String| {
            let name = self.holders.first().map(name).unwrap_or_default();
            escape(&name).into_owned()
        };
        // `build7 (pid 812, label deploy)`; then `deploy`, or `build7 (pid 812)`.
        let (who, name) = (named(ClaimView::who), named(ClaimView::short_name));
        let whole = [
            long(&self.key, &who),
            long(&self.key, &name),
            short(&self.key, &name),
        ];
        whole.into_iter().find(fits).unwrap_or_else(|| {
            let rest = short("", "").width();
            let room = width.saturating_sub(rest).max(2 * SHORTEST);
            let left_by_name = room.saturating_sub(name.width());
            let of_key = self.key.width().min(left_by_name.max(room / 2));
            short(&cut(&self.key, of_key), &cut(&name, room - of_key))
        })
    }

    /// Who holds it and for how long; nothing where that is not known.
    fn holding(&self, (by, held_for): (&str, &str), name: &str, since_seen: Duration) -> String {
        let [first, others @ ..] = &*self.holders else {
            return " the holder is not known".to_owned();
        };
        let others = match others.len() {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        let age = first.age.map(|age| spoken(age + since_seen));
        let age = age.map(|age| format!("{held_for}{age}"));
        format!("{by}{name}{others}{}", age.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(key: &str, label: Option<&str>) -> Live {
        Live {
            waited: Duration::from_secs(12),
            holders: vec![crate::view::example(label)],
            ..Live::new(key, 2)
        }
    }

    #[test]
    fn the_line_keeps_holder_time_and_position_in_40_and_80_columns() {
        let soon = Duration::from_secs(3);
        let shown = |key, label, width| line(key, label).fitted(width, soon);
        assert_eq!(
            shown("orders/42", Some("deploy"), 120),
            "leasehold: waiting for orders/42, position 2, 12 s; \
             held by build7 (pid 812, label deploy) for 4 min 3 s"
        );
        assert_eq!(
            shown("orders/42", Some("deploy"), 80),
            "leasehold: waiting for orders/42, position 2, 12 s; held by deploy for 4 min 3 s"
        );
        assert_eq!(
            shown("orders/42", None, 40),
            "orders/42 #2: build7 (pid 81…, 4 min 3 s"
        );
    }

    #[test]
    fn long_names_are_cut_and_nothing_else() {
        let key = "a-very-long-key/with/many/parts/and/more";
        let shown = line(key, Some("a-label-that-never-ends")).fitted(40, Duration::ZERO);
        assert!(shown.width() <= 40, "{shown}");
        assert!(
            shown.contains(" #2: ") && shown.ends_with(", 4 min"),
            "{shown}"
        );
    }

    #[test]
    fn others_are_counted_and_an_unknown_holder_is_said() {
        let mut shared = line("config", None);
        shared.holders = vec![crate::view::example(None); 4];
        assert!(
            shared
                .fitted(120, Duration::ZERO)
                .contains("(pid 812) and 3 more for 4 min")
        );
        shared.holders.clear();
        assert!(
            shared
                .fitted(80, Duration::ZERO)
                .ends_with("; the holder is not known")
        );
    }
}
