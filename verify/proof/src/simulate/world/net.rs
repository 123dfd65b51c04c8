//! The network between the hosts: connections whose bytes take their time, come in
//! pieces, are held up on a way that is cut, and end with a host or by themselves.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::simulation::{Dialled, Stream};
use tokio::sync::oneshot;

use super::here;
use super::stream::{End, Side};
use super::traffic::{Answer, Condition, Event};
use crate::simulate::chance::Chance;
use crate::simulate::trace::Digest;

/// The way from one host to another.
pub(crate) type Way = (usize, usize);

/// A clone is the same network.
#[derive(Clone)]
pub(crate) struct Net(Arc<Mutex<Inner>>);

pub(super) struct Inner {
    pub(super) names: BTreeMap<String, usize>,
    /// Machines that are off, and say nothing.
    pub(super) dark: BTreeSet<usize>,
    /// Whoever dialled one of these waits.
    pub(super) unanswered: Vec<Answer>,
    pub(super) pairs: BTreeMap<u64, Pair>,
    pub(super) backlogs: BTreeMap<usize, Backlog>,
    pub(super) events: BTreeMap<(Duration, u64), Event>,
    pub(super) numbers: u64,
    pub(super) ways: BTreeMap<Way, Condition>,
    pub(super) chance: Chance,
    pub(super) carried: Digest,
    pub(super) bytes: u64,
}

/// Connections that nobody has taken yet.
#[derive(Default)]
pub(super) struct Backlog {
    pub(super) waiting: VecDeque<u64>,
    pub(super) waker: Option<Waker>,
}

/// Both directions of a connection.
pub(super) struct Pair {
    /// Who dialled, and who was dialled.
    pub(super) hosts: Way,
    pub(super) sides: [Half; 2],
    /// Broken by a fault: something on its way was lost.
    pub(super) broken: bool,
}

impl Pair {
    pub(super) fn host(&self, side: Side) -> usize {
        match side {
            Side::Dialler => self.hosts.0,
            Side::Dialled => self.hosts.1,
        }
    }

    /// The side that a host has, if it has one.
    fn side_at(&self, host: usize) -> Option<Side> {
        let mut sides = [Side::Dialler, Side::Dialled].into_iter();
        sides.find(|side| self.host(*side) == host)
    }
}

/// What has arrived at one end.
#[derive(Default)]
pub(super) struct Half {
    pub(super) arrived: VecDeque<u8>,
    pub(super) ended: Option<Ended>,
    pub(super) reader: Option<Waker>,
    /// Nothing that comes later arrives before this.
    pub(super) last: Duration,
    /// Its end was dropped.
    pub(super) gone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The other side has said all.
    Finished,
    /// Broken.
    Reset,
}

impl Net {
    pub(crate) fn new(chance: Chance) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            names: BTreeMap::new(),
            dark: BTreeSet::new(),
            unanswered: Vec::new(),
            pairs: BTreeMap::new(),
            backlogs: BTreeMap::new(),
            events: BTreeMap::new(),
            numbers: 0,
            ways: BTreeMap::new(),
            chance,
            carried: Digest::default(),
            bytes: 0,
        })))
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a host a name by which it is dialled.
    pub(crate) fn name(&self, host: usize, name: &str) {
        self.inner().names.insert(name.to_owned(), host);
    }

    /// The host's process listens from now on.
    pub(crate) fn rise(&self, host: usize, listens: bool) {
        let mut inner = self.inner();
        inner.dark.remove(&host);
        if listens {
            inner.backlogs.insert(host, Backlog::default());
        }
    }

    /// The host's process is gone. Its kernel says so to the others, unless the whole
    /// machine is.
    pub(crate) fn fall(&self, host: usize, now: Duration, silently: bool) {
        let mut inner = self.inner();
        if silently {
            inner.dark.insert(host);
        }
        inner.backlogs.remove(&host);
        let pairs = inner.pairs.iter();
        let of_host = pairs.filter_map(|(number, pair)| Some((*number, pair.side_at(host)?)));
        for (pair, side) in of_host.collect::<Vec<_>>() {
            inner.end((pair, side), Ended::Reset);
            if !silently {
                inner.send(now, Event::Ended((pair, side.other()), Ended::Reset));
            }
        }
    }

    /// The next connection that was dialled to this host.
    pub(crate) async fn accept(&self, host: usize) -> End {
        poll_fn(|context| {
            let mut inner = self.inner();
            let Some(backlog) = inner.backlogs.get_mut(&host) else {
                return Poll::Pending;
            };
            match backlog.waiting.pop_front() {
                Some(pair) => Poll::Ready(End::new(self.clone(), pair, Side::Dialled)),
                None => {
                    backlog.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    pub(crate) fn dial(&self, name: &str) -> Dialled {
        let (answer, dialled) = oneshot::channel();
        let from = here::host();
        let mut inner = self.inner();
        let Some(to) = inner.names.get(name).copied() else {
            return futures_util::future::ready(Err(io::ErrorKind::NotFound.into())).boxed();
        };
        inner.send(here::time(), Event::Dial((from, to), answer));
        dialled
            .map(|end| {
                let end = end.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
                Ok(Box::new(end) as Box<dyn Stream>)
            })
            .boxed()
    }

    pub(super) fn write(&self, pair: u64, from: Side, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.inner();
        let known = inner.pairs.get(&pair);
        match known.map(|pair| pair.sides[from as usize].ended) {
            Some(Some(Ended::Reset)) | None => return Err(io::ErrorKind::BrokenPipe.into()),
            Some(_) => {}
        }
        let cut = match bytes.len() {
            len if len > 1 && inner.chance.percent(3) => inner.chance.index(len),
            len => len,
        };
        for part in [&bytes[..cut], &bytes[cut..]] {
            if !part.is_empty() {
                let event = Event::Bytes((pair, from.other()), part.to_vec());
                inner.send(here::time(), event);
            }
        }
        Ok(())
    }

    /// An end was dropped.
    pub(super) fn drop_end(&self, pair: u64, side: Side) {
        let mut inner = self.inner();
        if let Some(Pair { sides, .. }) = inner.pairs.get_mut(&pair) {
            sides[side as usize].gone = true;
            if sides[side as usize].ended.is_none() {
                let event = Event::Ended((pair, side.other()), Ended::Finished);
                inner.send(here::time(), event);
            }
            inner.forget(pair);
        }
    }

    /// When something arrives next.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.inner().events.keys().next().map(|(at, _)| *at)
    }

    /// Lets everything arrive that is due.
    pub(crate) fn deliver(&self, now: Duration) {
        loop {
            let mut inner = self.inner();
            let event = match inner.events.first_entry() {
                Some(first) if first.key().0 <= now => first.remove(),
                _ => return,
            };
            let answered = inner.arrive(event, now);
            drop(inner);
            if let Some((answer, pair)) = answered {
                let end = pair.map(|pair| End::new(self.clone(), pair, Side::Dialler));
                // Who dialled may have given up: then the end is dropped here.
                let _ = answer.send(end.map_err(Into::into));
            }
        }
    }

    // ---- faults ----

    /// Nothing passes on this way until it is opened again.
    pub(crate) fn cut(&self, way: Way) {
        self.inner().condition(way).cut = true;
    }

    /// What was held up is sent again.
    pub(crate) fn open(&self, way: Way, now: Duration) {
        self.inner().open(way, now);
    }

    /// Everything on this way takes longer by so much.
    pub(crate) fn slow(&self, way: Way, by: Duration) {
        self.inner().condition(way).extra = by;
    }

    /// Breaks the connections between two hosts: of what is on its way to `way.1`, the
    /// first bytes may still arrive. Says how many there were.
    pub(crate) fn sever(&self, way: Way, now: Duration) -> usize {
        let mut inner = self.inner();
        let pairs = inner.pairs.iter().filter(|(_, pair)| !pair.broken);
        let between = pairs.filter_map(|(number, pair)| {
            pair.side_at(way.0)?;
            Some((*number, pair.side_at(way.1)?))
        });
        let between: Vec<_> = between.collect();
        for place in &between {
            inner.break_off(*place, now);
        }
        between.len()
    }

    /// A digest of all that was carried, and how many bytes.
    pub(crate) fn carried(&self) -> (u64, u64) {
        let inner = self.inner();
        (inner.carried.value(), inner.bytes)
    }
}
