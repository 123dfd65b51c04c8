//! Valid leases fit the capacity of their key.

use super::{Finding, Property, by_key, name};
use crate::faults::history::{Grant, Micros, Op};

/// Finds each lease that was handed out while those believed in left no room for it.
#[must_use]
pub fn exclusion(ops: &[Op]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (key, ops) in by_key(ops) {
        let held = ops.iter().filter_map(|op| Some((*op, op.grant.as_ref()?)));
        let mut held: Vec<_> = held.filter(|(_, grant)| grant.until > grant.at).collect();
        held.sort_by_key(|(_, grant)| grant.at);
        let mut valid: Vec<(&Op, Micros)> = Vec::new();
        for (op, grant) in held {
            // A lease that ends as another begins is not valid at the same time.
            valid.retain(|(_, until)| *until > grant.at);
            let taken: u64 = valid.iter().map(|(other, _)| other.mode.weight()).sum();
            if taken + op.mode.weight() > op.mode.capacity().units() {
                let what = beside(op, grant, &valid);
                findings.push(Finding::new(Property::Exclusion, grant.at, key, what));
            }
            valid.push((op, grant.until));
        }
    }
    findings
}

fn beside(op: &Op, grant: &Grant, valid: &[(&Op, Micros)]) -> String {
    let others = valid.iter().map(|(other, until)| {
        let both = until.min(&grant.until) - grant.at;
        format!("{} for {both} µs", name(other))
    });
    let others = others.collect::<Vec<_>>().join(", ");
    format!("{} was valid together with {others}", name(op))
}

#[cfg(test)]
mod tests {
    use leasehold::Mode;

    use super::super::examples::{held_as, lease};
    use super::*;

    #[test]
    fn one_after_the_other_is_well_even_if_they_touch() {
        let ops = [
            lease(1, 0, 1, 10, 1),
            lease(2, 0, 10, 20, 2),
            lease(1, 11, 20, 21, 3),
        ];
        assert_eq!(exclusion(&ops), []);
    }

    #[test]
    fn two_at_once_are_found_once_whatever_their_tokens() {
        let ops = [lease(1, 0, 1, 10, 9), lease(2, 0, 9, 20, 2)];
        let found = exclusion(&ops);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at, 9);
        let what = &found[0].what;
        assert!(what.contains("client 1") && what.contains("1 µs"), "{what}");
    }

    #[test]
    fn other_keys_are_other_locks() {
        let mut other = lease(2, 0, 5, 20, 2);
        other.key = "other".to_owned();
        assert_eq!(exclusion(&[lease(1, 0, 1, 10, 1), other]), []);
    }

    #[test]
    fn readers_go_together_and_a_writer_alone() {
        let reader =
            |client, at, until| held_as(Mode::SHARED, lease(client, 0, at, until, client as u64));
        let readers = [reader(1, 1, 10), reader(2, 2, 12), reader(3, 3, 11)];
        assert_eq!(exclusion(&readers), []);
        let [a, b, c] = readers;
        let later = lease(4, 0, 12, 13, 4);
        assert_eq!(exclusion(&[a.clone(), b.clone(), c.clone(), later]), []);
        assert_eq!(exclusion(&[a, b, c, lease(4, 0, 11, 13, 4)]).len(), 1);
    }

    #[test]
    fn permits_count_by_their_weight() {
        let take = |take, client, at, until| {
            held_as(
                Mode::permits(3, take),
                lease(client, 0, at, until, client as u64),
            )
        };
        assert_eq!(exclusion(&[take(2, 1, 1, 10), take(1, 2, 2, 10)]), []);
        assert_eq!(exclusion(&[take(2, 1, 1, 10), take(2, 2, 2, 10)]).len(), 1);
    }

    #[test]
    fn what_was_over_before_it_was_handed_out_was_never_valid() {
        assert_eq!(exclusion(&[lease(1, 0, 5, 5, 1), lease(2, 0, 4, 9, 2)]), []);
    }
}
