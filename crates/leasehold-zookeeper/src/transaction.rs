//! Transactions: what changes together.

use leasehold_core::{Inbox, Key};
use leasehold_store::journal::{Append, Position};
use zookeeper_client::{Client, Error, MultiWriteResult, MultiWriter, Stat};

use super::node::{path_of, path_of_inbox, path_of_record, version_of};
use super::session::Sessions;

/// What a transaction has beside names and contents, for each of its operations.
const OVERHEAD: usize = 128;

/// Any version.
const ANY: i32 = -1;

/// An operation of a transaction.
pub(crate) enum Op<'a> {
    Change,
    /// What goes with it.
    Other,
    Ring(&'a Inbox),
}

/// A transaction to be.
pub(crate) struct Transaction<'a> {
    pub(crate) writer: MultiWriter<'a>,
    pub(crate) ops: Vec<Op<'a>>,
    pub(crate) bytes: usize,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(client: &'a Client) -> Self {
        Self {
            writer: client.new_multi_writer(),
            ops: Vec::new(),
            bytes: 0,
        }
    }

    /// Counts an operation that is added.
    fn count(&mut self, op: Op<'a>, path: &str, content: &[u8]) {
        self.ops.push(op);
        self.bytes += path.len() + content.len() + OVERHEAD;
    }

    /// The change of a node, if it is still the record that the client knows, and ends there.
    pub(crate) fn change(
        &mut self,
        sessions: &Sessions,
        part: &Append<'_>,
        record: u64,
        content: &[u8],
    ) -> Result<(), Error> {
        let (path, child) = (path_of(part.key), path_of_record(part.key, record));
        if let Some(known) = part.known.filter(|known| known.record == record) {
            self.count(Op::Other, &child, &[]);
            self.writer.add_check_version(&child, ANY)?;
            self.count(Op::Change, &path, content);
            let version = Some(version_of(known));
            return self.writer.add_set_data(&path, content, version);
        }
        if let Some(known) = part.known {
            self.remove(part.key, known)?;
        }
        let lasting = sessions.lasting();
        self.count(Op::Change, &path, content);
        self.writer.add_create(&path, content, &lasting)?;
        self.count(Op::Other, &child, &[]);
        self.writer.add_create(&child, &[], &lasting)
    }

    /// The end of a record, if it still ends there.
    pub(crate) fn remove(&mut self, key: &Key, at: Position) -> Result<(), Error> {
        let (path, child) = (path_of(key), path_of_record(key, at.record));
        self.count(Op::Other, &child, &[]);
        self.writer.add_delete(&child, None)?;
        self.count(Op::Other, &path, &[]);
        self.writer.add_delete(&path, Some(version_of(at)))
    }

    pub(crate) fn ring(&mut self, key: &Key, inbox: &'a Inbox) -> Result<(), Error> {
        let (path, content) = (path_of_inbox(inbox), key.as_str().as_bytes());
        self.count(Op::Ring(inbox), &path, content);
        self.writer.add_set_data(&path, content, None)
    }
}

/// What became of the nodes that were changed; none where the server does not say.
pub(crate) fn stats(results: Vec<MultiWriteResult>, ops: &[Op<'_>]) -> Vec<Option<Stat>> {
    let changes = results.into_iter().zip(ops);
    let changes = changes.filter(|(_, op)| matches!(op, Op::Change));
    let stat = |(result, _)| match result {
        MultiWriteResult::SetData { stat } => Some(stat),
        MultiWriteResult::Create { stat, .. } => Some(stat).filter(|stat| stat.czxid > 0),
        _ => None,
    };
    changes.map(stat).collect()
}
