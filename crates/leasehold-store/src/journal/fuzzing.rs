//! What lies in the records of a journal, for `leasehold-fuzz`.

use std::borrow::Cow;

use leasehold_core::{Inbox, Key, Queue, StoreTime};

use super::copy::Copy;
use super::{Entry, News, Position, entry};

/// Any text with the format and the checksum that it needs to be believed.
#[must_use]
pub fn seal(json: &str) -> Vec<u8> {
    let mut bytes = [&[0; entry::HEAD], json.as_bytes()].concat();
    entry::seal(&mut bytes);
    bytes
}

/// A base as it is written.
#[must_use]
pub fn base(queue: &Queue) -> Option<Vec<u8>> {
    let base = entry::Base {
        queue: Cow::Borrowed(queue),
        ..entry::Base::default()
    };
    entry::encode(&base).ok()
}

/// The queue of a base and the entries since.
#[must_use]
pub fn follow(base: &[u8], entries: &[&[u8]]) -> Option<Queue> {
    let entry = |bytes: &&[u8]| Entry {
        at: StoreTime(1_700_000_000_000_000),
        dead: 1,
        bytes: bytes.to_vec(),
    };
    let news = News {
        base: Some(base.to_vec()),
        entries: entries.iter().map(entry).collect(),
        end: Some(Position {
            record: 1,
            offset: 1,
        }),
        ..News::default()
    };
    let mut copy = Copy::default();
    let key = Key::new("orders/42").ok()?;
    copy.follow(&key, &news, &Inbox::from_random(1)).ok()?;
    Some(copy.queue)
}
