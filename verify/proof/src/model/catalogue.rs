//! The models by name.

mod clients;
mod queues;
mod quorums;

#[cfg(test)]
pub(super) use self::queues::smallest_queue;
use super::checker::{Effort, Findings, Method, Subject, run};

/// A model, ready to run.
pub(super) struct Entry {
    /// Its name.
    pub(super) name: &'static str,
    /// Whether it takes too long for every change.
    pub(super) long: bool,
    /// Runs it.
    pub(super) run: Box<dyn Fn(Effort) -> Findings + Send + Sync>,
}

impl Entry {
    fn new(name: &'static str, method: Method, subject: impl Subject) -> Self {
        Self {
            name,
            long: false,
            run: Box::new(move |effort| run(name, &subject, method, effort)),
        }
    }
}

/// All models.
pub(super) fn all() -> Vec<Entry> {
    let all = queues::all().into_iter().chain(clients::all());
    all.chain(quorums::all()).collect()
}
