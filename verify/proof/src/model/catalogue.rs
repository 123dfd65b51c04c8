//! The models by name.

mod clients;
mod queues;
mod quorums;

#[cfg(test)]
pub(super) use self::queues::smallest_queue;
use super::checker::{Effort, Findings, Method, Subject, run};

/// A model, ready to run.
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Whether it takes too long for every change.
    pub long: bool,
    run: Box<dyn Fn(Effort) -> Findings + Send + Sync>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Entry {
    fn new(name: &'static str, method: Method, subject: impl Subject) -> Self {
        Self {
            name,
            long: false,
            run: Box::new(move |effort| run(name, &subject, method, effort)),
        }
    }

    /// Runs it.
    #[must_use]
    pub fn run(&self, effort: Effort) -> Findings {
        (self.run)(effort)
    }
}

/// All models.
#[must_use]
pub fn all() -> Vec<Entry> {
    let mut all = queues::all();
    all.extend(clients::all());
    all.extend(quorums::all());
    all
}
