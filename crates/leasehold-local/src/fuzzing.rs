//! What lies in files and comes through sockets. See [`crate::fuzzing`].

use std::time::Duration;

use leasehold_core::{Key, Queue, StoreTime};
use leasehold_store::Push;

use super::clock::{Clock, SinceBoot};
use super::options::LocalOptions;
use super::record::{Header, Record};
use super::{inbox, name, record};

/// A record: the key, the boot, when it expires, and the queue.
pub type Read = (Key, String, StoreTime, Queue);

/// Reads a record.
///
/// # Errors
/// Why it is none.
pub fn decode(bytes: &[u8]) -> Result<Read, String> {
    let read = Record::read(&|at, length| Ok(record::fuzzing::within(bytes, at, length)));
    let read = read.map_err(|flaw| format!("{flaw:?}"))?;
    let Record { header, queue, .. } = read.ok_or("there is no record")?;
    Ok((header.key, header.boot, header.expires, queue))
}

/// Writes a record.
pub fn encode((key, boot, expires, queue): &Read) -> Vec<u8> {
    let queue = serde_json::to_vec(queue).unwrap_or_default();
    seal(key, boot, *expires, &queue, &[])
}

/// A record around any queue and the steps since, with the checksums that they need to be believed.
pub fn seal(key: &Key, boot: &str, expires: StoreTime, queue: &[u8], steps: &[&[u8]]) -> Vec<u8> {
    let header = Header {
        key: key.clone(),
        boot: boot.to_owned(),
        expires,
    };
    let header = serde_json::to_vec(&header).unwrap_or_default();
    let whole = [&header, &b"\n"[..], queue].concat();
    record::fuzzing::file(std::iter::once(&*whole).chain(steps.iter().copied()))
}

/// What a datagram says.
pub fn pushes(letter: &[u8]) -> Vec<Push> {
    inbox::understood(letter, 1)
}

/// Reads the clock's file: the time that it makes of a second after boot.
pub fn clock(text: &[u8]) -> Option<StoreTime> {
    Clock::read(text, SinceBoot::default()).map(|clock| clock.at(Duration::from_secs(1)))
}

/// The address of the store in a directory.
pub fn url(directory: &std::path::Path, options: &LocalOptions) -> String {
    options.url(directory)
}

/// The name of a key's file.
pub fn file_name(text: &str) -> String {
    name::file_name(text)
}
