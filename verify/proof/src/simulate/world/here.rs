//! Which host runs now, and what its clocks show.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::net::Net;

/// Where a host's clocks began: a machine that has been up for a while.
const UP_FOR: Duration = Duration::from_secs(100_000);
/// The world begins in November 2023.
const WALL: Duration = Duration::from_secs(1_700_000_000);

/// What a host's oscillator makes of the world's time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rate {
    /// Parts in a million by which it is fast.
    pub(crate) ppm: i64,
}

impl Rate {
    fn scale(nanos: u128, by: i64, of: i64) -> Duration {
        let scaled = i128::try_from(nanos).unwrap_or(i128::MAX) * i128::from(by) / i128::from(of);
        Duration::from_nanos(u64::try_from(scaled).unwrap_or(0))
    }

    /// The host's time at that time of the world.
    pub(crate) fn local(self, world: Duration) -> Duration {
        Self::scale(world.as_nanos(), 1_000_000 + self.ppm, 1_000_000)
    }

    /// The world's time at that time of the host.
    pub(crate) fn world(self, local: Duration) -> Duration {
        Self::scale(local.as_nanos(), 1_000_000, 1_000_000 + self.ppm)
    }
}

/// How the time is known.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    /// The host runs: its runtime's clock, which showed `base` at the local time `from`.
    Runtime { base: Instant, from: Duration },
    /// Somebody looks at it from outside.
    Fixed(Duration),
}

/// A host, as what runs on it sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Here {
    pub(super) host: usize,
    pub(super) rate: Rate,
    /// By how much its time of day is ahead of the world's.
    pub(super) wall: i64,
    pub(super) source: Source,
    /// By how much the clock that leases go by is late: it should not be.
    pub(super) lag: Duration,
}

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

/// Leaves the host when it is dropped.
pub(crate) struct Entered(Option<Here>);

impl Drop for Entered {
    fn drop(&mut self) {
        HERE.set(self.0.take());
    }
}

impl Here {
    /// Where the clocks are the world's.
    pub(super) fn looked_at(host: usize, local: Duration) -> Self {
        Self {
            host,
            rate: Rate::default(),
            wall: 0,
            source: Source::Fixed(local),
            lag: Duration::ZERO,
        }
    }

    #[must_use = "it is left when this is dropped"]
    pub(crate) fn enter(self) -> Entered {
        Entered(HERE.replace(Some(self)))
    }

    fn local(&self) -> Duration {
        match self.source {
            Source::Runtime { base, from } => from + Instant::now().duration_since(base),
            Source::Fixed(local) => local,
        }
    }
}

fn here() -> Here {
    let nobody = Here::looked_at(usize::MAX, Duration::ZERO);
    HERE.with_borrow(|here| here.unwrap_or(nobody))
}

/// The host that runs.
pub(crate) fn host() -> usize {
    here().host
}

/// The world's time, to the microsecond, where the host is.
pub(crate) fn time() -> Duration {
    let here = here();
    here.rate.world(here.local())
}

/// How long a span of the host's time is in the world.
pub(crate) fn in_world(local: Duration) -> Duration {
    here().rate.world(local)
}

/// How long the host has been up, by its own clock.
pub(crate) fn up_for() -> Duration {
    let here = here();
    UP_FOR + here.local() - here.lag
}

/// The host's time of day.
pub(crate) fn wall() -> Duration {
    let here = here();
    let wall = WALL + here.local();
    let by = Duration::from_micros(here.wall.unsigned_abs());
    if here.wall < 0 {
        wall.saturating_sub(by)
    } else {
        wall + by
    }
}

/// What the library asks.
impl leasehold::simulation::World for Net {
    fn now(&self) -> leasehold::core::Moment {
        leasehold::core::Moment(u64::try_from(up_for().as_micros()).unwrap_or(u64::MAX))
    }

    fn wall(&self) -> Duration {
        wall()
    }

    fn whereabouts(&self) -> (String, u32) {
        (format!("host-{}", host()), 1)
    }

    fn dial(&self, host: &str, _port: u16) -> leasehold::simulation::Dialled {
        Self::dial(self, host)
    }
}

/// Brings the seams to the library.
pub(crate) fn bring(net: Net) -> leasehold::simulation::Brought {
    leasehold::simulation::bring(Rc::new(net))
}
