//! Random histories of a key, and the frequency of each event.

use proptest::prelude::*;

use crate::common::*;
use crate::queue_properties::reference::Reference;

/// Ids that claims are made with, and those that are only rotated to: few, so
/// that requests meet claims in every state.
const SLOTS: usize = 14;
const NEW_SLOTS: usize = 6;
pub(crate) const INBOXES: usize = 4;
const OWNERS: usize = 3;
const KINDS: usize = 12;

#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Of a mode of this kind, and of this owner: a secret is not shown.
    Claim(usize, Option<u128>, Box<Claim>),
    Renew(Box<Renew>, Option<Turn>),
    /// A request that is known without the state of the key.
    Send(Box<Command>),
    /// Of the claim at this slot, or of all.
    Break(Option<usize>),
    Resize {
        right: bool,
        to: u32,
    },
    /// Whether all that are granted are named, or none.
    Unheard {
        inbox: usize,
        all: bool,
    },
    /// A request that was under way, or came twice: the last but so many.
    Again(usize),
    /// The record is lost.
    Lose,
    /// The store is closed for so long from now on.
    Close(Duration),
}

/// A rotation; to a new id or to one that may be in use.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    to: usize,
    right: bool,
    adopt: Option<usize>,
}

#[derive(Debug, Clone)]
pub(crate) enum Tick {
    Still,
    Forward(u64),
    Back(u64),
}

#[derive(Debug, Clone)]
pub(crate) struct Act {
    pub(crate) op: Op,
    pub(crate) tick: Tick,
    /// A bit for each inbox at which nobody listens.
    pub(crate) deaf: u8,
    /// Whether the client says that it listens.
    pub(crate) listens: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct History {
    /// Of the semaphore; 0 makes the key a lock.
    pub(crate) permits: u32,
    pub(crate) acts: Vec<Act>,
}

fn send(command: Command) -> Op {
    Op::Send(Box::new(command))
}

fn op() -> impl Strategy<Value = Op> {
    let ms = || prop_oneof![50_u64..3_000, 3_000_u64..40_000].prop_map(ms);
    let slot = || 0..SLOTS;
    // Among so many, those that are not there mean "none".
    let note = || (0_usize..6).prop_map(note);
    let rarely = || prop::bool::weighted(0.1);
    let mostly = || prop::bool::weighted(0.85);
    let turn = (0..SLOTS + 2 * NEW_SLOTS, mostly(), 0..2 * INBOXES).prop_map(|(to, right, by)| {
        Turn {
            // New ids twice as often.
            to: if to < SLOTS + NEW_SLOTS {
                to
            } else {
                to - NEW_SLOTS
            },
            right,
            adopt: (by <= INBOXES).then_some(by),
        }
    });
    let rotate = prop_oneof![2 => Just(None), 1 => turn.prop_map(Some)];
    let min_hold = prop_oneof![4 => Just(Duration::ZERO), 1 => ms()];
    let asks = (slot(), 0..KINDS, mostly(), rarely(), ms(), ms(), mostly());
    let claim = (asks, 0..2 * OWNERS, min_hold, note()).prop_map(
        |((slot, kind, wait, ahead, lease, waiter_ttl, runs), secret, min_hold, note)| {
            let claim = Claim {
                waiter_ttl,
                wait,
                ahead,
                inbox: perhaps_inbox(slot % (INBOXES + 1)),
                owner: owner(slot),
                min_hold,
                note,
                runs,
                ..Claim::new(id(slot), Mode::EXCLUSIVE, lease)
            };
            let whose = (secret < OWNERS).then_some(secret as u128);
            Op::Claim(kind, whose, Box::new(claim))
        },
    );
    // The new ids are renewed and released as well.
    let any_slot = || 0..SLOTS + NEW_SLOTS;
    let renew = (any_slot(), ms(), rarely(), note(), rotate).prop_map(
        |(slot, ttl, downgrade, note, rotate)| {
            let renew = Renew {
                downgrade,
                note,
                ..Renew::new(id(slot), ttl)
            };
            Op::Renew(Box::new(renew), rotate)
        },
    );
    prop_oneof![
        30 => claim,
        24 => renew,
        16 => (any_slot(), mostly(), mostly()).prop_map(|(slot, hand_off, used)| {
            let (id, settled, unused) = (id(slot), false, !used);
            send(Command::Release(Release { id, hand_off, settled, unused }))
        }),
        10 => (1_usize..12).prop_map(Op::Again),
        2 => proptest::option::of(any_slot()).prop_map(Op::Break),
        4 => (mostly(), 1_u32..7).prop_map(|(right, to)| Op::Resize { right, to }),
        3 => (0..INBOXES, prop_oneof![1 => Just(Duration::ZERO), 4 => ms()])
            .prop_map(|(n, ttl)| send(Command::Watch { inbox: inbox(n), ttl })),
        2 => (0..INBOXES, any::<bool>()).prop_map(|(inbox, all)| Op::Unheard { inbox, all }),
        2 => (0..INBOXES).prop_map(|n| send(Command::Bury { inboxes: vec![inbox(n)] })),
        1 => Just(Op::Lose),
        2 => ms().prop_map(Op::Close),
    ]
}

fn tick() -> impl Strategy<Value = Tick> {
    prop_oneof![
        8 => Just(Tick::Still),
        24 => (1_u64..2_000_000).prop_map(Tick::Forward),
        5 => (2_000_000_u64..15_000_000).prop_map(Tick::Forward),
        1 => (15_000_000_u64..200_000_000).prop_map(Tick::Forward),
        3 => (1_u64..20_000_000).prop_map(Tick::Back),
    ]
}

pub(crate) fn history() -> impl Strategy<Value = History> {
    let deaf = prop_oneof![3 => Just(0_u8), 1 => any::<u8>()];
    let act = (op(), tick(), deaf, any::<bool>()).prop_map(|(op, tick, deaf, listens)| Act {
        op,
        tick,
        deaf,
        listens,
    });
    (
        prop_oneof![Just(0_u32), 1_u32..6],
        prop::collection::vec(act, 1..70),
    )
        .prop_map(|(permits, acts)| History { permits, acts })
}

// ---- ops as commands ----

/// Half of an id is shown: the half that tells one from another.
fn id(slot: usize) -> ClaimId {
    ClaimId::new(format!("s{slot:05}secret")).unwrap()
}

/// The id of which this is shown.
pub(crate) fn id_shown_as(hint: &str) -> ClaimId {
    ClaimId::new(format!("{}secret", hint.trim_end_matches('…'))).unwrap()
}

pub(crate) fn inbox(number: usize) -> Inbox {
    Inbox::from_random(number as u64)
}

/// One number more than there are inboxes means none.
fn perhaps_inbox(number: usize) -> Option<Inbox> {
    (number < INBOXES).then(|| inbox(number))
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn owner(number: usize) -> ClientInfo {
    ClientInfo::new("host", u32::try_from(number).unwrap(), None)
}

fn note(number: usize) -> Option<Note> {
    (number < 3).then(|| Note::new(format!("note {number}")).unwrap())
}

/// Most claims fit the key's kind; one kind in twelve is of the other.
fn mode(permits: u32, kind: usize) -> Mode {
    if (permits == 0) != (kind == KINDS - 1) {
        return lock_mode(kind.is_multiple_of(2));
    }
    let of = permits.max(2);
    Mode::permits(of, 1 + u32::try_from(kind).unwrap() % of)
}

impl Op {
    /// The command, if it is one. `permits` is what clients take for the
    /// semaphore's size now; the reference knows the versions of the claims.
    pub(crate) fn command(&self, permits: u32, reference: &Reference) -> Option<Command> {
        Some(match *self {
            Self::Claim(kind, whose, ref claim) => Command::Claim(Claim {
                mode: mode(permits, kind),
                secret: whose.map(OwnerSecret::from_random),
                ..(**claim).clone()
            }),
            Self::Renew(ref renew, ref rotate) => Command::Renew(Renew {
                rotate: rotate.as_ref().map(|turn| {
                    let known = reference.known(&renew.id).map_or(0, |claim| claim.version);
                    Rotate {
                        to: id(turn.to),
                        version: known + u64::from(!turn.right),
                        adopt: turn.adopt.map(|by| Adopt {
                            inbox: perhaps_inbox(by),
                            owner: owner(100 + by),
                        }),
                    }
                }),
                ..(**renew).clone()
            }),
            Self::Send(ref command) => (**command).clone(),
            Self::Break(only) => Command::Break {
                by: ClientInfo::unknown(),
                only: only.map(|slot| {
                    let known = reference.known(&id(slot)).and_then(|claim| claim.token);
                    known.unwrap_or_else(|| Token::from(1))
                }),
            },
            Self::Resize { right, to } => Command::Resize {
                from: permits + u32::from(!right),
                to,
            },
            Self::Unheard { inbox: n, all } => Command::Unheard {
                silent: vec![inbox(n)],
                granted: reference
                    .held()
                    .filter(|_| all)
                    .map(|claim| (claim.arrival, Duration::ZERO))
                    .collect(),
                passed: Vec::new(),
            },
            Self::Again(_) | Self::Lose | Self::Close(_) => return None,
        })
    }
}
