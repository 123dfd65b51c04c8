//! Why the full screen or the page cannot begin, or go on.

use std::io;
use std::net::SocketAddr;

use leasehold::Error;

/// Why a console cannot begin, or go on.
#[derive(Debug)]
pub enum ConsoleError {
    /// The store has failed.
    Store(Error),
    /// The terminal has failed.
    Terminal(io::Error),
    /// There is no listening at that address.
    Listen(SocketAddr, io::Error),
}
