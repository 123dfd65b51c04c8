//! Connections to a server, or to the primary that Sentinels report: discovery, login, sharing
//! and reconnecting.

mod abandoned;
pub(crate) mod acker;
mod batch;
pub(crate) mod client;
pub(crate) mod connect;
pub(crate) mod demand;
pub(crate) mod dial;
pub(crate) mod gate;
pub(crate) mod inbox;
pub(crate) mod manager;
pub(crate) mod multiplexed;
pub(crate) mod primary;
pub(crate) mod rights;
pub(crate) mod sentinel;
pub(crate) mod server;
pub(crate) mod step;
pub(crate) mod subscription;
pub(crate) mod value;
