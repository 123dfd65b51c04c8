//! The leaders of an election, as observers hear of them.

use std::sync::Arc;

use leasehold_store::fork::PerProcess;
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::client::Connections;
use crate::op::{Op, Output};

/// A stream of leaders. A forked child observes anew.
#[pyclass(frozen)]
pub(crate) struct Leaders(Arc<Inner>);

struct Inner {
    connections: Arc<Connections>,
    key: String,
    of_process: PerProcess<Mutex<Option<leasehold::Leaders>>>,
}

impl Leaders {
    pub(crate) fn new(connections: Arc<Connections>, key: String) -> Self {
        Self(Arc::new(Inner {
            connections,
            key,
            of_process: PerProcess::new(),
        }))
    }
}

#[pymethods]
impl Leaders {
    /// Waits for the next change; the first is the leader of now.
    fn next(&self) -> Op {
        let inner = self.0.clone();
        Op::new(async move {
            let election = inner.connections.client().await?.election(&inner.key)?;
            let mut last = inner.of_process.get_or_init(Mutex::default).lock().await;
            // A call that ends early ends the iteration: what observes on would hold up a close.
            let mut stream = last.take().unwrap_or_else(|| election.observe());
            let leader = stream.next().await;
            *last = Some(stream);
            Ok(Output::Leader(leader?))
        })
    }
}
