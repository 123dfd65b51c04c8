//! Decodes the messages that arrive at an inbox.
//!
//! One message holds one or more lines, each `2 <kind> <arrival> … <at> … <name>`; the digit is
//! the version, and the name is last since it may contain spaces:
//!
//! - `2 g <arrival> <token> <at> <proof> <name>`: a waiting claim was granted
//! - `2 f <arrival> <token> <behind> <at> <proof> <name>`: a waiting claim was granted behind
//!   another of its client
//! - `2 n <arrival> <blocked until> <at> <name>`: a claim is next in the queue
//! - `2 r <arrival> <at> <proof> <name>`: the key was taken from a holder
//! - `2 a <arrival> <at> <proof> <name>`: another client has adopted the claim
//! - `2 u <arrival> <permits in use> <at> <proof> <name>`: a waiting claim was removed, since the
//!   semaphore shrank below its weight
//! - `2 c 0 <at> <name>`: the first holder of a watched key, or its note, has changed
//!
//! The proof is `sha1(<id> <line> <id>)` in hexadecimal, with the line without the version and
//! the proof, and with the claim's id. The id is never published: anybody who may use the
//! channels receives all lines and can publish any line. Version 1 had no proofs, and is ignored.
//!
//! A line that cannot be parsed is skipped: pushes only save time.
//!
//! The inbox name of a client that cannot receive pushes starts with a `-`. The scripts send
//! nothing to it, and do not conclude from its silence that the client is dead.

use leasehold_core::{Arrival, Capacity, Inbox, Key, Proof, StoreTime, Token};
use leasehold_store::Push;

/// The inbox name of a client that cannot receive pushes.
pub(crate) fn deaf(inbox: &Inbox) -> Inbox {
    // A dash more is still a name.
    Inbox::new(format!("{DEAF}{}", inbox.as_str())).unwrap_or_else(|_| inbox.clone())
}

/// Whether the client of this inbox can receive pushes.
pub(crate) fn is_heard(inbox: &Inbox) -> bool {
    !inbox.as_str().starts_with(DEAF)
}

const DEAF: char = '-';

/// The pushes of one message, which came on the connection epoch `epoch`.
pub(crate) fn read(message: &[u8], epoch: u64) -> impl Iterator<Item = Push> {
    std::str::from_utf8(message)
        .unwrap_or_default()
        .split('\n')
        .filter_map(move |line| read_line(line, epoch))
}

fn read_line(line: &str, epoch: u64) -> Option<Push> {
    let (kind, rest) = line.strip_prefix("2 ")?.split_once(' ')?;
    let mut words = Words(rest);
    let arrival = Arrival(words.number()?);
    Some(match kind {
        "g" | "f" => Push::Granted {
            epoch,
            arrival,
            token: Token::from(words.number()?),
            behind: match kind {
                "f" => Some(Arrival(words.number()?)),
                _ => None,
            },
            at: StoreTime(words.number()?),
            proof: words.proof()?,
            key: words.key()?,
        },
        "n" => {
            let (blocked_until, at) = (StoreTime(words.number()?), StoreTime(words.number()?));
            Push::Next {
                key: words.key()?,
                arrival,
                left: blocked_until.since(at),
            }
        }
        "u" => Push::Unfit {
            arrival,
            in_use: Capacity::Permits(u32::try_from(words.number()?).ok()?),
            at: StoreTime(words.number()?),
            proof: words.proof()?,
            key: words.key()?,
        },
        "r" => Push::Revoked {
            arrival,
            at: StoreTime(words.number()?),
            proof: words.proof()?,
            key: words.key()?,
        },
        "a" => Push::Adopted {
            arrival,
            at: StoreTime(words.number()?),
            proof: words.proof()?,
            key: words.key()?,
        },
        "c" => {
            let _at = words.number()?;
            Push::Changed { key: words.key()? }
        }
        _ => return None,
    })
}

/// What is left of a line.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (word, rest) = self.0.split_once(' ')?;
        self.0 = rest;
        Some(word)
    }

    fn number(&mut self) -> Option<u64> {
        self.next()?.parse().ok()
    }

    fn proof(&mut self) -> Option<Proof> {
        Proof::parse(self.next()?)
    }

    /// All that is left.
    fn key(&self) -> Option<Key> {
        Key::new(self.0).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_name_says_whether_its_client_hears() {
        let inbox = Inbox::from_random(7);
        assert!(is_heard(&inbox));
        assert!(!is_heard(&deaf(&inbox)));
    }

    #[test]
    fn lines_of_one_message() {
        let proof = "0123456789abcdef0123456789abcdef01234567";
        let message = [
            format!("2 g 7 1700000000000001 8 {proof} a b"),
            "2 n 8 50 20 a b".to_owned(),
            format!("2 r 3 1 {proof} é"),
            // Of another version, too short, without a proof, with half of one.
            format!("1 g 7 1700000000000001 8 {proof} a b"),
            "2 g 1".to_owned(),
            "2 g 7 9 8 a b".to_owned(),
            format!("2 r 3 1 {} k", &proof[1..]),
            "2 r 3 1 k".to_owned(),
            "2 g x".to_owned(),
            format!("2 a 4 1 {proof} k"),
            format!("2 u 5 2 1 {proof} k"),
            format!("2 u 5 4294967296 1 {proof} k"),
            "2 c 0 1 1 k".to_owned(),
            "2 x 0 1 k".to_owned(),
        ]
        .join("\n");
        let proof = Proof::parse(proof).unwrap();
        let pushes: Vec<_> = read(message.as_bytes(), 4).collect();
        let key = |name| Key::new(name).unwrap();
        assert_eq!(
            pushes,
            [
                Push::Granted {
                    epoch: 4,
                    key: key("a b"),
                    arrival: Arrival(7),
                    token: Token::from(1_700_000_000_000_001),
                    behind: None,
                    at: StoreTime(8),
                    proof,
                },
                Push::Next {
                    key: key("a b"),
                    arrival: Arrival(8),
                    left: Duration::from_micros(30),
                },
                Push::Revoked {
                    key: key("é"),
                    arrival: Arrival(3),
                    at: StoreTime(1),
                    proof,
                },
                Push::Adopted {
                    key: key("k"),
                    arrival: Arrival(4),
                    at: StoreTime(1),
                    proof,
                },
                Push::Unfit {
                    key: key("k"),
                    arrival: Arrival(5),
                    in_use: Capacity::Permits(2),
                    at: StoreTime(1),
                    proof,
                },
                Push::Changed { key: key("1 k") },
            ]
        );
    }
}
