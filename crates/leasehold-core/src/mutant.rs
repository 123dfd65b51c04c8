//! Mutation points: `leasehold-proof` breaks the code here on purpose, to check that its models
//! notice.

/// Whether the mutant of this name is the one that was chosen. In every build but that
/// with `--cfg mutants` it is not, and nothing is left of the question.
#[cfg(not(mutants))]
#[inline(always)]
pub(crate) const fn mutated(_name: &str) -> bool {
    false
}

/// Whether the mutant of this name is the one that was chosen: by the environment, and for
/// as long as the process lives.
#[cfg(mutants)]
pub(crate) fn mutated(name: &str) -> bool {
    use std::sync::LazyLock;
    static CHOSEN: LazyLock<Option<String>> =
        LazyLock::new(|| std::env::var("LEASEHOLD_MUTANT").ok());
    CHOSEN.as_deref() == Some(name)
}
