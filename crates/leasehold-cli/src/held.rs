//! What is held: one lease or several, of any kind, as one thing that can be lost.

use std::time::Duration;

use futures_util::future::{join_all, select_all};
use leasehold::store::Acknowledged;
use leasehold::{
    Error, ErrorKind, Lease, LeaseParts, Loss, Permits, Released, Shared, Standpoint, Token,
};

/// One lease.
#[derive(Debug)]
pub(crate) enum Part {
    Exclusive(Lease),
    Shared(Lease<Shared>),
    Permits(Lease<Permits>),
}

/// The same for each kind of lease.
macro_rules! whichever {
    ($part:expr, $lease:ident => $does:expr) => {
        match $part {
            Part::Exclusive($lease) => $does,
            Part::Shared($lease) => $does,
            Part::Permits($lease) => $does,
        }
    };
}

impl Part {
    fn key(&self) -> &str {
        whichever!(self, lease => lease.key().as_str())
    }

    /// The fencing token, if the store has any; of those who hold together, the number
    /// of the grant.
    fn number(&self) -> Option<u64> {
        match self {
            Self::Exclusive(lease) => lease.token().some().map(Token::get),
            Self::Shared(lease) => Some(lease.number().get()),
            Self::Permits(lease) => Some(lease.number().get()),
        }
    }

    fn remaining(&self) -> Duration {
        whichever!(self, lease => lease.remaining())
    }

    fn standpoint(&self) -> Standpoint {
        whichever!(self, lease => lease.standpoint())
    }

    fn waited(&self) -> Duration {
        whichever!(self, lease => lease.waited())
    }

    fn acknowledged(&self) -> Option<Acknowledged> {
        whichever!(self, lease => lease.acknowledged())
    }

    /// Why it was not renewed, if it was not: as the store said, or the way there.
    fn trouble(&self) -> Option<Trouble> {
        let error = whichever!(self, lease => lease.last_error())?;
        Some(Trouble {
            refused: error.kind() != ErrorKind::Unavailable,
            why: error.reason().to_owned(),
        })
    }

    async fn lost(&self) -> Loss {
        whichever!(self, lease => lease.lost().await)
    }

    async fn release(self) -> Result<Released, Error> {
        whichever!(self, lease => lease.release().await)
    }
}

/// All leases of one lock, in the order of their keys as they were named; at least one.
///
/// Losing one is losing all. What is dropped is released in the background.
#[derive(Debug)]
pub(crate) struct Held {
    parts: Vec<Part>,
}

/// Why a renewal failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// Whether the store has said no; else there was no answer.
    pub(crate) refused: bool,
    pub(crate) why: String,
}

/// How things stand with what is held, at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing<'a> {
    /// The key that ends first, or has.
    pub(crate) key: &'a str,
    /// What is left of it.
    pub(crate) remaining: Duration,
    /// What is known of it.
    pub(crate) standpoint: Standpoint,
}

impl Held {
    pub(crate) fn several(parts: Vec<Part>) -> Self {
        Self { parts }
    }

    /// Each key with its token, or the number of its grant.
    pub(crate) fn tokens(&self) -> Vec<(String, Option<u64>)> {
        let token = |part: &Part| (part.key().to_owned(), part.number());
        self.parts.iter().map(token).collect()
    }

    /// What is to be kept for recovery after a crash, of an exclusive lease on one key.
    pub(crate) fn parts(&self) -> Option<LeaseParts> {
        match &*self.parts {
            [Part::Exclusive(lease)] => Some(lease.parts()),
            _ => None,
        }
    }

    /// Who has it besides the server, where a policy asks for it: of several leases
    /// the one that the fewest have.
    pub(crate) fn acknowledged(&self) -> Option<Acknowledged> {
        let acknowledged = self.parts.iter().filter_map(Part::acknowledged);
        acknowledged.min_by_key(|it| (it.disk, it.replicas))
    }

    /// How long it took to get all.
    pub(crate) fn waited(&self) -> Duration {
        let waited = self.parts.iter().map(Part::waited);
        waited.max().unwrap_or_default()
    }

    /// Looks at the one that is lost, else at the one that ends first.
    pub(crate) fn standing(&self) -> Standing<'_> {
        let standing = |part| Standing {
            key: Part::key(part),
            remaining: part.remaining(),
            standpoint: part.standpoint(),
        };
        let all = self.parts.iter().map(standing);
        all.min_by_key(|part| {
            let lost = matches!(part.standpoint, Standpoint::Lost(_));
            (!lost, part.remaining)
        })
        .unwrap_or(Standing {
            key: "",
            remaining: Duration::ZERO,
            standpoint: Standpoint::Lost(Loss::Gone),
        })
    }

    /// Why the key was not renewed, if it was not.
    pub(crate) fn trouble(&self, key: &str) -> Option<Trouble> {
        self.parts.iter().find(|part| part.key() == key)?.trouble()
    }

    /// Completes when any of them is lost, with its key and the reason.
    pub(crate) async fn lost(&self) -> (&str, Loss) {
        let lost = |part| Box::pin(async move { (Part::key(part), part.lost().await) });
        select_all(self.parts.iter().map(lost)).await.0
    }

    /// Gives all back, all at once: each is tried whatever becomes of the others.
    pub(crate) async fn release(self) -> Result<Released, Error> {
        let mut whole = Released::StillOurs;
        for released in join_all(self.parts.into_iter().map(Part::release)).await {
            if released? == Released::AlreadyGone {
                whole = Released::AlreadyGone;
            }
        }
        Ok(whole)
    }
}

impl From<Part> for Held {
    fn from(part: Part) -> Self {
        Self::several(vec![part])
    }
}
