//! What is tested from within.

mod look;
mod options;
mod replay;
