//! Tokens rise.

use std::collections::BTreeMap;

use super::{Finding, Property, by_key, name};
use crate::faults::history::Op;

/// Finds grants with one token, and grants that were asked for when another had been
/// handed out already and yet have a lower token.
#[must_use]
pub fn tokens(ops: &[Op]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (key, ops) in by_key(ops) {
        let numbered = |op: &&Op| op.grant.as_ref().and_then(|it| Some((it.at, it.token?)));
        let by_grant = ops.iter().copied().filter(|op| numbered(op).is_some());
        let mut by_grant: Vec<&Op> = by_grant.collect();
        let mut by_invocation = by_grant.clone();
        by_grant.sort_by_key(|op| numbered(op).map(|(at, _)| at));
        by_invocation.sort_by_key(|op| op.invoked);
        let mut find = |at, what| findings.push(Finding::new(Property::Tokens, at, key, what));

        // No `HashMap`: a simulation, which reads what it has done, would draw other keys for its own.
        let mut seen: BTreeMap<u64, &Op> = BTreeMap::new();
        let mut before = by_grant.iter().copied().peekable();
        let mut highest: Option<(u64, &Op)> = None;
        for op in by_invocation {
            let Some((at, token)) = numbered(&op) else {
                continue;
            };
            if let Some(other) = seen.insert(token, op) {
                let (op, other) = (name(op), name(other));
                find(at, format!("{op} and {other} have one token"));
            }
            // All that had been handed out when this was asked for.
            while let Some(earlier) =
                before.next_if(|it| numbered(it).is_some_and(|(at, _)| at < op.invoked))
            {
                let token = numbered(&earlier).map_or(0, |(_, token)| token);
                if highest.is_none_or(|(highest, _)| token > highest) {
                    highest = Some((token, earlier));
                }
            }
            if let Some((highest, earlier)) = highest
                && token < highest
            {
                find(at, format!("{} came after {}", name(op), name(earlier)));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::examples::{lease, wish};
    use super::*;

    #[test]
    fn rising_tokens_are_well() {
        let ops = [
            lease(1, 0, 1, 10, 1),
            wish(3, 2),
            lease(2, 2, 10, 20, 2),
            lease(1, 11, 20, 21, 3),
        ];
        assert_eq!(tokens(&ops), []);
    }

    #[test]
    fn claims_that_were_under_way_together_may_be_granted_in_any_order() {
        // The second was asked for before the first was handed out.
        assert_eq!(tokens(&[lease(1, 0, 5, 10, 8), lease(2, 4, 6, 20, 2)]), []);
    }

    #[test]
    fn a_token_that_falls_is_found() {
        let found = tokens(&[
            lease(1, 0, 3, 4, 8),
            lease(2, 0, 4, 5, 9),
            lease(2, 6, 7, 20, 2),
        ]);
        assert_eq!(found.len(), 1);
        let what = &found[0].what;
        let both = what.contains("token 2") && what.contains("token 9");
        assert!(both, "{what}");
    }

    #[test]
    fn one_token_twice_is_found_even_at_the_same_time() {
        let same = [lease(1, 0, 5, 10, 8), lease(2, 4, 6, 20, 8)];
        assert_eq!(tokens(&same).len(), 1);
    }

    #[test]
    fn keys_have_tokens_of_their_own_and_some_locks_have_none() {
        let mut other = lease(2, 6, 7, 20, 2);
        other.key = "other".to_owned();
        let mut without = lease(2, 6, 7, 20, 2);
        without.grant.as_mut().unwrap().token = None;
        assert_eq!(tokens(&[lease(1, 0, 3, 4, 8), other, without]), []);
    }
}
