//! What a lease keeps, whatever its kind.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Backoff, Key, Loss, Mode, Moment, Renew, Reply, Standpoint, Token};

use crate::clock;
use crate::driver::own_id::{COLLISIONS, not_unique};
use crate::driver::registry::EntryId;
use crate::driver::signal::Signal;
use crate::driver::subject::Subject;
use crate::driver::wish::{Grant, Wish};
use crate::driver::{Driver, random_u64};
use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::settings::check_ttl;
use crate::store::Acknowledged;
use crate::sync::sleep;

/// What a release found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The lease was ours up to now.
    StillOurs,
    /// It had lapsed or was taken before: another may have held the key meanwhile.
    AlreadyGone,
}

/// A granted claim in its caller's hands. Dropping it releases the claim in
/// the background.
#[derive(Debug)]
pub(crate) struct Hold {
    driver: Arc<Driver>,
    entry: EntryId,
    subject: Subject,
    mode: Mode,
    reentrant: bool,
    signal: Arc<Signal>,
    waited: Duration,
    rejoined: u32,
    over: bool,
}

impl Hold {
    pub(crate) fn new(driver: Arc<Driver>, grant: Grant, wish: &Wish, waited: Duration) -> Self {
        let Grant {
            entry,
            subject,
            signal,
            rejoined,
        } = grant;
        Self {
            driver,
            entry,
            subject,
            mode: wish.mode,
            reentrant: wish.secret.is_some(),
            signal,
            waited,
            rejoined,
            over: false,
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.subject.key
    }

    pub(crate) fn subject(&self) -> &Subject {
        &self.subject
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    pub(crate) fn is_reentrant(&self) -> bool {
        self.reentrant
    }

    pub(crate) fn acknowledged(&self) -> Option<Acknowledged> {
        self.signal.acknowledged()
    }

    pub(crate) fn token(&self) -> Token {
        self.signal.token()
    }

    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }

    pub(crate) fn rejoined(&self) -> u32 {
        self.rejoined
    }

    pub(crate) fn valid_until(&self) -> Moment {
        self.signal.valid_until()
    }

    pub(crate) fn standpoint(&self) -> Standpoint {
        self.signal.standpoint()
    }

    /// Why the last renewal was not answered, if it was not.
    pub(crate) fn last_error(&self) -> Option<Error> {
        let error = self.signal.last_error()?;
        Some(self.error(Operation::Renew, error))
    }

    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    pub(crate) async fn lost(&self) -> Loss {
        self.signal.lost().await
    }

    pub(crate) async fn renew(&self, ttl: Option<Duration>) -> Result<(), Error> {
        if let Some(ttl) = ttl {
            check_ttl(ttl).map_err(|invalid| self.error(Operation::Renew, invalid.into()))?;
        }
        let ttl = Some(ttl.unwrap_or(self.subject.terms.ttl));
        while !self
            .try_change(Operation::Renew, ttl, Subject::renewal)
            .await?
        {}
        Ok(())
    }

    pub(crate) async fn rotate(&self) -> Result<(), Error> {
        let fail = |error| self.error(Operation::Rotate, error);
        for _ in 0..COLLISIONS {
            let fresh = self.driver.claim_id(self.key()).await.map_err(fail)?;
            let rotate = |subject: &Subject, ttl| subject.rotation(ttl, &fresh);
            if self.try_change(Operation::Rotate, None, rotate).await? {
                return Ok(());
            }
        }
        Err(fail(not_unique()))
    }

    /// Changes the claim with a renewal, which prolongs it as its policy allows.
    pub(crate) async fn change(
        &self,
        operation: Operation,
        build: impl Fn(&Subject, Duration) -> Renew,
    ) -> Result<(), Error> {
        while !self.try_change(operation, None, &build).await? {
            // A rotation of the watchdog travelled with it, to an id that is
            // taken. The next renewal does without.
        }
        Ok(())
    }

    /// Sends a renewal, again until it is answered or the operation time-out is
    /// over. `build` is given how long it asks for: `ttl`, or what the lease asks
    /// for by itself. `false`: a new id that travelled with it is another
    /// claim's, and nothing was changed.
    async fn try_change(
        &self,
        operation: Operation,
        ttl: Option<Duration>,
        build: impl Fn(&Subject, Duration) -> Renew,
    ) -> Result<bool, Error> {
        let limit = self.driver.settings.operation_timeout;
        let end = clock::now() + limit;
        let mut pause = Backoff::new(Duration::from_millis(10), limit / 4, random_u64());
        loop {
            self.check(operation)?;
            let renew = build(&self.subject, self.driver.allowed(self.entry, ttl));
            let unanswered = match self.driver.renew(self.entry, &self.subject, renew).await {
                Ok(Reply::Standing(_)) => return self.check(operation).map(|()| true),
                Ok(Reply::Taken) => return self.check(operation).map(|()| false),
                // The id was replaced meanwhile: once more.
                Ok(_) => None,
                Err(error) if error.kind() == ErrorKind::Unavailable => Some(error),
                Err(error) => return Err(self.error(operation, error)),
            };
            self.check(operation)?;
            let pause = pause.pause();
            if clock::now() + pause >= end {
                let error = unanswered.unwrap_or_else(|| crate::driver::unanswered(limit));
                return Err(self.error(operation, error));
            }
            sleep(pause).await;
        }
    }

    /// Ends the validity, sees that the claim stands under one id for a whole
    /// TTL from now, and leaves it at the store for somebody else.
    pub(crate) async fn forsake(mut self) -> Result<Subject, Error> {
        self.check(Operation::HandOver)?;
        // Ours first, so that nobody else's can overlap with it.
        self.signal.lose(Loss::HandedOver);
        self.driver.forsake(self.entry);
        let settled = self.driver.settle_identity(&self.subject).await;
        settled.map_err(|error| self.error(Operation::HandOver, error))?;
        self.over = true;
        Ok(self.subject.clone())
    }

    pub(crate) async fn release(mut self) -> Result<Released, Error> {
        self.over = true;
        let known = self.standpoint();
        // Nothing is to be relied on once a release was sent.
        self.signal.end();
        if is_settled(known) {
            return Ok(Released::AlreadyGone);
        }
        let released = self
            .driver
            .release(Some(self.entry), self.subject.clone())
            .await;
        match released {
            // What the store has given this claim since is not this grant.
            Ok(true) if known != Standpoint::Lost(Loss::Forgotten) => Ok(Released::StillOurs),
            Ok(_) => Ok(Released::AlreadyGone),
            Err(error) => Err(self.error(Operation::Release, error)),
        }
    }

    fn check(&self, operation: Operation) -> Result<(), Error> {
        match self.standpoint() {
            Standpoint::Lost(loss) => Err(self.lost_error(operation, loss)),
            Standpoint::Held | Standpoint::Unknown => Ok(()),
        }
    }

    pub(crate) fn lost_error(&self, operation: Operation, loss: Loss) -> Error {
        let cause = match loss {
            Loss::Unanswered => self.signal.last_error(),
            _ => None,
        };
        let why = cause.as_ref().map(|cause| format!(" ({cause})"));
        let why = why.unwrap_or_default();
        let mut error =
            StoreError::new(ErrorKind::Lost, format!("the lease was lost: {loss}{why}"))
                .with_hint("stop the work: another may hold the key");
        if let Some(cause) = cause {
            error = error.with_source(cause);
        }
        self.error(operation, error)
    }

    pub(crate) fn error(&self, operation: Operation, error: StoreError) -> Error {
        Error::new(operation, Some(self.subject.key.clone()), error)
    }
}

/// Whether nothing of the claim can be left at the store for us to release.
fn is_settled(standpoint: Standpoint) -> bool {
    matches!(
        standpoint,
        Standpoint::Lost(Loss::Gone | Loss::Revoked | Loss::Superseded | Loss::Shutdown)
    )
}

impl Drop for Hold {
    fn drop(&mut self) {
        let known = self.standpoint();
        self.signal.end();
        if !self.over && !is_settled(known) {
            self.driver.leave(Some(self.entry), self.subject.clone());
        }
    }
}
