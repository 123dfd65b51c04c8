use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::Token;

use super::{Fenced, check};

/// A value that refuses changes with a stale fencing token. Check and change are one step.
///
/// A change with a lower token is never made after one with a higher token. For writes that
/// await, see [`Gate`](super::Gate). `Guarded<()>` fences a closure that acts elsewhere.
///
/// ```
/// use leasehold::Token;
/// use leasehold::fence::{Fenced, Guarded};
///
/// # fn main() -> Result<(), Fenced> {
/// let balance = Guarded::new(100);
/// balance.update(Token::from(42), |balance| *balance -= 30)?;
/// assert!(balance.update(Token::from(41), |balance| *balance = 0).is_err());
/// assert_eq!(balance.read(|balance| *balance), 70);
/// # Ok(()) }
/// ```
///
/// The value and the highest token are kept in memory only. To survive a restart, save both
/// together inside [`Guarded::update`], and start with [`Guarded::at`].
#[derive(Debug, Default)]
pub struct Guarded<T>(Mutex<State<T>>);

#[derive(Debug, Default)]
struct State<T> {
    value: T,
    seen: Token,
}

impl<T> Guarded<T> {
    /// Wraps a value that has seen no token.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self::at(value, Token::NONE)
    }

    /// Wraps a value that has seen a token: after a restart, the value and token that were saved.
    #[must_use]
    pub const fn at(value: T, seen: Token) -> Self {
        Self(Mutex::new(State { value, seen }))
    }

    /// Changes the value, and refuses all lower tokens from now on.
    ///
    /// Use it also to read a value that will be written back: from this step on a former holder
    /// cannot change it.
    ///
    /// Other callers block their threads while the closure runs: keep it short, and do not use
    /// this value inside it. If the closure panics, the value stays as it is at that time, the
    /// token counts as seen, and other callers continue.
    ///
    /// # Errors
    /// [`Fenced`] if a higher token was seen: the closure was not run. Stop, another client has
    /// had the lease since. Also for [`Token::NONE`].
    pub fn update<R>(&self, token: Token, change: impl FnOnce(&mut T) -> R) -> Result<R, Fenced> {
        let mut state = self.state();
        check(token, state.seen)?;
        state.seen = token;
        Ok(change(&mut state.value))
    }

    /// Reads the value without a token. It may be overwritten right after; to write it back, read
    /// it in [`Guarded::update`].
    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.state().value)
    }

    /// Returns the highest token seen; 0 before the first.
    #[must_use]
    pub fn seen(&self) -> Token {
        self.state().seen
    }

    /// Returns the value and the highest token seen.
    #[must_use]
    pub fn into_inner(self) -> (T, Token) {
        let state = self.0.into_inner();
        let State { value, seen } = state.unwrap_or_else(PoisonError::into_inner);
        (value, seen)
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::thread;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_stale_change_is_not_run() {
        let value = Guarded::at("kept", Token::from(7));
        let fenced = value
            .update(Token::from(6), |_| unreachable!())
            .unwrap_err();
        assert_eq!(
            (fenced.token, fenced.seen),
            (Token::from(6), Token::from(7))
        );
        assert_eq!(value.update(Token::from(7), |value| value.len()), Ok(4));
        assert_eq!(value.into_inner(), ("kept", Token::from(7)));
        assert!(
            Guarded::new(())
                .update(Token::NONE, |()| unreachable!())
                .is_err()
        );
    }

    #[test]
    fn a_panic_fences_all_the_same() {
        let value = Guarded::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            value.update(Token::from(2), |value| {
                *value = 2;
                panic!("half way");
            })
        }));
        assert!(panicked.is_err());
        assert!(value.update(Token::from(1), |_| ()).is_err());
        assert_eq!(value.read(|value| *value), 2);
        assert_eq!(value.update(Token::from(3), |value| *value), Ok(2));
        assert_eq!(value.into_inner(), (2, Token::from(3)));
    }

    proptest! {
        #[test]
        fn no_write_lands_after_one_with_a_higher_token(
            threads in vec(vec(1_u64..1000, 1..200), 2..6),
        ) {
            let log = Guarded::new(Vec::new());
            let highest = threads.iter().flatten().copied().max();
            let start = Barrier::new(threads.len());
            thread::scope(|scope| {
                for tokens in &threads {
                    let (log, start) = (&log, &start);
                    scope.spawn(move || {
                        start.wait();
                        for &token in tokens {
                            match log.update(Token::from(token), |log| log.push(token)) {
                                Ok(()) => assert!(log.seen() >= Token::from(token)),
                                Err(fenced) => assert!(fenced.seen > fenced.token),
                            }
                        }
                    });
                }
            });
            let (log, seen) = log.into_inner();
            prop_assert!(log.is_sorted(), "{:?}", log);
            prop_assert_eq!(Some(seen.get()), highest);
            prop_assert_eq!(log.last().copied(), highest);
        }
    }
}
