//! The leaders of an election, as observers hear of them.

use std::sync::Arc;

use leasehold_store::fork::PerProcess;
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::client::Connections;
use crate::op::{Op, leads};

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
            let mut stream = inner.of_process.get_or_init(Mutex::default).lock().await;
            let stream = stream.get_or_insert_with(|| election.observe());
            Ok(stream.next().await?.map(leads))
        })
    }
}
