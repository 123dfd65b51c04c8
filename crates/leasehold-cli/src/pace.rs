//! How often a store is looked at, so that watching costs its server little.

use std::time::Duration;

use leasehold::Client;
use tokio::time::Instant;

/// How long to rest for the time that a look has kept the server busy: then looks take a twentieth
/// of one core at most.
const REST: u32 = 19;
/// What of a round trip counts as work of the server, at most; the rest is the network.
const NEAR: Duration = Duration::from_micros(500);
/// A key that is asked for to measure a round trip. That nobody uses it is no condition.
const PROBE: &str = "leasehold/probe";

/// Measures looks, and says how long to rest after them.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// The shortest round trip so far.
    trip: Option<Duration>,
    /// The rest that is due.
    due: Duration,
}

impl Pace {
    /// Measures a round trip by a look at one key. A store that refuses it counts as near.
    pub(crate) async fn measure(&mut self, client: &Client) {
        let asked = Instant::now();
        if client.inspect(PROBE).await.is_ok() {
            let took = asked.elapsed();
            self.trip = Some(self.trip.map_or(took, |trip| trip.min(took)));
        }
    }

    /// Notes a look that took so long, in so many round trips one after the other.
    pub(crate) fn looked(&mut self, took: Duration, trips: u32) {
        let network = self.trip.unwrap_or_default().saturating_sub(NEAR);
        self.due += took.saturating_sub(network * trips) * REST;
    }

    /// The rest for the looks since the last call.
    pub(crate) fn rest(&mut self) -> Duration {
        std::mem::take(&mut self.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn rest(trip: Option<Duration>, took: Duration, trips: u32) -> Duration {
        let mut pace = Pace {
            trip,
            due: Duration::ZERO,
        };
        pace.looked(took, trips);
        pace.rest()
    }

    #[test]
    fn looks_take_a_twentieth_of_the_time() {
        for trip in [None, Some(NEAR / 10), Some(NEAR)] {
            assert_eq!(rest(trip, 5 * MS, 2), 95 * MS, "{trip:?}");
        }
    }

    #[test]
    fn a_far_server_is_not_taken_for_a_busy_one() {
        let trip = Some(100 * MS);
        assert_eq!(rest(trip, 200 * MS, 2), MS * REST);
        assert_eq!(rest(trip, 300 * MS, 2), 101 * MS * REST);
        assert_eq!(rest(trip, 90 * MS, 1), Duration::ZERO);
    }

    #[test]
    fn rests_add_up_and_are_taken_once() {
        let mut pace = Pace::default();
        pace.looked(MS, 1);
        pace.looked(2 * MS, 1);
        assert_eq!(pace.rest(), 3 * MS * REST);
        assert_eq!(pace.rest(), Duration::ZERO);
    }
}
