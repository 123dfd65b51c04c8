//! Unit tests of the set of servers.

mod look;
mod options;
