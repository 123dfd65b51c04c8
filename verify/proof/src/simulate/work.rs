//! What a client's worker does: asks for something in some manner, works under the
//! lease, and gives it back, or does not.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Capacity;
use leasehold::{Any, Client, Error, Lease, LockOptions, Mode};
use tokio::time::sleep;

use super::book::{Attempt, Book, Fact, Outcome, Wanted, Why};
use super::chance::Chance;
use super::client::Common;
use super::invariants::Deployment;
use super::register::Register;
use super::world;

pub(super) const fn exclusive(key: &'static str) -> Wanted {
    Wanted {
        key,
        mode: Mode::EXCLUSIVE,
        fences: true,
        fair: true,
    }
}

/// The only key with readers.
const READ: &str = "readers and writers";

const KEYS: [Wanted; 4] = [
    exclusive("mutex a"),
    exclusive("mutex b"),
    exclusive(READ),
    Wanted {
        mode: Mode::new(Capacity::Permits(3), 3),
        fences: false,
        ..exclusive("permits")
    },
];

/// What every client asks for in the end.
pub(crate) fn keys(deployment: Deployment) -> &'static [Wanted] {
    // Several servers have locks only.
    if deployment == Deployment::Redlock {
        &KEYS[..2]
    } else {
        &KEYS
    }
}

/// What comes of asking for a lease: none, where somebody else has the key.
type Got = Result<Option<Lease<Any>>, Error>;

/// How long somebody who is in no hurry holds, at most, in TTLs.
const LONG_HOLD: u32 = 3;

pub(crate) struct Worker {
    common: Arc<Common>,
    number: usize,
    client: Client,
    chance: Chance,
    register: Register,
    /// How long it works under a lease at least.
    at_least: Duration,
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Worker {
    pub(crate) fn new(common: &Arc<Common>, number: usize, client: Client, chance: Chance) -> Self {
        let register = Register::new(common.net.clone());
        Self {
            common: Arc::clone(common),
            number,
            client,
            chance,
            register,
            at_least: Duration::ZERO,
        }
    }

    fn book(&self) -> &Book {
        &self.common.book
    }

    /// Until nothing is disturbed any more.
    pub(crate) async fn work(mut self) {
        while !self.common.is_quiet() {
            let wanted = self.draw();
            let wait = millis(10)..=Duration::from_secs(20);
            let wait = self.chance.mostly_short(wait);
            match self.chance.index(10) {
                0 => drop(self.ask(wanted, Some(Duration::ZERO)).await),
                1 => self.ask_and_drop(wanted, wait).await,
                _ => drop(self.ask(wanted, Some(wait)).await),
            }
            sleep(self.chance.mostly_short(millis(1)..=Duration::from_secs(2))).await;
        }
    }

    fn draw(&mut self) -> Wanted {
        let keys = keys(self.common.plan.deployment);
        let mut wanted = keys[self.chance.index(keys.len())];
        match wanted.mode.capacity() {
            Capacity::Permits(of) => {
                let take = 1 + u32::from(self.chance.percent(40));
                wanted.mode = Mode::permits(of, take);
            }
            Capacity::Lock if wanted.key == READ && self.chance.percent(60) => {
                (wanted.mode, wanted.fences) = (Mode::SHARED, false);
            }
            Capacity::Lock => {}
        }
        wanted.fair = self.chance.percent(85);
        wanted
    }

    /// Asks until it is served once.
    pub(crate) async fn insist(&mut self, wanted: Wanted, hold: Duration) {
        self.at_least = hold;
        while !self.ask(wanted, None).await {
            sleep(millis(50)).await;
        }
    }

    async fn ask_and_drop(&mut self, wanted: Wanted, after: Duration) {
        let attempt = self.begin(wanted);
        let asking = self.acquire(attempt, wanted, None);
        let got = tokio::select! {
            got = asking => Some(got),
            () = sleep(after) => None,
        };
        match got {
            Some(got) => drop(self.settle(attempt, wanted, got).await),
            None => self.book().note(Fact::NotGranted(attempt, Why::Dropped)),
        }
    }

    /// Waits for so long at most; whether it got what it wanted.
    async fn ask(&mut self, wanted: Wanted, wait: Option<Duration>) -> bool {
        let attempt = self.begin(wanted);
        let got = self.acquire(attempt, wanted, wait).await;
        self.settle(attempt, wanted, got).await
    }

    fn begin(&self, wanted: Wanted) -> Attempt {
        let attempt = self.book().attempt();
        let fact = Fact::Asked(attempt, self.number, wanted);
        self.book().note(fact);
        attempt
    }

    fn acquire(
        &self,
        attempt: Attempt,
        wanted: Wanted,
        wait: Option<Duration>,
    ) -> impl Future<Output = Got> + use<> {
        let (client, book) = (self.client.clone(), self.book().clone());
        let how = LockOptions::new().on_progress(move |progress| {
            let rejoined = progress.rejoined;
            book.note(Fact::Queued { attempt, rejoined });
        });
        async move {
            let lock = client.lock_of(wanted.key, wanted.mode)?;
            let lock = if wanted.fair { lock } else { lock.unfair() };
            match wait {
                None => lock.lock_opts(how).await.map(Some),
                Some(Duration::ZERO) => lock.try_lock().await,
                Some(limit) => lock.lock_opts(how.within(limit)).await.map(Some),
            }
        }
    }

    /// What follows from an answer; whether there was a lease.
    async fn settle(&mut self, attempt: Attempt, wanted: Wanted, got: Got) -> bool {
        let why = match got {
            Ok(Some(lease)) => {
                self.hold(attempt, wanted, lease).await;
                return true;
            }
            Ok(None) => Why::Busy,
            Err(error) => Why::Failed(error.kind()),
        };
        self.book().note(Fact::NotGranted(attempt, why));
        false
    }

    async fn hold(&mut self, attempt: Attempt, wanted: Wanted, lease: Lease<Any>) {
        let number = lease.number().get();
        let until = world::now() + world::in_world(lease.remaining());
        let rejoined = lease.rejoined();
        self.book().note(Fact::Granted {
            attempt,
            number,
            until,
            rejoined,
        });
        let lease = Arc::new(lease);
        self.book().hold(attempt, &lease);
        let book = self.book().clone();
        tokio::select! {
            loss = lease.lost() => book.note(Fact::Lost(attempt, loss)),
            () = self.under_lease(wanted, number) => {}
        }
        book.note(Fact::Leaving { attempt });
        let lease = Arc::into_inner(lease).filter(|_| self.chance.percent(75));
        let answer = match lease {
            Some(lease) => Some(lease.release().await.map_err(|error| error.kind())),
            None => None,
        };
        book.note(Fact::Left(attempt, answer));
    }

    /// The work that the lease is for.
    async fn under_lease(&mut self, wanted: Wanted, token: u64) {
        if wanted.fences {
            for _ in 0..self.chance.index(4) {
                let added = self.register.add_one(wanted.key, token, &mut self.chance);
                let (value, outcome) = added.await;
                self.book().note(Fact::Wrote {
                    key: wanted.key,
                    token,
                    value,
                    outcome,
                });
                if outcome != Outcome::Done {
                    // What became of it is not known: another write could pass it.
                    break;
                }
            }
        }
        sleep(self.at_least).await;
        if !self.common.is_quiet() {
            let longest = self.common.plan.ttl * LONG_HOLD;
            sleep(self.chance.mostly_short(Duration::ZERO..=longest / 4)).await;
        }
    }
}
