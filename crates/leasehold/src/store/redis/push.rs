//! The messages that arrive at an inbox.
//!
//! One message holds one or more lines, each `1 <kind> <arrival> … <at> <name>`;
//! the digit is the version, the name comes last since it may hold spaces:
//!
//! - `1 g <arrival> <token> <deadline> <at> <name>`: a waiting claim was granted
//! - `1 n <arrival> <blocked until> <at> <name>`: a claim is next in line
//! - `1 r <arrival> <at> <name>`: the key was taken from a holder
//! - `1 a <arrival> <at> <name>`: another client has adopted the claim
//! - `1 u <arrival> <permits in use> <at> <name>`: a waiting claim was removed,
//!   since the semaphore shrank below what it takes
//! - `1 c 0 <at> <name>`: a watched key has another first holder, or a new note
//!
//! A line that cannot be read is passed over: pushes only save time.
//!
//! The name of a client that cannot hear begins with a `-`: the scripts send it
//! nothing, and do not take its silence for death.

use leasehold_core::{Arrival, Capacity, Inbox, Key, StoreTime, Token};

use crate::store::Push;

/// The name of a client that cannot hear what comes to `inbox`.
pub(super) fn deaf(inbox: &Inbox) -> Inbox {
    // A dash more is still a name.
    Inbox::new(format!("{DEAF}{}", inbox.as_str())).unwrap_or_else(|_| inbox.clone())
}

/// Whether the client of this inbox hears.
pub(super) fn is_heard(inbox: &Inbox) -> bool {
    !inbox.as_str().starts_with(DEAF)
}

const DEAF: char = '-';

/// The pushes of one message, which came on the connection epoch `epoch`.
pub(super) fn read(message: &[u8], epoch: u64) -> impl Iterator<Item = Push> {
    std::str::from_utf8(message)
        .unwrap_or_default()
        .split('\n')
        .filter_map(move |line| read_line(line, epoch))
}

fn read_line(line: &str, epoch: u64) -> Option<Push> {
    let (kind, rest) = line.strip_prefix("1 ")?.split_once(' ')?;
    let mut rest = rest;
    let mut number = || -> Option<u64> {
        let (number, tail) = rest.split_once(' ')?;
        rest = tail;
        number.parse().ok()
    };
    let arrival = Arrival(number()?);
    match kind {
        "g" => {
            let (token, _deadline, _at) = (Token(number()?), number()?, number()?);
            Some(Push::Granted {
                epoch,
                key: Key::new(rest).ok()?,
                arrival,
                token,
            })
        }
        "n" => {
            let (blocked_until, at) = (StoreTime(number()?), StoreTime(number()?));
            Some(Push::Next {
                key: Key::new(rest).ok()?,
                arrival,
                left: blocked_until.since(at),
            })
        }
        "u" => {
            let (permits, _at) = (u32::try_from(number()?).ok()?, number()?);
            Some(Push::Unfit {
                key: Key::new(rest).ok()?,
                arrival,
                in_use: Capacity::Permits(permits),
            })
        }
        "r" | "a" | "c" => {
            let _at = number()?;
            let key = Key::new(rest).ok()?;
            Some(match kind {
                "r" => Push::Revoked { key, arrival },
                "a" => Push::Adopted { key, arrival },
                _ => Push::Changed { key },
            })
        }
        _ => None,
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
        let message = "1 g 7 1700000000000001 9 8 a b\n1 n 8 50 20 a b\n1 r 3 1 é\n2 g 1\n1 g x\n\
            1 a 4 1 k\n1 u 5 2 1 k\n1 u 5 4294967296 1 k\n1 c 0 1 1 k\n1 x 0 1 k";
        let pushes: Vec<_> = read(message.as_bytes(), 4).collect();
        let key = |name| Key::new(name).unwrap();
        assert_eq!(
            pushes,
            [
                Push::Granted {
                    epoch: 4,
                    key: key("a b"),
                    arrival: Arrival(7),
                    token: Token(1_700_000_000_000_001),
                },
                Push::Next {
                    key: key("a b"),
                    arrival: Arrival(8),
                    left: Duration::from_micros(30),
                },
                Push::Revoked {
                    key: key("é"),
                    arrival: Arrival(3),
                },
                Push::Adopted {
                    key: key("k"),
                    arrival: Arrival(4),
                },
                Push::Unfit {
                    key: key("k"),
                    arrival: Arrival(5),
                    in_use: Capacity::Permits(2),
                },
                Push::Changed { key: key("1 k") },
            ]
        );
    }
}
