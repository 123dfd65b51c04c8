//! Connections to a server, or to the primary that Sentinels report: discovery, login, sharing
//! and reconnecting.

pub(crate) mod ack_policy;
mod acked_writer;
pub(crate) mod address;
mod batch;
pub(crate) mod client;
pub(crate) mod dial;
pub(crate) mod endpoint;
pub(crate) mod gate;
mod handshake;
mod in_flight;
pub(crate) mod inbox;
mod line;
pub(crate) mod manager;
pub(crate) mod multiplexed;
pub(crate) mod primary;
pub(crate) mod rights;
pub(crate) mod sentinel;
pub(crate) mod step;
pub(crate) mod value;
