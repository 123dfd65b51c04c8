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

/// Something that arrives.
#[derive(Debug)]
pub(super) enum Event {
    Bytes {
        pair: u64,
        to: Side,
        bytes: Vec<u8>,
    },
    Ended {
        pair: u64,
        to: Side,
        how: Ended,
    },
    Dial {
        way: Way,
        answer: Answer,
    },
    Dialled {
        way: Way,
        pair: Result<u64, io::ErrorKind>,
        answer: Answer,
    },
}

pub(super) type Answer = oneshot::Sender<io::Result<End>>;

impl Event {
    fn way(&self, pairs: &BTreeMap<u64, Pair>) -> Option<Way> {
        match self {
            Self::Bytes { pair, to, .. } | Self::Ended { pair, to, .. } => {
                let (dialler, dialled) = pairs.get(pair)?.hosts;
                Some(if *to == Side::Dialled {
                    (dialler, dialled)
                } else {
                    (dialled, dialler)
                })
            }
            Self::Dial { way, .. } | Self::Dialled { way, .. } => Some(*way),
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
        if let Event::Bytes { pair, to, .. } | Event::Ended { pair, to, .. } = &event
            && let Some(pair) = self.pairs.get_mut(pair)
        {
            let half = &mut pair.sides[*to as usize];
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
    pub(super) fn arrive(
        &mut self,
        event: Event,
        now: Duration,
    ) -> Option<(Answer, Result<u64, io::ErrorKind>)> {
        let way = event.way(&self.pairs)?;
        let condition = self.condition(way);
        if condition.cut {
            condition.held.push(event);
            return None;
        }
        match event {
            Event::Bytes { pair, to, bytes } => self.take(pair, to, &bytes, now),
            Event::Ended { pair, to, how } => {
                self.end(pair, to, how);
                self.forget(pair);
            }
            Event::Dial { way, answer } if self.dark.contains(&way.1) => {
                self.unanswered.push(answer);
            }
            Event::Dial { way, answer } => {
                let (pair, back) = (self.enter_backlog(way), (way.1, way.0));
                self.send(
                    now,
                    Event::Dialled {
                        way: back,
                        pair,
                        answer,
                    },
                );
            }
            Event::Dialled { pair, answer, .. } => return Some((answer, pair)),
        }
        None
    }

    fn enter_backlog(&mut self, way: Way) -> Result<u64, io::ErrorKind> {
        let backlog = self
            .backlogs
            .get_mut(&way.1)
            .ok_or(io::ErrorKind::ConnectionRefused)?;
        self.numbers += 1;
        backlog.waiting.push_back(self.numbers);
        if let Some(waker) = backlog.waker.take() {
            waker.wake();
        }
        let sides = Default::default();
        self.pairs.insert(self.numbers, Pair { hosts: way, sides });
        Ok(self.numbers)
    }

    /// Bytes arrive at one side.
    fn take(&mut self, pair: u64, to: Side, bytes: &[u8], now: Duration) {
        self.carried.add(&now.as_nanos().to_le_bytes());
        self.carried.add(&pair.to_le_bytes());
        self.carried.add(bytes);
        self.bytes += bytes.len() as u64;
        let Some(Pair { sides, hosts }) = self.pairs.get_mut(&pair) else {
            return;
        };
        let reader = if to == Side::Dialled {
            hosts.1
        } else {
            hosts.0
        };
        let half = &mut sides[to as usize];
        if half.gone || half.ended == Some(Ended::Reset) {
            // Nobody reads it any more: the kernel says so, if there is one.
            if !self.dark.contains(&reader) {
                self.send(
                    now,
                    Event::Ended {
                        pair,
                        to: to.other(),
                        how: Ended::Reset,
                    },
                );
            }
        } else {
            half.arrived.extend(bytes);
            half.wake();
        }
    }

    pub(super) fn end(&mut self, pair: u64, side: Side, how: Ended) {
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

    pub(super) fn break_off(&mut self, pair: u64, to: Side, now: Duration) {
        let under_way: Vec<_> = self
            .events
            .iter()
            .filter(|(_, event)| matches!(event, Event::Bytes { pair: of, .. } | Event::Ended { pair: of, .. } if *of == pair))
            .map(|(at, _)| *at)
            .collect();
        let mut first = None;
        for at in under_way {
            if let Some(Event::Bytes {
                to: at_side, bytes, ..
            }) = self.events.remove(&at)
                && at_side == to
            {
                first.get_or_insert(bytes);
            }
        }
        if let Some(mut bytes) = first {
            let some = self.chance.index(bytes.len() + 1);
            bytes.truncate(some);
            self.take(pair, to, &bytes, now);
        }
        for side in [Side::Dialler, Side::Dialled] {
            self.send(
                now,
                Event::Ended {
                    pair,
                    to: side,
                    how: Ended::Reset,
                },
            );
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
