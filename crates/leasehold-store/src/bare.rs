//! A server without locks: what `leasehold bench` measures beside them.

use std::fmt::Debug;
use std::ops::Sub;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::StoreError;

/// A server, through connections of its own.
#[async_trait]
pub trait BareServer: Debug + Send + Sync {
    /// Returns what can be measured. The first is one bare round trip.
    fn works(&self) -> &'static [BareWork];

    /// Does one of them, by its place, for that task.
    ///
    /// # Errors
    /// As a step of the store.
    async fn work(&self, place: usize, task: usize) -> Result<(), StoreError>;

    /// Returns what the server has spent, if it tells: in calls as one of the works makes them, or as
    /// locks do.
    ///
    /// # Errors
    /// As a step of the store.
    async fn cost(&self, place: Option<usize>) -> Result<Option<ServerCost>, StoreError> {
        let _ = place;
        Ok(None)
    }

    /// Deletes what the works have left, if the end of the connections does not.
    ///
    /// # Errors
    /// As a step of the store.
    async fn clear(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A piece of work.
#[derive(Debug)]
#[non_exhaustive]
pub struct BareWork {
    /// Its name in JSON.
    pub name: &'static str,
    /// The same for people.
    pub title: &'static str,
    /// The name of the figure that compares locks with it, and how many pairs of an acquire and a
    /// release one stands for.
    pub ratio: Option<(&'static str, f64)>,
}

impl BareWork {
    /// Makes it of its names, and of what compares locks with it.
    #[must_use]
    pub const fn new(
        name: &'static str,
        title: &'static str,
        ratio: Option<(&'static str, f64)>,
    ) -> Self {
        Self { name, title, ratio }
    }
}

/// What a server has spent since it was started, on all of its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerCost {
    /// Calls.
    pub calls: u64,
    /// The time in them.
    pub time: Duration,
    /// Processor time of the whole server, networking included.
    pub cpu: Duration,
}

impl Sub for ServerCost {
    type Output = Self;

    fn sub(self, then: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(then.calls),
            time: self.time.saturating_sub(then.time),
            cpu: self.cpu.saturating_sub(then.cpu),
        }
    }
}
