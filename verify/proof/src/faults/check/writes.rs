//! What the resources behind the locks say.

use std::collections::BTreeMap;

use super::{Finding, Property};
use crate::faults::gate::Written;
use crate::faults::history::{Micros, Op};

/// How the increments of a resource went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Tally {
    /// Increments that it has taken.
    pub taken: u64,
    /// Those of them that overwrote another.
    pub lost: u64,
    /// Writes that it refused.
    pub refused: u64,
}

/// Counts the increments that were lost on the resources that compare nothing.
#[must_use]
pub fn unfenced_writes(log: &[Written]) -> Tally {
    let lost = log.iter().filter(|it| !it.fenced && it.is_lost_update());
    Tally {
        taken: log.iter().filter(|it| !it.fenced).count() as u64,
        lost: lost.count() as u64,
        refused: 0,
    }
}

/// Finds what must not be on a resource that compares tokens: an increment that was lost,
/// a write after one with a higher token, and one that was confirmed and is not there.
#[must_use]
pub fn fenced_writes(ops: &[Op], log: &[Written]) -> (Tally, Vec<Finding>) {
    let mut findings = Vec::new();
    let mut highest: BTreeMap<&str, u64> = BTreeMap::new();
    let mut landed = BTreeMap::new();
    let mut tally = Tally::default();
    let mut find = |at: Micros, key: &str, what: String| {
        findings.push(Finding::new(Property::FencedWrites, at, key, what));
    };
    for written in log.iter().filter(|it| it.fenced) {
        tally.taken += 1;
        *landed.entry(written.op).or_insert(0) += 1;
        let (client, number, token) = (written.op.client, written.op.number, written.token);
        if written.is_lost_update() {
            tally.lost += 1;
            let Written { before, value, .. } = written;
            let what = format!("client {client} op {number} wrote {value} over {before}");
            find(written.at, &written.key, what);
        }
        let highest = highest.entry(&written.key).or_default();
        if token < *highest {
            let what = format!("client {client} op {number} wrote with {token} after {highest}");
            find(written.at, &written.key, what);
        }
        *highest = token.max(*highest);
    }
    for op in ops {
        tally.refused += op.fenced.1;
        let there = landed.get(&op.id).copied().unwrap_or(0);
        if there < op.fenced.0 {
            let what = format!("of {} confirmed writes {there} are there", op.fenced.0);
            find(op.invoked, &op.key, what);
        }
    }
    (tally, findings)
}

#[cfg(test)]
mod tests {
    use super::super::examples::lease;
    use super::*;

    fn written(token: u64, before: u64, value: u64, fenced: bool) -> Written {
        Written {
            at: 1,
            key: "k".to_owned(),
            op: lease(1, 0, 1, 2, 1).id,
            fenced,
            token,
            before,
            value,
        }
    }

    fn confirmed(count: u64) -> Op {
        let mut op = lease(1, 0, 1, 2, 1);
        op.fenced = (count, 3);
        op
    }

    #[test]
    fn increments_one_after_the_other_are_well() {
        let log = [
            written(5, 0, 1, true),
            written(5, 1, 2, true),
            written(9, 2, 3, true),
        ];
        let (tally, findings) = fenced_writes(&[confirmed(3)], &log);
        assert_eq!(findings, []);
        assert_eq!((tally.taken, tally.lost, tally.refused), (3, 0, 3));
    }

    #[test]
    fn an_increment_that_overwrites_another_is_found() {
        let log = [written(5, 0, 1, true), written(5, 1, 1, true)];
        let (tally, findings) = fenced_writes(&[], &log);
        assert_eq!((tally.lost, findings.len()), (1, 1));
        let log = [written(0, 0, 1, false), written(0, 1, 1, false)];
        let tally = unfenced_writes(&log);
        assert_eq!((tally.taken, tally.lost, tally.refused), (2, 1, 0));
        assert_eq!(fenced_writes(&[], &log), (Tally::default(), vec![]));
    }

    #[test]
    fn a_stale_write_that_was_taken_is_found() {
        let log = [written(5, 0, 1, true), written(4, 1, 2, true)];
        assert_eq!(fenced_writes(&[], &log).1.len(), 1);
    }

    #[test]
    fn a_confirmed_write_that_is_not_there_is_found() {
        let log = [written(5, 0, 1, true)];
        assert_eq!(fenced_writes(&[confirmed(2)], &log).1.len(), 1);
    }
}
