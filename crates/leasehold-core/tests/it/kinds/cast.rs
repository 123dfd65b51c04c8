//! A few clients at one key; and what the tests of all kinds import.

pub(crate) use crate::common::*;

pub(crate) const LEASE: Duration = Duration::from_secs(10);

pub(crate) fn id(n: usize) -> ClaimId {
    ClaimId::new(format!("c{n:05}secret")).unwrap()
}

pub(crate) fn inbox(n: usize) -> Inbox {
    Inbox::from_random(n as u64)
}

/// A claim of client `n` by that id, which waits.
pub(crate) fn claim(n: usize, id: ClaimId, mode: Mode) -> Claim {
    Claim {
        inbox: Some(inbox(n)),
        owner: ClientInfo::new("host", u32::try_from(n).unwrap(), None),
        ..Claim::new(id, mode, LEASE)
    }
}

pub(crate) fn renew(id: ClaimId) -> Command {
    Command::Renew(Renew::new(id, LEASE))
}

pub(crate) fn rotate(id: ClaimId, to: ClaimId, version: u64, adopt: Option<Adopt>) -> Command {
    Command::Renew(Renew {
        rotate: Some(Rotate { to, version, adopt }),
        ..Renew::new(id, LEASE)
    })
}

pub(crate) fn adopt(n: usize) -> Adopt {
    Adopt {
        inbox: Some(inbox(n)),
        owner: ClientInfo::new("host", u32::try_from(n).unwrap(), None),
    }
}

pub(crate) struct Cast {
    pub(crate) queue: Queue,
    pub(crate) clock: StoreTime,
}

impl Cast {
    pub(crate) fn new() -> Self {
        Self {
            queue: Queue::default(),
            clock: StoreTime(1_700_000_000_000_000),
        }
    }

    pub(crate) fn look(&self) -> Snapshot {
        self.queue.look(self.clock)
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.clock = self.clock + time;
    }

    pub(crate) fn apply(&mut self, command: &Command) -> Outcome {
        self.queue.apply(command, self.clock)
    }

    /// A claim that does not wait, of somebody who is not of the cast.
    pub(crate) fn stranger() -> Command {
        Command::Claim(Claim {
            wait: false,
            ..Claim::new(ClaimId::from_random(u128::MAX), Mode::EXCLUSIVE, LEASE)
        })
    }

    /// Whether somebody else would be granted at once.
    pub(crate) fn is_free(&self) -> bool {
        let mut probed = self.queue.clone();
        probed.apply(&Self::stranger(), self.clock).reply.is_grant()
    }
}
