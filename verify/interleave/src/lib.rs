//! The client's shells under a scheduler that tries the orders in which things can
//! happen. The cases are in `tests/`; `scripts/interleave` runs them, and
//! `docs/proof/concurrency.md` says what they cover.
