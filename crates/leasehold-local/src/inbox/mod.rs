//! Pushes between processes: one datagram socket for each client that listens.
//!
//! A datagram is JSON: the format, and the pushes. It names no claim id, and carries no authority
//! beyond the record's own state; what begins or ends a hold carries its proof.

use std::collections::BTreeMap;
use std::io::ErrorKind as IoKind;
use std::os::unix::net::UnixDatagram as Socket;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use leasehold_core::{Event, Inbox, Key, StoreTime};
use leasehold_store::fork::Process;
use leasehold_store::sync::lock;
use leasehold_store::{Listening, Push, PushSink, opened};
use tokio::net::UnixDatagram;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::Inner;
use super::directory::{Directory, INBOXES, by_descriptor};
use super::liveness::socket;
use super::name::file_name;
use super::record_file::RecordFile;

/// The format of a datagram; others are not understood, and left.
const FORMAT: u32 = 3;

/// How many pushes a datagram holds at most, and so how long it can be: each has its key.
const MOST: usize = 32;
const MAX_BYTES: usize = 64 * 1024;

/// How many datagrams the kernel keeps at least for a socket that is not read
/// (`net.unix.max_dgram_qlen`). Who finds that many may have missed some.
const KEPT: usize = 10;

/// Sends each event to its inbox, without waiting for anybody.
pub(super) fn notify(store: &Inner, key: &Key, at: StoreTime, events: &[Event]) {
    let mut letters: BTreeMap<&Inbox, Vec<Push>> = BTreeMap::new();
    for event in events {
        if event.inbox() == store.session.inbox() {
            // What this client is told by its own step needs no datagram.
            let epoch = lock(&store.subscription).epoch;
            deliver(store, epoch, Push::of(event, key, at, epoch));
        } else {
            let letter = letters.entry(event.inbox()).or_default();
            letter.push(Push::of(event, key, at, 0));
        }
    }
    // Grants first: each process that is woken takes a processor from those behind it.
    let is_grant = |push: &Push| matches!(push, Push::Granted { .. });
    let mut letters: Vec<_> = letters.into_iter().collect();
    letters.sort_by_key(|(_, pushes)| !pushes.iter().any(is_grant));
    for (inbox, pushes) in letters {
        for letter in pushes.chunks(MOST) {
            post(store, inbox, letter);
        }
    }
}

fn post(store: &Inner, inbox: &Inbox, letter: &[Push]) {
    let letter = serde_json::to_vec(&(FORMAT, letter)).unwrap_or_default();
    let name = socket(&file_name(inbox.as_str()));
    let outbox = &store.outbox;
    let sent = match store.directory.shared_socket(&name) {
        None => outbox.send_to(&letter, socket_path(&store.directory, &name)),
        Some(Ok(there)) => outbox.send_to(&letter, by_descriptor(&there)),
        Some(Err(errno)) => Err(errno.into()),
    };
    if let Err(error) = sent {
        // Who does not listen, or is behind, asks by itself.
        tracing::trace!(%error, "a push was not heard");
    }
}

/// A path of the socket. Where there is `/proc` it leads through the open descriptor, so that it
/// fits an address however long the directory's is, and whatever names on the way are by now.
fn socket_path(directory: &Directory, name: &str) -> PathBuf {
    match cfg!(target_os = "linux") {
        true => {
            let (at, name) = directory.at(name);
            by_descriptor(&at).join(name)
        }
        false => directory.path().join(name),
    }
}

/// Whether the inbox of this client is open, and how it hears.
#[derive(Default)]
pub(super) struct Subscription {
    last_epoch: u64,
    /// The epoch of the open inbox; zero while none is open.
    pub(super) epoch: u64,
    /// `None` where no socket could be had.
    pub(super) reader: Option<Reader>,
}

/// How the open inbox hears.
pub(super) struct Reader {
    /// Reads the last socket that was bound, in the runtime that listens.
    reading: JoinSet<()>,
    _watching: JoinSet<()>,
    runtime: Handle,
    sink: Arc<dyn PushSink>,
}

/// Takes a push for the inbox of that epoch, if it is still open.
pub(super) fn deliver(store: &Inner, epoch: u64, push: Push) {
    let state = lock(&store.subscription);
    let reader = state.reader.as_ref().filter(|_| state.epoch == epoch);
    let sink = reader.map(|reader| reader.sink.clone());
    drop(state);
    if let Some(sink) = sink {
        sink.push(push);
    }
}

/// Opens the inbox of this client. As long as it is open, what `watching` the claims that wait takes goes
/// on.
pub(super) fn open<W: Future<Output = ()> + Send + 'static>(
    store: Arc<Inner>,
    sink: Arc<dyn PushSink>,
    watching: impl FnOnce(u64) -> W,
) -> Box<dyn Listening> {
    let mut state = lock(&store.subscription);
    state.last_epoch += 1;
    let epoch = state.last_epoch;
    state.epoch = epoch;
    let no_socket = |error: &_| {
        tracing::debug!(%error, "cannot open a socket for pushes; polling instead");
    };
    let bound = bind(&store).inspect_err(no_socket);
    state.reader = bound.ok().map(|socket| Reader {
        reading: JoinSet::from_iter([read(socket, Arc::downgrade(&store), epoch, false)]),
        _watching: JoinSet::from_iter([watching(epoch)]),
        runtime: Handle::current(),
        sink,
    });
    drop(state);
    let process = Process::this();
    opened(move || {
        // In a forked child the socket is the parent's.
        if process.has_forked() {
            return;
        }
        let mut state = lock(&store.subscription);
        // A later one may have taken the place.
        if state.epoch == epoch {
            state.epoch = 0;
            if state.reader.take().is_some() {
                let name = file_name(store.session.inbox().as_str());
                store.directory.remove(&socket(&name));
            }
        }
    })
}

/// Hears again after somebody has removed the socket. Before the next grant, if
/// that client's files are made again before: no push is missed.
pub(super) fn bind_again(store: &Arc<Inner>) {
    let mut state = lock(&store.subscription);
    let epoch = state.epoch;
    if let Some(reader) = &mut state.reader {
        let _listening = reader.runtime.enter();
        // The directory of the sockets may have been removed, too.
        store.directory.make_part(INBOXES).ok();
        match bind(store) {
            Ok(socket) => {
                // What was sent to the one before is older.
                let again = read(socket, Arc::downgrade(store), epoch, true);
                reader.reading = JoinSet::from_iter([again]);
            }
            Err(error) => tracing::debug!(%error, "no socket for pushes any more"),
        }
    }
}

fn bind(store: &Inner) -> std::io::Result<UnixDatagram> {
    let inbox = store.session.inbox();
    let name = socket(&file_name(inbox.as_str()));
    // Left by an inbox of ours that was opened before.
    store.directory.remove(&name);
    let socket = Socket::bind(socket_path(&store.directory, &name))?;
    store.directory.share_socket(&name)?;
    socket.set_nonblocking(true)?;
    UnixDatagram::from_std(socket)
}

/// Reads what comes. Where the socket was bound `again`, pushes went nowhere in between.
async fn read(socket: UnixDatagram, store: Weak<Inner>, epoch: u64, again: bool) {
    let hear = |push| {
        if let Some(store) = store.upgrade() {
            deliver(&store, epoch, push);
        }
    };
    if again {
        hear(Push::Reset);
    }
    let mut buffer = vec![0; MAX_BYTES];
    let (mut in_a_row, mut granted) = (0, Vec::new());
    while socket.readable().await.is_ok() {
        match socket.try_recv(&mut buffer) {
            Ok(length) => {
                in_a_row += 1;
                for push in understood(&buffer[..length], epoch) {
                    if let Push::Granted { key, .. } = &push {
                        granted.push(key.clone());
                    }
                    hear(push);
                }
            }
            Err(error) if error.kind() == IoKind::WouldBlock => {
                // It was full, so later ones were turned away.
                if in_a_row >= KEPT {
                    hear(Push::Reset);
                }
                in_a_row = 0;
                if !granted.is_empty() {
                    // The tasks that were granted keys run first.
                    tokio::task::yield_now().await;
                }
                for key in granted.drain(..) {
                    // The next holder waits for the release, which has less to read then.
                    if let Some(store) = store.upgrade() {
                        RecordFile::of_key(&store, &key).read_ahead();
                    }
                }
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
