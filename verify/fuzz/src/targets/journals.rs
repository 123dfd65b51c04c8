//! The records of journals. The first byte says what follows: `b` a base as it lies there, `q` a
//! queue, which is sealed as if a client had written it, `s` steps that follow an empty queue, one
//! entry a line, `t` the tail of a row in PostgreSQL, `z` a node of ZooKeeper.

use leasehold::core::Queue;
use leasehold::fuzzing::{journal, postgres, zookeeper};

use super::local_files::behaves;

pub(crate) fn run(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else {
        return;
    };
    let text = std::str::from_utf8(rest);
    match (kind, text) {
        (b'b', _) => {
            if let Some(queue) = journal::follow(rest, &[]) {
                check(&queue);
                // One changed bit is seen, but in the format.
                let mut changed = rest.to_vec();
                for bit in 32..8 * rest.len() {
                    changed[bit / 8] ^= 1 << (bit % 8);
                    assert_eq!(journal::follow(&changed, &[]), None, "bit {bit}");
                    changed[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
        (b'q', Ok(text)) => {
            if let Some(queue) = journal::follow(&journal::seal(text), &[]) {
                check(&queue);
            }
        }
        (b's', Ok(text)) => {
            let sealed: Vec<_> = text.split('\n').map(journal::seal).collect();
            let entries: Vec<_> = sealed.iter().map(|entry| &**entry).collect();
            if let Some(queue) = journal::follow(&[], &entries) {
                check(&queue);
            }
        }
        (b't', _) => {
            if let Some(entries) = postgres::frames(rest) {
                // A head of 12 bytes and a time of 8.
                let length = |bytes: usize| bytes + 20;
                let lengths = entries.iter().map(|entry| length(entry.bytes.len()));
                assert_eq!(lengths.sum::<usize>(), rest.len(), "nothing is left out");
            }
        }
        (b'z', _) => {
            if let Some(news) = zookeeper::read(rest)
                && let Some(added) = news.entries.last()
            {
                let more = zookeeper::add(rest, added, b"").unwrap();
                let more = zookeeper::read(&more).unwrap();
                assert_eq!(more.entries.last(), Some(added));
            }
        }
        _ => {}
    }
}

fn check(queue: &Queue) {
    if !queue.is_empty() {
        let written = journal::base(queue).unwrap();
        assert_eq!(journal::follow(&written, &[]).as_ref(), Some(queue));
    }
    behaves(queue);
}
