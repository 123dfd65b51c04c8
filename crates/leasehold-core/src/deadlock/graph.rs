//! The wait-for graph of the remaining claims.
//!
//! The nodes are claims and keys. A claim waits for its key if it does not fit beside the
//! holders, and otherwise for the first in the queue. A key waits for the claims in the contexts
//! of its holders. Each node has an outgoing edge, so there is a cycle. A deadlock is a strongly
//! connected component (found with the algorithm of Kosaraju and Sharir).

use std::collections::{BTreeSet, HashMap};

use super::reduction::Reduction;
use super::{BlockedClaim, ClaimState};

/// The claims that wait are numbered first, then the keys.
struct Graph<'a> {
    /// Key and claim.
    claims: Vec<(usize, &'a ClaimState)>,
    next: Vec<Vec<usize>>,
}

/// The deadlocks among what is left.
pub(super) fn circles(left: &Reduction<'_>) -> Vec<Vec<BlockedClaim>> {
    let graph = Graph::new(left);
    let circle = |nodes: Vec<usize>| {
        let claims = nodes.iter().filter_map(|node| graph.claims.get(*node));
        let keys: BTreeSet<_> = claims.clone().map(|(key, _)| *key).collect();
        let blocked = claims.map(|(key, claim)| {
            let (key, waiter, holds) = (*key, claim.index, holds(left, claim, &keys));
            BlockedClaim { key, waiter, holds }
        });
        blocked.collect()
    };
    graph.components().into_iter().map(circle).collect()
}

/// Which of the keys the context of the claim holds.
fn holds(left: &Reduction<'_>, claim: &ClaimState, keys: &BTreeSet<usize>) -> Vec<(usize, usize)> {
    let covers = |holder: &&&ClaimState| {
        let around = holder.context.as_ref().zip(claim.context.as_ref());
        around.is_some_and(|(around, context)| around.covers(context))
    };
    let of_key = |key: usize| {
        let holders = left.holding(key).iter().filter(covers);
        let holders = holders.filter(move |it| !left.keys[key].has_waited(it));
        holders.map(move |holder| (key, holder.index))
    };
    keys.iter().copied().flat_map(of_key).collect()
}

impl<'a> Graph<'a> {
    fn new(left: &Reduction<'a>) -> Self {
        let stuck: Vec<_> = left.stuck().collect();
        let mut claims = Vec::new();
        let mut first_of = HashMap::new();
        for key in &stuck {
            first_of.insert(*key, claims.len());
            claims.extend(left.waiting(*key).iter().map(|claim| (*key, claim)));
        }
        let mut within: HashMap<&str, Vec<usize>> = HashMap::new();
        for (node, (_, claim)) in claims.iter().enumerate() {
            for around in claim.contexts() {
                within.entry(around).or_default().push(node);
            }
        }
        let node_of: HashMap<_, _> = stuck.iter().copied().zip(claims.len()..).collect();
        let next = claims.iter().map(|(key, claim)| {
            vec![match left.fits(*key, claim) {
                true => first_of[key],
                false => node_of[key],
            }]
        });
        let of_key = stuck.iter().map(|key| {
            let holding = left.holding(*key).iter().flat_map(|holder| {
                let context = holder.context.as_ref();
                let waits = context.and_then(|context| within.get(context.as_str()));
                // Not what waited beside it: both go on together.
                let waited = left.keys[*key].has_waited(holder);
                let claims = &claims;
                waits.into_iter().flatten().copied().filter(move |node| {
                    let (at, claim) = claims[*node];
                    !(waited && at == *key && claim.context == holder.context)
                })
            });
            holding.collect()
        });
        let next = next.chain(of_key).collect();
        Self { claims, next }
    }

    /// The strongly connected components of more than one node, each in the order in which its
    /// nodes lead to each other.
    fn components(&self) -> Vec<Vec<usize>> {
        let mut back = vec![Vec::new(); self.next.len()];
        for (node, next) in self.next.iter().enumerate() {
            for to in next {
                back[*to].push(node);
            }
        }
        let mut seen = vec![false; self.next.len()];
        let mut finished = Vec::new();
        for node in 0..self.next.len() {
            finished.extend(walk(&self.next, node, &mut seen).1);
        }
        let mut left = vec![false; self.next.len()];
        let mut components = Vec::new();
        for node in finished.into_iter().rev() {
            // Against the edges; so the other way round is the order in which they lead on.
            let mut component = walk(&back, node, &mut left).0;
            component.reverse();
            components.push(component);
        }
        components.retain(|component| component.len() > 1);
        components
    }
}

/// All nodes that can be reached from one and have not been seen: in the order in which they
/// were found, and in the order in which they were finished.
fn walk(next: &[Vec<usize>], from: usize, seen: &mut [bool]) -> (Vec<usize>, Vec<usize>) {
    let (mut found, mut finished) = (Vec::new(), Vec::new());
    if std::mem::replace(&mut seen[from], true) {
        return (found, finished);
    }
    found.push(from);
    let mut path = vec![(from, 0)];
    while let Some((node, tried)) = path.last_mut() {
        match next[*node].get(*tried) {
            None => {
                finished.push(*node);
                path.pop();
            }
            Some(to) => {
                *tried += 1;
                if !std::mem::replace(&mut seen[*to], true) {
                    found.push(*to);
                    path.push((*to, 0));
                }
            }
        }
    }
    (found, finished)
}
