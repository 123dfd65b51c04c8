//! Computes the cluster slot of a key.

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key: of what stands between its first `{` and the next `}`, if
/// anything does, else of all of it.
pub(crate) fn slot_of(key: &str) -> u16 {
    crc16(tag_of(key).as_bytes()) % SLOTS
}

/// The slot that all of these keys lie in, if it is one.
pub(crate) fn common_slot<'a>(keys: impl IntoIterator<Item = &'a str>) -> Option<u16> {
    let mut slots = keys.into_iter().map(slot_of);
    let slot = slots.next()?;
    slots.all(|other| other == slot).then_some(slot)
}

fn tag_of(key: &str) -> &str {
    match key.split_once('{').map(|(_, rest)| rest.split_once('}')) {
        Some(Some((tag, _))) if !tag.is_empty() => tag,
        _ => key,
    }
}

/// CRC-16/XMODEM (Redis Cluster specification, "Key distribution model").
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(crc16(b""), 0);
    }

    /// As `CLUSTER KEYSLOT` of Redis 7.0 answers.
    #[test]
    fn slots_are_those_of_the_server() {
        for (key, slot) in [
            ("foo", 12_182),
            ("bar", 5_061),
            ("123456789", 12_739),
            ("leasehold:lock:orders/42", 11_707),
            ("leasehold:lock:Grüße 🔒", 10_682),
        ] {
            assert_eq!(slot_of(key), slot, "{key}");
        }
    }

    #[test]
    fn a_tag_decides_by_itself() {
        for (key, tag) in [
            ("{user1000}.following", "user1000"),
            ("a{b}c{d}", "b"),
            ("a{{b}}", "{b"),
            ("a{}b{c}", "a{}b{c}"),
            ("a}b{c", "a}b{c"),
            ("a}{b}", "b"),
            ("a{b", "a{b"),
        ] {
            assert_eq!(tag_of(key), tag, "{key}");
        }
        assert_eq!(common_slot(["l:{a}1", "l:{a}2"]), Some(slot_of("a")));
        assert_eq!(common_slot(["l:a", "l:b"]), None);
    }
}
