//! Connections to a server, or to the primary that Sentinels report: discovery, login, sharing
//! and reconnecting.
//!
//! # Which way a step takes
//! A store makes a [`Request`](crate::codec::script::Request) of a command: a script, its keys and
//! its arguments. [`Route`](crate::routing::Route) knows where the keys are, the
//! [`Connection`](multiplexed::Connection) there runs the script, and what else is under way decides
//! how:
//!
//! ```text
//!  queue, classic, quorum            one Request
//!                                         │
//!  routing            one server, or ─────┴───── a cluster
//!                     its primary                     │
//!                         │                   the node of the slot;
//!                     waits for the           MOVED, ASK: the next one
//!                     connection; a server            │
//!                     that is none: again             │
//!                         └────────────┬──────────────┘
//!  multiplexed             by its hash (EVALSHA);
//!                          NOSCRIPT: once more in full (EVAL)
//!                                      │
//!        ┌───────────────────┬─────────┴──────────┬───────────────────┐
//!   nothing else is     other requests are   the grant must be   a slot that
//!   in flight           in flight            acknowledged        moves (ASK)
//!        │                   │                    │                   │
//!   at once, by the     `batch`: steps in    `acked_writer`: a   ASKING and the
//!   caller's task       one call, others     connection of its   step in one
//!                       in one piece         own, a WAIT after   piece
//!                                            each batch
//!        └───────────────────┴─────────┬──────────┴───────────────────┘
//!  socket                  written at once; its task reads the
//!                          answers (`frames`) and hands them out
//! ```
//!
//! The first two share the connection that `manager` keeps open, and `multiplexed` counts what is
//! in flight on it. A request that is answered with an error of the connection has an unknown
//! outcome: no way repeats it. In all ways a script that the server does not know has not run.
//!
//! # How a connection is opened
//! There is one handshake. `manager` asks `endpoint` for a connection, whatever that is: a fixed
//! address, the primary that Sentinels name (`primary`, `sentinel`), or any node that answers.
//! `target` has the address, the login, the certificates and who hears the pushes. `dial` opens the
//! socket and logs in. `handshake` reads what the server is and what it allows (`rights`), and
//! refuses what cannot keep locks. Then `manager` marks the server where there is a quarantine
//! (`gate`), and subscribes to the `inbox`.

pub(crate) mod ack_policy;
mod acked_writer;
pub(crate) mod address;
mod batch;
pub(crate) mod dial;
pub(crate) mod endpoint;
mod frames;
pub(crate) mod gate;
mod handshake;
mod in_flight;
pub(crate) mod inbox;
pub(crate) mod manager;
pub(crate) mod multiplexed;
pub(crate) mod primary;
pub(crate) mod rights;
pub(crate) mod sentinel;
pub(crate) mod socket;
pub(crate) mod step;
pub(crate) mod subscription;
pub(crate) mod target;
pub(crate) mod value;
