//! Who follows comes to the same, and what cannot be read is not believed.

mod ringing;

use std::borrow::Cow;
use std::time::Duration;

use leasehold_core::*;
use xxhash_rust::xxh3::Xxh3;

use super::copy::Copy;
use super::entry::{self, Steps};
use super::keys::{Keys, Slot};
use super::{Entry, News, Position};
use crate::error::ErrorKind;

const SECOND: Duration = Duration::from_secs(1);

fn inbox(number: u64) -> Inbox {
    Inbox::from_random(number)
}

/// Numbers that are the same in every run.
fn dice(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |sides| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % sides
    }
}

/// What clients ask, in a dense little world: few ids at a time, few inboxes, all verbs.
fn command(number: u64, dice: &mut impl FnMut(u64) -> u64) -> Command {
    let mut id = || ClaimId::from_random(u128::from(number / 3 + dice(12)));
    let (id, to) = (id(), id());
    let ttl = Duration::from_millis(200 + dice(3_000));
    match dice(20) {
        0..9 => {
            let mode = match dice(4) {
                0 => Mode::SHARED,
                _ => Mode::EXCLUSIVE,
            };
            Command::Claim(Claim {
                wait: dice(4) > 0,
                ahead: dice(8) == 0,
                inbox: Some(inbox(dice(5))),
                runs: dice(2) == 0,
                min_hold: Duration::from_millis(100 * dice(2) * dice(2)),
                ..Claim::new(id, mode, ttl)
            })
        }
        9..12 => Command::Renew(Renew {
            downgrade: dice(5) == 0,
            note: Note::new("noted").ok().filter(|_| dice(3) == 0),
            rotate: (dice(4) == 0).then_some(Rotate {
                to,
                version: 0,
                adopt: None,
            }),
            ..Renew::new(id, ttl)
        }),
        12..17 => Command::Release(Release {
            id,
            hand_off: dice(6) > 0,
            settled: dice(2) == 0,
            unused: dice(8) == 0,
        }),
        17 => Command::Watch {
            inbox: inbox(dice(5)),
            ttl,
        },
        18 => Command::Unheard {
            silent: vec![inbox(dice(5))],
            granted: Vec::new(),
            passed: Vec::new(),
        },
        _ => Command::Break {
            by: ClientInfo::unknown(),
            only: None,
        },
    }
}

fn history() -> impl Iterator<Item = (StoreTime, u64, Steps<'static>)> {
    let mut dice = dice(7);
    (0..3_000).map(move |number| {
        let back = if number == 2_000 { 1_000_000 } else { 0 };
        let at = StoreTime(1_700_000_000_000_000 + number * 20_000 - back);
        let many = 1 + dice(3) / 2;
        let commands: Vec<_> = (0..many).map(|_| command(number, &mut dice)).collect();
        let steps = Steps {
            listens: dice(2) == 0,
            ring: Cow::Owned(vec![inbox(dice(5)), inbox(5), inbox(dice(5))]),
            commands: Cow::Owned(commands),
        };
        let dead = if dice(3) == 0 { dice(8) } else { 0 };
        (at, dead, steps)
    })
}

/// Of a client that has this inbox.
fn claim(number: u64, by: Inbox, ttl: Duration) -> Claim {
    Claim {
        inbox: Some(by),
        ..Claim::new(ClaimId::from_random(number.into()), Mode::EXCLUSIVE, ttl)
    }
}

fn release(number: u64) -> Command {
    Command::Release(Release {
        id: ClaimId::from_random(number.into()),
        hand_off: true,
        settled: true,
        unused: false,
    })
}

fn news(base: Option<Vec<u8>>, entries: Vec<Entry>, offset: u64) -> News {
    News {
        base,
        entries,
        end: Some(Position { record: 1, offset }),
        ..News::default()
    }
}

/// Who takes the steps itself, who follows entry by entry, and who comes by way of a base, all have
/// the same queue.
#[test]
fn who_follows_comes_to_the_same() {
    let key = Key::new("k").unwrap();
    let (mut mine, mut near, mut far) = (Copy::default(), Copy::default(), Copy::default());
    let (mut sum, mut told) = (Xxh3::new(), 0);
    let mut since = Vec::new();
    let follow = |copy: &mut Copy, news: &News| _ = copy.follow(&key, news, &inbox(1)).unwrap();
    for ((at, dead, steps), offset) in history().zip(1..) {
        told += mine.take(&steps, at, dead).unwrap().1.len();
        let bytes = entry::encode(&steps).unwrap();
        sum.update(&bytes);
        since.push(Entry { at, dead, bytes });
        let last = since.last().cloned().into_iter().collect();
        let base = (offset == 1).then(Vec::new);
        follow(&mut near, &news(base, last, offset));
        assert_eq!(near.base().unwrap(), mine.base().unwrap(), "{offset}");
        if offset % 50 == 25 {
            since.clear();
            let base = Some(mine.base().unwrap());
            follow(&mut far, &news(base, Vec::new(), offset));
        } else if offset % 50 == 0 {
            let entries = std::mem::take(&mut since);
            let base = (offset == 50).then(Vec::new);
            let base = base.filter(|_| far.known.is_none());
            follow(&mut far, &news(base, entries, offset));
            assert_eq!(far.base().unwrap(), mine.base().unwrap(), "{offset}");
        }
        sum.update(&mine.base().unwrap());
    }
    assert!(told > 1_000, "{told}");
    // Another number: the core comes to another queue by the same steps, and two versions of it
    // at one record would not agree. Then raise the format.
    assert_eq!(format!("{:016x}", sum.digest()), "bbc19cb0bf032f8d");
}

/// What is known beforehand is what comes of the step.
#[test]
fn what_is_foretold_comes_true() {
    let mut dice = dice(11);
    let (mut copy, mut refused, mut rung) = (Copy::default(), 0, 0);
    for (at, dead, steps) in history() {
        let commands = steps.commands.iter();
        let foretold = commands.flat_map(|one| copy.queue.foretold(one));
        let foretold: Vec<_> = foretold.cloned().collect();
        let claim = Claim {
            wait: false,
            ..claim(99, inbox(dice(5)), SECOND)
        };
        if let Some(reply) = copy.queue.refused(&claim, at) {
            refused += 1;
            let outcome = copy.queue.clone().apply(&Command::Claim(claim), at);
            assert_eq!(outcome.reply, reply);
        }
        let (_, told) = copy.take(&steps, at, dead).unwrap();
        let inboxes = told.iter().map(|(_, event)| event.inbox());
        rung += inboxes.filter(|inbox| foretold.contains(inbox)).count();
    }
    assert!(refused > 300, "{refused}");
    assert!(rung > 300, "{rung}");
}

/// Who comes by way of a base hears of the same grants as who follows, or asks.
#[test]
fn grants_are_told_by_two_queues() {
    let mut copy = Copy::default();
    let (mut before, mut grants, mut said) = (copy.queue.clone(), Vec::new(), 0);
    for ((at, dead, steps), number) in history().zip(1_u64..) {
        let (_, told) = copy.take(&steps, at, dead).unwrap();
        grants.extend(told.into_iter().filter_map(grant));
        if number % 3 > 0 {
            continue;
        }
        let waiters = before.look(at).waiters;
        for to in (0..5).map(inbox) {
            let Some(told) = copy.queue.told_since(&before, &to) else {
                continue;
            };
            let told: Vec<_> = told.into_iter().filter_map(grant).collect();
            // What has come meanwhile has its answer from its own step.
            let waited = |id: &ClaimId| {
                let mut ids = waiters.iter().map(|one| &one.claim.id_hint);
                ids.any(|one| *one == id.to_string())
            };
            let ours = |(_, inbox, id, ..): &&Grant| *inbox == to && waited(id);
            let ours = grants.iter().filter(ours);
            assert!(told.iter().eq(ours), "{number}: {told:?} of {grants:?}");
            said += told.len();
        }
        (before, grants) = (copy.queue.clone(), Vec::new());
    }
    assert!(said > 30, "{said}");
}

/// It may have lost its place in line, also where nothing of that is left to see.
#[test]
fn who_was_not_heard_learns_it_by_a_base() {
    let (key, start) = (Key::new("k").unwrap(), StoreTime(1_700_000_000_000_000));
    let id = |number: u64| ClaimId::from_random(number.into());
    let steps = |command: Command| Steps {
        listens: true,
        ring: Cow::Owned(vec![inbox(2), inbox(3)]),
        commands: Cow::Owned(vec![command]),
    };
    let mut copy = Copy::default();
    for number in 1..4 {
        let claim = steps(Command::Claim(claim(number, inbox(number), 60 * SECOND)));
        copy.take(&claim, start, 0).unwrap();
    }
    let mut release = |number, dead| {
        copy.take(&steps(release(number)), start, dead).unwrap();
        let holder = copy.queue.look(start).holders[0].claim.id_hint.clone();
        (holder, copy.base().unwrap())
    };
    let heard = |before: &[u8], after: &[u8], to: u64| {
        let mut copy = Copy::default();
        let mut follow = |base: &[u8], at| {
            let base = news(Some(base.to_vec()), Vec::new(), at);
            copy.follow(&key, &base, &inbox(to)).unwrap()
        };
        assert_eq!(follow(before, 1).silent, None);
        follow(after, 2)
    };
    let (holder, first) = release(9, 0);
    assert_eq!(holder, id(1).to_string());
    let (holder, passed) = release(1, 1);
    assert_eq!(holder, id(3).to_string());
    let (holder, granted) = release(3, 0);
    assert_eq!(holder, id(2).to_string());
    assert_eq!(heard(&first, &passed, 2).silent, Some(start));
    let later = heard(&first, &granted, 2);
    assert_eq!((later.silent, later.told.len()), (Some(start), 1));
    assert_eq!(heard(&first, &granted, 3).silent, None);
    assert_eq!(heard(&passed, &granted, 2).silent, None);
}

type Grant = (StoreTime, Inbox, ClaimId, Token, Duration);

fn grant((at, event): (StoreTime, Event)) -> Option<Grant> {
    match event {
        Event::Granted {
            inbox,
            id,
            token,
            waited,
            ..
        } => Some((at, inbox, id, token, waited)),
        _ => None,
    }
}

#[test]
fn what_is_damaged_is_not_believed() {
    let key = Key::new("k").unwrap();
    let (_, _, steps) = history().next().unwrap();
    let whole = entry::encode(&steps).unwrap();
    let followed = |base: Vec<u8>, entries| {
        let followed = Copy::default().follow(&key, &news(Some(base), entries, 1), &inbox(1));
        followed.err().map(|error| error.kind())
    };
    // As an entry, and as a base.
    let kinds = |bytes: Vec<u8>| {
        let entry = Entry {
            at: StoreTime(1),
            dead: 0,
            bytes: bytes.clone(),
        };
        [followed(Vec::new(), vec![entry]), followed(bytes, vec![])]
    };
    let corrupt = Some(ErrorKind::Corrupt);
    for cut in 0..whole.len() {
        let [entry, base] = kinds(whole[..cut].to_vec());
        assert_eq!(entry, corrupt, "{cut}");
        assert!(cut == 0 || base == corrupt, "{cut}");
    }
    for bit in 32..8 * whole.len() {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(kinds(flipped), [corrupt; 2], "{bit}");
    }
    let mut other = whole;
    other[0] = 9;
    assert_eq!(kinds(other), [Some(ErrorKind::Unsupported); 2]);
}

/// A clock that is too far off changes nothing, for all alike.
#[test]
fn an_impossible_time_is_no_step() {
    let (_, _, steps) = history().next().unwrap();
    let mut copy = Copy::default();
    let error = copy.take(&steps, StoreTime(u64::MAX), 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(copy.queue, Copy::default().queue);
}

/// What is read may name more inboxes than there are bits for.
#[test]
fn who_has_no_bit_is_not_dead() {
    let ring: Vec<_> = (0..100).map(inbox).collect();
    let steps = Steps {
        listens: true,
        ring: ring.into(),
        commands: Vec::new().into(),
    };
    let at = StoreTime(1_700_000_000_000_000);
    let (outcomes, told) = Copy::default().take(&steps, at, 1).unwrap();
    assert!(outcomes.is_empty() && told.is_empty());
}

/// A client with this inbox holds the key.
fn hold(slot: &Slot, by: Inbox) {
    let claim = Command::Claim(claim(1, by, SECOND));
    let mut copy = slot.turn.try_lock().unwrap();
    let _granted = copy.queue.apply(&claim, StoreTime(1));
}

/// Who is asked just now may concern the client, too: what was asked may have been on its way before
/// others rang.
#[test]
fn a_key_in_a_round_trip_is_looked_at_again() {
    let mine = inbox(1);
    let keys = Keys::default();
    let names = ["asked", "idle", "mine"].map(|name| Key::new(name).unwrap());
    let slots = names.each_ref().map(|name| keys.get(name, &mine));
    hold(&slots[2], mine.clone());
    let _turn = slots[0].turn.try_lock().unwrap();
    let mut found = keys.of_concern(&mine);
    found.sort_unstable();
    assert_eq!(found, [names[0].clone(), names[2].clone()]);
}

/// A client remembers where it holds and waits, however many keys it has used since.
#[test]
fn what_concerns_a_client_is_not_forgotten() {
    let mine = inbox(1);
    let keys = Keys::default();
    let held = Key::new("held").unwrap();
    let slot = keys.get(&held, &mine);
    hold(&slot, mine.clone());
    drop(slot);
    for number in 0..3_000 {
        keys.get(&Key::new(format!("{number}")).unwrap(), &mine);
    }
    assert_eq!(keys.of_concern(&mine), [held]);
    assert!((500..2_000).contains(&keys.count()), "{}", keys.count());
}
