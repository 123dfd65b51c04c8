//! The replies of a step: one enum for all commands, and one enum for each verb.

use serde::{Deserialize, Serialize};

use crate::{Arrival, Capacity, StoreTime, Token};

/// The standing of a claim in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Standing {
    /// Its arrival number.
    pub arrival: Arrival,
    /// The fencing token, once granted: *granted means having a token*.
    pub token: Option<Token>,
    /// Granted behind this claim of the same client, which holds or is itself behind another one:
    /// a *run*. The client keeps the order. When the lease ahead is released while it is valid,
    /// the client passes the hold on without asking the store. If that lease ended in another
    /// way, the client asks the store.
    pub behind: Option<Arrival>,
    /// 0 for a holder, 1 for the next waiter; an upper bound.
    pub position: u64,
    /// Until when it lives without renewal.
    pub deadline: StoreTime,
    /// The earliest time at which a blocking claim can expire, or at which the store grants
    /// again. It is never too late. `None` if granted.
    pub blocked_until: Option<StoreTime>,
}

impl Standing {
    /// Returns whether the claim holds the key: it is granted, and not behind another one.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.token.is_some() && self.behind.is_none()
    }
}

/// The reply of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The claim is in the queue.
    Standing(Standing),
    /// The claim could not be granted at once and did not want to wait. It is not in the queue.
    Busy {
        /// The earliest time at which a blocking claim can expire.
        blocked_until: StoreTime,
    },
    /// The store may have lost its holders, and grants nothing yet. The claim did not want to
    /// wait. It is not in the queue.
    Quarantined {
        /// When the store grants again.
        until: StoreTime,
    },
    /// The proposed token is not above `highest`, or is above `most`. The claim has no vote.
    Outbid {
        /// The highest token accepted or voided here.
        highest: Token,
        /// The highest that may be proposed now.
        most: Token,
    },
    /// The claim is not in the queue: it has expired, was released, or was never there.
    Gone,
    /// The claim was removed.
    Released {
        /// Whether it held the key.
        held: bool,
    },
    /// There was nothing to release or resize.
    Absent,
    /// The claim's id was replaced by another rotation or by an adoption; or it was to be adopted
    /// while the store may have lost its release.
    Superseded,
    /// The id belongs to another client, or was used before: choose a new one.
    Taken,
    /// The semaphore has the new number of permits.
    Resized,
    /// The key is in use with another capacity, or the claim is too heavy for it.
    Mismatch {
        /// The capacity in use.
        in_use: Capacity,
    },
    /// The key was taken from its holders.
    Broken {
        /// The number of holders.
        holders: u64,
        /// The token was raised to this one, which no claim has: tokens up to it are void, and
        /// the next one is higher.
        token: Token,
    },
    /// Nothing to say.
    Done,
}

impl Reply {
    /// Returns whether the claim is granted, possibly behind another one of its client.
    #[must_use]
    pub fn has_token(&self) -> bool {
        matches!(self, Self::Standing(standing) if standing.token.is_some())
    }

    /// Returns whether the claim holds the key.
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
    /// The replies to a [`Claim`](crate::Claim).
    ClaimReply {
        Standing(standing: Standing),
        Busy { blocked_until: StoreTime },
        Quarantined { until: StoreTime },
        Gone,
        Taken,
        Mismatch { in_use: Capacity },
    }
    /// The replies to a [`Renew`](crate::Renew).
    RenewReply {
        Standing(standing: Standing),
        Gone,
        Superseded,
        Taken,
        Mismatch { in_use: Capacity },
    }
    /// The replies to a [`Release`](crate::Release).
    ReleaseReply {
        Released { held: bool },
        Absent,
    }
    /// The replies to a [`Command::Resize`](crate::Command::Resize).
    ResizeReply {
        Resized,
        Mismatch { in_use: Capacity },
        Absent,
    }
    /// The replies to a [`Command::Watch`](crate::Command::Watch).
    WatchReply {
        Done,
    }
    /// The replies to a [`Command::Break`](crate::Command::Break).
    BreakReply {
        Broken { holders: u64, token: Token },
    }
}
