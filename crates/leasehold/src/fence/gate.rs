use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::Token;

use super::{Fenced, check};

/// A check that admits a fencing token unless a higher one was seen. Lock-free.
///
/// A gate only checks: the action after [`Gate::admit`] is not part of the step. A caller that is
/// admitted and then paused acts after a newer one was admitted. So use a gate only if
///
/// - something else serialises check *and* action, such as a task that reads from a channel, or a
///   lock that is held over both (an asynchronous one if the action awaits);
/// - or the action is checked again by the resource, and the gate only filters stale callers
///   early.
///
/// If the action changes memory, use [`Guarded`](super::Guarded), which makes both one step;
/// `Guarded<()>` does so for any closure.
///
/// ```
/// # use std::io;
/// use leasehold::Token;
/// use leasehold::fence::{Fenced, Gate};
///
/// struct Printer {
///     gate: Gate,
///     one_at_a_time: tokio::sync::Mutex<()>,
/// }
///
/// impl Printer {
///     async fn print(&self, token: Token, page: &str) -> Result<(), Fenced> {
///         let _one = self.one_at_a_time.lock().await; // over check and effect
///         self.gate.admit(token)?;
///         feed(page).await;
///         Ok(())
///     }
/// }
///
/// # async fn feed(_: &str) {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Fenced> {
/// let printer = Printer { gate: Gate::new(), one_at_a_time: Default::default() };
/// printer.print(Token::from(42), "page 1").await?;
/// printer.print(Token::from(42), "page 2").await?;
/// assert!(printer.print(Token::from(41), "a stale page").await.is_err());
/// # Ok(()) }
/// ```
///
/// A gate keeps the highest token in memory only. If the resource outlives the process, store the
/// highest token with the resource, and start with [`Gate::at`].
#[derive(Debug, Default)]
pub struct Gate(AtomicU64);

impl Gate {
    /// Makes a gate that has seen no token; it admits any token first.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Makes a gate that has already seen a token: after a restart, the highest one that was
    /// stored.
    #[must_use]
    pub const fn at(seen: Token) -> Self {
        Self(AtomicU64::new(seen.get()))
    }

    /// Admits a token, and refuses all lower ones from now on.
    ///
    /// # Errors
    /// [`Fenced`] if a higher token was seen: stop, another client has had the lease since. Also
    /// for [`Token::NONE`].
    pub fn admit(&self, token: Token) -> Result<(), Fenced> {
        // Whoever is refused sees what the admitted one had done before it came.
        let seen = Token::from(self.0.fetch_max(token.get(), Ordering::AcqRel));
        check(token, seen)
    }

    /// Returns the highest token seen; 0 before the first.
    #[must_use]
    pub fn seen(&self) -> Token {
        Token::from(self.0.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_gate_that_was_restored_goes_on_where_it_was() {
        let gate = Gate::at(Token::from(7));
        assert_eq!(
            gate.admit(Token::from(6)),
            Err(Fenced {
                token: Token::from(6),
                seen: Token::from(7)
            })
        );
        assert_eq!(gate.admit(Token::from(7)), Ok(()));
        assert_eq!(gate.admit(Token::from(u64::MAX)), Ok(()));
        assert_eq!(gate.seen(), Token::from(u64::MAX));
        assert_eq!(Gate::new().admit(Token::from(1)), Ok(()));
        assert!(Gate::new().admit(Token::NONE).is_err());
    }

    proptest! {
        #[test]
        fn one_after_the_other_the_highest_so_far_decides(tokens in vec(1_u64..20, 0..40)) {
            let gate = Gate::new();
            let mut highest = 0;
            for token in tokens {
                let expected = if token < highest {
                    Err(Fenced { token: Token::from(token), seen: Token::from(highest) })
                } else {
                    Ok(())
                };
                prop_assert_eq!(gate.admit(Token::from(token)), expected);
                highest = highest.max(token);
                prop_assert_eq!(gate.seen(), Token::from(highest));
            }
        }

        #[test]
        fn at_once_nobody_comes_in_below_what_was_seen_before(
            threads in vec(vec(1_u64..1000, 1..200), 2..6),
        ) {
            let gate = Gate::new();
            let highest = threads.iter().flatten().copied().max();
            let start = Barrier::new(threads.len());
            thread::scope(|scope| {
                for tokens in &threads {
                    let (gate, start) = (&gate, &start);
                    scope.spawn(move || {
                        start.wait();
                        for &token in tokens {
                            let before = gate.seen();
                            match gate.admit(Token::from(token)) {
                                Ok(()) => assert!(before <= Token::from(token)),
                                Err(fenced) => {
                                    assert_eq!(fenced.token, Token::from(token));
                                    assert!(fenced.seen > Token::from(token) && fenced.seen >= before);
                                }
                            }
                            assert!(gate.seen() >= before.max(Token::from(token)));
                        }
                    });
                }
            });
            prop_assert_eq!(Some(gate.seen().get()), highest);
        }
    }
}
