//! The connections of a client that are idle.
//!
//! Hidden: only for the crates of this repository.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Moment;
use tokio::task::JoinHandle;

use crate::clock;
use crate::sync::{Mutex, lock, sleep};

/// Keeps connections for later. All but one of those that nobody uses are closed after a time.
#[derive(Debug)]
pub struct Idle<C> {
    lingers: Duration,
    /// Each since when; the one that was used last is the last.
    connections: Mutex<Vec<(C, Moment)>>,
    /// Closes those that are idle; ends with its runtime.
    closer: Mutex<Option<JoinHandle<()>>>,
}

impl<C: Send + 'static> Idle<C> {
    /// Keeps those beside one for so long.
    #[must_use]
    pub fn new(lingers: Duration) -> Arc<Self> {
        Arc::new(Self {
            lingers,
            connections: Mutex::default(),
            closer: Mutex::default(),
        })
    }

    /// Takes the one that was used last.
    #[must_use]
    pub fn take(&self) -> Option<C> {
        lock(&self.connections).pop().map(|(it, _)| it)
    }

    /// Closes all.
    pub fn clear(&self) {
        lock(&self.connections).clear();
    }

    /// Keeps a connection for later.
    pub fn put(self: &Arc<Self>, connection: C) {
        let mut connections = lock(&self.connections);
        connections.push((connection, clock::now()));
        let mut closer = lock(&self.closer);
        if connections.len() > 1 && closer.as_ref().is_none_or(JoinHandle::is_finished) {
            let (idle, lingers) = (Arc::downgrade(self), self.lingers);
            *closer = Some(tokio::spawn(async move {
                loop {
                    sleep(lingers).await;
                    match idle.upgrade() {
                        Some(idle) if idle.close_old() => {}
                        _ => return,
                    }
                }
            }));
        }
    }

    /// Closes what nobody has used lately, but for one. Says whether to come again: if not, whoever puts
    /// back another one later starts another task.
    fn close_old(&self) -> bool {
        let (now, mut connections) = (clock::now(), lock(&self.connections));
        let is_old = |(_, since): &(C, Moment)| now.since(*since) >= self.lingers;
        let old = connections.iter().take_while(|one| is_old(one)).count();
        let most = connections.len().saturating_sub(1);
        connections.drain(..old.min(most));
        if connections.len() <= 1 {
            *lock(&self.closer) = None;
        }
        connections.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_one_that_was_used_last_stays_and_so_do_those_that_are_new() {
        let (idle, busy) = (Idle::new(Duration::ZERO), Idle::new(Duration::MAX));
        for number in 0..3 {
            idle.put(number);
            busy.put(number);
        }
        assert!(!idle.close_old());
        assert!(busy.close_old());
        assert_eq!([idle.take(), idle.take()], [Some(2), None]);
        assert_eq!([busy.take(), busy.take()], [Some(2), Some(1)]);
        busy.clear();
        assert_eq!(busy.take(), None);
    }

    #[test]
    fn a_closer_that_ended_with_its_runtime_is_replaced() {
        let begin = || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_time().build().unwrap()
        };
        let (idle, first) = (Idle::new(Duration::from_millis(1)), begin());
        first.block_on(async { [0, 1].map(|number| idle.put(number)) });
        drop(first);
        begin().block_on(async {
            idle.put(2);
            let closed = async {
                while lock(&idle.connections).len() > 1 {
                    tokio::task::yield_now().await;
                }
            };
            let closed = tokio::time::timeout(Duration::from_secs(20), closed);
            closed.await.expect("another closer");
        });
        assert_eq!(idle.take(), Some(2));
    }
}
