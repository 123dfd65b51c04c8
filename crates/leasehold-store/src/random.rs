//! Random numbers for inbox names, ids and jitter.
//!
//! The generator behind them keeps its state in memory, so a forked child would draw the numbers of
//! its parent and of the other children: their claims would have the same ids, and the store would
//! take them for one claim. Each process mixes in a number of its own, which the system has drawn.

use rand::{RngExt as _, rngs::ThreadRng};

use crate::clock;
use crate::fork::PerProcess;

thread_local! {
    static OF_THIS_THREAD: ThreadRng = rand::rng();
}

static OWN: PerProcess<u128> = PerProcess::new();

/// Returns an unguessable random number of 64 bits.
#[must_use]
pub fn random_u64() -> u64 {
    (random_u128() & u128::from(u64::MAX)) as u64
}

/// Returns an unguessable and unique random number of 128 bits.
#[must_use]
pub fn random_u128() -> u128 {
    // A thread that ends may have none any more.
    let number = OF_THIS_THREAD.try_with(|it| it.clone().random());
    number.unwrap_or_else(|_| drawn()) ^ OWN.get_or_init(drawn)
}

fn drawn() -> u128 {
    let mut drawn = [0; 16];
    match getrandom::fill(&mut drawn) {
        Ok(()) => u128::from_ne_bytes(drawn),
        // No other process has both at once.
        Err(_) => clock::wall().as_nanos() ^ (u128::from(std::process::id()) << 96),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Draws when it is dropped, and tells the number.
    struct AtEnd(mpsc::Sender<u64>);

    impl Drop for AtEnd {
        fn drop(&mut self) {
            self.0.send(random_u64()).unwrap();
        }
    }

    thread_local! {
        static AT_END: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
    }

    /// A panic would end the process there.
    #[test]
    fn a_thread_that_ends_has_numbers() {
        let (send, receive) = mpsc::channel();
        let ends = thread::spawn(|| {
            // What a thread has first ends last.
            AT_END.set(Some(AtEnd(send)));
            random_u64()
        });
        let before = ends.join().unwrap();
        assert_ne!(receive.recv().unwrap(), before);
    }
}
