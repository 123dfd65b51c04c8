//! One step on several keys: claims that are granted together or not at all.

use std::sync::Arc;

use leasehold_core::{Command, Key, Queue, StoreTime};
use leasehold_store::{ErrorKind, Step, StoreError, Taken};

use super::directory::Locked;
use super::name::file_name;
use super::place::{Place, Prepared};
use super::{Inner, bury, inbox, step};

/// The keys and their claims, in the order in which they were asked for.
pub(super) struct Parts {
    keys: Vec<(Key, Place)>,
    claims: Vec<Command>,
}

impl Parts {
    pub(super) fn of(keys: &[&Key], claims: &[Command]) -> Self {
        let place = |key: &&Key| ((*key).clone(), Place::of(&file_name(key.as_str())));
        Self {
            keys: keys.iter().map(place).collect(),
            claims: claims.to_vec(),
        }
    }

    /// Where all who lock several keys begin, and go on: sorted.
    fn places(&self) -> Vec<Place> {
        let mut places: Vec<_> = self.keys.iter().map(|(_, place)| place.clone()).collect();
        places.sort();
        places
    }
}

/// Takes the step, waiting for its turn on every key.
pub(super) async fn run(store: &Arc<Inner>, parts: Parts) -> Result<Taken, StoreError> {
    step::in_turn(store, parts.places(), move |store, locks| {
        take(store, &parts, locks)
    })
    .await
}

fn take(store: &Inner, parts: &Parts, _all: &[Locked]) -> Result<Taken, StoreError> {
    store.go_on()?;
    let read = |(key, place): &(Key, Place)| place.read_key(&store.directory, &store.clock, key);
    let mut queues = parts.keys.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let clock = store.clock.now();
    let is_dead = |inbox: &_| store.session.sees_dead(inbox);
    let taken = Step::All(&parts.claims).apply_by(&mut queues, |queue, claim| {
        bury::apply(queue, Some(claim), clock, is_dead)
    });
    if let Ok(outcomes) = &taken {
        write(store, parts, &queues, clock)?;
        // As after a step on one key: under the locks, when all is in place.
        for ((key, _), outcome) in parts.keys.iter().zip(outcomes) {
            inbox::tell(&store.directory, key, outcome.at, &outcome.events);
        }
    }
    Ok(taken)
}

/// Puts all records in place. What is likely to fail, a full disk above all,
/// fails before the first of them is.
///
/// Between the first and the last, a process that is killed leaves some of its
/// claims and not the others. They are claims of a dead client: whoever wants
/// such a key buries them, and until then nobody misses it.
fn write(
    store: &Inner,
    parts: &Parts,
    queues: &[Queue],
    clock: StoreTime,
) -> Result<(), StoreError> {
    let directory = &store.directory;
    let discard = |prepared: Vec<Prepared<'_>>| {
        for one in prepared {
            one.discard(directory);
        }
    };
    let mut prepared = Vec::with_capacity(queues.len());
    for ((key, place), queue) in parts.keys.iter().zip(queues) {
        let expires = clock + queue.keep_for(clock, store.retention);
        match place.prepare(directory, &store.clock, key, queue, expires) {
            Ok(one) => prepared.push(one),
            Err(error) => {
                discard(prepared);
                return Err(error);
            }
        }
    }
    let mut prepared = prepared.into_iter();
    let mut written = 0;
    while let Some(one) = prepared.next() {
        if let Err(error) = one.commit(directory) {
            discard(prepared.collect());
            return Err(match written {
                0 => error,
                // The client asks again, or releases what it may have.
                _ => StoreError::new(ErrorKind::Unavailable, "not all keys could be written")
                    .with_source(error),
            });
        }
        written += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use leasehold_core::{Claim, ClaimId, Mode, Reply};

    use super::*;

    fn open(path: &Path) -> Arc<Inner> {
        Arc::new(Inner::open(path.to_owned(), Duration::from_secs(60)).unwrap())
    }

    async fn all(store: &Arc<Inner>, keys: &[&str]) -> Result<Taken, StoreError> {
        let keys: Vec<_> = keys.iter().map(|key| Key::new(key).unwrap()).collect();
        let claim = |number| {
            Command::Claim(Claim {
                wait: false,
                inbox: Some(store.session.inbox().clone()),
                ..Claim::new(ClaimId::from_random(number), Mode::EXCLUSIVE, Duration::MAX)
            })
        };
        let claims: Vec<_> = (1..).map(claim).take(keys.len()).collect();
        run(store, Parts::of(&keys.iter().collect::<Vec<_>>(), &claims)).await
    }

    fn left(path: &Path) -> Vec<String> {
        let names = fs::read_dir(path.join("keys")).unwrap();
        let mut names: Vec<_> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.ends_with(".lock") && !is_spare(path, name))
            .collect();
        names.sort();
        names
    }

    /// What a key in use keeps for its next record.
    fn is_spare(path: &Path, name: &str) -> bool {
        let record = name
            .strip_suffix(".tmp")
            .map(|key| format!("keys/{key}.json"));
        record.is_some_and(|record| path.join(record).exists())
    }

    #[tokio::test]
    async fn nothing_is_written_where_one_record_cannot_be() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("d");
        let store = open(&path);
        // In the way of the last record.
        fs::create_dir(path.join("keys/b.tmp")).unwrap();
        all(&store, &["c", "a", "b"]).await.unwrap_err();
        assert_eq!(left(&path), ["b.tmp"]);
        fs::remove_dir(path.join("keys/b.tmp")).unwrap();
        all(&store, &["c", "a", "b"]).await.unwrap().unwrap();
        assert_eq!(left(&path), ["a.json", "b.json", "c.json"]);
    }

    #[tokio::test]
    async fn nothing_is_written_where_one_key_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("d");
        let (store, other) = (open(&path), open(&path));
        all(&other, &["b"]).await.unwrap().unwrap();
        let (part, refused) = all(&store, &["c", "b", "a"]).await.unwrap().unwrap_err();
        assert!(matches!((part, refused.reply), (1, Reply::Busy { .. })));
        assert_eq!(left(&path), ["b.json"]);
    }

    /// A process killed between two records leaves one of its claims.
    #[tokio::test]
    async fn the_dead_are_not_in_the_way() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("d");
        let (store, one, other) = (open(&path), open(&path), open(&path));
        all(&one, &["b"]).await.unwrap().unwrap();
        all(&other, &["c"]).await.unwrap().unwrap();
        drop((one, other));
        let granted = all(&store, &["a", "b", "c"]).await.unwrap().unwrap();
        assert_eq!(granted.len(), 3);
        assert_eq!(left(&path), ["a.json", "b.json", "c.json"]);
    }

    #[tokio::test]
    async fn no_parts_are_granted() {
        let place = tempfile::tempdir().unwrap();
        let store = open(&place.path().join("d"));
        assert_eq!(all(&store, &[]).await.unwrap(), Ok(Vec::new()));
    }
}
