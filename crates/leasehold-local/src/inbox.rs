//! Pushes between processes: one datagram socket for each client that listens.
//!
//! A datagram is text: the format and the key, then a line for each event. It
//! names no claim id, and carries no authority beyond the record's own state; what begins
//! or ends a hold carries its proof.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::ErrorKind as IoKind;
use std::os::fd::AsFd as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixDatagram as Socket;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::{Arrival, Capacity, Event, Inbox, Key, Proof, StoreTime, Token};
use leasehold_store::{Listening, Push, PushSink};
use tokio::net::UnixDatagram;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Inner;
use super::directory::Directory;
use super::file;
use super::lookout::{Lookout, look_out};
use super::name::file_name;
use super::session::socket;

/// The format of a datagram; others are not understood, and left.
const FORMAT: &str = "2";

/// The longest datagram sent.
const MAX_BYTES: usize = 32 * 1024;

/// How many datagrams the kernel keeps at least for a socket that is not read
/// (`net.unix.max_dgram_qlen`). Who finds that many may have missed some.
const KEPT: usize = 10;

/// What fits the address of a socket, the closing zero not counted.
const MAX_SOCKET_PATH: usize = 103;

/// Tells each event to its inbox, without waiting for anybody.
pub(super) fn tell(directory: &Directory, key: &Key, at: StoreTime, events: &[Event]) {
    if events.is_empty() {
        return;
    }
    let Ok(from) = Socket::unbound() else { return };
    if from.set_nonblocking(true).is_err() {
        return;
    }
    let mut letters: BTreeMap<&Inbox, String> = BTreeMap::new();
    for event in events {
        let letter = letters.entry(event.inbox()).or_default();
        if letter.len() > MAX_BYTES {
            post(&from, directory, event.inbox(), letter);
            letter.clear();
        }
        if letter.is_empty() {
            write!(letter, "{FORMAT} {key}").ok();
        }
        match Push::of(event, key, at, 0) {
            Push::Granted {
                arrival,
                token,
                at,
                proof,
                ..
            } => write!(letter, "\nG {arrival} {token} {} {proof}", at.0),
            Push::Next { arrival, left, .. } => {
                write!(letter, "\nN {arrival} {}", left.as_micros())
            }
            Push::Revoked {
                arrival, at, proof, ..
            } => write!(letter, "\nR {arrival} {} {proof}", at.0),
            Push::Adopted {
                arrival, at, proof, ..
            } => write!(letter, "\nA {arrival} {} {proof}", at.0),
            Push::Unfit {
                arrival,
                in_use,
                at,
                proof,
                ..
            } => write!(letter, "\nU {arrival} {} {} {proof}", in_use.units(), at.0),
            Push::Changed { .. } => write!(letter, "\nC"),
            Push::Reset => Ok(()),
        }
        .ok();
    }
    for (inbox, letter) in &letters {
        post(&from, directory, inbox, letter);
    }
}

fn post(from: &Socket, directory: &Directory, inbox: &Inbox, letter: &str) {
    let Some(path) = socket_path(directory, inbox) else {
        return;
    };
    if let Err(error) = from.send_to(letter.as_bytes(), path) {
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
    /// `None` where no socket could be had: the client asks more often instead.
    reader: Option<Reader>,
}

#[derive(Debug)]
struct Reader {
    open: Arc<AtomicBool>,
    tasks: [JoinHandle<()>; 2],
}

impl OpenInbox {
    pub(super) fn open(store: Arc<Inner>, sink: Arc<dyn PushSink>) -> Self {
        let epoch = store.hearing.next_epoch();
        let (sockets, bound_again) = mpsc::unbounded_channel();
        let reader = match bind(&store).and_then(UnixDatagram::from_std) {
            Ok(socket) => {
                let open = Arc::new(AtomicBool::new(true));
                let lookout = &store.lookout;
                let reading = Reading {
                    bound_again,
                    lookout: lookout.clone(),
                    sink: sink.clone(),
                    open: open.clone(),
                    epoch,
                };
                let tasks = [
                    tokio::spawn(reading.read(socket)),
                    tokio::spawn(look_out(
                        Arc::downgrade(&store),
                        lookout.clone(),
                        sink,
                        open.clone(),
                    )),
                ];
                Some(Reader { open, tasks })
            }
            Err(error) => {
                tracing::debug!(%error, "no socket for pushes: asking often instead");
                None
            }
        };
        store
            .hearing
            .open(epoch, reader.is_some().then_some(sockets));
        Self {
            store,
            epoch,
            reader,
        }
    }
}

impl Listening for OpenInbox {}

impl Drop for OpenInbox {
    fn drop(&mut self) {
        if let Some(reader) = &self.reader {
            reader.open.store(false, Ordering::SeqCst);
            reader.tasks.iter().for_each(JoinHandle::abort);
        }
        // A later one may have taken the place.
        if self.store.hearing.close(self.epoch) && self.reader.is_some() {
            *self.store.hearing.sockets() = None;
            let name = file_name(self.store.session.inbox().as_str());
            file::remove(&self.store.directory, &socket(&name));
        }
    }
}

/// Takes sockets to read from instead of those before.
pub(super) type Sockets = mpsc::UnboundedSender<Socket>;

/// Hears again after somebody has removed the socket. Before the next grant, if
/// that client's files are made again before: no push is missed.
pub(super) fn bind_again(store: &Inner) {
    if let Some(sockets) = &*store.hearing.sockets() {
        match bind(store) {
            // Fails where the inbox has just been closed.
            Ok(socket) => drop(sockets.send(socket)),
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

/// What the task needs that reads.
struct Reading {
    bound_again: mpsc::UnboundedReceiver<Socket>,
    lookout: Arc<Lookout>,
    sink: Arc<dyn PushSink>,
    open: Arc<AtomicBool>,
    epoch: u64,
}

impl Reading {
    async fn read(mut self, mut socket: UnixDatagram) {
        let mut buffer = vec![0; MAX_BYTES + 1024];
        let mut in_a_row = 0;
        loop {
            let again = tokio::select! {
                // What was sent to the one before is older.
                ready = socket.readable() => match ready {
                    Ok(()) => None,
                    Err(_) => return,
                },
                Some(again) = self.bound_again.recv() => Some(again),
            };
            if let Some(Ok(again)) = again.map(UnixDatagram::from_std) {
                socket = again;
                // Pushes went nowhere in between.
                self.push(Push::Reset);
            }
            match socket.try_recv(&mut buffer) {
                Ok(length) => {
                    in_a_row += 1;
                    for push in understood(&buffer[..length], self.epoch) {
                        self.lookout.hear(&push);
                        self.push(push);
                    }
                }
                Err(error) if error.kind() == IoKind::WouldBlock => {
                    // It was full, so later ones were turned away.
                    if in_a_row >= KEPT {
                        self.push(Push::Reset);
                    }
                    in_a_row = 0;
                }
                // Nothing was received: the socket stays.
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    fn push(&self, push: Push) {
        if self.open.load(Ordering::SeqCst) {
            self.sink.push(push);
        }
    }
}

pub(super) fn understood(letter: &[u8], epoch: u64) -> Vec<Push> {
    let Ok(letter) = std::str::from_utf8(letter) else {
        return Vec::new();
    };
    let mut lines = letter.split('\n');
    let key = lines.next().and_then(|head| head.split_once(' '));
    let Some(key) = key
        .filter(|(format, _)| *format == FORMAT)
        .and_then(|(_, key)| Key::new(key).ok())
    else {
        return Vec::new();
    };
    lines.filter_map(|line| event(line, &key, epoch)).collect()
}

fn event(line: &str, key: &Key, epoch: u64) -> Option<Push> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let key = key.clone();
    if kind == "C" {
        return Some(Push::Changed { key });
    }
    let mut word = || words.next();
    let number = |word: &str| word.parse::<u64>().ok();
    let arrival = Arrival(number(word()?)?);
    match kind {
        "G" => Some(Push::Granted {
            epoch,
            key,
            arrival,
            token: Token(number(word()?)?),
            at: StoreTime(number(word()?)?),
            proof: Proof::parse(word()?)?,
        }),
        "N" => Some(Push::Next {
            key,
            arrival,
            left: Duration::from_micros(number(word()?)?),
        }),
        "R" => Some(Push::Revoked {
            key,
            arrival,
            at: StoreTime(number(word()?)?),
            proof: Proof::parse(word()?)?,
        }),
        "A" => Some(Push::Adopted {
            key,
            arrival,
            at: StoreTime(number(word()?)?),
            proof: Proof::parse(word()?)?,
        }),
        "U" => Some(Push::Unfit {
            key,
            arrival,
            in_use: Capacity::Permits(u32::try_from(number(word()?)?).ok()?),
            at: StoreTime(number(word()?)?),
            proof: Proof::parse(word()?)?,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
