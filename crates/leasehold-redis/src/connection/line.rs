//! Requests that wait to be sent together, and the tasks that send them.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::std_ext::lock;

/// What waits for a sender: requests `R`, in order of arrival, each with where its answer `A` goes.
pub(super) struct Line<R, A>(Mutex<Queue<R, A>>);

struct Queue<R, A> {
    waiting: Vec<(R, oneshot::Sender<A>)>,
    senders: usize,
}

impl<R, A> Default for Line<R, A> {
    fn default() -> Self {
        let (waiting, senders) = (Vec::new(), 0);
        Self(Mutex::new(Queue { waiting, senders }))
    }
}

impl<R, A> Line<R, A> {
    /// Adds a request. `starts` decides by how many wait now, and how many senders there are,
    /// whether the caller starts another; else one of them takes the request along.
    pub(super) fn push(
        self: &Arc<Self>,
        request: R,
        starts: impl FnOnce(usize, usize) -> bool,
    ) -> (oneshot::Receiver<A>, Option<Sender<R, A>>) {
        let (answer, answered) = oneshot::channel();
        let mut queue = lock(&self.0);
        queue.waiting.push((request, answer));
        let started = starts(queue.waiting.len(), queue.senders);
        queue.senders += usize::from(started);
        let line = || Arc::clone(self);
        let sender = started.then(|| Sender {
            line: line(),
            done: false,
        });
        (answered, sender)
    }
}

/// The place of a task that sends until nothing waits. If it is dropped before that (its runtime
/// ends), and it is the last, nothing stays behind in the line.
pub(super) struct Sender<R, A> {
    line: Arc<Line<R, A>>,
    done: bool,
}

impl<R, A> Sender<R, A> {
    /// The first `limit` requests whose callers have not left; `None`: nothing waits, and this
    /// sender is done.
    pub(super) fn take(&mut self, limit: usize) -> Option<Vec<(R, oneshot::Sender<A>)>> {
        let mut queue = lock(&self.line.0);
        queue.waiting.retain(|(_, answer)| !answer.is_closed());
        self.done = queue.waiting.is_empty();
        queue.senders -= usize::from(self.done);
        let count = queue.waiting.len().min(limit);
        (!self.done).then(|| queue.waiting.drain(..count).collect())
    }
}

impl<R, A> Drop for Sender<R, A> {
    fn drop(&mut self) {
        if !self.done {
            let mut queue = lock(&self.line.0);
            queue.senders -= 1;
            if queue.senders == 0 {
                queue.waiting.clear();
            }
        }
    }
}
