use std::time::Duration;

use crate::Moment;

/// The drift allowance: what is subtracted from a TTL because clocks do not run at the same rate.
/// 1 % and 2 ms, as in Redlock (redis.io, "Distributed Locks with Redis").
#[must_use]
pub fn drift_allowance(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// Returns the part of a TTL that a client relies on.
pub(crate) fn reliable(ttl: Duration) -> Duration {
    ttl.saturating_sub(drift_allowance(ttl))
}

/// The validity of a lease: until when the client may rely on it, by its own clock.
///
/// It counts from the *sending* of a request whose answer has arrived, because the store cannot
/// have acted earlier. Only answers raise it, and it never falls by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Validity {
    until: Moment,
}

impl Validity {
    /// Confirms a request sent at `sent` that gave the claim `ttl` to live.
    pub fn confirm(&mut self, sent: Moment, ttl: Duration) {
        self.until = self.until.max(sent + reliable(ttl));
    }

    /// When the request was sent, if it is `ttl` that was confirmed last.
    pub(crate) fn counted_from(&self, ttl: Duration) -> Moment {
        self.until.before(reliable(ttl))
    }

    /// Ends the validity, because a release was sent.
    pub fn end(&mut self) {
        self.until = Moment::default();
    }

    /// Returns the end of the validity, after which another client may hold.
    #[must_use]
    pub fn until(&self) -> Moment {
        self.until
    }

    /// Returns the remaining validity at `now`; zero when it is over.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        self.until.since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_from_the_sending_and_never_falls() {
        let ttl = Duration::from_secs(30);
        let mut validity = Validity::default();
        assert_eq!(validity.remaining(Moment(0)), Duration::ZERO);
        validity.confirm(Moment(5_000_000), ttl);
        assert_eq!(validity.until(), Moment(5_000_000 + 30_000_000 - 302_000));
        validity.confirm(Moment(4_000_000), ttl);
        validity.confirm(Moment(6_000_000), Duration::from_secs(1));
        assert_eq!(
            validity.remaining(Moment(5_000_000)),
            ttl - drift_allowance(ttl)
        );
        validity.end();
        assert_eq!(validity.remaining(Moment(0)), Duration::ZERO);
    }

    #[test]
    fn a_ttl_below_its_own_drift_gives_nothing() {
        let mut validity = Validity::default();
        validity.confirm(Moment(9), Duration::from_millis(1));
        assert_eq!(validity.until(), Moment(9));
    }
}
