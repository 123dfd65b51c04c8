//! Which lock is asked for: from the arguments to the library's verbs.

use std::cell::OnceCell;
use std::time::Duration;

use leasehold::{
    Any, ClaimContext, Client, Deadlock, Error, Inspection, Key, LeaseParts, Lock, LockOptions,
    Mode, MultiLease, Note, Owner, Settings,
};

use crate::args::{LockArgs, WaitArgs};
use crate::config::{CommandSettings, Origin, Setting};
use crate::failure::Failure;
use crate::lease_status::tokens;
use crate::output::{ByKey, Tokens};
use crate::retries::Patience;
use crate::self_deadlock::endless_wait;
use crate::{env, exit};

/// How long a nested run waits before it looks for a deadlock.
const DEADLOCK_CHECK: Duration = Duration::from_secs(1);

/// What is asked of the store.
#[derive(Debug, Clone)]
pub(crate) struct LockRequest {
    /// At least one.
    pub(crate) keys: Vec<String>,
    mode: Mode,
    /// That of the outer leasehold.
    outer: Option<ClaimContext>,
    /// That of all our claims.
    context: OnceCell<ClaimContext>,
    /// Held again where this owner holds already.
    owner: Option<Owner>,
    /// As a leader who tells this.
    note: Option<String>,
    pub(crate) settings: Settings,
    pub(crate) patience: Patience,
    /// It is done once in a period, in which the lock is kept for so long: busy is nothing to worry
    /// about.
    pub(crate) once: Option<Duration>,
    /// The status where the lock was not obtained in time.
    pub(crate) conflict: u8,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    /// After so long it gives up if it is the youngest in a deadlock.
    deadlock_timeout: Option<Duration>,
    /// The lease of a crashed process, to be recovered.
    pub(crate) recover: Option<LeaseParts<Any>>,
}

/// What was got.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) held: MultiLease<Any>,
    /// Whether it is the lease of the process before, gone on with.
    pub(crate) recovered: bool,
}

impl LockRequest {
    /// What the arguments ask for. Refuses what cannot work, before anything is asked of the store.
    pub(crate) fn of(
        lock: &LockArgs,
        wait: &WaitArgs,
        set: &CommandSettings,
    ) -> Result<Self, Failure> {
        let mode = match lock.limit {
            _ if lock.shared => Mode::SHARED,
            Some(of) if !lock.reentrant => Mode::permits(of, lock.take.unwrap_or(1)),
            _ => Mode::EXCLUSIVE,
        };
        let reentrant = lock.reentrant && !lock.shared;
        let keys = lock.key.iter().chain(&lock.keys).cloned().collect();
        Ok(Self {
            mode,
            owner: reentrant.then(owner).transpose()?,
            conflict: wait.conflict_exit_code.unwrap_or(exit::CONFLICT),
            min_hold: lock.min_hold,
            max_hold: lock.max_hold,
            deadlock_timeout: wait.deadlock_timeout,
            ..Self::exclusive(keys, set)?
        })
    }

    /// To lead on that key. Candidates wait for ever, and for an outage as long as was said.
    pub(crate) fn leader(
        key: &str,
        note: Option<&str>,
        set: &CommandSettings,
    ) -> Result<Self, Failure> {
        let note = note.unwrap_or_default().to_owned();
        Note::new(&note)?;
        let request = Self::exclusive(vec![key.to_owned()], set)?;
        Ok(Self {
            note: Some(note),
            patience: request.patience.for_ever(),
            ..request
        })
    }

    fn exclusive(keys: Vec<String>, set: &CommandSettings) -> Result<Self, Failure> {
        for key in &keys {
            Key::new(key)?;
        }
        let mut settings = Settings::default().with_ttl(set.ttl().value);
        settings.label = set.label();
        settings.check()?;
        Ok(Self {
            keys,
            mode: Mode::EXCLUSIVE,
            outer: outer_context()?,
            context: OnceCell::new(),
            owner: None,
            note: None,
            settings,
            patience: Patience::of(set),
            once: None,
            conflict: exit::CONFLICT,
            min_hold: None,
            max_hold: None,
            deadlock_timeout: None,
            recover: None,
        })
    }

    /// The key that stands for all of them.
    pub(crate) fn key(&self) -> &str {
        self.keys.first().map_or("", String::as_str)
    }

    /// How long the lease lives without renewal: no longer than it may be held.
    pub(crate) fn ttl(&self, set: &CommandSettings) -> Setting<Duration> {
        let ttl = set.ttl();
        let shorter = self.max_hold.filter(|max_hold| *max_hold < ttl.value);
        shorter.map_or(ttl, |it| Setting::new(it, Origin::option("--max-hold")))
    }

    /// How it is waited for, with what is done about deadlocks; `None` if it does not wait. An outer
    /// leasehold waits for us: then others may wait for what it holds while we wait.
    pub(crate) fn how(
        &self,
        wait: Duration,
        hear: impl Fn(&Deadlock) + Send + Sync + 'static,
    ) -> Option<LockOptions> {
        let mut how = match wait {
            Duration::ZERO => return None,
            Duration::MAX => LockOptions::new(),
            limit => LockOptions::new().within(limit),
        };
        if self.outer.is_some() {
            how = how.on_deadlock(DEADLOCK_CHECK, hear);
        }
        if let Some(after) = self.deadlock_timeout {
            how = how.deadlock_timeout(after);
        }
        Some(how)
    }

    /// The context of our claims, within that of the outer leasehold.
    pub(crate) fn context(&self, client: &Client) -> &ClaimContext {
        self.context.get_or_init(|| match &self.outer {
            Some(outer) => client.context_within(outer),
            None => client.context(),
        })
    }

    /// Asks for it. `None`: busy, where that is an answer.
    pub(crate) async fn acquire(
        &self,
        client: &Client,
        how: Option<LockOptions>,
    ) -> Result<Option<Acquired>, Error> {
        let lock = self.lock(client)?;
        if let ([_], Some(parts)) = (&*self.keys, &self.recover) {
            let recovered = match how {
                Some(how) => Some(lock.recover(parts, how).await?),
                None => lock.try_recover(parts).await?,
            };
            return Ok(recovered.map(|recovered| Acquired {
                held: recovered.lease.into(),
                recovered: !recovered.is_new,
            }));
        }
        let held = match (&*self.keys, how) {
            ([_], Some(how)) => Some(lock.lock_opts(how).await?.into()),
            ([_], None) => lock.try_lock().await?.map(MultiLease::from),
            (keys, Some(how)) => Some(lock.on_all(keys)?.lock_opts(how).await?),
            (keys, None) => lock.on_all(keys)?.try_lock().await?,
        };
        Ok(held.map(|held| Acquired {
            held,
            recovered: false,
        }))
    }

    fn lock(&self, client: &Client) -> Result<Lock, Error> {
        let lock = client.lock_of(self.key(), self.mode)?;
        let mut lock = lock.with_context(self.context(client));
        if let Some(owner) = &self.owner {
            lock = lock.with_owner(owner)?;
        }
        if let Some(note) = &self.note {
            lock = lock.with_note(note)?;
        }
        if let Some(min_hold) = self.min_hold {
            lock = lock.with_min_hold(min_hold);
        }
        if let Some(max_hold) = self.max_hold {
            lock = lock.with_max_hold(max_hold);
        }
        Ok(lock)
    }

    /// Whether to look who holds as soon as it is asked for: a nested run does, where no place in a
    /// queue tells that somebody holds.
    pub(crate) fn looks_first(&self, client: &Client, wait: Duration) -> bool {
        self.outer.is_some() && !client.capabilities().queueing && !wait.is_zero()
    }

    /// Why waiting for these keys would never end, if an outer leasehold holds one of them.
    pub(crate) fn endless<'a>(
        &self,
        seen: impl IntoIterator<Item = &'a Inspection>,
    ) -> Option<Failure> {
        let outer = self.outer.as_ref()?;
        // An election and several keys cannot be asked for with it.
        let reentrant = self.keys.len() == 1 && self.note.is_none();
        let mut seen = seen.into_iter();
        seen.find_map(|seen| endless_wait(seen, self.mode, outer, reentrant))
    }

    /// Why the store grants nothing now although the key is free, if it does not: it is asked
    /// for the key without waiting.
    pub(crate) async fn closed(&self, client: &Client) -> Option<Failure> {
        let asked = Self {
            min_hold: None,
            max_hold: None,
            recover: None,
            ..self.clone()
        };
        match asked.acquire(client, None).await {
            // What was got is given back in the background.
            Ok(_) => None,
            Err(error) => error.retry_after().map(|_| error.into()),
        }
    }

    /// The variables that tell the guarded command about its lock.
    pub(crate) fn given(
        &self,
        client: &Client,
        held: &MultiLease<Any>,
    ) -> Vec<(&'static str, Option<String>)> {
        let tokens = tokens(held);
        let token = tokens.first().and_then(|(_, token)| *token);
        let token = token.map(|token| token.to_string());
        let term = token.clone().filter(|_| self.note.is_some());
        let all = [
            (env::KEY, Some(self.key().to_owned())),
            (env::CONTEXT, Some(self.context(client).to_string())),
            (env::TOKENS, token.as_ref().map(|_| object(&tokens))),
            (env::TERM, term),
            (env::TOKEN, token),
            (env::OWNER, self.owner.as_ref().map(Owner::expose)),
        ];
        all.into_iter().filter(|(_, it)| it.is_some()).collect()
    }
}

/// The owner that an outer leasehold has left us, or a new one.
fn owner() -> Result<Owner, Failure> {
    let Some(text) = std::env::var_os(env::OWNER).filter(|text| !text.is_empty()) else {
        return Ok(Owner::new());
    };
    Owner::parse(&text.to_string_lossy()).map_err(|_| {
        // What stands there may be a secret that was mistyped.
        Failure::usage(format!("{} is not the secret of an owner", env::OWNER))
            .hint("unset it, or set 32 hexadecimal digits")
    })
}

/// The context that an outer leasehold has left us, if there is one.
fn outer_context() -> Result<Option<ClaimContext>, Failure> {
    let Some(text) = std::env::var_os(env::CONTEXT).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let context = ClaimContext::parse(&text.to_string_lossy());
    context.map(Some).map_err(|_| {
        Failure::usage(format!("{} is not the context of a claim", env::CONTEXT))
            .hint("unset it: leasehold sets it for the command that it runs")
    })
}

/// A JSON object in the order given: what any key survives.
fn object(tokens: &Tokens) -> String {
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
