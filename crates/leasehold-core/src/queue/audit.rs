//! Audit entries of a step: how it has changed the holders. See [`AuditEntry`].

use std::collections::BTreeMap;

use super::{Entry, Queue};
use crate::{
    Arrival, AuditEntry, AuditEvent, AuditedHold, Capacity, Command, Mode, Reply, StoreTime, Token,
    Void, Voided,
};

/// Those who are granted, by arrival, which a claim keeps.
type Holds<'a> = BTreeMap<Arrival, (Token, &'a Entry)>;

impl Queue {
    /// The difference between the queue `before` a step and now.
    pub(super) fn audit(
        &self,
        before: &Self,
        command: &Command,
        reply: &Reply,
        at: StoreTime,
    ) -> Vec<AuditEntry> {
        let mut entries = Vec::new();
        let resized = |from| before.capacity == Some(Capacity::Permits(from));
        if let (Command::Resize { from, to }, Reply::Resized) = (command, reply)
            && resized(*from)
            && from != to
        {
            let (from, to) = (*from, *to);
            let event = AuditEvent::Resized { from, to };
            entries.push(AuditEntry::new(at, event, None));
        }
        let mut note = |event, hold| {
            entries.push(AuditEntry::new(at, event, Some(hold)));
        };
        let (were, are) = (before.holds(), self.holds());
        for ((token, arrival), was) in &before.granted {
            match are.get(arrival) {
                Some((new, is)) if new == token || is_adoption(command) => {
                    for (event, mode) in changes(was, is, (*token, *new), command) {
                        note(event, is.audited(*new, mode));
                    }
                }
                still => {
                    let waits = self.waiting.get(arrival);
                    let returned = still.is_some() || waits.is_some();
                    if let Some(event) = ended(was, returned, (command, reply), at) {
                        let id = &waits.unwrap_or(was).id;
                        let claim = id.to_string();
                        let hold = was.audited(*token, was.mode);
                        note(event, AuditedHold { claim, ..hold });
                    }
                }
            }
        }
        for ((token, arrival), is) in &self.granted {
            let was = were.get(arrival);
            if was.is_some_and(|(before, _)| before == token || is_adoption(command)) {
                continue;
            }
            let was = was.map(|(_, was)| *was);
            let asked = was.or_else(|| before.waiting.get(arrival));
            let asked = asked.map_or(at, |entry| entry.since);
            let behind = self.behind(&is.id);
            let event = AuditEvent::Granted { asked, behind };
            note(event, is.audited(*token, is.mode));
        }
        entries
    }

    fn holds(&self) -> Holds<'_> {
        let granted = self.granted.iter();
        let holds = granted.map(|((token, arrival), it)| (*arrival, (*token, it)));
        holds.collect()
    }
}

impl Entry {
    fn audited(&self, token: Token, mode: Mode) -> AuditedHold {
        let (claim, owner) = (self.id.to_string(), self.owner.clone());
        AuditedHold::new(token, self.arrival, claim, mode, owner)
    }
}

fn is_adoption(command: &Command) -> bool {
    let Command::Renew(renew) = command else {
        return false;
    };
    let rotate = renew.rotate.as_ref();
    rotate.is_some_and(|rotate| rotate.adopt.is_some())
}

/// What has become of a claim that is granted still, under that token before and this one now;
/// and its mode by then.
fn changes(
    was: &Entry,
    is: &Entry,
    (former, token): (Token, Token),
    command: &Command,
) -> impl Iterator<Item = (AuditEvent, Mode)> {
    let (since, kept_until) = (was.since, Some(is.deadline));
    let left = (is.kept && !was.kept).then_some(match command {
        Command::Bury { .. } => AuditEvent::Died { since, kept_until },
        _ => AuditEvent::Released { since, kept_until },
    });
    // What is kept of a claim belongs to nobody.
    let moved = if token != former {
        (!is.kept).then_some(AuditEvent::Adopted { former })
    } else {
        let former = was.id.to_string();
        (is.id != was.id).then_some(AuditEvent::Rotated { former })
    };
    let downgraded = was.mode == Mode::EXCLUSIVE && is.mode == Mode::SHARED;
    let downgraded = downgraded.then_some(AuditEvent::Downgraded);
    let before = [left, moved].into_iter().flatten();
    let before = before.map(|event| (event, was.mode));
    before.chain(downgraded.map(|event| (event, is.mode)))
}

/// How a hold has ended. The end of a minimum hold was said when its claim was released.
fn ended(
    was: &Entry,
    returned: bool,
    (command, reply): (&Command, &Reply),
    at: StoreTime,
) -> Option<AuditEvent> {
    let (since, kept_until) = (was.since, None);
    if was.deadline <= at {
        let found_by = command.id().map(ToString::to_string).unwrap_or_default();
        let deadline = was.deadline;
        return (!was.kept).then_some(AuditEvent::Expired {
            since,
            deadline,
            found_by,
        });
    }
    match command {
        _ if returned => Some(AuditEvent::Returned),
        Command::Break { by, .. }
        | Command::Void(Void {
            whose: Voided::Key { by },
            ..
        }) => Some(AuditEvent::Broken {
            since,
            by: by.clone(),
        }),
        Command::Bury { .. } => Some(AuditEvent::Died { since, kept_until }),
        Command::Release(_) if *reply == (Reply::Released { held: false }) => {
            // Its run had ended before it left.
            Some(AuditEvent::Returned)
        }
        Command::Release(_)
        | Command::Void(Void {
            whose: Voided::Claim { released: true, .. },
            ..
        }) => Some(AuditEvent::Released { since, kept_until }),
        // It was returned, and did not fit any more; or it has given up, or proposes another token.
        _ => Some(AuditEvent::Returned),
    }
}
