//! Leases as data.

use leasehold::{Exclusive, LeaseKind, LeaseParts, Permits, Shared};

use super::words::hidden;

pub(crate) fn run(data: &[u8]) {
    check::<Exclusive>(data);
    check::<Shared>(data);
    check::<Permits>(data);
}

fn check<K: LeaseKind>(data: &[u8]) {
    let Ok(parts) = serde_json::from_slice::<LeaseParts<K>>(data) else {
        return;
    };
    hidden(parts.claim());
    let shown = format!("{parts:?}");
    let id = parts.claim().expose();
    // A short one may stand there by chance.
    let excused = id.len() < 16 || parts.key().as_str().contains(id);
    assert!(excused || !shown.contains(id), "{shown}");
    let written = serde_json::to_vec(&parts).unwrap();
    assert!(serde_json::from_slice::<LeaseParts<K>>(&written).unwrap() == parts);
}
