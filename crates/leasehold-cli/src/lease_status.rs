//! How things stand with what is held: one lease or several, as one thing that can be lost.

use std::time::Duration;

use leasehold::store::Acknowledged;
use leasehold::{Any, Lease, LeaseState, Loss, MultiLease};

use crate::output::{LeaseEnd, Measure};

/// How things stand with what is held, at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseStatus<'a> {
    /// The key that ends first, or has.
    pub(crate) key: &'a str,
    /// What is left of it.
    pub(crate) remaining: Duration,
    /// What is known of it.
    pub(crate) state: LeaseState,
}

impl<'a> LeaseStatus<'a> {
    /// Looks at the lease that is lost, else at the one that ends first.
    pub(crate) fn of(held: &'a MultiLease<Any>) -> Self {
        let all = held.leases().iter().map(|lease| Self {
            key: lease.key().as_str(),
            remaining: lease.remaining(),
            state: lease.state(),
        });
        all.min_by_key(|lease| {
            let lost = matches!(lease.state, LeaseState::Lost(_));
            (!lost, lease.remaining)
        })
        .unwrap_or(Self {
            key: "",
            remaining: Duration::ZERO,
            state: LeaseState::Lost(Loss::Gone),
        })
    }
}

/// How that lease ends, or has ended: where no renewal was answered with why, as the store said, or
/// the way there.
pub(crate) fn lease_end(held: &MultiLease<Any>, reason: Loss, action: Measure) -> LeaseEnd<'_> {
    let key = LeaseStatus::of(held).key;
    let mut leases = held.leases().iter();
    let lease = leases.find(|lease| lease.key().as_str() == key);
    let unanswered = lease.filter(|_| reason == Loss::Unanswered);
    let error = unanswered.and_then(Lease::last_error);
    LeaseEnd {
        key,
        reason,
        action,
        cause: error.map(|error| error.reason().to_owned()),
    }
}

/// Each key with its fencing token, if the store has any; of those who hold together, the
/// number of the grant.
pub(crate) fn tokens(held: &MultiLease<Any>) -> Vec<(String, Option<u64>)> {
    let token = |lease: &Lease<Any>| {
        let number = Some(lease.number().get()).filter(|number| *number != 0);
        (lease.key().as_str().to_owned(), number)
    };
    held.leases().iter().map(token).collect()
}

/// Who has it besides the server, where a policy asks for it: of several leases the one that
/// the fewest have.
pub(crate) fn acknowledged(held: &MultiLease<Any>) -> Option<Acknowledged> {
    let acknowledged = held.leases().iter().filter_map(Lease::acknowledged);
    acknowledged.min_by_key(|it| (it.disk, it.replicas))
}
