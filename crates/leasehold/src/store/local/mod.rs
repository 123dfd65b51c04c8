//! `local:`
