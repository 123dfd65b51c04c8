//! What is on its way between hosts: when it arrives, and what that does.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use tokio::sync::oneshot;

use super::net::{Ended, Half, Inner, Pair, Way};
use super::stream::{End, Side};

/// How a way is.
#[derive(Debug)]
pub(super) struct Condition {
    usual: Duration,
    pub(super) extra: Duration,
    pub(super) cut: bool,
    /// What waits for the way to be open again.
    pub(super) held: Vec<Event>,
}

/// On which connection, and at which side of it.
pub(super) type Place = (u64, Side);

/// Something that arrives.
#[derive(Debug)]
pub(super) enum Event {
    Bytes(Place, Vec<u8>),
    Ended(Place, Ended),
    Dial(Way, Answer),
    /// And the connection that came of it, if one did.
    Dialled(Way, Answer, Opened),
}

pub(super) type Answer = oneshot::Sender<io::Result<End>>;

/// The number of a connection, or why there is none.
type Opened = Result<u64, io::ErrorKind>;

impl Event {
    fn place(&self) -> Option<Place> {
        match self {
            Self::Bytes(place, _) | Self::Ended(place, _) => Some(*place),
            Self::Dial(..) | Self::Dialled(..) => None,
        }
    }

    fn way(&self, pairs: &BTreeMap<u64, Pair>) -> Option<Way> {
        match self {
            Self::Bytes((pair, to), _) | Self::Ended((pair, to), _) => {
                let pair = pairs.get(pair)?;
                Some((pair.host(to.other()), pair.host(*to)))
            }
            Self::Dial(way, _) | Self::Dialled(way, ..) => Some(*way),
        }
    }
}

impl Inner {
    pub(super) fn condition(&mut self, way: Way) -> &mut Condition {
        let chance = &mut self.chance;
        self.ways.entry(way).or_insert_with(|| Condition {
            usual: chance.mostly_short(Duration::from_micros(200)..=Duration::from_millis(4)),
            extra: Duration::ZERO,
            cut: false,
            held: Vec::new(),
        })
    }

    pub(super) fn send(&mut self, now: Duration, event: Event) {
        let Some(way) = event.way(&self.pairs) else {
            return;
        };
        let Condition { usual, extra, .. } = *self.condition(way);
        let jitter = self.chance.mostly_short(Duration::ZERO..=usual * 2);
        let mut at = now + usual + extra + jitter;
        if let Some((pair, to)) = event.place()
            && let Some(pair) = self.pairs.get_mut(&pair)
        {
            let half = &mut pair.sides[to as usize];
            at = at.max(half.last);
            half.last = at;
        }
        self.schedule(at, event);
    }

    fn schedule(&mut self, at: Duration, event: Event) {
        self.numbers += 1;
        self.events.insert((at, self.numbers), event);
    }

    /// Something arrives; says whose dialling came to an end by it.
    pub(super) fn arrive(&mut self, event: Event, now: Duration) -> Option<(Answer, Opened)> {
        let way = event.way(&self.pairs)?;
        let condition = self.condition(way);
        if condition.cut {
            condition.held.push(event);
            return None;
        }
        match event {
            Event::Bytes(place, bytes) => self.take(place, &bytes, now),
            Event::Ended(place, how) => {
                self.end(place, how);
                self.forget(place.0);
            }
            Event::Dial(way, answer) if self.dark.contains(&way.1) => {
                self.unanswered.push(answer);
            }
            Event::Dial(way, answer) => {
                let pair = self.enter_backlog(way);
                self.send(now, Event::Dialled((way.1, way.0), answer, pair));
            }
            Event::Dialled(_, answer, pair) => return Some((answer, pair)),
        }
        None
    }

    fn enter_backlog(&mut self, way: Way) -> Opened {
        let backlog = self.backlogs.get_mut(&way.1);
        let backlog = backlog.ok_or(io::ErrorKind::ConnectionRefused)?;
        self.numbers += 1;
        backlog.waiting.push_back(self.numbers);
        if let Some(waker) = backlog.waker.take() {
            waker.wake();
        }
        let pair = Pair {
            hosts: way,
            sides: Default::default(),
            broken: false,
        };
        self.pairs.insert(self.numbers, pair);
        Ok(self.numbers)
    }

    /// Bytes arrive at one side.
    fn take(&mut self, (pair, to): Place, bytes: &[u8], now: Duration) {
        self.carried.add(&now.as_nanos().to_le_bytes());
        self.carried.add(&pair.to_le_bytes());
        self.carried.add(bytes);
        self.bytes += bytes.len() as u64;
        let Some(it) = self.pairs.get_mut(&pair) else {
            return;
        };
        let reader = it.host(to);
        let half = &mut it.sides[to as usize];
        if half.gone || half.ended == Some(Ended::Reset) {
            // Nobody reads it any more: the kernel says so, if there is one.
            if !self.dark.contains(&reader) {
                self.send(now, Event::Ended((pair, to.other()), Ended::Reset));
            }
        } else {
            half.arrived.extend(bytes);
            half.wake();
        }
    }

    pub(super) fn end(&mut self, (pair, side): Place, how: Ended) {
        if let Some(pair) = self.pairs.get_mut(&pair) {
            let half = &mut pair.sides[side as usize];
            if half.ended != Some(Ended::Reset) {
                half.ended = Some(how);
            }
            if how == Ended::Reset {
                half.arrived.clear();
            }
            half.wake();
        }
    }

    /// Forgets a connection that nobody has an end of any more.
    pub(super) fn forget(&mut self, pair: u64) {
        let done = |pair: &Pair| pair.sides.iter().all(|half| half.gone);
        if self.pairs.get(&pair).is_some_and(done) {
            self.pairs.remove(&pair);
        }
    }

    /// What was held up on a way is sent again, and before what has been sent since.
    pub(super) fn open(&mut self, way: Way, now: Duration) {
        let condition = self.condition(way);
        condition.cut = false;
        let mut again = std::mem::take(&mut condition.held);
        let on_way = |event: &Event| event.way(&self.pairs) == Some(way);
        let since = self.events.iter().filter(|(_, event)| on_way(event));
        let since: Vec<_> = since.map(|(at, _)| *at).collect();
        again.extend(since.iter().filter_map(|at| self.events.remove(at)));
        for event in &again {
            if let Some((pair, to)) = event.place()
                && let Some(pair) = self.pairs.get_mut(&pair)
            {
                pair.sides[to as usize].last = now;
            }
        }
        for event in again {
            self.send(now, event);
        }
    }

    /// Breaks a connection: what is on its way is lost, but for the first bytes to `to`
    /// where that way is open.
    pub(super) fn break_off(&mut self, place: Place, now: Duration) {
        let (pair, to) = place;
        match self.pairs.get_mut(&pair) {
            Some(pair) if !pair.broken => pair.broken = true,
            // What is under way comes after what was lost.
            _ => return,
        }
        let of_it = |event: &Event| event.place().is_some_and(|(of, _)| of == pair);
        let mut held = false;
        for condition in self.ways.values_mut() {
            let before = condition.held.len();
            condition.held.retain(|event| !of_it(event));
            held |= condition.held.len() < before;
        }
        let under_way = self.events.iter().filter(|(_, event)| of_it(event));
        let under_way: Vec<_> = under_way.map(|(at, _)| *at).collect();
        let mut first = None;
        for at in under_way {
            if let Some(Event::Bytes((_, side), bytes)) = self.events.remove(&at)
                && side == to
            {
                first.get_or_insert(bytes);
            }
        }
        if let Some(mut bytes) = first.filter(|_| !held) {
            let some = self.chance.index(bytes.len() + 1);
            bytes.truncate(some);
            self.take(place, &bytes, now);
        }
        for side in [Side::Dialler, Side::Dialled] {
            self.send(now, Event::Ended((pair, side), Ended::Reset));
        }
    }
}

impl Half {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::Net;
    use super::super::here::Here;
    use crate::simulate::chance::Chance;

    use super::*;

    const WAYS: [Way; 2] = [(0, 1), (1, 0)];

    /// Two hosts with a connection between them, which is disturbed while both sides talk.
    fn talk(seed: u64) {
        let mut chance = Chance::new(seed, "talk");
        let net = Net::new(Chance::new(seed, "net"));
        net.name(1, "server");
        net.rise(1, true);
        let mut now = Duration::ZERO;
        let at = |now| Here::looked_at(0, now).enter();
        let mut dialled = {
            let _here = at(now);
            net.dial("server")
        };
        let mut accepted = None;
        let dialler = loop {
            now += Duration::from_millis(1);
            net.deliver(now);
            accepted = accepted.or_else(|| net.accept(1).now_or_never());
            if let Some(end) = (&mut dialled).now_or_never() {
                break end.unwrap();
            }
        };
        let accepted: Box<dyn leasehold::simulation::Stream> = Box::new(accepted.unwrap());
        let mut ends = [(dialler, 0_u64, 0_u64), (accepted, 0, 0)];
        for _ in 0..400 {
            now += chance.time(Duration::from_micros(50)..=Duration::from_millis(4));
            let _here = at(now);
            net.deliver(now);
            let way = WAYS[chance.index(2)];
            match chance.index(200) {
                0 => drop(net.sever(way, now)),
                1..10 => net.cut(way),
                10..30 => net.open(way, now),
                30..35 => net.slow(way, chance.time(Duration::ZERO..=Duration::from_millis(20))),
                _ => {}
            }
            for (end, written, read) in &mut ends {
                let next = written.to_be_bytes();
                if matches!(end.write_all(&next).now_or_never(), Some(Ok(()))) {
                    *written += 1;
                }
                while let Some(Ok(byte)) = end.read_u8().now_or_never() {
                    let place = usize::try_from(*read % 8).unwrap();
                    let sent = (*read / 8).to_be_bytes()[place];
                    assert_eq!(byte, sent, "seed {seed}, byte {read}");
                    *read += 1;
                }
            }
        }
    }

    #[test]
    fn what_arrives_is_in_order_and_without_gaps() {
        (0..300).for_each(talk);
    }
}
