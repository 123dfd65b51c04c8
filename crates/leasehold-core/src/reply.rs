//! What a step answers: one currency for all, and by verb for those who ask.

use serde::{Deserialize, Serialize};

use crate::{Arrival, Capacity, StoreTime, Token};

/// Where a claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Standing {
    /// Its place in the order of arrival.
    pub arrival: Arrival,
    /// The fencing token, once granted: *granted means having a token*.
    pub token: Option<Token>,
    /// Granted behind this claim of the same client, which holds, or is behind another itself:
    /// a *run*. The client keeps the order. It passes the hold on when its lease ahead is
    /// released while it is valid, and the store need not be asked; if that ended in any other
    /// way, the store is asked.
    pub behind: Option<Arrival>,
    /// 0 for one that holds, 1 for the next in line; an upper bound.
    pub position: u64,
    /// Until when it lives without renewal.
    pub deadline: StoreTime,
    /// The earliest time at which what blocks it can lapse, or at which the store
    /// grants again. It comes early rather than late. `None` when granted.
    pub blocked_until: Option<StoreTime>,
}

impl Standing {
    /// Whether the claim holds the key: it is granted, and behind no other.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.token.is_some() && self.behind.is_none()
    }
}

/// What a step answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The claim is in the queue.
    Standing(Standing),
    /// It could not be granted at once and did not want to wait; it is not in
    /// the queue.
    Busy {
        /// The earliest time at which what blocks it can lapse.
        blocked_until: StoreTime,
    },
    /// The store may have forgotten who holds, and grants nothing yet. The claim
    /// did not want to wait; it is not in the queue.
    Quarantined {
        /// When the store grants again.
        until: StoreTime,
    },
    /// The claim is not in the queue: it lapsed, was released, or was never there.
    Gone,
    /// It left.
    Released {
        /// Whether it held the key.
        held: bool,
    },
    /// There was nothing to release or resize.
    Absent,
    /// The claim's id was replaced: by another rotation, or by whoever adopted it.
    Superseded,
    /// The id is another client's, or was used before: choose a new one.
    Taken,
    /// The semaphore has the new number of permits.
    Resized,
    /// The key is in use with another capacity, or the claim is too heavy for it.
    Mismatch {
        /// The capacity in use.
        in_use: Capacity,
    },
    /// The key was taken from so many holders.
    Broken {
        /// How many there were.
        holders: u64,
        /// The token was raised to this one, which nobody was given: tokens up to it are
        /// void, and the next one is higher.
        token: Token,
    },
    /// Nothing to say.
    Done,
}

impl Reply {
    /// Whether the claim is granted, be it behind another of its client.
    #[must_use]
    pub fn has_token(&self) -> bool {
        matches!(self, Self::Standing(standing) if standing.token.is_some())
    }

    /// Whether the claim holds the key.
    #[must_use]
    pub fn is_grant(&self) -> bool {
        matches!(self, Self::Standing(standing) if standing.holds())
    }
}

/// Makes the enum of each verb: those variants of [`Reply`] that answer it.
macro_rules! by_verb {
    ($($(#[$doc:meta])* $name:ident {
        $($variant:ident $(($value:ident: $type:ty))? $({ $($field:ident: $of:ty),+ })?,)+
    })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {$(
            #[doc = concat!("See [`Reply::", stringify!($variant), "`].")]
            $variant $(($type))? $({
                $(#[doc = concat!("As in [`Reply::", stringify!($variant), "`].")] $field: $of,)+
            })?,
        )+}

        impl TryFrom<Reply> for $name {
            /// A reply that does not answer this verb.
            type Error = Reply;

            fn try_from(reply: Reply) -> Result<Self, Reply> {
                Ok(match reply {
                    $(Reply::$variant $(($value))? $({ $($field),+ })? => {
                        Self::$variant $(($value))? $({ $($field),+ })?
                    })+
                    other => return Err(other),
                })
            }
        }

        impl From<$name> for Reply {
            fn from(reply: $name) -> Self {
                match reply {
                    $($name::$variant $(($value))? $({ $($field),+ })? => {
                        Self::$variant $(($value))? $({ $($field),+ })?
                    })+
                }
            }
        }
    )+};
}

by_verb! {
    /// What a [`Claim`](crate::Claim) is answered.
    ClaimReply {
        Standing(standing: Standing),
        Busy { blocked_until: StoreTime },
        Quarantined { until: StoreTime },
        Gone,
        Taken,
        Mismatch { in_use: Capacity },
    }
    /// What a [`Renew`](crate::Renew) is answered.
    RenewReply {
        Standing(standing: Standing),
        Gone,
        Superseded,
        Taken,
        Mismatch { in_use: Capacity },
    }
    /// What a [`Release`](crate::Release) is answered.
    ReleaseReply {
        Released { held: bool },
        Absent,
    }
    /// What a [`Command::Resize`](crate::Command::Resize) is answered.
    ResizeReply {
        Resized,
        Mismatch { in_use: Capacity },
        Absent,
    }
    /// What a [`Command::Watch`](crate::Command::Watch) is answered.
    WatchReply {
        Done,
    }
    /// What a [`Command::Break`](crate::Command::Break) is answered.
    BreakReply {
        Broken { holders: u64, token: Token },
    }
}
