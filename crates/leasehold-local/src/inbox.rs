//! Pushes between processes: one datagram socket for each client that listens.
//!
//! A datagram is JSON: the format, and the pushes. It names no claim id, and carries no authority
//! beyond the record's own state; what begins or ends a hold carries its proof.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind as IoKind;
use std::os::fd::AsFd as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixDatagram as Socket;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_core::{Event, Inbox, Key, StoreTime};
use leasehold_store::{Listening, Push, PushSink};
use tokio::net::UnixDatagram;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::death_watcher::watch;
use super::directory::Directory;
use super::file;
use super::name::file_name;
use super::session::socket;
use super::{Inner, SubscriptionState};

/// The format of a datagram; others are not understood, and left.
const FORMAT: u32 = 3;

/// How many pushes a datagram holds at most, and so how long it can be: each has its key.
const MOST: usize = 32;
const MAX_BYTES: usize = 64 * 1024;

/// How many datagrams the kernel keeps at least for a socket that is not read
/// (`net.unix.max_dgram_qlen`). Who finds that many may have missed some.
const KEPT: usize = 10;

/// What fits the address of a socket, the closing zero not counted.
const MAX_SOCKET_PATH: usize = 103;

/// Sends each event to its inbox, without waiting for anybody.
pub(super) fn notify(store: &Inner, key: &Key, at: StoreTime, events: &[Event]) {
    let mut letters: BTreeMap<&Inbox, Vec<Push>> = BTreeMap::new();
    for event in events {
        if event.inbox() == store.session.inbox() {
            hear_at_once(store, key, at, event);
        } else {
            let letter = letters.entry(event.inbox()).or_default();
            letter.push(Push::of(event, key, at, 0));
        }
    }
    for (inbox, pushes) in letters {
        for letter in pushes.chunks(MOST) {
            post(store, inbox, letter);
        }
    }
}

/// What this client is told by its own step needs no datagram.
fn hear_at_once(store: &Inner, key: &Key, at: StoreTime, event: &Event) {
    let SubscriptionState { epoch, reader } = store.subscription.state().clone();
    if let Some(reader) = reader {
        reader.pushes.push(Push::of(event, key, at, epoch));
    }
}

/// The socket from which datagrams are sent.
pub(super) fn outbox() -> std::io::Result<Socket> {
    let socket = Socket::unbound()?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn post(store: &Inner, inbox: &Inbox, letter: &[Push]) {
    let Some(path) = socket_path(&store.directory, inbox) else {
        return;
    };
    let letter = serde_json::to_vec(&(FORMAT, letter)).unwrap_or_default();
    if let Err(error) = store.outbox.send_to(&letter, path) {
        // Who does not listen, or is behind, asks by itself.
        tracing::trace!(%error, "a push was not heard");
    }
}

/// A path of the socket that fits an address. Long directories are reached
/// through the open descriptor, where there is `/proc`.
fn socket_path(directory: &Directory, inbox: &Inbox) -> Option<PathBuf> {
    let name = socket(&file_name(inbox.as_str()));
    let path = directory.path().join(&name);
    if path.as_os_str().len() <= MAX_SOCKET_PATH {
        return Some(path);
    }
    let fd = directory.as_fd().as_raw_fd();
    let path = PathBuf::from(format!("/proc/self/fd/{fd}/{name}"));
    Some(path).filter(|path| cfg!(target_os = "linux") && path.as_os_str().len() <= MAX_SOCKET_PATH)
}

/// The open inbox of this client.
#[derive(Debug)]
pub(super) struct OpenInbox {
    store: Arc<Inner>,
    epoch: u64,
    open: Arc<AtomicBool>,
    /// Ends with this. Empty where no socket could be had: the client asks more often instead.
    _tasks: JoinSet<()>,
}

impl OpenInbox {
    pub(super) fn open(store: Arc<Inner>, sink: Arc<dyn PushSink>) -> Self {
        let epoch = store.subscription.next_epoch();
        let open = Arc::new(AtomicBool::new(true));
        let mut tasks = JoinSet::new();
        let reader = match bind(&store).and_then(UnixDatagram::from_std) {
            Ok(socket) => {
                let (sockets, bound_again) = mpsc::unbounded_channel();
                let (watcher, open) = (store.watcher.clone(), open.clone());
                let pushes = Pushes { sink, open };
                tasks.spawn(watch(Arc::downgrade(&store), watcher, pushes.clone()));
                tasks.spawn(read(socket, bound_again, epoch, pushes.clone()));
                Some(Reader { sockets, pushes })
            }
            Err(error) => {
                tracing::debug!(%error, "no socket for pushes: asking often instead");
                None
            }
        };
        store.subscription.open(epoch, reader);
        Self {
            store,
            epoch,
            open,
            _tasks: tasks,
        }
    }
}

impl Listening for OpenInbox {}

impl Drop for OpenInbox {
    fn drop(&mut self) {
        self.open.store(false, Ordering::SeqCst);
        // A later one may have taken the place.
        if self.store.subscription.close(self.epoch) {
            let name = file_name(self.store.session.inbox().as_str());
            file::remove(&self.store.directory, &socket(&name));
        }
    }
}

/// How the open inbox hears.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    /// Takes sockets to read from instead of those before.
    sockets: mpsc::UnboundedSender<Socket>,
    pushes: Pushes,
}

/// Where pushes go while the inbox is open.
#[derive(Clone)]
pub(super) struct Pushes {
    sink: Arc<dyn PushSink>,
    open: Arc<AtomicBool>,
}

impl Pushes {
    pub(super) fn push(&self, push: Push) {
        if self.open.load(Ordering::SeqCst) {
            self.sink.push(push);
        }
    }
}

impl fmt::Debug for Pushes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pushes").finish_non_exhaustive()
    }
}

/// Hears again after somebody has removed the socket. Before the next grant, if
/// that client's files are made again before: no push is missed.
pub(super) fn bind_again(store: &Inner) {
    if let Some(reader) = store.subscription.state().reader.clone() {
        match bind(store) {
            // Fails where the inbox has just been closed.
            Ok(socket) => drop(reader.sockets.send(socket)),
            Err(error) => tracing::debug!(%error, "no socket for pushes any more"),
        }
    }
}

fn bind(store: &Inner) -> std::io::Result<Socket> {
    let inbox = store.session.inbox();
    let path = socket_path(&store.directory, inbox).ok_or_else(|| {
        std::io::Error::new(IoKind::InvalidInput, "the directory's path is too long")
    })?;
    // Left by an inbox of ours that was opened before.
    file::remove(&store.directory, &socket(&file_name(inbox.as_str())));
    let socket = Socket::bind(path)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Reads what comes, from the last socket that was bound.
async fn read(
    mut socket: UnixDatagram,
    mut bound_again: mpsc::UnboundedReceiver<Socket>,
    epoch: u64,
    pushes: Pushes,
) {
    let mut buffer = vec![0; MAX_BYTES];
    let mut in_a_row = 0;
    loop {
        let again = tokio::select! {
            // What was sent to the one before is older.
            ready = socket.readable() => match ready {
                Ok(()) => None,
                Err(_) => return,
            },
            Some(again) = bound_again.recv() => Some(again),
        };
        if let Some(Ok(again)) = again.map(UnixDatagram::from_std) {
            socket = again;
            // Pushes went nowhere in between.
            pushes.push(Push::Reset);
        }
        match socket.try_recv(&mut buffer) {
            Ok(length) => {
                in_a_row += 1;
                let heard = understood(&buffer[..length], epoch);
                heard.into_iter().for_each(|push| pushes.push(push));
            }
            Err(error) if error.kind() == IoKind::WouldBlock => {
                // It was full, so later ones were turned away.
                if in_a_row >= KEPT {
                    pushes.push(Push::Reset);
                }
                in_a_row = 0;
            }
            // Nothing was received: the socket stays.
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// The pushes in a letter, which came on that epoch. What is not understood is left.
pub(super) fn understood(letter: &[u8], epoch: u64) -> Vec<Push> {
    let Ok((FORMAT, mut pushes)) = serde_json::from_slice::<(u32, Vec<Push>)>(letter) else {
        return Vec::new();
    };
    for push in &mut pushes {
        if let Push::Granted { epoch: of, .. } = push {
            *of = epoch;
        }
    }
    pushes
}

#[cfg(test)]
mod tests;
