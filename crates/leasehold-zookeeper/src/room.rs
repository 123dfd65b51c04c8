//! Room for clients that are far away: others, who are nearer, would set a node each time before them.
//! Whoever is late with a step gives the key's node an ephemeral child. Who sees that lets its claims
//! wait, and nothing that ends or renews one.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::{Inbox, Key, Moment};
use leasehold_store::clock;
use leasehold_store::sync::{Mutex, lock, sleep};
use zookeeper_client::{Client, CreateMode, Stat};

use super::node::path_of;
use super::session::Sessions;

/// How long there is room at most for a step: its client may have died. That is some round trips of one
/// that is far away.
const LONGEST: Duration = Duration::from_millis(500);

/// When it is forgotten that somebody wanted room: its session has ended by then, or its step was taken.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// How often it is looked whether the step was taken.
const LOOK: Duration = Duration::from_millis(10);

/// The keys for which others want room: since which change, and since when that is known.
#[derive(Default)]
pub(crate) struct Room(Mutex<HashMap<Key, (i64, Moment)>>);

impl Room {
    /// Takes note of what a node is.
    pub(crate) fn see(&self, key: &Key, stat: Option<&Stat>) {
        let mut wanted = lock(&self.0);
        // One child has the number of the record.
        match stat.filter(|stat| stat.num_children > 1) {
            Some(stat) if wanted.get(key).is_some_and(|seen| seen.0 == stat.pzxid) => {}
            Some(stat) => {
                let now = clock::now();
                wanted.retain(|_, seen| now.since(seen.1) < FORGOTTEN);
                wanted.insert(key.clone(), (stat.pzxid, now));
            }
            None => _ = wanted.remove(key),
        }
    }

    /// Waits until nobody wants room, or it was left for long enough: there may always be somebody else.
    pub(crate) async fn give(&self, sessions: &Sessions, client: &Client, key: &Key) {
        let begun = clock::now();
        let is_wanted = || {
            let since = lock(&self.0).get(key).map(|seen| seen.1.min(begun));
            since.is_some_and(|since| clock::now().since(since) < LONGEST)
        };
        while is_wanted() {
            sleep(LOOK).await;
            // Who cannot look is told by the step.
            if let Ok(stat) = sessions.ask(client.check_stat(&path_of(key))).await {
                self.see(key, stat.as_ref());
            }
        }
    }
}

/// Wants room for a step until it has ended, however that comes.
pub(crate) struct Late<'a>(&'a Client, String);

impl<'a> Late<'a> {
    /// Asks for it. That goes before what is asked next, and need not be waited for.
    pub(crate) fn new(sessions: &Sessions, client: &'a Client, key: &Key, inbox: &Inbox) -> Self {
        let path = format!("{}/late-{}", path_of(key), inbox.as_str());
        let made = CreateMode::Ephemeral.with_acls(sessions.acls());
        drop(client.create(&path, &[], &made));
        Self(client, path)
    }
}

impl Drop for Late<'_> {
    fn drop(&mut self) {
        drop(self.0.delete(&self.1, None));
    }
}
