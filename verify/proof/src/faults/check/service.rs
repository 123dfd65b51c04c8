//! Who was served, and when nobody was.

use std::ops::Range;

use super::{Finding, Property, by_key};
use crate::faults::history::{Micros, Op};

/// A time without a grant: from the one before it, or the beginning, to the one after it, or the
/// end.
pub type Gap = Range<Micros>;

/// The times between grants, key by key, of a history from `from` to `to`. Everybody wants
/// its key again after a short pause, so that a long time is one in which nobody got it.
pub fn gaps(ops: &[Op], from: Micros, to: Micros) -> Vec<Gap> {
    let mut gaps = Vec::new();
    for ops in by_key(ops).into_values() {
        let grants = ops.iter().filter_map(|op| op.grant.as_ref());
        let mut times: Vec<_> = grants.map(|grant| grant.at.clamp(from, to)).collect();
        times.extend([from, to]);
        times.sort_unstable();
        gaps.extend(times.windows(2).map(|pair| pair[0]..pair[1]));
    }
    gaps
}

/// The longest of those that lie in part between `from` and `to`.
pub fn longest_gap(gaps: &[Gap], from: Micros, to: Micros) -> Option<Gap> {
    let meeting = gaps.iter().filter(|gap| gap.start < to && from < gap.end);
    meeting.max_by_key(|gap| gap.end - gap.start).cloned()
}

/// Finds the tasks, given as client and task and key, that got no grant after `quiet`.
#[must_use]
pub fn unserved(ops: &[Op], tasks: &[(usize, usize, String)], quiet: Micros) -> Vec<Finding> {
    let served = |client: usize, task: usize| {
        ops.iter()
            .filter(|op| op.id.client == client && op.task == task)
            .any(|op| op.grant.as_ref().is_some_and(|grant| grant.at >= quiet))
    };
    let unserved = tasks.iter().filter(|(who, task, _)| !served(*who, *task));
    let finding = |(client, task, key): &(usize, usize, String)| {
        let what =
            format!("task {task} of client {client} got no grant after the faults had ended");
        Finding::new(Property::Service, quiet, key, what)
    };
    unserved.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::examples::{lease, wish};
    use super::*;

    #[test]
    fn who_gets_nothing_after_the_faults_is_found() {
        let ops = [lease(1, 0, 5, 9, 1), lease(2, 0, 15, 19, 2), wish(1, 16)];
        let task = |client| (client, 0, "k".to_owned());
        assert_eq!(unserved(&ops, &[task(2)], 10), []);
        assert_eq!(unserved(&ops, &[task(1), task(2)], 10).len(), 1);
        assert_eq!(unserved(&ops, &[task(1)], 4), []);
    }

    #[test]
    fn the_longest_time_without_a_grant_is_that_of_one_key() {
        let mut other = lease(1, 0, 30, 31, 1);
        other.key = "other".to_owned();
        let ops = [lease(1, 0, 5, 9, 1), lease(2, 0, 15, 19, 2), other];
        let all = gaps(&ops, 0, 40);
        assert_eq!(longest_gap(&all, 0, 40), Some(0..30));
        let longest = longest_gap(&gaps(&ops[..2], 0, 40), 0, 15);
        assert_eq!(longest, Some(5..15));
        assert_eq!(longest_gap(&[], 0, 40), None);
    }
}
