//! Limits the load that repeated looks put on a store: a pause after each, as long as it needs.

use std::time::Duration;

use leasehold::Client;
use tokio::time::{Instant, sleep};

/// The pause after a look is so many times as long as the look kept the server busy. So looks take
/// at most a twentieth of one core.
const PAUSE: u32 = 19;
/// This much of a round trip counts as work of the server; the rest is the network.
const NEAR: Duration = Duration::from_micros(500);
/// No look takes so long: one that seems to was under way while this process or the server was stopped.
const LONGEST_LOOK: Duration = Duration::from_secs(5);
/// The longest pause that is left for others.
const MOST_LEFT: Duration = Duration::from_secs(5);
/// A key to measure a round trip with. It need not be in use.
const PROBE: &str = "leasehold/probe";

/// Adds up the pauses for the looks at one store.
#[derive(Debug, Default)]
pub(crate) struct LoadLimit {
    /// The shortest round trip so far.
    round_trip: Option<Duration>,
    /// The pause that is due.
    due: Duration,
    /// When the one that was taken last is over.
    taken: Option<Instant>,
    /// Whether the last request has failed.
    pub(crate) failed: bool,
}

impl LoadLimit {
    /// Measures a round trip by a look at one key. A store that refuses it counts as near.
    pub(crate) async fn measure_round_trip(&mut self, client: &Client) {
        let asked = Instant::now();
        if let Err(error) = client.inspect(PROBE).await {
            self.failed |= error.is_unavailable();
            return;
        }
        let took = asked.elapsed();
        self.round_trip = Some(self.round_trip.map_or(took, |shortest| shortest.min(took)));
    }

    /// Records a look: how long it took, in how many round trips one after the other. After a failure
    /// it may have been waited for until the server came back: that is no load.
    pub(crate) fn record(&mut self, took: Duration, round_trips: u32) {
        if std::mem::take(&mut self.failed) {
            return;
        }
        let network = self.round_trip.unwrap_or_default().saturating_sub(NEAR);
        let took = took.saturating_sub(network * round_trips);
        self.due += took.min(LONGEST_LOOK) * PAUSE;
    }

    /// The pause for the looks since the last call.
    pub(crate) fn take_pause(&mut self) -> Duration {
        let pause = std::mem::take(&mut self.due);
        self.taken = Some(Instant::now() + pause);
        pause
    }

    /// What is left of the pause that was taken last is due again: who took it has ended.
    pub(crate) fn give_back(&mut self) {
        if let Some(end) = self.taken.take() {
            let left = end.saturating_duration_since(Instant::now());
            self.due += left.min(MOST_LEFT);
        }
    }

    /// Pauses for a part of that, for looks that are not to be late. The rest is left for others, and
    /// all of it by who is dropped meanwhile.
    pub(crate) async fn pause_up_to(&mut self, longest: Duration) {
        let pause = self.due.min(longest);
        sleep(pause).await;
        // A busy machine makes looks seem to cost more than they do.
        self.due = (self.due - pause).min(MOST_LEFT);
    }
}

#[cfg(test)]
mod tests {
    use leasehold::testing::TestStore;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pause(round_trip: Option<Duration>, took: Duration, round_trips: u32) -> Duration {
        let mut load = LoadLimit {
            round_trip,
            ..LoadLimit::default()
        };
        load.record(took, round_trips);
        load.take_pause()
    }

    #[test]
    fn looks_take_a_twentieth_of_the_time() {
        for round_trip in [None, Some(NEAR / 10), Some(NEAR)] {
            assert_eq!(pause(round_trip, 5 * MS, 2), 95 * MS, "{round_trip:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_paused_at_once_is_left() {
        let (mut load, begun) = (LoadLimit::default(), Instant::now());
        load.record(5 * MS, 1);
        load.pause_up_to(40 * MS).await;
        assert!((40 * MS..50 * MS).contains(&begun.elapsed()));
        assert_eq!(load.take_pause(), 55 * MS);
        load.record(Duration::from_secs(60), 1);
        load.pause_up_to(MS).await;
        assert!((41 * MS..60 * MS).contains(&begun.elapsed()));
        assert_eq!(load.take_pause(), MOST_LEFT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_was_taken_is_due_again_as_far_as_it_is_not_over() {
        let mut load = LoadLimit::default();
        load.record(5 * MS, 1);
        sleep(load.take_pause() - 40 * MS).await;
        load.give_back();
        assert!((39 * MS..=40 * MS).contains(&load.take_pause()));
        load.record(Duration::from_secs(60), 1);
        let _ = load.take_pause();
        load.give_back();
        load.give_back();
        assert_eq!(load.take_pause(), MOST_LEFT);
    }

    #[test]
    fn time_on_the_network_is_no_load() {
        let round_trip = Some(100 * MS);
        assert_eq!(pause(round_trip, 200 * MS, 2), MS * PAUSE);
        assert_eq!(pause(round_trip, 300 * MS, 2), 101 * MS * PAUSE);
        assert_eq!(pause(round_trip, 90 * MS, 1), Duration::ZERO);
    }

    /// As after Ctrl-Z in `top` while a request was under way.
    #[test]
    fn the_time_of_a_process_that_was_stopped_is_no_load() {
        let hour = Duration::from_secs(60 * 60);
        assert_eq!(pause(None, hour, 1), LONGEST_LOOK * PAUSE);
    }

    #[test]
    fn pauses_add_up_and_are_taken_once() {
        let mut load = LoadLimit::default();
        load.record(MS, 1);
        load.record(2 * MS, 1);
        assert_eq!(load.take_pause(), 3 * MS * PAUSE);
        assert_eq!(load.take_pause(), Duration::ZERO);
    }

    /// Else a screen shows nothing new for up to 95 s after an outage.
    #[tokio::test]
    async fn the_first_answer_after_a_probe_that_failed_is_no_load() {
        let store = TestStore::new();
        let client = store.connect().await.unwrap();
        store.make_unavailable();
        let mut load = LoadLimit::default();
        load.measure_round_trip(&client).await;
        load.record(3000 * MS, 1);
        assert_eq!(load.take_pause(), Duration::ZERO);
        load.record(MS, 1);
        assert_eq!(load.take_pause(), MS * PAUSE);
    }
}
