//! Who waits for whom: claims, and the keys that they hold and wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::slice::from_ref;

use serde::Serialize;
use serde_json::{Value, json};

use crate::deadlocks::DeadlockView;
use crate::lock_table::{Lock, LockTable};
use crate::view::{ClaimView, OwnerView};

/// How many keys are shown.
const MOST_KEYS: usize = 200;
/// How many waiters of a key are shown.
const MOST_WAITERS: usize = 20;

/// The graph. A claim that tells what it belongs to is one node with all of its context.
#[derive(Debug, Default, Serialize)]
pub(super) struct WaitsView {
    /// Each with its `key` and its `kind`.
    keys: Vec<Value>,
    claims: Vec<ClaimNode>,
    /// Which `claim` holds which `key`, and which waits for which.
    holds: Vec<Value>,
    waits: Vec<Value>,
    deadlocks: Vec<DeadlockView>,
    /// How many keys and claims have no room.
    more: usize,
    /// Why the store could not be read the last time, or not yet.
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct ClaimNode {
    id: String,
    who: String,
    owner: Option<OwnerView>,
    /// How many other processes run within it.
    inner: usize,
}

impl WaitsView {
    pub(super) fn of(table: &LockTable) -> Self {
        let mut view = Self {
            deadlocks: table.deadlocks.clone(),
            error: table.error(),
            ..Self::default()
        };
        let works = works(table);
        let mut seen = BTreeSet::new();
        let waited_for = table.locks().filter(|lock| lock.waiting > 0);
        view.more = waited_for.clone().count().saturating_sub(MOST_KEYS);
        for found in waited_for.take(MOST_KEYS) {
            let (lock, waiting) = (&found.view, found.waiting);
            let waited_for = json!({ "key": lock.key, "kind": lock.kind });
            view.keys.push(waited_for);
            view.more += waiting.saturating_sub(MOST_WAITERS);
            let waiters = lock.waiters.iter().take(MOST_WAITERS);
            // In order of the keys, and of the queue of each.
            for claim in lock.holders.iter().chain(waiters) {
                let id = node_of(claim, &lock.key);
                if seen.insert(id.clone()) {
                    let claims = works.get(&*id);
                    let claims = claims.map_or_else(|| from_ref(&claim), Vec::as_slice);
                    view.claims.push(node(id.clone(), claims));
                }
                let edge = json!({ "claim": id, "key": lock.key });
                match claim.position {
                    Some(_) => view.waits.push(edge),
                    None => view.holds.push(edge),
                }
            }
        }
        view
    }
}

/// The claims of each piece of work, by its outermost context. What the outermost process holds may
/// be waited for by nobody, so all locks are looked at.
fn works(table: &LockTable) -> BTreeMap<&str, Vec<&ClaimView>> {
    let mut works = BTreeMap::<_, Vec<_>>::new();
    for Lock { view: lock, .. } in table.locks() {
        for claim in lock.holders.iter().chain(&lock.waiters) {
            if let Some(path) = path_of(claim) {
                works.entry(outermost(path)).or_default().push(claim);
            }
        }
    }
    works
}

/// The node of all these claims, named by the outermost process: its end ends those within, and not
/// the other way round.
fn node(id: String, claims: &[&ClaimView]) -> ClaimNode {
    let depth = |claim: &&ClaimView| path_of(claim).map(|path| path.split('.').count());
    let outermost = claims.iter().copied().min_by_key(depth);
    let owners = claims.iter().filter_map(|claim| claim.owner.as_ref());
    let processes: BTreeSet<_> = owners.map(|owner| (&owner.host, owner.pid)).collect();
    ClaimNode {
        id,
        who: outermost.map(ClaimView::short_name).unwrap_or_default(),
        owner: outermost.and_then(|claim| claim.owner.clone()),
        inner: processes.len().saturating_sub(1),
    }
}

/// The path of its context, where it tells.
fn path_of(claim: &ClaimView) -> Option<&str> {
    claim.owner.as_ref()?.context.as_deref()
}

fn outermost(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

/// What the claim belongs to: the outermost context, for the outer one waits for what is within.
fn node_of(claim: &ClaimView, key: &str) -> String {
    if let Some(path) = path_of(claim) {
        return outermost(path).to_owned();
    }
    let number = claim.token.or(claim.position).unwrap_or_default();
    let state = claim.position.map_or("holds", |_| "waits");
    format!("{key} {state} {number} {}", claim.who())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_table::tests::{held_since as lock, table};

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
        let keys: Vec<_> = graph.keys.iter().map(|node| &node["key"]).collect();
        assert_eq!(keys, ["x", "y"], "nobody waits for z");
        assert_eq!(graph.holds[0], json!({ "claim": "aa", "key": "x" }));
        assert_eq!(graph.waits[1], json!({ "claim": "aa", "key": "y" }));
        assert_eq!(graph.claims.len(), 3, "that one, and two of no context");
    }

    /// An operator ends the process that is named: of nested ones that has to be the outermost.
    #[test]
    fn of_nested_runs_the_outermost_is_named() {
        let of = |claim: &ClaimView, context: &str, pid| {
            let mut claim = within(claim.clone(), context);
            claim.owner.as_mut().unwrap().pid = pid;
            claim
        };
        for holds_what_is_waited_for in [true, false] {
            // The inner ones have the keys that come first.
            let mut a = lock("a", 1, 1);
            a.waiters[0] = of(&a.waiters[0], "aa.bb.cc", 3);
            let mut b = lock("b", 1, 1);
            b.holders[0] = of(&b.holders[0], "aa.bb", 2);
            let mut z = lock("z", 1, u64::from(holds_what_is_waited_for));
            z.holders[0] = of(&z.holders[0], "aa", 1);
            let graph = WaitsView::of(&table(vec![a, b, z]));
            let node = graph.claims.iter().find(|node| node.id == "aa").unwrap();
            assert_eq!(node.owner.as_ref().unwrap().pid, 1);
            assert_eq!((&*node.who, node.inner), ("build7 (pid 1)", 2));
            let mut others = graph.claims.iter().filter(|node| node.id != "aa");
            assert!(others.all(|node| node.inner == 0));
        }
    }

    #[test]
    fn claims_are_in_order_of_keys_and_queues() {
        let mut y = lock("y", 1, 2);
        y.holders[0] = within(y.holders[0].clone(), "ff");
        y.waiters[1] = within(y.waiters[1].clone(), "00");
        let mut x = lock("x", 1, 1);
        x.waiters[0] = within(x.waiters[0].clone(), "ee");
        let graph = WaitsView::of(&table(vec![y, x]));
        let ids = graph.claims.iter().map(|node| &node.id[..2]);
        assert_eq!(ids.collect::<Vec<_>>(), ["x ", "ee", "ff", "y ", "00"]);
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
