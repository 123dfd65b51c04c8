//! Which lock is wanted: from the arguments to the library's verbs.

use std::time::Duration;

use leasehold::core::Key;
use leasehold::{
    Acquire, Client, Error, LeaseKind, LeaseParts, MultiLock, Note, Owner, Settings, Wait,
};

use crate::cli::{LeaseArgs, LockArgs};
use crate::env;
use crate::failure::Failure;
use crate::held::{Held, Part};
use crate::output::ByKey;

/// What is asked of the store.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// At least one.
    pub(crate) keys: Vec<String>,
    pub(crate) kind: Kind,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    /// The lease of a process that is gone, to be gone on with.
    pub(crate) recover: Option<LeaseParts>,
}

/// How the keys are to be held.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Exclusive,
    Shared,
    Permits {
        of: u32,
        take: u32,
    },
    /// Held again where this owner holds already.
    Reentrant(Owner),
    /// As a leader who tells this.
    Leader {
        note: String,
    },
}

/// What was got.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) held: Held,
    /// Whether it is the lease of the process before, gone on with.
    pub(crate) recovered: bool,
}

/// Sets what every kind of lock can be told.
macro_rules! with_holds {
    ($wanted:expr, $lock:expr) => {{
        let mut lock = $lock;
        if let Some(min_hold) = $wanted.min_hold {
            lock = lock.with_min_hold(min_hold)?;
        }
        if let Some(max_hold) = $wanted.max_hold {
            lock = lock.with_max_hold(max_hold)?;
        }
        lock
    }};
}

impl Wanted {
    /// What the arguments ask for. Refuses what cannot work, before anything is asked of the store.
    pub(crate) fn of(lock: &LockArgs, lease: &LeaseArgs) -> Result<Self, Failure> {
        let kind = match lock.limit {
            _ if lock.shared => Kind::Shared,
            _ if lock.reentrant => Kind::Reentrant(owner()?),
            Some(of) => Kind::Permits {
                of,
                take: lock.take.unwrap_or(1),
            },
            None => Kind::Exclusive,
        };
        let wanted = Self {
            keys: lock.key.iter().chain(&lock.keys).cloned().collect(),
            kind,
            min_hold: lock.min_hold,
            max_hold: lock.max_hold,
            recover: None,
        };
        wanted.check(lease)?;
        Ok(wanted)
    }

    /// To lead on that key.
    pub(crate) fn leader(
        key: &str,
        note: Option<&str>,
        lease: &LeaseArgs,
    ) -> Result<Self, Failure> {
        let note = note.unwrap_or_default().to_owned();
        Note::new(&note)?;
        let wanted = Self {
            keys: vec![key.to_owned()],
            kind: Kind::Leader { note },
            min_hold: None,
            max_hold: None,
            recover: None,
        };
        wanted.check(lease)?;
        Ok(wanted)
    }

    fn check(&self, lease: &LeaseArgs) -> Result<(), Failure> {
        for key in &self.keys {
            Key::new(key)?;
        }
        let settings = Settings {
            ttl: lease.ttl,
            ..Settings::default()
        };
        Ok(settings.check()?)
    }

    /// The key that stands for all of them.
    pub(crate) fn key(&self) -> &str {
        self.keys.first().map_or("", String::as_str)
    }

    /// How long the lease lives without renewal: no longer than it may be held.
    pub(crate) fn ttl(&self, lease: &LeaseArgs) -> Duration {
        self.max_hold.map_or(lease.ttl, |max| max.min(lease.ttl))
    }

    /// Asks for it. `None`: busy, where that is an answer.
    pub(crate) async fn acquire(
        &self,
        client: &Client,
        how: Acquire,
    ) -> Result<Option<Got>, Error> {
        let key = self.key();
        let held = match &self.kind {
            Kind::Exclusive if self.keys.len() > 1 => {
                several(
                    with_holds!(self, client.multi(&self.keys)?),
                    how,
                    Part::Exclusive,
                )
                .await?
            }
            Kind::Shared if self.keys.len() > 1 => {
                let multi = with_holds!(self, client.multi(&self.keys)?);
                several(multi.shared(), how, Part::Shared).await?
            }
            Kind::Exclusive => {
                let mutex = with_holds!(self, client.mutex(key)?);
                if let Some(parts) = &self.recover {
                    let recovered = mutex.recover(parts, how).await?;
                    return Ok(recovered.map(|recovered| Got {
                        held: Part::Exclusive(recovered.lease).into(),
                        recovered: !recovered.anew,
                    }));
                }
                mutex
                    .acquire(how)
                    .await?
                    .map(|lease| Part::Exclusive(lease).into())
            }
            Kind::Shared => {
                let lock = with_holds!(self, client.rwlock(key)?);
                lock.acquire_read(how)
                    .await?
                    .map(|lease| Part::Shared(lease).into())
            }
            Kind::Permits { of, take } => {
                let lock = with_holds!(self, client.semaphore(key, *of)?);
                lock.acquire_with(*take, how)
                    .await?
                    .map(|lease| Part::Permits(lease).into())
            }
            Kind::Reentrant(owner) => {
                let lock = with_holds!(self, client.reentrant(key, owner)?);
                lock.acquire(how)
                    .await?
                    .map(|lease| Part::Exclusive(lease).into())
            }
            Kind::Leader { note } => {
                let leads = client.election(key)?.campaign_with(note, how).await?;
                leads.map(|leads| Part::Exclusive(leads.into_lease()).into())
            }
        };
        Ok(held.map(|held| Got {
            held,
            recovered: false,
        }))
    }

    /// Why the store grants nothing now although the key is free, if it does not: it is asked
    /// for the key without waiting.
    pub(crate) async fn closed(&self, client: &Client) -> Option<Failure> {
        let asked = Self {
            keys: self.keys.clone(),
            kind: self.kind.clone(),
            min_hold: None,
            max_hold: None,
            recover: None,
        };
        match asked.acquire(client, Wait::No.into()).await {
            // What was got is given back in the background.
            Ok(_) => None,
            Err(error) => error.retry_after().map(|_| error.into()),
        }
    }

    /// What the guarded command is told beside its keys and tokens.
    pub(crate) fn given(&self, held: &Held) -> Vec<(&'static str, String)> {
        let tokens = held.tokens();
        let token = tokens.first().and_then(|(_, token)| *token);
        let mut given = vec![(env::KEY, self.key().to_owned())];
        if let Some(token) = token {
            given.push((env::TOKEN, token.to_string()));
            given.push((env::TOKENS, object(&tokens)));
        }
        match (&self.kind, token) {
            (Kind::Reentrant(owner), _) => given.push((env::OWNER, owner.expose())),
            (Kind::Leader { .. }, Some(token)) => given.push((env::TERM, token.to_string())),
            _ => {}
        }
        given
    }
}

async fn several<K: LeaseKind>(
    lock: MultiLock<K>,
    how: Acquire,
    part: fn(leasehold::Lease<K>) -> Part,
) -> Result<Option<Held>, Error> {
    let lease = lock.acquire(how).await?;
    Ok(lease.map(|lease| Held::several(lease.into_leases().into_iter().map(part).collect())))
}

/// The owner that an outer leasehold has left us, or a new one.
fn owner() -> Result<Owner, Failure> {
    match std::env::var(env::OWNER) {
        Ok(text) if !text.is_empty() => Owner::parse(&text).map_err(|_| {
            // What stands there may be a secret that was mistyped.
            Failure::usage(format!("{} is not the secret of an owner", env::OWNER))
                .hint("unset it, or set 32 hexadecimal digits")
        }),
        Err(std::env::VarError::NotUnicode(_)) => Err(Failure::usage(format!(
            "{} is not the secret of an owner",
            env::OWNER
        ))),
        _ => Ok(Owner::new()),
    }
}

/// A JSON object in the order given: what any key survives.
fn object(tokens: &[(String, Option<u64>)]) -> String {
    // Strings and numbers can always be written.
    serde_json::to_string(&ByKey(tokens)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_key_survives_in_the_object_of_tokens() {
        let tokens = [("b \"=\\ ö".to_owned(), Some(2)), ("a".to_owned(), Some(1))];
        assert_eq!(object(&tokens), r#"{"b \"=\\ ö":2,"a":1}"#);
    }
}
