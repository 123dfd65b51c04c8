//! The reference: a plain list of claims that removes expired claims at once, while the queue
//! removes them as late as possible.

use crate::common::*;

/// One live claim, as the reference sees it.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) id: ClaimId,
    pub(crate) arrival: Arrival,
    pub(crate) mode: Mode,
    pub(crate) deadline: StoreTime,
    pub(crate) since: StoreTime,
    pub(crate) inbox: Option<Inbox>,
    pub(crate) token: Option<Token>,
    pub(crate) owner: ClientInfo,
    pub(crate) secret: Option<OwnerSecret>,
    pub(crate) min_hold: Duration,
    pub(crate) note: Option<Note>,
    pub(crate) version: u64,
    pub(crate) previous: Option<ClaimId>,
    pub(crate) kept: bool,
    /// Until when its client has renewed it, if that can be told from its deadline.
    pub(crate) renewed: Option<StoreTime>,
    pub(crate) runs: bool,
    /// Its client listened when it last spoke of it while it waited.
    pub(crate) listens: bool,
}

impl Known {
    /// Whether its client has one of these inboxes.
    fn is_of(&self, inboxes: &[Inbox]) -> bool {
        let inbox = self.inbox.as_ref();
        inbox.is_some_and(|inbox| inboxes.contains(inbox))
    }

    /// A claim that waited is granted.
    fn hold_from(&mut self, now: StoreTime, token: Token) {
        let lease = self.deadline.max(now + PROMOTED_FLOOR);
        self.token = Some(token);
        self.renewed = (self.min_hold > Duration::ZERO).then_some(lease);
        self.deadline = lease.max(now + self.min_hold);
        self.since = now;
    }
}

/// An id that was used.
#[derive(Debug, Clone)]
struct Buried {
    id: ClaimId,
    forget: StoreTime,
    rotated: bool,
}

/// The design's section 1 in the plainest words: every step forgets all the
/// dead, applies the verb, and grants from the front.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reference {
    pub(crate) now: StoreTime,
    last_clock: StoreTime,
    /// Whether nothing is granted now.
    closed: bool,
    /// Whether the client listens whose step this is.
    listens: bool,
    pub(crate) last_token: Token,
    /// Set while there are claims.
    capacity: Option<Capacity>,
    /// In order of arrival.
    pub(crate) claims: Vec<Known>,
    pub(crate) watchers: Vec<(Inbox, StoreTime)>,
    buried: Vec<Buried>,
    /// Dead claims that the queue may or may not have dropped yet.
    lapsed: BTreeSet<ClaimId>,
    /// Lapsed claims that a `Break` may have found and buried.
    perhaps_buried: BTreeMap<ClaimId, StoreTime>,
}

/// What the reference expects of a reply. Arrival numbers are the queue's to
/// choose (they only have to rise), positions are bounds.
#[derive(Debug, PartialEq)]
pub(crate) enum Expected {
    /// Token, claim ahead and deadline; and the least position.
    Standing((Option<Token>, Option<Arrival>, StoreTime), u64),
    Busy,
    Quarantined,
    /// So many at least, and the token that fences them.
    Broken(u64, Token),
    /// This and no other.
    Exactly(Reply),
}

impl Reference {
    // ---- looking ----

    pub(crate) fn capacity(&self) -> Option<Capacity> {
        self.capacity.filter(|_| !self.claims.is_empty())
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = &Known> {
        self.claims.iter().filter(|claim| claim.token.is_some())
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Known> {
        self.claims.iter().filter(|claim| claim.token.is_none())
    }

    pub(crate) fn known(&self, id: &ClaimId) -> Option<&Known> {
        self.claims.iter().find(|claim| claim.id == *id)
    }

    /// Whether it holds: it is granted, and no other of its client before it.
    pub(crate) fn holds(&self, claim: &Known) -> bool {
        let first = self.held().filter_map(|claim| claim.token).min();
        claim.token.is_some() && (claim.mode != Mode::EXCLUSIVE || claim.token == first)
    }

    /// In a run, the claim right ahead of one that does not hold yet.
    pub(crate) fn behind(&self, claim: &Known) -> Option<Arrival> {
        let ahead = self.held().filter(|held| held.token < claim.token);
        let last = ahead.max_by_key(|held| (held.token, held.arrival));
        last.filter(|_| claim.token.is_some() && !self.holds(claim))
            .map(|held| held.arrival)
    }

    /// Whether a claim may be granted right behind the last one, which came before it.
    fn may_follow(&self, runs: bool, inbox: Option<&Inbox>, arrival: Arrival) -> bool {
        let last = self.held().max_by_key(|held| (held.token, held.arrival));
        let same = |last: &Known| inbox.is_some() && last.inbox.as_ref() == inbox;
        let bears = |last: &Known| last.runs && last.mode == Mode::EXCLUSIVE && same(last);
        runs && last.is_some_and(|last| bears(last) && last.arrival < arrival)
    }

    /// Those who do not hold yet, from a token on, go back to the front of the line.
    fn disband(&mut self, token: Option<Token>) {
        let follows = |claim: &Known| claim.token >= token && self.behind(claim).is_some();
        let behind: Vec<_> = self.claims.iter().map(follows).collect();
        for (claim, behind) in self.claims.iter_mut().zip(behind) {
            claim.token = claim.token.filter(|_| !behind);
        }
    }

    fn known_mut(&mut self, id: &ClaimId) -> Option<&mut Known> {
        self.claims.iter_mut().find(|claim| claim.id == *id)
    }

    /// Claims with one token weigh once.
    fn used(&self) -> u64 {
        let weights = self.held().map(|claim| (claim.token, claim.mode.weight()));
        weights.collect::<BTreeMap<_, _>>().values().sum()
    }

    fn fits(&self, mode: Mode) -> bool {
        let units = self.capacity().unwrap_or_else(|| mode.capacity()).units();
        self.used() + mode.weight() <= units
    }

    /// Whether a claim that waits can never fit any more.
    fn is_unfit(&self, claim: &Known) -> bool {
        let units = self.capacity().map_or(u64::MAX, Capacity::units);
        claim.token.is_none() && claim.mode.weight() > units
    }

    /// The tombstone of an id: there is one at most.
    fn tombstone(&self, id: &ClaimId) -> Option<&Buried> {
        let stands = |buried: &&Buried| buried.id == *id && buried.forget > self.now;
        self.buried.iter().find(stands)
    }

    fn is_buried(&self, id: &ClaimId) -> bool {
        self.tombstone(id).is_some()
    }

    fn was_rotated(&self, id: &ClaimId) -> bool {
        self.tombstone(id).is_some_and(|buried| buried.rotated)
    }

    // ---- small steps ----

    fn bury(&mut self, id: &ClaimId, rotated: bool) {
        self.lapsed.remove(id);
        if self.is_buried(id) {
            return;
        }
        let forget = self.now + TOMBSTONE_LIFE;
        // A tombstone that is there already is not renewed.
        let certain = self.perhaps_buried.get(id).copied().unwrap_or(forget);
        self.buried.push(Buried {
            id: id.clone(),
            forget: certain,
            rotated,
        });
        if certain < forget {
            self.perhaps_buried.insert(id.clone(), forget);
        }
    }

    fn tick(&mut self, clock: StoreTime) {
        self.now = self.now + clock.since(self.last_clock);
        self.last_clock = clock;
        let now = self.now;
        let dead = self.claims.iter().filter(|claim| claim.deadline <= now);
        self.lapsed.extend(dead.map(|claim| claim.id.clone()));
        self.claims.retain(|claim| claim.deadline > now);
        self.watchers.retain(|(_, until)| *until > now);
        self.perhaps_buried.retain(|_, forget| *forget > now);
    }

    fn next_token(&mut self) -> Token {
        self.last_token = Token::from((self.last_token.get() + 1).max(self.last_clock.0));
        self.last_token
    }

    /// What came while the store was closed, from an owner that held then.
    fn catch_up(&mut self) {
        let owner = |claim: &Known| Some((claim.secret?, claim.token?));
        let Some((secret, token)) = self.claims.iter().find_map(owner) else {
            return;
        };
        let now = self.now;
        let late = |claim: &&mut Known| claim.token.is_none() && claim.secret == Some(secret);
        for claim in self.claims.iter_mut().filter(late) {
            claim.hold_from(now, token);
        }
    }

    fn promote(&mut self) {
        self.promote_but(&[]);
    }

    /// Passes over those whose client is gone, unless an owner has them.
    fn promote_but(&mut self, gone: &[Inbox]) {
        if !self.closed {
            self.catch_up();
        }
        let is_gone = |claim: &Known| claim.is_of(gone) && claim.secret.is_none();
        while let Some(next) = self
            .claims
            .iter()
            .position(|claim| claim.token.is_none() && (!is_gone(claim) || self.is_unfit(claim)))
        {
            if self.is_unfit(&self.claims[next]) {
                self.claims.remove(next);
                continue;
            }
            let claim = &self.claims[next];
            let follows = self.may_follow(claim.runs, claim.inbox.as_ref(), claim.arrival);
            if self.closed || !(self.fits(claim.mode) || follows) {
                return;
            }
            let (token, now) = (self.next_token(), self.now);
            let secret = self.claims[next].secret;
            for (at, claim) in self.claims.iter_mut().enumerate().skip(next) {
                let sibling = secret.is_some() && claim.secret == secret;
                if at == next || sibling {
                    claim.hold_from(now, token);
                }
            }
        }
    }

    /// What is left of a claim that goes: its minimum hold, or nothing.
    fn leave(&mut self, id: &ClaimId) {
        let now = self.now;
        if let Some(claim) = self.known_mut(id)
            && claim.token.is_some()
            && claim.since + claim.min_hold > now
        {
            claim.deadline = claim.since + claim.min_hold;
            claim.kept = true;
            claim.renewed = None;
            claim.inbox = None;
            claim.secret = None;
        } else {
            self.claims.retain(|claim| claim.id != *id);
        }
    }

    fn standing(&mut self, id: &ClaimId, held: Duration, waits: Duration) -> Expected {
        let now = self.now;
        let claim = self.known(id).expect("it stands");
        let (behind, holds, listens) = (self.behind(claim), self.holds(claim), self.listens);
        let claim = self.known_mut(id).expect("it stands");
        let ttl = if holds { held } else { waits };
        claim.deadline = claim.deadline.max(now + ttl);
        if claim.token.is_some() {
            // An unheard push may have cut it below that.
            claim.deadline = claim.deadline.max(claim.since + claim.min_hold);
            if claim.min_hold > Duration::ZERO {
                claim.renewed = claim.renewed.max(Some(now + ttl));
            }
        } else {
            claim.listens = listens;
        }
        let (token, deadline) = (claim.token, claim.deadline);
        let place = match token {
            Some(_) if holds => 0,
            Some(_) => self.held().filter(|held| held.token < token).count() as u64,
            None => {
                let behind = self.held().filter(|held| self.behind(held).is_some());
                1 + behind.count() as u64
                    + self.waiting().take_while(|claim| claim.id != *id).count() as u64
            }
        };
        Expected::Standing((token, behind, deadline), place)
    }

    // ---- the verbs ----

    /// `seen` is the queue's own reply: taken for the arrival number of a new
    /// claim, and for what laziness leaves open.
    ///
    /// `followers` are those of whom the queue does not know yet that they hold: a store that may
    /// have forgotten takes their grants back.
    pub(crate) fn apply(
        &mut self,
        command: &Command,
        now: Now,
        seen: &Reply,
        followers: &BTreeSet<Arrival>,
    ) -> Expected {
        self.tick(now.clock);
        self.closed = !now.closed.is_zero();
        self.listens = now.listens;
        for claim in self.claims.iter_mut().filter(|_| !now.closed.is_zero()) {
            claim.token = claim.token.filter(|_| !followers.contains(&claim.arrival));
        }
        match command {
            Command::Claim(claim) => self.claim(claim, seen),
            Command::Renew(renew) => self.renew(renew, seen),
            Command::Release(release) => self.release(release),
            Command::Void(_) => unreachable!("these keys are no votes"),
            Command::Break { only, .. } => self.break_holds(*only),
            Command::Resize { from, to } => self.resize(*from, *to),
            Command::Watch { inbox, ttl } => {
                self.watchers.retain(|(watcher, _)| watcher != inbox);
                if !ttl.is_zero() {
                    self.watchers.push((inbox.clone(), self.now + *ttl));
                }
                Expected::Exactly(Reply::Done)
            }
            Command::Unheard {
                silent,
                granted,
                passed,
            } => {
                self.unheard(silent, granted, passed);
                Expected::Exactly(Reply::Done)
            }
            Command::Bury { inboxes } => {
                self.watchers
                    .retain(|(watcher, _)| !inboxes.contains(watcher));
                let theirs = |claim: &&Known| claim.is_of(inboxes);
                let dead: Vec<_> = self.claims.iter().filter(theirs).cloned().collect();
                for claim in dead {
                    self.leave(&claim.id);
                }
                self.promote();
                Expected::Exactly(Reply::Done)
            }
        }
    }

    /// `granted`: which of the silent were granted just now, and for how long these had waited.
    fn unheard(&mut self, silent: &[Inbox], granted: &[(Arrival, Duration)], gone: &[Inbox]) {
        let cut = self.now + UNHEARD_CUT;
        self.watchers
            .retain(|(watcher, _)| !silent.contains(watcher));
        let mut back = false;
        for claim in self.claims.iter_mut().filter(|claim| claim.is_of(silent)) {
            let told = granted.iter().find(|told| told.0 == claim.arrival);
            if claim.token.is_none() || told.is_some() {
                claim.deadline = claim.deadline.min(cut);
            }
            if let Some((_, waited)) = told
                && claim.token.is_some()
                && claim.secret.is_none()
                && claim.is_of(gone)
            {
                let joined = claim.since.before(*waited);
                (claim.token, claim.since, claim.renewed) = (None, joined, None);
                back = true;
            }
        }
        if back {
            self.promote_but(gone);
        }
    }

    fn claim(&mut self, claim: &Claim, seen: &Reply) -> Expected {
        if let Some(known) = self.known(&claim.id).cloned() {
            let theirs = known.inbox == claim.inbox;
            if theirs && let Some(unfit) = self.unfit(&known) {
                return unfit;
            }
            self.promote();
            return match (known.kept, theirs) {
                (true, _) => Expected::Exactly(Reply::Gone),
                (_, false) => Expected::Exactly(Reply::Taken),
                _ => self.standing(&claim.id, claim.lease_ttl, claim.waiter_ttl),
            };
        }
        let secret = claim.secret.filter(|_| claim.mode == Mode::EXCLUSIVE);
        let ahead = claim.ahead && secret.is_none();
        let buried = self.is_buried(&claim.id)
            || (self.perhaps_buried.contains_key(&claim.id) && *seen == Reply::Gone);
        let other = |now: &Self| now.capacity().filter(|c| *c != claim.mode.capacity());
        let open = !self.closed;
        let barges = open && ahead && !buried && other(self).is_none() && self.fits(claim.mode);
        if !barges {
            self.promote();
        }
        if buried {
            return Expected::Exactly(Reply::Gone);
        }
        if let Some(in_use) = other(self) {
            return Expected::Exactly(Reply::Mismatch { in_use });
        }
        let nested = self
            .held()
            .find(|held| open && secret.is_some() && held.secret == secret)
            .and_then(|held| held.token);
        let in_turn = open && self.waiting().next().is_none() && self.fits(claim.mode);
        let at_once = barges || in_turn || nested.is_some();
        if !at_once && !claim.wait {
            return match open {
                true => Expected::Busy,
                false => Expected::Quarantined,
            };
        }
        let Reply::Standing(standing) = seen else {
            panic!("{seen:?}, where a claim joins");
        };
        let runs = claim.runs
            && claim.mode == Mode::EXCLUSIVE
            && secret.is_none()
            && claim.min_hold.is_zero();
        let follows = open
            && self.waiting().next().is_none()
            && self.may_follow(runs, claim.inbox.as_ref(), Arrival(u64::MAX));
        let token = (at_once || follows).then(|| nested.unwrap_or_else(|| self.next_token()));
        let ttl = match at_once {
            true => claim.lease_ttl.max(claim.min_hold),
            false => claim.waiter_ttl,
        };
        self.lapsed.remove(&claim.id);
        self.perhaps_buried.remove(&claim.id);
        self.capacity = Some(claim.mode.capacity());
        self.claims.push(Known {
            id: claim.id.clone(),
            arrival: standing.arrival,
            mode: claim.mode,
            deadline: self.now + ttl,
            since: self.now,
            inbox: claim.inbox.clone(),
            token,
            owner: claim.owner.clone(),
            secret,
            min_hold: claim.min_hold,
            note: claim.note.clone(),
            version: 0,
            previous: None,
            kept: false,
            runs,
            listens: self.listens,
            renewed: (at_once && claim.min_hold > Duration::ZERO)
                .then(|| self.now + claim.lease_ttl),
        });
        self.promote();
        self.standing(&claim.id, Duration::ZERO, Duration::ZERO)
    }

    /// A waiting claim that is too heavy leaves when it asks.
    fn unfit(&mut self, known: &Known) -> Option<Expected> {
        let in_use = self.capacity().filter(|_| self.is_unfit(known))?;
        self.claims.retain(|claim| claim.id != known.id);
        self.promote();
        Some(Expected::Exactly(Reply::Mismatch { in_use }))
    }

    fn renew(&mut self, renew: &Renew, seen: &Reply) -> Expected {
        let rotate = renew.rotate.as_ref();
        let done_before = rotate.filter(|rotate| {
            self.known(&rotate.to).is_some_and(|claim| {
                claim.previous.as_ref() == Some(&renew.id) && claim.version == rotate.version + 1
            })
        });
        let id = done_before.map_or(&renew.id, |rotate| &rotate.to);
        let Some(known) = self.known(id).filter(|claim| !claim.kept).cloned() else {
            self.promote();
            return Expected::Exactly(match self.was_rotated(&renew.id) {
                true => Reply::Superseded,
                false => Reply::Gone,
            });
        };
        if let Some(unfit) = self.unfit(&known) {
            return unfit;
        }
        if let Some(rotate) = rotate.filter(|_| done_before.is_none())
            && let Some(refused) = self.rotate(&known, rotate, seen)
        {
            self.promote();
            return refused;
        }
        let id = rotate.map_or(&renew.id, |rotate| &rotate.to);
        let claim = self.known_mut(id).expect("it stands");
        let writes = claim.mode == Mode::EXCLUSIVE && claim.secret.is_none();
        if renew.downgrade && claim.token.is_some() && writes {
            claim.mode = Mode::SHARED;
        }
        if renew.note.is_some() {
            claim.note.clone_from(&renew.note);
        }
        self.promote();
        self.standing(id, renew.ttl, renew.ttl)
    }

    fn rotate(&mut self, known: &Known, rotate: &Rotate, seen: &Reply) -> Option<Expected> {
        if known.version != rotate.version || (self.closed && rotate.adopt.is_some()) {
            return Some(Expected::Exactly(Reply::Superseded));
        }
        let perhaps =
            self.lapsed.contains(&rotate.to) || self.perhaps_buried.contains_key(&rotate.to);
        let in_use = self.known(&rotate.to).is_some() || self.is_buried(&rotate.to);
        if in_use || (perhaps && *seen == Reply::Taken) {
            return Some(Expected::Exactly(Reply::Taken));
        }
        self.lapsed.remove(&rotate.to);
        self.perhaps_buried.remove(&rotate.to);
        self.bury(&known.id, true);
        let claim = self.known_mut(&known.id).expect("it stands");
        claim.previous = Some(claim.id.clone());
        claim.id = rotate.to.clone();
        claim.version += 1;
        let adopt = rotate.adopt.as_ref()?;
        if known.token.is_some() {
            self.disband(known.token);
        }
        let claim = self.known_mut(&rotate.to).expect("it stands");
        claim.runs = false;
        claim.inbox.clone_from(&adopt.inbox);
        claim.owner = adopt.owner.clone();
        if let Some(old) = claim.token {
            let token = self.next_token();
            let hold = |claim: &&mut Known| claim.token == Some(old);
            for claim in self.claims.iter_mut().filter(hold) {
                claim.token = Some(token);
            }
        }
        None
    }

    fn release(&mut self, release: &Release) -> Expected {
        let found = self.known(&release.id).filter(|claim| !claim.kept);
        let found = found.map(|claim| claim.token.is_some());
        if found.is_some() {
            if let Some(claim) = self.known_mut(&release.id).filter(|_| release.unused) {
                claim.min_hold = Duration::ZERO;
            }
            self.leave(&release.id);
        }
        self.bury(&release.id, false);
        if release.hand_off || found != Some(true) {
            self.promote();
        }
        Expected::Exactly(found.map_or(Reply::Absent, |held| Reply::Released { held }))
    }

    fn break_holds(&mut self, only: Option<Token>) -> Expected {
        let named = |claim: &Known| only.is_none_or(|only| claim.token == Some(only));
        if only.is_some() {
            self.promote();
            let held = |claim: &Known| named(claim) && self.behind(claim).is_none();
            if !self.held().any(held) {
                return Expected::Broken(0, self.last_token);
            }
        }
        let token = self.next_token();
        self.disband(None);
        let held = self.held().filter(|claim| named(claim));
        let held: Vec<_> = held.map(|claim| claim.id.clone()).collect();
        let forget = self.now + TOMBSTONE_LIFE;
        for id in std::mem::take(&mut self.lapsed) {
            self.perhaps_buried.insert(id, forget);
        }
        for id in &held {
            self.bury(id, false);
        }
        self.claims
            .retain(|claim| claim.token.is_none() || !named(claim));
        self.promote();
        Expected::Broken(held.len() as u64, token)
    }

    fn resize(&mut self, from: u32, to: u32) -> Expected {
        self.promote();
        match self.capacity() {
            None => Expected::Exactly(Reply::Absent),
            Some(Capacity::Permits(n)) if n == from || n == to => {
                self.capacity = Some(Capacity::Permits(to));
                self.promote();
                Expected::Exactly(Reply::Resized)
            }
            Some(in_use) => Expected::Exactly(Reply::Mismatch { in_use }),
        }
    }

    /// The record is lost; only what clients remember is left.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}
