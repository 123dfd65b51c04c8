//! Files of the local store. The first byte says what follows: `r` a record as it
//! lies there, `q` a queue, around which a record is sealed as if the store had written
//! it, `s` steps that follow an empty queue there, one a line, `c` the clock.

use std::fmt::Debug;
use std::time::Duration;

use leasehold::Key;
use leasehold::core::{
    Claim, ClaimId, Command, Inbox, Mode, Queue, Release, Renew, Reply, StoreTime, Token,
};
use leasehold::fuzzing::local::{self, Read};

use super::words::tame;

const LONG: Duration = Duration::from_secs(30);

const KEY: &str = "orders/42";
const AT: StoreTime = StoreTime(9);

/// No clock is beyond this before the year 2255.
const LATEST: u64 = 1 << 53;

pub(crate) fn run(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else {
        return;
    };
    match kind {
        b'r' => {
            if let Ok(read) = local::decode(rest) {
                check(&read);
                flip(rest, &read, |bytes| local::decode(bytes).ok());
            }
        }
        b'q' => {
            if let Ok(read) = sealed(rest, &[]) {
                assert_eq!((read.0.as_str(), &*read.1, read.2), (KEY, "boot", AT));
                check(&read);
            }
        }
        b's' => {
            let queue = serde_json::to_vec(&Queue::default()).unwrap();
            let steps: Vec<_> = rest.split(|byte| *byte == b'\n').collect();
            if let Ok(read) = sealed(&queue, &steps) {
                check(&read);
            }
        }
        b'c' => {
            if let Some(now) = local::clock(rest) {
                assert!(now.0 <= LATEST + 1_000_000);
                flip(rest, &now, local::clock);
            }
        }
        _ => {}
    }
}

/// Reads a record that is sealed around this as the store does it.
fn sealed(queue: &[u8], steps: &[&[u8]]) -> Result<Read, String> {
    let key = Key::new(KEY).unwrap();
    local::decode(&local::seal(&key, "boot", AT, queue, steps))
}

fn check(read: &Read) {
    let written = local::encode(read);
    assert_eq!(local::decode(&written).as_ref(), Ok(read));
    assert_eq!(local::encode(&local::decode(&written).unwrap()), written);
    behaves(&read.3);
}

/// A queue that was let in behaves as one, over all verbs.
pub(crate) fn behaves(queue: &Queue) {
    // Of claims that are not there yet.
    let text = serde_json::to_string(queue).unwrap();
    let unused = (0..).map(ClaimId::from_random);
    let unused = unused.filter(|id| !text.contains(id.expose()));
    let ids: Vec<_> = unused.take(3).collect();
    let latest = queue.look(StoreTime(0)).at;
    for clock in [StoreTime(0), latest, latest + LONG * 10, StoreTime(LATEST)] {
        use_it(queue.clone(), clock, &ids);
    }
    let mut voided = queue.clone();
    voided.void_claims();
    assert_eq!(voided.inboxes(usize::MAX).count(), 0);
}

/// A queue that was let in behaves as one: tokens rise, and nothing breaks.
fn use_it(mut queue: Queue, clock: StoreTime, ids: &[ClaimId]) {
    let before = queue.look(clock);
    for claim in before.holders.iter().map(|holder| &holder.claim) {
        tame(&claim.owner);
    }
    let id = |number: usize| ids[number].clone();
    let mut last = before.last_token;
    for number in 0..3 {
        let mode = [Mode::EXCLUSIVE, Mode::SHARED, Mode::permits(4, 2)][number];
        let claim = Claim::new(id(number), mode, LONG);
        let reply = queue.apply(&Command::Claim(claim), clock).reply;
        if let Reply::Standing(standing) = reply
            && let Some(token) = standing.token
        {
            assert!(token > last, "{token} after {last}");
            last = token;
        }
    }
    let inbox = Inbox::new("here").unwrap();
    let release = |number, unused| Release {
        id: id(number),
        hand_off: true,
        settled: false,
        unused,
    };
    let renew = Renew {
        downgrade: true,
        ..Renew::new(id(1), LONG)
    };
    let (by, only) = (leasehold::core::ClientInfo::unknown(), None);
    let (inboxes, ttl) = (vec![inbox.clone()], LONG);
    for command in [
        Command::Watch { inbox, ttl },
        Command::Renew(renew),
        Command::Resize { from: 4, to: 1 },
        Command::Release(release(0, false)),
        Command::Release(release(1, true)),
        Command::Bury { inboxes },
        Command::Break { by, only },
    ] {
        let outcome = queue.apply(&command, clock);
        assert!(outcome.events.len() <= 10_000);
    }
    assert!(queue.look(clock).last_token >= last);
    assert!(queue.is_empty() || queue.look(clock).last_token > Token::NONE);
}

/// What was changed is noticed, unless it means the same.
fn flip<T: PartialEq + Debug>(bytes: &[u8], read: &T, again: impl Fn(&[u8]) -> Option<T>) {
    let step = bytes.len() / 64 + 1;
    for at in (0..bytes.len()).step_by(step) {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << (at % 8);
        if let Some(other) = again(&flipped) {
            assert_eq!(other, *read, "a bit flipped at {at}");
        }
    }
}
