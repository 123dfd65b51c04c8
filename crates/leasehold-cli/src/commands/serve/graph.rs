//! Who waits for whom: claims, and the keys that they hold and wait for.

use std::collections::BTreeMap;

use serde::Serialize;

use super::table::Table;
use crate::commands::deadlocks::DeadlockView;
use crate::view::{ClaimView, OwnerView};

/// How many keys are shown.
const MOST_KEYS: usize = 200;
/// How many waiters of a key are shown.
const MOST_WAITERS: usize = 20;

/// The graph. A claim that tells what it belongs to is one node with all of its context.
#[derive(Debug, Default, Serialize)]
pub(super) struct WaitsView {
    keys: Vec<KeyNode>,
    claims: Vec<ClaimNode>,
    holds: Vec<Edge>,
    waits: Vec<Edge>,
    deadlocks: Vec<DeadlockView>,
    /// How many keys and claims have no room.
    more: usize,
}

#[derive(Debug, Serialize)]
struct KeyNode {
    key: String,
    kind: &'static str,
}

#[derive(Debug, Serialize)]
struct ClaimNode {
    id: String,
    who: String,
    owner: Option<OwnerView>,
}

#[derive(Debug, Serialize)]
struct Edge {
    claim: String,
    key: String,
}

impl WaitsView {
    pub(super) fn of(table: &Table) -> Self {
        let mut view = Self {
            deadlocks: table.deadlocks.clone(),
            ..Self::default()
        };
        let mut nodes = BTreeMap::new();
        let waited_for = table.locks().filter(|lock| !lock.waiters.is_empty());
        for (at, lock) in waited_for.enumerate() {
            if at >= MOST_KEYS {
                view.more += 1;
                continue;
            }
            view.keys.push(KeyNode {
                key: lock.key.clone(),
                kind: lock.kind,
            });
            view.more += lock.waiters.len().saturating_sub(MOST_WAITERS);
            let waiters = lock.waiters.iter().take(MOST_WAITERS);
            for claim in lock.holders.iter().chain(waiters) {
                let edge = Edge {
                    claim: node_of(claim, &lock.key),
                    key: lock.key.clone(),
                };
                let node = nodes.entry(edge.claim.clone());
                node.or_insert_with(|| ClaimNode {
                    id: edge.claim.clone(),
                    who: claim.short_name(),
                    owner: claim.owner.clone(),
                });
                match claim.position {
                    Some(_) => view.waits.push(edge),
                    None => view.holds.push(edge),
                }
            }
        }
        view.claims = nodes.into_values().collect();
        view
    }
}

/// What the claim belongs to: the outermost context, for the outer one waits for what is within.
fn node_of(claim: &ClaimView, key: &str) -> String {
    let owner = claim.owner.as_ref();
    let context = owner.and_then(|owner| owner.context.as_deref());
    match context.and_then(|context| context.split('.').next()) {
        Some(outermost) => outermost.to_owned(),
        None => {
            let number = claim.token.or(claim.position).unwrap_or_default();
            let state = if claim.position.is_some() {
                "waits"
            } else {
                "holds"
            };
            format!("{key} {state} {number} {}", claim.who())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::{lock, table};
    use super::*;

    fn within(mut claim: ClaimView, context: &str) -> ClaimView {
        if let Some(owner) = &mut claim.owner {
            owner.context = Some(context.to_owned());
        }
        claim
    }

    #[test]
    fn claims_of_one_piece_of_work_are_one_node() {
        let mut x = lock("x", 1, 1);
        x.holders[0] = within(x.holders[0].clone(), "aa");
        let mut y = lock("y", 2, 1);
        y.waiters[0] = within(y.waiters[0].clone(), "aa.bb");
        let graph = WaitsView::of(&table(vec![x, y, lock("z", 3, 0)]));
        let keys: Vec<_> = graph.keys.iter().map(|node| &*node.key).collect();
        assert_eq!(keys, ["x", "y"], "nobody waits for z");
        let edges = |edges: &[Edge]| -> Vec<String> {
            let edges = edges.iter();
            edges
                .map(|edge| format!("{} {}", edge.claim, edge.key))
                .collect()
        };
        assert_eq!(edges(&graph.holds)[0], "aa x");
        assert_eq!(edges(&graph.waits)[1], "aa y");
        assert_eq!(graph.claims.len(), 3, "that one, and two of no context");
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let many = (0..MOST_KEYS + 2).map(|key| lock(&format!("{key:03}"), 1, 1));
        let mut many: Vec<_> = many.collect();
        many[0] = lock("000", 1, MOST_WAITERS as u64 + 3);
        let graph = WaitsView::of(&table(many));
        assert_eq!((graph.keys.len(), graph.more), (MOST_KEYS, 5));
    }
}
