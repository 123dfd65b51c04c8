//! Locks that are known to be broken, each in one thing.

use async_trait::async_trait;

use super::lock::{Failure, Held, Lock, OnQueued, Patience};
use super::{Spec, Task};

pub(super) struct Broken;

impl Broken {
    pub(super) async fn connect(_: &Spec) -> Result<Self, Failure> {
        Ok(Self)
    }
}

#[async_trait]
impl Lock for Broken {
    async fn acquire(&self, _: &Task, _: Patience, _: OnQueued) -> Result<Box<dyn Held>, Failure> {
        Err(Failure::new("unsupported", "not yet"))
    }
}
