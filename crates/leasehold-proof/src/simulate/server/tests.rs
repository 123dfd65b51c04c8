//! The simulated server against a real one.
