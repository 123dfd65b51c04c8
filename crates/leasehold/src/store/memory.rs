//! `memory:`
