//! Inspects classic locks.

use async_trait::async_trait;
use leasehold_core::{
    Arrival, Capacity, ClaimView, ClientInfo, Holder, Invalid, Mode, Snapshot, StoreTime, Token,
};
use leasehold_store::{ErrorKind, StoreError};

use super::verb::{Found, Left};
use super::{ClassicStore, wall};
use crate::routing::names::{Looked, Named, as_key};
use crate::std_ext::fnv;

/// How much is shown of an id at most, in characters.
const SHOWN: usize = 6;

/// An arrival number made from the id, since the record has none.
pub(super) fn arrival(id: &[u8]) -> Arrival {
    // Of an id of 128 random bits it tells nothing that helps.
    Arrival(fnv(id))
}

/// The beginning of an id, half of it at most; of bytes that are no text, in
/// hexadecimal digits.
fn hint(value: &[u8]) -> String {
    let half = value.len() / 2;
    if value.iter().all(u8::is_ascii_graphic) {
        let shown = &value[..half.min(SHOWN)];
        return String::from_utf8_lossy(shown).into_owned();
    }
    let shown = value[..half.min(SHOWN / 2)].iter();
    shown.map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn deadline(at: StoreTime, left: Left) -> StoreTime {
    left.map_or(StoreTime::NEVER, |left| at + left)
}

/// A key as people see it.
pub(super) fn view(found: &Found, at: StoreTime) -> Snapshot {
    let holder = found.as_ref().map(|(value, left)| Holder {
        claim: ClaimView {
            arrival: arrival(value),
            mode: Mode::EXCLUSIVE,
            owner: ClientInfo::unknown(),
            since: StoreTime::UNKNOWN,
            deadline: deadline(at, *left),
            id_hint: hint(value),
            note: None,
            renewed: None,
            kept: false,
        },
        token: Token::NONE,
    });
    Snapshot {
        capacity: holder.is_some().then_some(Capacity::Lock),
        last_token: Token::NONE,
        at,
        clock: at,
        holders: holder.into_iter().collect(),
        waiters: Vec::new(),
    }
}

#[async_trait]
impl Named for ClassicStore {
    async fn look(&self, name: &[u8]) -> Result<Looked, StoreError> {
        let Ok(key) = as_key(name) else {
            return Ok(Ok(None));
        };
        match self.found(&key).await {
            Ok(found) => {
                let seen = view(&found, wall());
                Ok(Ok(is_listed(&seen).then_some((key, seen))))
            }
            // Whatever else has such a name is no lock of this layout.
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(Ok(None)),
            Err(error) => Err(error),
        }
    }
}

/// Whether a string that was found by its name is listed as a lock: only if it expires. A string
/// without an expiry may be other data.
pub(super) fn is_listed(look: &Snapshot) -> bool {
    let lapses = |holder: &Holder| holder.claim.deadline != StoreTime::NEVER;
    look.holders.iter().any(lapses)
}

/// Refuses to list a whole database, in which locks cannot be distinguished from other strings.
pub(super) fn check_pattern(prefix: &str, pattern: &str) -> Result<(), Invalid> {
    let literal = !pattern.starts_with(['*', '?', '[']) && !pattern.is_empty();
    if prefix.is_empty() && !literal {
        return Err(Invalid::new(
            "without a prefix, the listing would show every string of the database as a lock",
            "start the pattern with a common prefix, as in 'invoice-*', or set prefix= in the URL",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn at_most_half_of_an_id_is_shown() {
        for (value, shown) in [
            (b"0123456789abcdef".as_slice(), "012345"),
            (b"abcd", "ab"),
            (b"a", ""),
            (b"", ""),
            (b"\xff\x00\x01\x02\x03\x04\x05\x06", "ff0001"),
            (b"a b", "61"),
            ("schlüssel".as_bytes(), "736368"),
        ] {
            assert_eq!(hint(value), shown, "{value:?}");
        }
    }

    #[test]
    fn a_lock_without_an_end_shows_as_such_and_is_not_listed() {
        let held = |left: Left, length| Some((vec![b'x'; length], left));
        let view = view(&held(None, 32), StoreTime(5));
        assert_eq!(view.holders[0].claim.deadline, StoreTime::NEVER);
        let soon = Some(Duration::from_secs(1));
        assert!(is_listed(&super::view(&held(soon, 32), StoreTime(5))));
        assert!(!is_listed(&view));
        assert!(!is_listed(&super::view(&None, StoreTime(5))));
    }

    #[test]
    fn a_whole_database_is_not_listed() {
        for pattern in ["", "*", "?x", "[ab]c"] {
            assert!(check_pattern("", pattern).is_err(), "{pattern}");
            assert!(check_pattern("lock:", pattern).is_ok(), "{pattern}");
        }
        assert!(check_pattern("", "invoice-*").is_ok());
    }
}
