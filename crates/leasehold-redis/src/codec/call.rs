//! Encodes the arguments of the scripts: steps, flags, and the body of a claim.

use std::borrow::Cow;
use std::iter::Sum;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Capacity, Claim, ClientInfo, Command, Inbox, Mode, Release, Renew, Void, Voided,
};
use redis::Cmd;

use super::audit::Audit;
use super::record::trait_of;
use super::script::{INSPECT, STEP, Script};

/// The verbs of the steps; see `step.lua`.
mod verb {
    pub(super) const CLAIM: u8 = 1;
    pub(super) const RENEW: u8 = 2;
    pub(super) const RELEASE: u8 = 3;
    pub(super) const BREAK: u8 = 4;
    pub(super) const RESIZE: u8 = 5;
    pub(super) const WATCH: u8 = 6;
    pub(super) const PROPOSE: u8 = 7;
    pub(super) const VOID: u8 = 8;
}

/// Further arguments of a script at a server with a quarantine: see `lua/env.lua`.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    pub(crate) marker: String,
    pub(crate) terms: Vec<u8>,
}

/// Arguments of scripts about the server on which they run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    /// Where the last token of all keys is. In a cluster each key keeps its own.
    pub(crate) last: Option<&'a str>,
    pub(crate) gated: Option<&'a Gate>,
    /// How long an idle key of a cluster keeps its last token.
    pub(crate) retention: Duration,
    /// Whether the count of `PUBLISH` is reliable.
    pub(crate) believed: bool,
    /// Whether the client listens on the connection that carries the call.
    pub(crate) listens: bool,
    /// Whether the server is a member of a set: all its keys have one audit log, though each keeps
    /// its own last token.
    pub(crate) is_member: bool,
    /// The audit log, where there is one.
    pub(crate) audit: Option<&'a Audit>,
}

/// A step of a key, as the script takes it.
#[derive(Debug)]
pub(crate) struct Step {
    key: String,
    command: Vec<u8>,
}

impl Step {
    /// `None` for commands that only stores use internally.
    pub(crate) fn new(key: String, command: &Command) -> Option<Arc<Self>> {
        let command = pack(command)?;
        Some(Arc::new(Self { key, command }))
    }

    fn verb(&self) -> u8 {
        self.command[0]
    }

    /// The command as a connection carries it: a claim says whether its client listens there. A
    /// step is packed before that is known, and may be sent over more than one.
    fn command(&self, listens: bool) -> Cow<'_, [u8]> {
        let mut command = Cow::from(&self.command);
        let body = match self.verb() {
            verb::CLAIM => 19,
            verb::PROPOSE => 35,
            _ => return command,
        };
        if listens {
            let traits = body + usize::from(self.command[18]);
            command.to_mut()[traits] |= trait_of::LISTENS;
        }
        command
    }
}

/// A request to a server: a script with its keys and arguments, or another command.
pub(crate) enum Request<'a> {
    /// Steps that are taken one after the other; with `all`, all of them or none.
    Steps { steps: &'a [Arc<Step>], all: bool },
    /// The same, of which the audit log learns nothing.
    Unlogged { steps: &'a [Arc<Step>], all: bool },
    /// A look at a key.
    Look { key: &'a str },
    /// Another script, which needs to know nothing of the server. `last`: it is sent only after
    /// everything that was given up on the connection.
    Call {
        script: &'a Script,
        key: &'a str,
        arguments: &'a [&'a [u8]],
        last: bool,
    },
    /// A command that is no script.
    Plain(&'a Cmd),
}

impl<'a> Request<'a> {
    /// A call that waits for nothing.
    pub(crate) fn call(script: &'a Script, key: &'a str, arguments: &'a [&'a [u8]]) -> Self {
        Self::Call {
            script,
            key,
            arguments,
            last: false,
        }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a str> {
        let (steps, key) = match *self {
            Self::Steps { steps, .. } | Self::Unlogged { steps, .. } => (steps, None),
            Self::Look { key } | Self::Call { key, .. } => (&[][..], Some(key)),
            Self::Plain(_) => (&[][..], None),
        };
        steps.iter().map(|step| &*step.key).chain(key)
    }

    /// The command, with the hash of the script or with the script itself.
    pub(crate) fn command(&self, in_full: bool, terms: Terms<'_>) -> Cmd {
        let begin = |script: &Script, keys: usize, size: usize| {
            let (verb, name) = match in_full {
                true => ("EVAL", &script.text),
                false => ("EVALSHA", &script.hash),
            };
            let mut call = Cmd::with_capacity(2 * keys + 8, name.len() + 256 + size);
            call.arg(verb).arg(name).arg(keys);
            call
        };
        match *self {
            Self::Plain(command) => command.clone(),
            Self::Steps { steps, all } => {
                let size = steps.iter().map(|it| it.command.len() + it.key.len() + 32);
                let beside = usize::from(terms.last.is_some())
                    + usize::from(terms.audit.is_some())
                    + usize::from(terms.gated.is_some());
                let mut call = begin(&STEP, steps.len() + beside, size.sum());
                add_steps(&mut call, steps, all, terms);
                call
            }
            Self::Unlogged { steps, all } => {
                let audit = None;
                Self::Steps { steps, all }.command(in_full, Terms { audit, ..terms })
            }
            Self::Look { key } => {
                let count = 1 + usize::from(terms.last.is_some());
                let mut call = begin(&INSPECT, count, 0);
                call.arg(key).arg(terms.last);
                call
            }
            Self::Call {
                script,
                key,
                arguments,
                ..
            } => {
                let mut call = begin(script, 1, 0);
                call.arg(key).arg(arguments);
                call
            }
        }
    }

    /// A single step, which may travel with others in one call.
    pub(crate) fn single(&self) -> Option<&'a Arc<Step>> {
        match *self {
            Self::Steps {
                steps: [step],
                all: false,
            } => Some(step).filter(|step| step.verb() <= verb::RELEASE),
            _ => None,
        }
    }

    /// The same without the audit log; `None` where there is none.
    pub(crate) fn without_log(&self) -> Option<Self> {
        match *self {
            Self::Steps { steps, all } => Some(Self::Unlogged { steps, all }),
            _ => None,
        }
    }
}

/// Adds keys, flags and commands of steps; see `step.lua`.
fn add_steps(call: &mut Cmd, steps: &[Arc<Step>], all: bool, terms: Terms<'_>) {
    for step in steps {
        call.arg(&step.key);
    }
    call.arg(terms.last);
    let in_cluster = terms.last.is_none() && !terms.is_member;
    let audit = terms.audit.zip(steps.first());
    call.arg(audit.map(|(audit, step)| audit.log(&step.key, in_cluster)));
    call.arg(terms.gated.map(|gate| &gate.marker));
    let flags: [(u16, bool); 8] = [
        (4, terms.believed),
        (8, terms.audit.is_some()),
        (16, terms.listens),
        (32, terms.last.is_none()),
        (64, terms.gated.is_some()),
        (128, steps.iter().all(|it| it.verb() == verb::WATCH)),
        (256, all),
        (512, steps.iter().any(|it| it.verb() != verb::CLAIM)),
    ];
    call.arg(sum(flags));
    // Outside of a cluster nothing is kept of an idle key.
    let kept = terms.retention * u32::from(terms.last.is_none());
    call.arg(micros(kept));
    for step in steps {
        call.arg(&*step.command(terms.listens));
    }
    call.arg(terms.audit.map(Audit::keep));
    call.arg(terms.gated.map(|gate| &gate.terms));
}

/// The flags that are set, by the numbers that `step.lua` and `env.lua` give them.
fn sum<T: Sum, const N: usize>(flags: [(T, bool); N]) -> T {
    let set = flags.into_iter().filter(|(_, is_set)| *is_set);
    set.map(|(flag, _)| flag).sum()
}

/// Adds the verb of a command, and its flags.
fn push_verb<const N: usize>(step: &mut Vec<u8>, verb: u8, flags: [(u8, bool); N]) {
    step.extend_from_slice(&[verb, sum(flags)]);
}

fn pack(command: &Command) -> Option<Vec<u8>> {
    let mut step = Vec::with_capacity(160);
    match command {
        Command::Claim(claim) => pack_claim(&mut step, claim),
        Command::Renew(renew) => pack_renew(&mut step, renew),
        Command::Release(release) => pack_release(&mut step, release),
        Command::Void(void) => pack_void(&mut step, void),
        Command::Break { by, only } => {
            step.push(verb::BREAK);
            // Zero is for all holders, and no grant has the token 1.
            push_number(&mut step, only.map_or(0, |token| token.get().max(1)));
            push_client(&mut step, None, by);
        }
        Command::Resize { from, to } => {
            step.push(verb::RESIZE);
            step.extend_from_slice(&from.to_le_bytes());
            step.extend_from_slice(&to.to_le_bytes());
        }
        Command::Watch { inbox, ttl } => {
            step.push(verb::WATCH);
            push_number(&mut step, micros(*ttl));
            push_short(&mut step, inbox.as_str());
        }
        Command::Unheard { .. } | Command::Bury { .. } => return None,
    }
    Some(step)
}

fn pack_claim(step: &mut Vec<u8>, claim: &Claim) {
    let verb = claim.proposal.map_or(verb::CLAIM, |_| verb::PROPOSE);
    let flags = [
        (1, claim.wait),
        (2, claim.ahead),
        (4, !claim.min_hold.is_zero()),
        (8, claim.secret.is_some()),
    ];
    push_verb(step, verb, flags);
    push_number(step, micros(claim.lease_ttl));
    push_number(step, micros(claim.waiter_ttl));
    push_short(step, claim.id.expose());
    if let Some(proposal) = claim.proposal {
        push_number(step, proposal.token.get());
        push_number(step, micros(proposal.ahead));
    }
    push_body(step, claim);
}

fn pack_renew(step: &mut Vec<u8>, renew: &Renew) {
    let (note, rotate) = (renew.note.as_ref(), renew.rotate.as_ref());
    let adopt = rotate.and_then(|rotate| rotate.adopt.as_ref());
    let (has_note, rotates, adopts) = (note.is_some(), rotate.is_some(), adopt.is_some());
    // Whether it confirms says how it is sent, and nothing to the script.
    let flags = [
        (1, renew.downgrade),
        (2, has_note),
        (8, rotates),
        (16, adopts),
    ];
    push_verb(step, verb::RENEW, flags);
    push_number(step, micros(renew.ttl));
    push_short(step, renew.id.expose());
    if !has_note && !rotates {
        return;
    }
    push_long(step, note.map_or("", |note| note.as_str()));
    push_short(step, rotate.map_or("", |rotate| rotate.to.expose()));
    push_number(step, rotate.map_or(0, |rotate| rotate.version));
    if let Some(adopt) = adopt {
        push_client(step, adopt.inbox.as_ref(), &adopt.owner);
    }
}

fn pack_release(step: &mut Vec<u8>, release: &Release) {
    let flags = [
        (1, release.hand_off),
        (2, release.settled),
        (8, release.unused),
    ];
    push_verb(step, verb::RELEASE, flags);
    push_short(step, release.id.expose());
}

fn pack_void(step: &mut Vec<u8>, void: &Void) {
    let (released, id, by) = match &void.whose {
        Voided::Claim { id, released } => (*released, id.expose(), None),
        Voided::Key { by } => (false, "", Some(by)),
    };
    push_verb(step, verb::VOID, [(1, released), (2, by.is_some())]);
    push_number(step, void.up_to.get());
    push_short(step, id);
    if let Some(by) = by {
        push_client(step, None, by);
    }
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The body of a claim: see `record.rs`.
fn push_body(body: &mut Vec<u8>, claim: &Claim) {
    let permits = match claim.mode.capacity() {
        Capacity::Lock => 0,
        Capacity::Permits(permits) => permits,
    };
    // At most 2^32 - 1.
    let weight = u32::try_from(claim.mode.weight()).unwrap_or(u32::MAX);
    let traits = body.len();
    body.push(0);
    body.extend_from_slice(&permits.to_le_bytes());
    body.extend_from_slice(&weight.to_le_bytes());
    push_client(body, claim.inbox.as_ref(), &claim.owner);
    let plain = claim.secret.is_none() && claim.min_hold.is_zero();
    if claim.runs && plain && claim.mode == Mode::EXCLUSIVE {
        body[traits] |= trait_of::RUNS;
    }
    if let Some(secret) = claim.secret.filter(|_| claim.mode == Mode::EXCLUSIVE) {
        body[traits] |= trait_of::SECRET;
        push_short(body, &secret.expose());
    }
    if !claim.min_hold.is_zero() {
        body[traits] |= trait_of::MIN_HOLD;
        push_number(body, micros(claim.min_hold));
        // The store notes the renewals.
        push_number(body, 0);
    }
    if let Some(note) = &claim.note {
        body[traits] |= trait_of::NOTE;
        push_long(body, note.as_str());
    }
}

pub(crate) fn push_number(out: &mut Vec<u8>, number: u64) {
    #[allow(
        clippy::cast_precision_loss,
        reason = "no number on the wire is above 2^53"
    )]
    out.extend_from_slice(&(number as f64).to_le_bytes());
}

/// A text after its length in two bytes: a note, of 1024 bytes at most.
fn push_long(out: &mut Vec<u8>, text: &str) {
    let size = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Who claims: the inbox, and the owner.
pub(crate) fn push_client(out: &mut Vec<u8>, inbox: Option<&Inbox>, owner: &ClientInfo) {
    push_short(out, inbox.map_or("", |inbox| inbox.as_str()));
    out.extend_from_slice(&owner.pid.to_le_bytes());
    push_short(out, &owner.host);
    push_short(out, &owner.label_and_context());
}

/// A text after its length in one byte; longer ones are cut.
pub(crate) fn push_short(out: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(255)];
    // At most 255.
    out.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(text.as_bytes());
}
