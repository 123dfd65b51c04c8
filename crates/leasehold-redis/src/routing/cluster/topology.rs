//! Parses the topology of a cluster: which node has which slots.

use std::collections::BTreeSet;

use redis::Value;

use crate::codec::slots::SLOTS;
use crate::connection::address::Address;
use crate::connection::value::{field, items, text_of};
use crate::errors;

/// An address as the node at `asked` said it: without a host, or with `?` for one that was not set
/// up, it is the host that was asked.
pub(super) fn address_said(host: &str, port: u16, asked: &Address) -> Address {
    match host {
        "" | "?" => Address::new(&asked.host, port),
        host => Address::new(errors::tame(host), port),
    }
}

/// The primaries, the other nodes, and who has which slot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Topology {
    nodes: Vec<Address>,
    /// The node of each slot, counted from 1; zero where nobody has it.
    owners: Vec<u16>,
    replicas: BTreeSet<Address>,
}

impl Topology {
    /// Reads what the node at `asked` answered to `CLUSTER SLOTS`; `None` if that
    /// is something else.
    pub(super) fn read(answer: &Value, asked: &Address) -> Option<Self> {
        let mut topology = Self::default();
        for range in items(answer)? {
            let [first, last, primary, replicas @ ..] = items(range)? else {
                return None;
            };
            let (first, last) = (slot(first)?, slot(last)?);
            topology.assign(first..=last, address(primary, asked)?);
            for replica in replicas {
                topology.replicas.insert(address(replica, asked)?);
            }
        }
        Some(topology)
    }

    /// Who has a slot.
    pub(super) fn owner(&self, slot: u16) -> Option<&Address> {
        let owner = self.owners.get(usize::from(slot)).copied()?;
        self.nodes.get(usize::from(owner).checked_sub(1)?)
    }

    /// Those who have slots.
    pub(super) fn primaries(&self) -> &[Address] {
        &self.nodes
    }

    /// All that were named.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Address> {
        self.nodes.iter().chain(&self.replicas)
    }

    /// One slot has moved.
    pub(super) fn moved(&mut self, slot: u16, to: Address) {
        if slot < SLOTS {
            self.assign(slot..=slot, to);
        }
    }

    fn assign(&mut self, slots: std::ops::RangeInclusive<u16>, to: Address) {
        let known = self.nodes.iter().position(|node| *node == to);
        let at = known.unwrap_or_else(|| {
            self.nodes.push(to);
            self.nodes.len() - 1
        });
        let Ok(owner) = u16::try_from(at + 1) else {
            return;
        };
        self.owners.resize(usize::from(SLOTS), 0);
        for slot in slots {
            self.owners[usize::from(slot)] = owner;
        }
    }
}

fn slot(value: &Value) -> Option<u16> {
    match value {
        Value::Int(slot) => u16::try_from(*slot).ok().filter(|slot| *slot < SLOTS),
        _ => None,
    }
}

/// Reads a node: its endpoint, its port, its id, and since 7.0 what else is known
/// of it. The endpoint is nothing where it is to be the one that was asked.
fn address(node: &Value, asked: &Address) -> Option<Address> {
    let [endpoint, Value::Int(port), rest @ ..] = items(node)? else {
        return None;
    };
    let host = match endpoint {
        Value::Nil => String::new(),
        endpoint => text_of(endpoint)?,
    };
    let ip = || rest.get(1).and_then(|more| field(more, "ip"));
    let host = match &*host {
        // A name was to be announced, and none was set.
        "?" => ip().unwrap_or_default(),
        _ => host,
    };
    Some(address_said(&host, u16::try_from(*port).ok()?, asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), bulk("id")])
    }

    fn range(first: i64, last: i64, nodes: impl IntoIterator<Item = Value>) -> Value {
        let bounds = [Value::Int(first), Value::Int(last)];
        Value::Array(bounds.into_iter().chain(nodes).collect())
    }

    fn asked() -> Address {
        Address::new("asked", 7_000)
    }

    #[test]
    fn slots_have_owners() {
        let answer = Value::Array(vec![
            range(
                0,
                99,
                [node(bulk("10.0.0.1"), 6379), node(bulk("10.0.0.2"), 6379)],
            ),
            range(100, 100, [node(bulk("10.0.0.3"), 6380)]),
            range(16_383, 16_383, [node(bulk("10.0.0.1"), 6379)]),
        ]);
        let mut topology = Topology::read(&answer, &asked()).unwrap();
        let first = Address::new("10.0.0.1", 6379);
        let other = Address::new("10.0.0.3", 6380);
        for (slot, owner) in [
            (0, Some(&first)),
            (99, Some(&first)),
            (100, Some(&other)),
            (101, None),
            (16_383, Some(&first)),
            (16_384, None),
        ] {
            assert_eq!(topology.owner(slot), owner, "{slot}");
        }
        assert_eq!(topology.primaries(), [first.clone(), other.clone()]);
        assert_eq!(topology.nodes().count(), 3);

        let stranger = Address::new("10.0.0.4", 6379);
        for (slot, to) in [(99, &other), (101, &stranger), (16_384, &first)] {
            topology.moved(slot, to.clone());
        }
        assert_eq!(topology.owner(98), Some(&first));
        assert_eq!(topology.owner(99), Some(&other));
        assert_eq!(topology.owner(101), Some(&stranger));
        assert_eq!(topology.nodes().count(), 4);
    }

    #[test]
    fn a_node_that_says_no_host_is_where_it_was_asked() {
        let more = |pairs: Vec<(Value, Value)>| {
            let known = [bulk("?"), Value::Int(1), bulk("id"), Value::Map(pairs)];
            Value::Array(known.into())
        };
        for (node, host) in [
            (node(bulk(""), 1), "asked"),
            (node(Value::Nil, 1), "asked"),
            (node(bulk("?"), 1), "asked"),
            (node(bulk("node-1.example.org"), 1), "node-1.example.org"),
            (more(vec![]), "asked"),
            (more(vec![(bulk("ip"), bulk("10.0.0.9"))]), "10.0.0.9"),
        ] {
            let answer = Value::Array(vec![range(0, 9, [node])]);
            let topology = Topology::read(&answer, &asked()).unwrap();
            assert_eq!(topology.owner(5), Some(&Address::new(host, 1)));
        }
    }

    #[test]
    fn what_is_no_topology_is_none() {
        for answer in [
            Value::Okay,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 16_384, [node(bulk("h"), 1)])]),
            Value::Array(vec![range(0, 1, [])]),
            Value::Array(vec![range(0, 1, [node(bulk("h"), 70_000)])]),
        ] {
            assert_eq!(Topology::read(&answer, &asked()), None, "{answer:?}");
        }
        let none = Topology::read(&Value::Array(vec![]), &asked()).unwrap();
        assert_eq!(none.owner(0), None);
    }

    #[test]
    fn addresses_are_shown_as_in_urls() {
        assert_eq!(Address::new("::1", 7).to_string(), "[::1]:7");
        assert_eq!(Address::new("host", 7).to_string(), "host:7");
    }
}
