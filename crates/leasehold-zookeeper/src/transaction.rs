//! Transactions: what changes together.

use leasehold_core::{Inbox, Key};
use leasehold_store::journal::{Append, Position};
use zookeeper_client::{Client, CreateMode, Error, MultiWriter};

use super::node::{path_of, path_of_inbox, path_of_record, version_of};
use super::session::Sessions;

/// What a transaction has beside names and contents, for each of its operations.
const OVERHEAD: usize = 128;

/// Any version.
const ANY: i32 = -1;

/// A transaction to be.
pub(crate) struct Transaction<'a> {
    pub(crate) writer: MultiWriter<'a>,
    /// Whom each of its operations rings.
    pub(crate) rings: Vec<Option<&'a Inbox>>,
    pub(crate) bytes: usize,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(client: &'a Client) -> Self {
        Self {
            writer: client.new_multi_writer(),
            rings: Vec::new(),
            bytes: 0,
        }
    }

    /// Counts an operation that is added.
    fn count(&mut self, ring: Option<&'a Inbox>, path: &str, content: &[u8]) {
        self.rings.push(ring);
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
        let same = part.known.filter(|known| known.record == record);
        if same.is_some() {
            self.count(None, &child, &[]);
            self.writer.add_check_version(&child, ANY)?;
        } else {
            if let Some(known) = part.known {
                self.remove(part.key, known)?;
            }
            let lasting = CreateMode::Persistent.with_acls(sessions.acls());
            for node in [&path, &child] {
                self.count(None, node, &[]);
                self.writer.add_create(node, &[], &lasting)?;
            }
        }
        // A node that is made is set, too: some servers do not say when they have made one (ZOOKEEPER-4667).
        self.count(None, &path, content);
        let version = same.map(version_of);
        self.writer.add_set_data(&path, content, version)
    }

    /// The end of a record, if it still ends there.
    pub(crate) fn remove(&mut self, key: &Key, at: Position) -> Result<(), Error> {
        let (path, child) = (path_of(key), path_of_record(key, at.record));
        self.count(None, &child, &[]);
        self.writer.add_delete(&child, None)?;
        self.count(None, &path, &[]);
        self.writer.add_delete(&path, Some(version_of(at)))
    }

    pub(crate) fn ring(&mut self, key: &Key, inbox: &'a Inbox) -> Result<(), Error> {
        let (path, content) = (path_of_inbox(inbox), key.as_str().as_bytes());
        self.count(Some(inbox), &path, content);
        self.writer.add_set_data(&path, content, None)
    }
}
