//! What the scripts are given: arguments, flags, and the body of a claim.

use std::time::Duration;

use leasehold_core::{Capacity, Claim, ClientInfo, Inbox, Mode, Release, Renew, Rotate};
use redis::Cmd;

use super::record::trait_of;

/// How the scripts count their flags.
mod flag {
    /// The count of `PUBLISH` can be believed.
    pub(super) const BELIEVED: u8 = 4;
    pub(super) const IN_CLUSTER: u8 = 32;
    pub(super) const GATED: u8 = 64;
    pub(super) const LOOKS: u8 = 128;
    pub(super) const WAIT: u8 = 1;
    pub(super) const AHEAD: u8 = 2;
    pub(super) const HAND_OFF: u8 = 1;
    pub(super) const SETTLED: u8 = 2;
    pub(super) const UNUSED: u8 = 8;
    pub(super) const DOWNGRADE: u8 = 1;
    pub(super) const NOTE: u8 = 2;
    pub(super) const ROTATE: u8 = 8;
    pub(super) const ADOPT: u8 = 16;
}

/// Where a script runs: see `way.lua`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Site {
    Alone,
    /// On a node of a cluster.
    InCluster,
    /// On a server that may have forgotten who holds; see [`Gated`](super::script::Gated).
    Gated,
}

/// What does not change from call to call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) site: Site,
    /// How long an idle key keeps its last token.
    pub(crate) retention: Duration,
    /// Whether the count of `PUBLISH` can be believed.
    pub(crate) believed: bool,
}

impl Terms {
    fn flags(self) -> u8 {
        let believed = if self.believed { flag::BELIEVED } else { 0 };
        believed | self.way()
    }

    fn way(self) -> u8 {
        match self.site {
            Site::Alone => 0,
            Site::InCluster => flag::IN_CLUSTER,
            Site::Gated => flag::GATED,
        }
    }
}

pub(crate) fn add_claim(call: &mut Cmd, claim: &Claim, terms: Terms) {
    call.arg(claim.id.expose())
        .arg(micros(claim.lease_ttl))
        .arg(micros(claim.waiter_ttl))
        .arg(claim_flags(claim, terms))
        .arg(micros(terms.retention))
        .arg(pack_body(claim).as_slice());
}

pub(crate) fn add_claims<'a>(
    call: &mut Cmd,
    claims: impl IntoIterator<Item = &'a Claim>,
    terms: Terms,
) {
    call.arg(terms.way()).arg(micros(terms.retention));
    for claim in claims {
        call.arg(claim.id.expose())
            .arg(micros(claim.lease_ttl))
            .arg(micros(claim.waiter_ttl))
            .arg(claim_flags(claim, terms))
            .arg(pack_body(claim).as_slice());
    }
}

fn claim_flags(claim: &Claim, terms: Terms) -> u8 {
    let wait = if claim.wait { flag::WAIT } else { 0 };
    let ahead = if claim.ahead { flag::AHEAD } else { 0 };
    wait | ahead | terms.flags()
}

pub(crate) fn add_renew(call: &mut Cmd, renew: &Renew, terms: Terms) {
    let Renew {
        id,
        ttl,
        downgrade,
        note,
        rotate,
        // Of the way it is sent, not of the script.
        confirms: _,
    } = renew;
    let adopt = rotate.as_ref().and_then(|rotate| rotate.adopt.as_ref());
    let mut flags = terms.flags();
    for (asked, flag) in [
        (*downgrade, flag::DOWNGRADE),
        (note.is_some(), flag::NOTE),
        (rotate.is_some(), flag::ROTATE),
        (adopt.is_some(), flag::ADOPT),
    ] {
        flags |= if asked { flag } else { 0 };
    }
    call.arg(id.expose())
        .arg(micros(*ttl))
        .arg(flags)
        .arg(micros(terms.retention));
    if note.is_none() && rotate.is_none() {
        return;
    }
    let (to, version) = rotate
        .as_ref()
        .map_or(("", 0), |Rotate { to, version, .. }| {
            (to.expose(), *version)
        });
    let mut client = Vec::new();
    if let Some(adopt) = adopt {
        push_client(&mut client, adopt.inbox.as_ref(), &adopt.owner);
    }
    call.arg(note.as_ref().map_or("", |note| note.as_str()))
        .arg(to)
        .arg(version)
        .arg(client);
}

pub(crate) fn add_release(call: &mut Cmd, release: &Release, terms: Terms) {
    let hand_off = if release.hand_off { flag::HAND_OFF } else { 0 };
    let settled = if release.settled { flag::SETTLED } else { 0 };
    let unused = if release.unused { flag::UNUSED } else { 0 };
    call.arg(release.id.expose())
        .arg(hand_off | settled | unused | terms.flags())
        .arg(micros(terms.retention));
}

pub(crate) fn add_resize(call: &mut Cmd, from: u32, to: u32, terms: Terms) {
    call.arg(from)
        .arg(to)
        .arg(terms.flags())
        .arg(micros(terms.retention));
}

pub(crate) fn add_watch(call: &mut Cmd, inbox: &Inbox, ttl: Duration, terms: Terms) {
    call.arg(inbox.as_str())
        .arg(micros(ttl))
        .arg(terms.way() | flag::LOOKS)
        .arg(micros(terms.retention));
}

pub(crate) fn add_break(call: &mut Cmd, terms: Terms) {
    call.arg(terms.flags()).arg(micros(terms.retention));
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The body of a claim: see `record.rs`.
fn pack_body(claim: &Claim) -> Vec<u8> {
    let permits = match claim.mode.capacity() {
        Capacity::Lock => 0,
        Capacity::Permits(permits) => permits,
    };
    // At most 2^32 - 1.
    let weight = u32::try_from(claim.mode.weight()).unwrap_or(u32::MAX);
    let mut body = Vec::with_capacity(192);
    body.push(0);
    body.extend_from_slice(&permits.to_le_bytes());
    body.extend_from_slice(&weight.to_le_bytes());
    push_client(&mut body, claim.inbox.as_ref(), &claim.owner);
    if let Some(secret) = claim.secret.filter(|_| claim.mode == Mode::EXCLUSIVE) {
        body[0] |= trait_of::SECRET;
        push_short(&mut body, &secret.expose());
    }
    if !claim.min_hold.is_zero() {
        body[0] |= trait_of::MIN_HOLD;
        #[allow(
            clippy::cast_precision_loss,
            reason = "no number on the wire is above 2^53"
        )]
        body.extend_from_slice(&(micros(claim.min_hold) as f64).to_le_bytes());
        // The store notes the renewals.
        body.extend_from_slice(&0_f64.to_le_bytes());
    }
    if let Some(note) = &claim.note {
        body[0] |= trait_of::NOTE;
        let note = note.as_str().as_bytes();
        // At most 1024.
        let size = u16::try_from(note.len()).unwrap_or(u16::MAX);
        body.extend_from_slice(&size.to_le_bytes());
        body.extend_from_slice(note);
    }
    body
}

/// Who claims: the inbox, and the owner.
fn push_client(out: &mut Vec<u8>, inbox: Option<&Inbox>, owner: &ClientInfo) {
    let ClientInfo { host, pid, label } = owner;
    push_short(out, inbox.map_or("", |inbox| inbox.as_str()));
    out.extend_from_slice(&pid.to_le_bytes());
    push_short(out, host);
    push_short(out, label.as_deref().unwrap_or(""));
}

/// A text after its length in one byte; longer ones are cut.
pub(crate) fn push_short(out: &mut Vec<u8>, text: &str) {
    let mut cut = text.len().min(255);
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    // At most 255.
    out.push(u8::try_from(cut).unwrap_or(u8::MAX));
    out.extend_from_slice(&text.as_bytes()[..cut]);
}
