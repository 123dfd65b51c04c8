//! Invariants that must always hold.

use leasehold_core::Token;

use crate::simulation::Counts;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Two clients rely on the key at once.
    TwoHolders,
    /// A token that is not above those of all bids completed before it began.
    TokenFell,
    /// A lease ended although its holder lives, its time was not over, no server
    /// had lost anything and nobody took the key.
    LostForNothing,
    /// A server votes for a claim after it has confirmed that it left.
    Orphan,
}

/// What was seen, by the world's own time.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// Bids that were completed: when, and with which token.
    completed: Vec<(u64, Token)>,
    /// Who relies on the key: until when, and with which token.
    believers: Vec<Option<(u64, Token)>>,
    /// Each with what it is about.
    pub(crate) faults: Vec<(Fault, String)>,
    pub(crate) had: Counts,
}

impl Checks {
    pub(crate) fn new(clients: usize) -> Self {
        Self {
            believers: vec![None; clients],
            ..Self::default()
        }
    }

    /// A bid that began at `began` is completed now.
    pub(crate) fn completed(&mut self, began: u64, now: u64, token: Token) {
        let before = self.completed.iter().filter(|(when, _)| *when <= began);
        if let Some(before) = before.map(|(_, token)| *token).max()
            && before >= token
        {
            let what = format!("{token:?} after {before:?} at {now}");
            self.faults.push((Fault::TokenFell, what));
        }
        if self.completed.iter().any(|(_, other)| *other == token) {
            let what = format!("{token:?} twice at {now}");
            self.faults.push((Fault::TokenFell, what));
        }
        self.completed.push((now, token));
        self.had.add("leases", 1);
        if self.had.of("data losses") > 0 {
            self.had.add("leases after a loss", 1);
        }
    }

    /// A client relies on the key until then.
    pub(crate) fn believes(&mut self, client: usize, token: Token, now: u64, until: u64) {
        if until <= now {
            return;
        }
        let others = self.believers.iter().enumerate();
        let rival = others
            .filter(|(other, _)| *other != client)
            .find_map(|(_, believer)| believer.filter(|(until, _)| *until > now));
        if let Some((_, other)) = rival {
            let what = format!("{other:?} and {token:?} at {now}");
            self.faults.push((Fault::TwoHolders, what));
        }
        self.believers[client] = Some((until, token));
    }

    /// A client does not rely on it any more.
    pub(crate) fn ends(&mut self, client: usize) {
        self.believers[client] = None;
    }
}
