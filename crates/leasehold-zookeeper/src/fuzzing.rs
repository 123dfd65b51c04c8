//! What a node has, for `leasehold-fuzz`.

use leasehold_core::{Key, StoreTime};
use leasehold_store::journal::{Entry, News};

use super::ZooKeeperOptions;
use super::node;

/// What a client reads of the content of a node, if it is whole: the base and the steps.
#[must_use]
pub fn read(content: &[u8]) -> Option<News> {
    let key = Key::new("k").ok()?;
    // Late enough for any step.
    let state = (1 << 20, StoreTime(u64::MAX));
    node::news(&key, content, state, None).ok()
}

/// What a client writes with one more step.
#[must_use]
pub fn add(kept: &[u8], step: &Entry, base: &[u8]) -> Option<Vec<u8>> {
    node::add(1, Some(kept), step, || Ok(base.to_vec()), usize::MAX).ok()
}

/// Whether that is a part of the password.
#[must_use]
pub fn holds(options: &ZooKeeperOptions, secret: &str) -> bool {
    let password = options.access.password.as_ref();
    password.is_some_and(|password| password.contains(secret))
}
