//! First come, first served.

use super::{Finding, Property, by_key, name};
use crate::faults::history::{Grant, Op};

/// Finds fair claims that were granted ahead of one that certainly stood in the queue
/// before they were asked for. Grants are ordered by their tokens.
///
/// Claims that lost their place say so, and can be passed. Those never granted are left out.
#[must_use]
pub fn order(ops: &[Op]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (key, ops) in by_key(ops) {
        let mut granted: Vec<(u64, &Op, &Grant)> = ops
            .into_iter()
            .filter(|op| op.fair)
            .filter_map(|op| Some((op, op.grant.as_ref()?)))
            .filter_map(|(op, grant)| Some((grant.token?, op, grant)))
            .collect();
        granted.sort_by_key(|(token, ..)| std::cmp::Reverse(*token));
        // From the last grant to the first: who stood there earliest of those granted later.
        let mut earliest: Option<(u64, &Op)> = None;
        for (_, op, grant) in granted {
            if let Some((queued, passed)) = earliest
                && queued < op.invoked
            {
                let late = op.invoked - queued;
                let (op, passed) = (name(op), name(passed));
                let what = format!("{op} passed {passed}, queued {late} µs before");
                findings.push(Finding::new(Property::Order, grant.at, key, what));
            }
            if let Some(queued) = op.queued.filter(|_| grant.rejoined == 0)
                && earliest.is_none_or(|(first, _)| queued < first)
            {
                earliest = Some((queued, op));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::examples::{lease, queued};
    use super::*;

    #[test]
    fn in_the_order_of_arrival_is_well() {
        let ops = [
            queued(5, lease(1, 1, 10, 20, 1)),
            queued(7, lease(2, 6, 20, 30, 2)),
            lease(3, 8, 30, 31, 3),
        ];
        assert_eq!(order(&ops), []);
    }

    #[test]
    fn who_came_later_and_was_served_first_is_found() {
        let ops = [queued(5, lease(1, 1, 20, 30, 2)), lease(2, 6, 10, 20, 1)];
        let found = order(&ops);
        assert_eq!(found.len(), 1);
        let what = &found[0].what;
        let told = what.contains("client 2") && what.contains("1 µs before");
        assert!(told, "{what}");
    }

    #[test]
    fn who_may_have_come_first_is_not_blamed() {
        let ops = [queued(7, lease(1, 1, 20, 30, 2)), lease(2, 6, 10, 20, 1)];
        assert_eq!(order(&ops), []);
    }

    #[test]
    fn the_unfair_and_those_who_lost_their_place_have_none() {
        let mut unfair = lease(2, 6, 10, 20, 1);
        unfair.fair = false;
        let first = queued(5, lease(1, 1, 20, 30, 2));
        assert_eq!(order(&[first.clone(), unfair]), []);
        let mut rejoined = first;
        rejoined.grant.as_mut().unwrap().rejoined = 1;
        assert_eq!(order(&[rejoined, lease(2, 6, 10, 20, 1)]), []);
    }
}
