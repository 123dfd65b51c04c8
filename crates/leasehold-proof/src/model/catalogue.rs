//! The models by name.

use super::checker::{Effort, Findings, Method, Subject, run};
use super::queue::{Events, Part, QueueModel};
use super::seen::Seen;

/// A model, ready to run.
pub struct Entry {
    /// Its name.
    pub name: &'static str,
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
    queues()
}

fn queue(
    name: &'static str,
    parts: Vec<Part>,
    events: Events,
    wanted: &'static [&'static str],
) -> Entry {
    let subject = QueueModel {
        parts,
        events,
        seen: Seen::wanting(wanted),
    };
    Entry::new(name, Method::Exhaustive, subject)
}

fn queues() -> Vec<Entry> {
    let none = Events::default;
    vec![
        queue(
            "queue/mutex",
            vec![
                Part::writer(),
                Part::writer(),
                Part::writer(),
                Part::writer().tries(),
            ],
            Events {
                breaks: true,
                ..none()
            },
            &["granted at once", "granted while it waited", "gone", "busy"],
        ),
        queue(
            "queue/readers",
            vec![
                Part::writer(),
                Part::reader(),
                Part::reader(),
                Part::writer(),
            ],
            Events {
                downgrades: true,
                ..none()
            },
            &["granted while it waited", "two hold together"],
        ),
        queue(
            "queue/permits",
            vec![
                Part::permits(2),
                Part::permits(1),
                Part::permits(2),
                Part::permits(3),
            ],
            none(),
            &["granted while it waited", "two hold together"],
        ),
        queue(
            "queue/resized",
            vec![Part::permits(2), Part::permits(1), Part::permits(3)],
            Events {
                resizes: true,
                ..none()
            },
            &["granted while it waited", "two hold together", "mismatch"],
        ),
        queue(
            "queue/re-entrant",
            vec![
                Part::writer().of(1),
                Part::writer().of(1),
                Part::writer().of(2),
                Part::reader(),
            ],
            none(),
            &["granted while it waited", "two claims of one owner"],
        ),
        queue(
            "queue/unfair",
            vec![
                Part::writer(),
                Part::writer().ahead(),
                Part::reader().ahead().tries(),
            ],
            Events {
                unfair: true,
                ..none()
            },
            &["granted at once", "granted while it waited", "busy"],
        ),
        queue(
            "queue/minimum hold",
            vec![
                Part::writer().keeps(3),
                Part::writer().keeps(1),
                Part::reader(),
            ],
            Events {
                silence: true,
                ..none()
            },
            &["granted while it waited", "kept by its minimum hold"],
        ),
        queue(
            "queue/silence",
            vec![Part::writer(), Part::reader(), Part::reader()],
            Events {
                silence: true,
                strangers: true,
                ..none()
            },
            &["granted while it waited", "taken"],
        ),
        queue(
            "queue/losses",
            vec![Part::writer(), Part::writer(), Part::reader()],
            Events {
                losses: true,
                ..none()
            },
            &["granted while it waited"],
        ),
        queue(
            "queue/steps back",
            vec![Part::writer(), Part::writer(), Part::reader()],
            Events {
                steps_back: true,
                ..none()
            },
            &["granted while it waited"],
        ),
    ]
}
