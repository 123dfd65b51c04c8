//! What is tested from within.

mod options;
mod replay;
