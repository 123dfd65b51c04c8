//! The parsers of cluster answers. See [`crate::fuzzing`].

use redis::{ServerError, Value};

use super::redirect::Redirect;
use super::topology::Topology;
use crate::connection::address::Address;

/// Who has the first and the last slot, and how many nodes there are.
#[derive(Debug)]
pub struct Map {
    /// The node of slot 0, and that of slot 16383.
    pub owners: [Option<String>; 2],
    /// Primaries, and all.
    pub nodes: [usize; 2],
}

/// What `CLUSTER SLOTS` was answered.
pub fn slots(answer: &Value) -> Option<Map> {
    let topology = Topology::read(answer, &Address::new("asked", 6379))?;
    let owner = |slot| topology.owner(slot).map(ToString::to_string);
    Some(Map {
        owners: [owner(0), owner(16_383)],
        nodes: [topology.primaries().len(), topology.nodes().count()],
    })
}

/// Where an error sends us, if it does.
pub fn redirect(error: &ServerError) -> Option<String> {
    let redirect = Redirect::of(error, &Address::new("asked", 6379))?;
    Some(format!("{redirect:?}"))
}
