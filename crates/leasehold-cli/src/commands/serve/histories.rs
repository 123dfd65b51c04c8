//! The history of a key is followed once for all who show that key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::Client;
use tokio::sync::watch;

use super::INTERVAL;
use crate::feed::history::{self, History};

/// What a key has in the audit log; none before the first answer.
pub(super) type Known = watch::Receiver<Option<History>>;

/// How many keys are followed at once: each costs the store.
const MOST: usize = 20;

/// The keys that somebody shows.
#[derive(Clone)]
pub(super) struct Histories {
    client: Client,
    followed: Arc<Mutex<Followed>>,
    /// What those hear for whom there is no room.
    full: watch::Sender<Option<History>>,
}

type Followed = HashMap<String, watch::Sender<Option<History>>>;

impl Histories {
    pub(super) fn new(client: Client) -> Self {
        let why = format!("the histories of {MOST} other keys are shown: close some of them");
        Self {
            client,
            followed: Arc::default(),
            full: watch::Sender::new(Some((String::new(), Err(why)))),
        }
    }

    fn followed(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the history of a key, until nobody has a receiver any more.
    pub(super) fn follow(&self, key: &str) -> Known {
        let mut followed = self.followed();
        if let Some(sender) = followed.get(key) {
            return sender.subscribe();
        }
        if followed.len() >= MOST {
            return self.full.subscribe();
        }
        let (sender, known) = watch::channel(None);
        followed.insert(key.to_owned(), sender.clone());
        tokio::spawn(self.clone().run(key.to_owned(), sender));
        known
    }

    async fn run(self, key: String, sender: watch::Sender<Option<History>>) {
        // The reader ends when this is dropped.
        let (_wanted, wants) = watch::channel(Some(key.clone()));
        let mut histories = history::begin(self.client.clone(), INTERVAL, wants);
        loop {
            tokio::select! {
                Some(history) = histories.recv() => {
                    sender.send_if_modified(|known| {
                        let is_new = known.as_ref() != Some(&history);
                        *known = Some(history);
                        is_new
                    });
                }
                () = sender.closed() => {
                    let mut followed = self.followed();
                    // Somebody may have come since.
                    if sender.receiver_count() == 0 {
                        followed.remove(&key);
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_reader_for_all_who_show_a_key() {
        let client = leasehold::connect("memory:?audit=100").await.unwrap();
        let histories = Histories::new(client.clone());
        let (mut one, mut other) = (histories.follow("k"), histories.follow("k"));
        assert_eq!(histories.followed().len(), 1);
        let lease = client.mutex("k").unwrap().lock().await.unwrap();
        let shows = |known: &Option<History>| {
            known
                .as_ref()
                .is_some_and(|(_, history)| matches!(history, Ok(entries) if !entries.is_empty()))
        };
        one.wait_for(shows).await.unwrap();
        other.wait_for(shows).await.unwrap();
        // Who comes later has what is known.
        assert!(shows(&histories.follow("k").borrow()));
        drop((one, other));
        while !histories.followed().is_empty() {
            tokio::task::yield_now().await;
        }
        let followed: Vec<_> = (0..MOST)
            .map(|n| histories.follow(&n.to_string()))
            .collect();
        let refused = histories.follow("k");
        let why = refused.borrow().clone();
        assert!(matches!(why, Some((_, Err(why))) if why.contains("20 other keys")));
        assert_eq!(
            refused.has_changed().ok(),
            Some(false),
            "its page stays open"
        );
        drop(followed);
        while !histories.followed().is_empty() {
            tokio::task::yield_now().await;
        }
        let mut again = histories.follow("k");
        again.wait_for(shows).await.unwrap();
        let _ = lease.release().await.unwrap();
    }
}
