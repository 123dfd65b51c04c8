//! What lies in files and comes through sockets. See [`crate::fuzzing`].

use std::time::Duration;

use leasehold_core::{Key, Queue, StoreTime};
use leasehold_store::Push;

use super::clock::{Clock, SinceBoot};
use super::record::Header;
use super::{inbox, name, options, record};

/// A record: the key, the boot, when it expires, and the queue.
pub type Read = (Key, String, StoreTime, Queue);

/// Reads a record.
///
/// # Errors
/// Why it is none.
pub fn decode(bytes: &[u8]) -> Result<Read, String> {
    let read = record::decode(bytes).map_err(|flaw| format!("{flaw:?}"))?;
    let (header, queue, _) = read.ok_or("there is no record")?;
    Ok((header.key, header.boot, header.expires, queue))
}

/// Writes a record.
pub fn encode((key, boot, expires, queue): &Read) -> Vec<u8> {
    let frame = record::frame(1, &header(key, boot, *expires), queue);
    frame
        .map(|frame| record::file(1, &frame))
        .unwrap_or_default()
}

/// A record around any queue, with the checksum that it needs to be believed.
pub fn seal(key: &Key, boot: &str, expires: StoreTime, queue: &[u8]) -> Vec<u8> {
    let frame = record::frame_of(1, &header(key, boot, expires), |bytes| {
        bytes.extend(queue);
        Ok(())
    });
    frame
        .map(|frame| record::file(1, &frame))
        .unwrap_or_default()
}

fn header(key: &Key, boot: &str, expires: StoreTime) -> Header {
    Header {
        key: key.clone(),
        boot: boot.to_owned(),
        expires,
    }
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
pub fn url(directory: &std::path::Path, retention: Duration) -> String {
    options::url(directory, retention)
}

/// The name of a key's file.
pub fn file_name(text: &str) -> String {
    name::file_name(text)
}
