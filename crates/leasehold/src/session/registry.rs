//! The registry of one client's claims: where each is, and when it is due.
//!
//! It makes no decisions and is locked only briefly. A claim updates its entry ([`Listed`]) under
//! its own lock, whenever it has changed.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;

use leasehold_core::{Arrival, Key, Moment, Phase, Token};

use super::live::{LiveClaim, Number};
use super::state::{Listed, Run};
use super::timing::TOGETHER;

/// The claims of one client. Each is in one of the first two, from its first step until it is
/// over, and under a number of its own, since what comes before that may come twice.
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// Those that wait or hold.
    by_arrival: Claims<Arrival>,
    /// Those that are not answered yet, or on their way out, by the hashes of their keys.
    in_passing: BTreeMap<(u64, Number), Passing>,
    hasher: RandomState,
    /// Those in runs that are behind others, or lost.
    runs: Claims<Run>,
    /// The last that were passed on, and are gone.
    passed: VecDeque<(Arrival, Token, Arc<LiveClaim>)>,
    /// Those that are behind what their client does not know, or not yet.
    unknown: Vec<(Arrival, Arc<LiveClaim>)>,
    /// When the watchdog has to see to them.
    timers: Claims<Moment>,
    waiting: usize,
    leaving: usize,
    /// The client is shut down.
    closed: bool,
    /// Those who watch a key, and want the inbox open.
    watching: usize,
    /// Releases that were confirmed since the client was opened.
    confirmed: u64,
}

/// How many claims that are gone are remembered to have been passed on.
const PASSED: usize = 64;

type Claims<By> = BTreeMap<(By, Number), Arc<LiveClaim>>;

/// A claim that is not answered yet, or on its way out.
#[derive(Debug)]
struct Passing {
    claim: Arc<LiveClaim>,
    /// Its grant had these numbers, and may be passed on.
    passed: Option<(Arrival, Token)>,
}

/// A notification for a claim in a run, since another claim of the run has changed.
#[derive(Debug, Clone, Copy)]
pub(super) enum RunNews {
    /// The lease ahead was passed on.
    Turn(Arrival, Token),
    /// The claim ahead has ended, or was lost.
    Ended(Arrival),
    /// The claim ahead is not known; and now it is.
    Unknown(Arrival),
    Known,
}

/// Notifications, with their claims.
pub(super) type News = Vec<(Arc<LiveClaim>, RunNews)>;

/// The place of a claim has changed.
fn move_claim<By: Ord>(
    claims: &mut Claims<By>,
    claim: &Arc<LiveClaim>,
    was: Option<By>,
    is: Option<By>,
) {
    if was == is {
        return;
    }
    if let Some(was) = was {
        claims.remove(&(was, claim.number));
    }
    if let Some(is) = is {
        claims.insert((is, claim.number), claim.clone());
    }
}

/// The claims on `key` of those that were found by a number that others may have too.
fn on_key<By: Copy + Ord>(claims: &Claims<By>, by: By, key: &Key) -> Vec<Arc<LiveClaim>> {
    let found = claims.range((by, 0)..=(by, Number::MAX));
    let found = found.map(|(_, claim)| claim);
    found.filter(|claim| claim.key == *key).cloned().collect()
}

/// Where it is among those in runs. One that was passed on is on its way out, and found there.
fn in_runs(listed: &Listed) -> Option<Run> {
    listed.run().filter(|run| !matches!(run, Run::Passed(..)))
}

/// How it is in passing, if it is.
fn in_passing(listed: &Listed) -> Option<Option<(Arrival, Token)>> {
    let passed = match listed.run() {
        Some(Run::Passed(own, token)) => Some((own, token)),
        _ => None,
    };
    matches!(listed.phase, Phase::Asking | Phase::Leaving).then_some(passed)
}

impl Registry {
    /// By what claims on a key are found.
    pub(super) fn hasher(&self) -> &RandomState {
        &self.hasher
    }

    /// What is to be known of a claim has changed: what that means to those in its run.
    pub(super) fn list(&mut self, claim: &Arc<LiveClaim>, was: Listed, is: Listed) -> News {
        move_claim(&mut self.runs, claim, in_runs(&was), in_runs(&is));
        let found_by = |listed: Listed| {
            let stands = matches!(listed.phase, Phase::Waiting | Phase::Held);
            listed.arrival.filter(|_| stands)
        };
        move_claim(&mut self.by_arrival, claim, found_by(was), found_by(is));
        move_claim(&mut self.timers, claim, was.due, is.due);
        let (was_passing, is_passing) = (in_passing(&was), in_passing(&is));
        if was_passing != is_passing {
            let at = (claim.key_hash, claim.number);
            if let Some(passed) = is_passing {
                let claim = claim.clone();
                self.in_passing.insert(at, Passing { claim, passed });
            } else {
                self.in_passing.remove(&at);
            }
        }
        let count = |phase, of: &mut usize| {
            *of -= usize::from(was.phase == phase);
            *of += usize::from(is.phase == phase);
        };
        count(Phase::Waiting, &mut self.waiting);
        count(Phase::Leaving, &mut self.leaving);
        if was.phase != Phase::Over && is.phase == Phase::Over {
            self.confirmed += u64::from(is.confirmed);
        }
        let mut news = self.run_news(claim, was, is);
        if !self.unknown.is_empty() {
            news.extend(self.settle(claim));
        }
        news
    }

    /// What the change of a claim means to those in its run. One that is gone may have left with
    /// them behind it, and one that comes may be behind what is gone.
    fn run_news(&mut self, claim: &Arc<LiveClaim>, was: Listed, is: Listed) -> News {
        let (own, news) = match is.run() {
            _ if is.phase == Phase::Over => {
                if let Some(Run::Passed(own, token)) = was.run()
                    && self.is_any_passing_by(claim.key_hash)
                {
                    // Who is behind it may not have read its answer yet.
                    self.passed.truncate(PASSED - 1);
                    self.passed.push_front((own, token, claim.clone()));
                }
                let Some(own) = is.arrival else {
                    return News::new();
                };
                (own, RunNews::Ended(own))
            }
            Some(run) if Some(run) == was.run() => return News::new(),
            Some(Run::Passed(own, token)) => (own, RunNews::Turn(own, token)),
            Some(Run::Lost(own)) => (own, RunNews::Ended(own)),
            Some(Run::Behind(ahead)) => {
                let news = self.news_of(ahead, claim);
                if let Some(RunNews::Unknown(_)) = news {
                    self.unknown.push((ahead, claim.clone()));
                }
                return Vec::from_iter(news.map(|news| (claim.clone(), news)));
            }
            None => return News::new(),
        };
        self.behind(claim, own, news)
    }

    /// To those behind this claim.
    fn behind(&self, claim: &LiveClaim, own: Arrival, news: RunNews) -> News {
        let followers = on_key(&self.runs, Run::Behind(own), &claim.key).into_iter();
        followers.map(|claim| (claim, news)).collect()
    }

    /// What is to be said to a claim that is behind this one now.
    fn news_of(&self, ahead: Arrival, claim: &LiveClaim) -> Option<RunNews> {
        let key = &claim.key;
        if let Some(token) = self.passed_on(ahead, claim) {
            Some(RunNews::Turn(ahead, token))
        } else if !on_key(&self.runs, Run::Lost(ahead), key).is_empty() {
            Some(RunNews::Ended(ahead))
        } else if on_key(&self.by_arrival, ahead, key).is_empty() {
            Some(RunNews::Unknown(ahead))
        } else {
            None
        }
    }

    /// The token of a claim on the key of this one that was passed on.
    fn passed_on(&self, ahead: Arrival, behind: &LiveClaim) -> Option<Token> {
        let key = &behind.key;
        let mut leaving = self.passing_by(behind.key_hash).filter_map(|passing| {
            let (own, token) = passing.passed?;
            (own == ahead && passing.claim.key == *key).then_some(token)
        });
        let gone = || {
            let mut gone = self.passed.iter();
            let it = gone.find(|(own, _, claim)| *own == ahead && claim.key == *key)?;
            Some(it.1)
        };
        leaving.next().or_else(gone)
    }

    /// Of claims that were behind what nobody knew: that it is known now, or that it cannot be
    /// any more, since every claim of this client on the key has been answered.
    fn settle(&mut self, moved: &LiveClaim) -> News {
        let any = self.is_any_passing_by(moved.key_hash);
        let key = &moved.key;
        let mut news = News::new();
        for (ahead, claim) in std::mem::take(&mut self.unknown) {
            if claim.key == *key && !on_key(&self.by_arrival, ahead, key).is_empty() {
                news.push((claim, RunNews::Known));
            } else if claim.key == *key && !any {
                news.push((claim, RunNews::Ended(ahead)));
            } else {
                self.unknown.push((ahead, claim));
            }
        }
        news
    }

    /// The store may be another one, which gives the same numbers to others.
    pub(super) fn forget_passed(&mut self) {
        self.passed.clear();
    }

    fn passing_by(&self, hash: u64) -> impl Iterator<Item = &Passing> {
        let found = self.in_passing.range((hash, 0)..=(hash, Number::MAX));
        found.map(|(_, passing)| passing)
    }

    fn is_any_passing_by(&self, hash: u64) -> bool {
        self.passing_by(hash).next().is_some()
    }

    /// The claims on `key` that are not answered yet, or on their way out.
    pub(super) fn passing_on(&self, key: &Key) -> Vec<Arc<LiveClaim>> {
        let found = self.passing_by(self.hasher.hash_one(key));
        let found = found.map(|passing| &passing.claim);
        found.filter(|claim| claim.key == *key).cloned().collect()
    }

    /// Who is to hear a push: the claim that it names, or those that are not answered yet,
    /// since it may be one of them.
    pub(super) fn hearers(&self, key: &Key, arrival: Arrival) -> Vec<Arc<LiveClaim>> {
        let named = on_key(&self.by_arrival, arrival, key);
        if named.is_empty() {
            self.passing_on(key)
        } else {
            named
        }
    }

    /// When something is next due.
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.timers.keys().next().map(|(due, _)| *due)
    }

    /// The claims that are due now, [`TOGETHER`] at most.
    pub(super) fn due(&self, now: Moment, due: &mut Vec<Arc<LiveClaim>>) {
        let claims = self.timers.range(..=(now, Number::MAX));
        due.extend(claims.map(|(_, claim)| claim.clone()).take(TOGETHER));
    }

    /// All that are not over.
    pub(super) fn all(&self) -> Vec<Arc<LiveClaim>> {
        let passing = self.in_passing.values().map(|passing| &passing.claim);
        passing.chain(self.by_arrival.values()).cloned().collect()
    }

    /// Whether nothing is to be kept.
    pub(super) fn is_empty(&self) -> bool {
        self.timers.is_empty() && (self.watching == 0 || self.closed)
    }

    /// Whether there is a waiter or a watcher, so that the inbox must be open.
    pub(super) fn has_listeners(&self) -> bool {
        self.waiting > 0 || self.watching > 0 && !self.closed
    }

    /// Somebody watches a key from now on.
    pub(super) fn start_watching(&mut self) {
        self.watching += 1;
    }

    /// Somebody does not watch any more.
    pub(super) fn stop_watching(&mut self) {
        self.watching -= 1;
    }

    /// Shuts down: returns all claims, which must be released. Later claims see that it is
    /// closed.
    pub(super) fn close(&mut self) -> Vec<Arc<LiveClaim>> {
        self.closed = true;
        self.all()
    }

    /// How many claims are on their way out, and how many have left.
    pub(super) fn departures(&self) -> (usize, u64) {
        (self.leaving, self.confirmed)
    }
}
