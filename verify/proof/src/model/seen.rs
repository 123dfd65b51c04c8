use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What has happened somewhere in a model: one in which nothing happens keeps
/// every promise.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    wanted: Vec<&'static str>,
    bits: Arc<AtomicU64>,
}

impl Seen {
    /// All of this has to happen: `waits, gone`.
    pub(super) fn wanting(wanted: &'static str) -> Self {
        let wanted = wanted.split_terminator(", ").collect();
        let bits = Arc::default();
        Self { wanted, bits }
    }

    /// It happens; what nobody wants is not noted.
    pub(super) fn note(&self, what: &'static str) {
        if let Some(place) = self.wanted.iter().position(|wanted| *wanted == what) {
            let bit = 1 << place;
            if self.bits.load(Ordering::Relaxed) & bit == 0 {
                self.bits.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn missing(&self) -> Vec<String> {
        let bits = self.bits.load(Ordering::Relaxed);
        let missing = |(place, _): &(usize, &&'static str)| bits & (1 << place) == 0;
        let wanted = self.wanted.iter().enumerate();
        let missing = wanted.filter(missing);
        missing.map(|(_, what)| (*what).to_owned()).collect()
    }

    pub(super) fn forget(&self) {
        self.bits.store(0, Ordering::Relaxed);
    }
}
