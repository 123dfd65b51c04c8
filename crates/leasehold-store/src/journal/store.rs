//! The steps of a store on a journal.

use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Command, Inbox, Key, Outcome, Push, Queue, Reply, Snapshot, StoreTime};
use tokio::sync::oneshot;

use super::client::{Client, Part, Tries};
use super::copy::now;
use super::keys::{Asked, Keys, Pending, Slot};
use super::page::{Pages, Sweep, sweep};
use super::{Doorbell, Journal};
use crate::acknowledged::Acknowledged;
use crate::error::{ErrorKind, StoreError, unavailable};
use crate::listing::Listing;
use crate::port::{Capabilities, Listening, PushSink, opened};
use crate::records::{Records, Step, Taken, Transacted, the_only};
use crate::sync::{Mutex, check_runtime, lock, sleep};

/// When a look that a ring has asked for is tried again.
const AGAIN: Duration = Duration::from_millis(250);

/// A store on a journal. Each value is one client.
pub struct JournalStore<J>(Arc<Client<J>>);

crate::debug!(JournalStore<J: Debug>; |it| journal: it.0.journal);

impl<J: Journal> JournalStore<J> {
    /// Makes a store of a journal. The records of idle keys go after `retention`.
    #[must_use]
    pub fn new(journal: J, retention: Duration) -> Self {
        Self(Arc::new(Client {
            keys: Keys::default(),
            journal,
            sink: Mutex::default(),
            sweep: Sweep::new(retention),
        }))
    }

    /// The backend.
    #[must_use]
    pub fn journal(&self) -> &J {
        &self.0.journal
    }

    /// Asks something of a key, and waits for the answer. It comes from another task: a caller that
    /// gives up does not take along what others have asked at the same time.
    async fn ask<T>(
        &self,
        key: &Key,
        asked: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Asked,
    ) -> Result<T, StoreError> {
        check_runtime()?;
        let (answer, answered) = oneshot::channel();
        self.0.ask(key, asked(answer));
        answered.await.unwrap_or_else(|_| Err(no_task()))
    }

    /// Takes claims on several keys, in a task for the same reason.
    async fn claim_all(&self, keys: &[&Key], claims: &[Command]) -> Result<Taken, StoreError> {
        check_runtime()?;
        let (client, claims) = (self.0.clone(), claims.to_vec());
        let slot = |key: &&Key| client.keys.get(key, client.journal.inbox());
        let slots: Vec<_> = keys.iter().map(slot).collect();
        let task = tokio::spawn(async move { client.claim_all(&slots, &claims).await });
        task.await.unwrap_or_else(|_| Err(no_task()))
    }
}

#[async_trait]
impl<J: Journal> Records for JournalStore<J> {
    fn capabilities(&self) -> Capabilities {
        self.0.journal.capabilities()
    }

    async fn transact(&self, keys: &[&Key], step: Step<'_>) -> Result<Transacted, StoreError> {
        let epoch = self.0.journal.epoch();
        self.0.sweep_now_and_then();
        let taken = match (step, keys) {
            (Step::One(command), [key, ..]) => {
                let step = |answer| Asked::Step(Box::new(command.clone()), answer);
                Ok(vec![self.ask(key, step).await?])
            }
            (Step::One(_), []) => Ok(Vec::new()),
            (Step::All(claims), keys) => self.claim_all(keys, claims).await?,
        };
        Ok(Transacted { taken, epoch })
    }

    fn acknowledged(&self) -> Option<Acknowledged> {
        self.0.journal.acknowledged()
    }

    async fn look(&self, key: &Key) -> Result<Snapshot, StoreError> {
        self.ask(key, Asked::Look).await
    }

    fn listing<'a>(&'a self, pattern: &str) -> Box<dyn Listing + 'a> {
        Box::new(Pages {
            journal: &self.0.journal,
            pattern: pattern.to_owned(),
            after: Some(None),
        })
    }

    fn inbox(&self) -> &Inbox {
        self.0.journal.inbox()
    }

    async fn listen(&self, sink: Arc<dyn PushSink>) -> Result<Box<dyn Listening>, StoreError> {
        *lock(&self.0.sink) = Some(Arc::downgrade(&sink));
        let bell = Arc::new(Bell(Arc::downgrade(&self.0)));
        let inbox = self.0.journal.listen(bell).await?;
        // It keeps who hears by it.
        Ok(opened(move || drop((inbox, sink))))
    }
}

struct Bell<J>(Weak<Client<J>>);

impl<J: Journal> Doorbell for Bell<J> {
    fn ring(&self, key: &Key) {
        if let Some(client) = self.0.upgrade() {
            client.ask(key, Asked::Ring);
        }
    }

    fn ring_all(&self, most: usize) -> bool {
        let Some(client) = self.0.upgrade() else {
            return true;
        };
        let keys = client.keys.of_concern(client.journal.inbox());
        let are_few = keys.len() <= most;
        for key in keys.iter().filter(|_| are_few) {
            client.ask(key, Asked::Ring);
        }
        are_few
    }
}

impl<J: Journal> PushSink for Bell<J> {
    fn push(&self, push: Push) {
        // Also when nothing is heard any more: that is what it says.
        if let Some(client) = self.0.upgrade() {
            client.push_in_any_case(push);
        }
    }
}

impl<J: Journal> Client<J> {
    /// Removes some records that nobody has used for long, if it is time to.
    fn sweep_now_and_then(self: &Arc<Self>) {
        let Some(after) = self.sweep.is_due() else {
            return;
        };
        let client = self.clone();
        tokio::spawn(async move {
            let due = &client.sweep;
            match sweep(&client.journal, due.retention, after.as_deref()).await {
                Ok(last) => due.go_on(last),
                // Another client sweeps, or this one later.
                Err(error) => tracing::debug!(%error, "cannot remove idle keys"),
            }
        });
    }

    /// Lets a task take the next turn of a key, if none is about to.
    fn ask(self: &Arc<Self>, key: &Key, ask: Asked) {
        let slot = self.keys.get(key, self.journal.inbox());
        let mut asked = lock(&slot.asked);
        // A look beside it reads the same, but is not tried again.
        if matches!(ask, Asked::Ring) && asked.iter().any(|one| matches!(one, Asked::Ring)) {
            return;
        }
        asked.push(ask);
        let is_first = asked.len() == 1;
        drop(asked);
        if is_first {
            let client = self.clone();
            let pending = Pending(Some(slot.clone()));
            tokio::spawn(async move { client.turn(&slot, pending).await });
        }
    }

    /// Does what has been asked of a key until its turn comes.
    async fn turn(self: Arc<Self>, slot: &Arc<Slot>, mut pending: Pending) {
        let mut copy = slot.turn.lock().await;
        let was_known = copy.known.is_some();
        let mut part = [Part {
            slot,
            copy: &mut copy,
        }];
        let (mut commands, mut answers, mut tries) = (Vec::new(), Vec::new(), Vec::new());
        let (mut looks, mut is_rung) = (Vec::new(), false);
        for asked in pending.take() {
            match asked {
                Asked::Step(command, answer) => match *command {
                    Command::Claim(claim) if !claim.wait => {
                        tries.push(([Command::Claim(claim)], answer));
                    }
                    command => {
                        commands.push(command);
                        answers.push(answer);
                    }
                },
                Asked::Look(answer) => looks.push(answer),
                Asked::Ring => is_rung = true,
            }
        }
        let mut is_fresh = false;
        if !commands.is_empty() {
            let outcomes = self.append_each(&mut part, &commands).await;
            is_fresh = outcomes.iter().any(Result::is_ok);
            for (answer, outcome) in answers.into_iter().zip(outcomes) {
                // Who has asked may have given up.
                answer.send(outcome).ok();
            }
        }
        for (claim, answer) in tries {
            let tried = self.claim(&mut part, &claim, &mut is_fresh, Reply::has_token);
            answer.send(tried.await.and_then(the_only)).ok();
        }
        let mut read = Ok(());
        if !is_fresh && (is_rung || !looks.is_empty()) {
            read = self.read(&mut part).await;
        }
        // What is damaged stays so, and what is refused mostly.
        let passes = |error: &StoreError| error.kind() == ErrorKind::Unavailable;
        if is_rung && read.as_ref().is_err_and(passes) && self.journal.listens() {
            // Who has rung does not ring again.
            let (client, key) = (self.clone(), slot.key.clone());
            tokio::spawn(async move {
                sleep(AGAIN).await;
                client.ask(&key, Asked::Ring);
            });
        }
        if !looks.is_empty() {
            let seen = read.map(|()| copy.queue.look(copy.at));
            looks
                .into_iter()
                .for_each(|look| _ = look.send(seen.clone()));
        }
        if is_rung && !was_known {
            // What it was rung for may have been in what the base stands for.
            self.push(Push::Reset);
        }
    }

    /// Takes steps together. Where they are refused, each is taken alone: a claim for which there is no
    /// room does not take along a renewal.
    async fn append_each(
        self: &Arc<Self>,
        part: &mut [Part<'_>; 1],
        commands: &[Command],
    ) -> Vec<Result<Outcome, StoreError>> {
        match self.append_surely(part, commands).await {
            Ok(taken) => taken.into_iter().map(Ok).collect(),
            Err(error) if error.kind() == ErrorKind::Refused && commands.len() > 1 => {
                let mut outcomes = Vec::with_capacity(commands.len());
                for command in commands.chunks(1) {
                    let taken = self.append_surely(part, command).await;
                    outcomes.push(taken.and_then(|taken| the_only(Ok(taken))));
                }
                outcomes
            }
            Err(error) => vec![Err(error); commands.len()],
        }
    }

    /// Takes claims that do not wait, one on each key. They are appended only if all will be granted: one
    /// alone if its reply `is_granted`. What is known `is_fresh` if the backend has answered since the
    /// claims were asked.
    async fn claim(
        self: &Arc<Self>,
        parts: &mut [Part<'_>],
        claims: &[Command],
        is_fresh: &mut bool,
        is_granted: fn(&Reply) -> bool,
    ) -> Result<Taken, StoreError> {
        let each: Vec<_> = claims.chunks(1).collect();
        let mut tries = Tries::new();
        loop {
            let times = parts.iter().map(|part| part.copy.at);
            let since = times.max().unwrap_or_default();
            match self.foretell(parts, claims, since, is_granted) {
                Ok(_) => {
                    let taken = self.append(parts, &each, Some(since), &mut tries).await?;
                    if let Some(taken) = taken {
                        return Ok(Ok(taken));
                    }
                }
                Err(refused) if *is_fresh => return Ok(Err(refused)),
                Err(_) => self.read(parts).await?,
            }
            *is_fresh = true;
        }
    }

    /// What would come of them, as far as is known.
    fn foretell(
        &self,
        parts: &[Part<'_>],
        claims: &[Command],
        since: StoreTime,
        is_granted: fn(&Reply) -> bool,
    ) -> Taken {
        let now = now(since, self.journal.listens());
        if let ([part], [claim]) = (parts, claims) {
            let outcome = part.copy.outcome_of(claim, now);
            return match is_granted(&outcome.reply) {
                true => Ok(vec![outcome]),
                false => Err((0, Box::new(outcome))),
            };
        }
        let mut queues: Vec<_> = parts.iter().map(|part| part.copy.queue.clone()).collect();
        Queue::claim_all(&mut queues, claims, now)
    }

    /// Takes a claim on each of several keys, all or none. Whoever reads one of these journals comes
    /// to the same without the others: the claims are appended only if all will be granted.
    async fn claim_all(
        self: &Arc<Self>,
        slots: &[Arc<Slot>],
        claims: &[Command],
    ) -> Result<Taken, StoreError> {
        let mut order: Vec<_> = (0..slots.len()).collect();
        order.sort_by_key(|at| &slots[*at].key);
        // In one order, so that two of these do not wait for each other.
        let mut turns: Vec<_> = slots.iter().map(|_| None).collect();
        for at in order {
            turns[at] = Some(slots[at].turn.lock().await);
        }
        let copies = turns.iter_mut().flatten().map(|turn| &mut **turn);
        let parts = slots.iter().zip(copies);
        let mut parts: Vec<_> = parts.map(|(slot, copy)| Part { slot, copy }).collect();
        let is_granted = Reply::is_grant;
        self.claim(&mut parts, claims, &mut false, is_granted).await
    }
}

fn no_task() -> StoreError {
    unavailable("the runtime of the store's tasks has ended")
}
