//! A client: what it connects with, and the connection of this process.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use leasehold::{Client as CoreClient, ClientBuilder, Mode, Settings, background};
use leasehold_store::clock;
use leasehold_store::fork::PerProcess;
use leasehold_store::sync::lock;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use crate::args::{duration, options};
use crate::failure::Failure;
use crate::leaders::Leaders;
use crate::lock::Lock;
use crate::logging;
use crate::op::{NOTHING, Op, claims};

/// How long a client that is garbage tries to release what it has left behind.
const LEFT_BEHIND: Duration = Duration::from_secs(5);

/// The connections of a client: a forked child opens its own with its first call.
pub(crate) struct Connections {
    builder: ClientBuilder,
    of_process: PerProcess<Opening>,
    is_closed: AtomicBool,
}

/// A client, how many tries to connect it have failed, and how the last one has.
type Opening = (OnceCell<CoreClient>, Mutex<(u64, Option<Failure>)>);

impl Connections {
    pub(crate) async fn client(&self) -> Result<&CoreClient, Failure> {
        let (client, failed) = self.of_process.get_or_init(Opening::default);
        let before = client.get().is_none().then(|| lock(failed).0);
        let connect = async || {
            let (tries, failure) = lock(failed).clone();
            match failure {
                _ if self.is_closed.load(Ordering::SeqCst) => Err(Failure::closed()),
                // Others have tried while this call waited: by turns the last would wait for all.
                Some(failure) if before != Some(tries) => Err(failure),
                _ => {
                    let opened = self.builder.clone().connect().await.map_err(Failure::from);
                    opened.inspect_err(|it| *lock(failed) = (tries + 1, Some(it.clone())))
                }
            }
        };
        let client = client.get_or_try_init(connect).await?;
        // It may have been closed while it connected, when there was nothing to close.
        if self.is_closed.load(Ordering::SeqCst) {
            let _nothing_is_held = client.shutdown(Duration::ZERO).await;
        }
        Ok(client)
    }

    /// Whether all that was held or waited for is released for sure.
    async fn close(self: Arc<Self>, within: Duration) -> bool {
        self.is_closed.store(true, Ordering::SeqCst);
        match self.connected() {
            Some(client) => client.shutdown(within).await.unconfirmed == 0,
            None => true,
        }
    }

    /// The client, if this process is connected.
    pub(crate) fn connected(&self) -> Option<&CoreClient> {
        self.of_process.get()?.0.get()
    }
}

/// A client that is garbage is closed, as nobody else can do it: by itself it would keep its files and
/// connections for another second or two, and who uses a client for each directory would run out.
impl Drop for Connections {
    fn drop(&mut self) {
        if let Some(client) = self.connected().cloned() {
            background::spawn(async move { client.shutdown(LEFT_BEHIND).await });
        }
    }
}

/// A client of a store.
#[pyclass(frozen)]
pub(crate) struct Client(pub(crate) Arc<Connections>);

#[pymethods]
impl Client {
    #[new]
    fn new(url: &str, given: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (mut settings, mut builder) = (Settings::default(), CoreClient::builder().store(url));
        let set = |name: &str, value: &Bound<'_, PyAny>| {
            let (given, text) = (builder.clone(), || value.extract::<String>());
            match name {
                "ttl" => settings.ttl = duration(name, value)?,
                "waiter_ttl" => settings.waiter_ttl = duration(name, value)?,
                "operation_timeout" => settings.operation_timeout = duration(name, value)?,
                "label" => settings.label = Some(text()?),
                "user" => builder = given.user(text()?),
                "password" => builder = given.password(text()?),
                "password_file" => builder = given.password_file(value.extract::<PathBuf>()?),
                _ => return Ok(false),
            }
            Ok(true)
        };
        options("connect", given, set)?;
        Ok(Self(Arc::new(Connections {
            builder: builder.settings(settings),
            of_process: PerProcess::new(),
            is_closed: AtomicBool::new(false),
        })))
    }

    /// Opens the store.
    fn connect(&self) -> Op {
        let connections = self.0.clone();
        Op::new(async move {
            connections.client().await?;
            // One that was closed has a client, and is not opened again.
            let is_open = !connections.is_closed.load(Ordering::SeqCst);
            is_open.then_some(NOTHING).ok_or_else(Failure::closed)
        })
    }

    /// Releases all that these clients have, within this time, at once: some may be connected to
    /// servers that do not answer. `logging` gets what was logged meanwhile. Answers whether all was
    /// confirmed.
    #[staticmethod]
    fn close(clients: Vec<PyRef<'_, Self>>, within: &Bound<'_, PyAny>) -> PyResult<Op> {
        let within = duration("timeout", within)?;
        let clients: Vec<_> = clients.iter().map(|client| client.0.clone()).collect();
        Ok(Op::new(async move {
            let began = clock::now();
            let clients = clients.into_iter().map(|client| client.close(within));
            let confirmed = clients.collect::<JoinSet<_>>().join_all().await;
            logging::said(within.saturating_sub(clock::now().since(began))).await;
            Ok(!confirmed.contains(&false))
        }))
    }

    /// A lock on all these keys: a writer's, or with `permits` one that takes so many of so many.
    #[pyo3(signature = (of, keys, given, *, shared = false, permits = None))]
    fn lock(
        &self,
        of: &str,
        keys: Vec<String>,
        given: &Bound<'_, PyDict>,
        shared: bool,
        permits: Option<(u32, u32)>,
    ) -> PyResult<Lock> {
        let mode = match permits {
            Some((permits, take)) => Mode::permits(permits, take),
            None if shared => Mode::SHARED,
            None => Mode::EXCLUSIVE,
        };
        Lock::new(self.0.clone(), of, keys, mode, given)
    }

    /// Who holds a key, and who waits for it.
    fn inspect(&self, key: String) -> Op {
        let connections = self.0.clone();
        Op::new(async move { Ok(claims(connections.client().await?.inspect(key).await?)) })
    }

    /// The leaders of an election, one after the other.
    fn leaders(&self, key: String) -> Leaders {
        Leaders::new(self.0.clone(), key)
    }

    /// The audit log of a key or of all, from so long ago on: at most so many entries, as JSON.
    fn audit_log(
        &self,
        key: Option<String>,
        since: Option<&Bound<'_, PyAny>>,
        limit: usize,
    ) -> PyResult<Op> {
        let ago = since.map(|since| duration("since", since)).transpose()?;
        let from = ago.and_then(|ago| SystemTime::now().checked_sub(ago));
        let from = from.unwrap_or(SystemTime::UNIX_EPOCH);
        let connections = self.0.clone();
        Ok(Op::new(async move {
            let client = connections.client().await?;
            let mut log = client.audit_log(key.as_deref(), from)?;
            let mut entries = Vec::new();
            while entries.len() < limit {
                let page = log.next().await?;
                if page.is_empty() {
                    break;
                }
                entries.extend(page);
            }
            entries.truncate(limit);
            Ok(serde_json::to_string(&entries).unwrap_or_default())
        }))
    }

    /// Takes the key from its holders. Answers how many these were.
    fn break_key(&self, key: String) -> Op {
        let connections = self.0.clone();
        Op::new(async move { Ok(connections.client().await?.break_key(key).await?.holders) })
    }

    /// Whether a lease can be given to another client; where this process is connected.
    #[getter]
    fn hands_over(&self) -> bool {
        let client = self.0.connected();
        client.is_none_or(|client| !client.capabilities().exclusive_only)
    }

    /// The URL without its password, where this process is connected.
    #[getter]
    fn url(&self) -> Option<&str> {
        self.0.connected().map(CoreClient::store_url)
    }
}
