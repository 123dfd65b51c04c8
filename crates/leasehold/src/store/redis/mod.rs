//! `redis://`
