//! A server as far as leasehold uses one: the protocol, the data, the scripts that the
//! client sends, and who listens. Its clock is its host's.

mod data;
mod reply;
mod script;
mod structs;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_store::sync::lock;
use leasehold_testkit::proxy;
use leasehold_testkit::proxy::resp::{Piece, Splitter, strings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub(crate) use data::Data;
use reply::Reply;
use script::Scripts;

use super::flaws::Flaw;
use super::world::{End, Net, up_for, wall};

/// A call of a script, as a client made it.
#[cfg(test)]
#[derive(Clone)]
pub(crate) struct Call {
    text: Vec<u8>,
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
    wall: Duration,
}

#[cfg(test)]
thread_local! {
    /// What was called on this thread: for the comparison with a real server.
    static CALLS: std::cell::RefCell<Vec<Call>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// What outlives the process.
pub(crate) type Disk = Arc<Mutex<Data>>;

/// One process of a server.
pub(crate) struct Server {
    inside: Arc<Inside>,
    scripts: Mutex<Scripts>,
    run_id: String,
}

/// What scripts reach too.
struct Inside {
    data: Disk,
    ears: Mutex<Ears>,
    /// Whether the script that runs has written.
    dirty: AtomicBool,
    clock: Mutex<Clock>,
}

/// The server's time of day. A command takes a microsecond: without that the world's
/// servers would do any number of things at the same time, which no server can.
#[derive(Default)]
struct Clock {
    /// Until when it has worked, by a clock that nobody sets.
    busy: Duration,
    now: Duration,
}

impl Clock {
    /// A command begins.
    fn tick(&mut self) {
        let up_for = up_for();
        self.busy = up_for.max(self.busy + Duration::from_micros(1));
        self.now = wall() + (self.busy - up_for);
    }
}

/// Who listens: channels, and the connections that subscribed to them.
#[derive(Default)]
struct Ears {
    connections: u64,
    channels: BTreeMap<Vec<u8>, BTreeMap<u64, Caller>>,
}

/// One connection.
#[derive(Clone)]
struct Caller {
    number: u64,
    resp3: Arc<AtomicBool>,
    out: UnboundedSender<Vec<u8>>,
}

impl Caller {
    fn send(&self, reply: &Reply) {
        let mut bytes = Vec::new();
        reply.encode(self.resp3.load(Ordering::Relaxed), &mut bytes);
        // A connection that is gone hears nothing.
        let _ = self.out.send(bytes);
    }
}

impl Inside {
    /// Tells all who listen; how many there were.
    fn publish(&self, channel: &[u8], text: &[u8]) -> Reply {
        let ears = lock(&self.ears);
        let callers = ears.channels.get(channel);
        let push = ["message".as_bytes(), channel, text].map(Reply::bulk);
        let push = Reply::Push(push.to_vec());
        let callers = callers.into_iter().flatten();
        let count = callers.map(|(_, caller)| caller.send(&push)).count();
        Reply::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    fn run(&self, name: &str, words: &[Vec<u8>], dirty: bool) -> Reply {
        match (name, words) {
            ("PUBLISH", [_, channel, text]) => self.publish(channel, text),
            _ => {
                let now = lock(&self.clock).now;
                let answer =
                    lock(&self.data).run(name, words.get(1..).unwrap_or_default(), now, dirty);
                answer.unwrap_or_else(|| data::unknown(words))
            }
        }
    }

    /// Runs a command of a script.
    fn command(&self, words: &[Vec<u8>]) -> Reply {
        let name = name_of(words);
        let reply = self.run(&name, words, self.dirty.load(Ordering::Relaxed));
        if data::writes(&name) && !matches!(reply, Reply::Error(_)) {
            self.dirty.store(true, Ordering::Relaxed);
        }
        reply
    }
}

fn name_of(words: &[Vec<u8>]) -> String {
    let name = words.first().map_or(&[][..], Vec::as_slice);
    String::from_utf8_lossy(name).to_ascii_uppercase()
}

impl Server {
    /// A process that finds `data` on its disk.
    pub(crate) fn new(data: Disk, run_id: u64, flaw: Option<Flaw>) -> mlua::Result<Arc<Self>> {
        let inside = Arc::new(Inside {
            data,
            ears: Mutex::default(),
            dirty: AtomicBool::new(false),
            clock: Mutex::default(),
        });
        let scripts = Mutex::new(Scripts::new(&inside, flaw)?);
        Ok(Arc::new(Self {
            inside,
            scripts,
            run_id: format!("{run_id:040x}"),
        }))
    }

    /// Takes connections from now on; called on its host.
    pub(crate) fn serve(self: &Arc<Self>, net: &Net, host: usize) {
        let (server, net) = (Arc::clone(self), net.clone());
        tokio::spawn(async move {
            loop {
                let end = net.accept(host).await;
                tokio::spawn(Arc::clone(&server).converse(end));
            }
        });
    }

    /// Forgets its scripts, as `SCRIPT FLUSH` makes it.
    pub(crate) fn forget_scripts(&self) {
        lock(&self.scripts).forget_all();
    }

    async fn converse(self: Arc<Self>, mut end: End) {
        let (out, mut outgoing) = unbounded_channel();
        let number = {
            let mut ears = lock(&self.inside.ears);
            ears.connections += 1;
            ears.connections
        };
        let resp3 = Arc::default();
        let caller = Caller { number, resp3, out };
        let mut bytes = Vec::new();
        loop {
            tokio::select! {
                biased;
                Some(reply) = outgoing.recv() => {
                    if end.write_all(&reply).await.is_err() {
                        break;
                    }
                }
                read = end.read_buf(&mut bytes) => {
                    if !matches!(read, Ok(some) if some > 0) || !self.take(&caller, &mut bytes) {
                        break;
                    }
                }
            }
        }
        let mut ears = lock(&self.inside.ears);
        for callers in ears.channels.values_mut() {
            callers.remove(&number);
        }
    }

    /// Carries out what has come, and leaves what is not whole yet; false if it is no protocol.
    fn take(&self, caller: &Caller, bytes: &mut Vec<u8>) -> bool {
        for piece in Splitter::new(proxy::End::Client).split(bytes) {
            let Piece::Frame(frame) = piece else {
                caller.send(&Reply::error("ERR Protocol error"));
                return false;
            };
            bytes.drain(..frame.len());
            self.carry_out(caller, &strings(&frame));
        }
        true
    }

    fn carry_out(&self, caller: &Caller, words: &[Vec<u8>]) {
        lock(&self.inside.clock).tick();
        let name = name_of(words);
        let rest = words.get(1..).unwrap_or_default();
        let reply = match name.as_str() {
            "HELLO" => {
                let is_3 = rest.first().is_some_and(|version| version == b"3");
                caller.resp3.store(is_3, Ordering::Relaxed);
                self.hello(caller)
            }
            "PING" => Reply::Status("PONG".to_owned()),
            "CLIENT" | "SELECT" | "AUTH" => Reply::ok(),
            "INFO" => Reply::bulk(self.info()),
            "SCRIPT" => self.script(rest),
            "EVAL" => {
                let text = rest.first().map_or(&[][..], Vec::as_slice);
                let loaded = lock(&self.scripts).load(text);
                loaded.map_or_else(Reply::Error, |hash| self.evaluate(&hash, rest))
            }
            "EVALSHA" => {
                let hash = rest.first().map(|hash| String::from_utf8_lossy(hash));
                let hash = hash.map(|hash| hash.to_ascii_lowercase());
                self.evaluate(&hash.unwrap_or_default(), rest)
            }
            "SUBSCRIBE" | "UNSUBSCRIBE" => return self.subscribe(caller, &name, rest),
            _ => self.inside.run(&name, words, false),
        };
        caller.send(&reply);
    }

    fn hello(&self, caller: &Caller) -> Reply {
        let proto = 2 + i64::from(caller.resp3.load(Ordering::Relaxed));
        let id = i64::try_from(caller.number).unwrap_or(i64::MAX);
        let fields = [
            ("server", Reply::bulk("redis")),
            ("version", Reply::bulk(VERSION)),
            ("proto", Reply::Int(proto)),
            ("id", Reply::Int(id)),
            ("mode", Reply::bulk("standalone")),
            ("role", Reply::bulk("master")),
            ("modules", Reply::Array(Vec::new())),
        ];
        let fields = fields.map(|(name, value)| (Reply::bulk(name), value));
        Reply::Map(fields.into())
    }

    fn info(&self) -> String {
        format!(
            "redis_version:{VERSION}\r\nrun_id:{}\r\nrole:master\r\nconnected_slaves:0\r\nloading:0\r\n\
             maxmemory:0\r\nmaxmemory_policy:noeviction\r\ncluster_enabled:0\r\naof_enabled:1\r\n",
            self.run_id
        )
    }

    fn script(&self, words: &[Vec<u8>]) -> Reply {
        let (name, mut scripts) = (name_of(words), lock(&self.scripts));
        match (&*name, words) {
            ("LOAD", [_, text]) => scripts.load(text).map_or_else(Reply::Error, Reply::bulk),
            _ => data::unknown(words),
        }
    }

    /// `words`: the script or its hash, the number of keys, keys, arguments.
    fn evaluate(&self, hash: &str, words: &[Vec<u8>]) -> Reply {
        let count = words
            .get(1)
            .and_then(|count| std::str::from_utf8(count).ok()?.parse::<usize>().ok());
        let Some((keys, arguments)) =
            count.and_then(|count| words.get(2..)?.split_at_checked(count))
        else {
            return Reply::error("ERR Number of keys can't be greater than number of args");
        };
        let scripts = lock(&self.scripts);
        #[cfg(test)]
        if let Some(text) = scripts.text(hash) {
            let (keys, arguments) = (keys.to_vec(), arguments.to_vec());
            let call = Call {
                text,
                keys,
                arguments,
                wall: lock(&self.inside.clock).now,
            };
            CALLS.with_borrow_mut(|calls| calls.push(call));
        }
        self.inside.dirty.store(false, Ordering::Relaxed);
        scripts.run(hash, keys, arguments)
    }

    fn subscribe(&self, caller: &Caller, name: &str, channels: &[Vec<u8>]) {
        let mut ears = lock(&self.inside.ears);
        for channel in channels {
            let callers = ears.channels.entry(channel.clone()).or_default();
            if name == "SUBSCRIBE" {
                callers.insert(caller.number, caller.clone());
            } else {
                callers.remove(&caller.number);
            }
            let mine = |callers: &&BTreeMap<u64, Caller>| callers.contains_key(&caller.number);
            let count = ears.channels.values().filter(mine).count();
            caller.send(&Reply::Push(vec![
                Reply::bulk(name.to_ascii_lowercase()),
                Reply::bulk(channel),
                Reply::Int(i64::try_from(count).unwrap_or(i64::MAX)),
            ]));
        }
        ears.channels.retain(|_, callers| !callers.is_empty());
    }
}

const VERSION: &str = "7.0.15";
