//! Who is told of a step.

use leasehold_core::{Event, Holder};

use super::checks::{New, Step};
use super::{Act, inbox, number};

impl Step<'_> {
    pub(super) fn those_granted_are_told(&self) -> bool {
        let actor = self.act.actor();
        let events = &self.outcome.events;
        let told = events.iter().filter_map(|event| match event {
            Event::Granted {
                token, deadline, ..
            } => Some((event.inbox().clone(), event.arrival()?, *token, *deadline)),
            _ => None,
        });
        let told: Vec<_> = told.collect();
        let others = (self.granted()).filter(|new| Some(number(new.claim)) != actor);
        let granted = others.map(|New { claim, token }| {
            let inbox = inbox(self.model.client(number(claim)));
            (inbox, claim.arrival, token, claim.deadline)
        });
        let granted: Vec<_> = granted.collect();
        let all = granted.iter().all(|one| told.contains(one));
        let hints = events.iter().all(|event| match event {
            Event::Next { blocked_until, .. } => {
                let free = self.is.holders.iter().map(|h| h.claim.deadline).min();
                *blocked_until <= free.unwrap_or(self.outcome.at)
            }
            _ => true,
        });
        let places = |event| self.is_told_of_its_place(event);
        let placed = events.iter().all(places);
        all && told.len() == granted.len() && hints && placed && self.those_broken_are_told()
    }

    fn those_broken_are_told(&self) -> bool {
        let told = |holder: &&Holder| {
            let arrival = Some(holder.claim.arrival);
            let revoked = |event: &Event| {
                matches!(event, Event::Revoked { .. }) && event.arrival() == arrival
            };
            holder.claim.kept || self.outcome.events.iter().any(revoked)
        };
        self.act != Act::Break || self.was.holders.iter().all(|holder| told(&holder))
    }

    /// Behind which claim a grant is said to be, and is.
    fn is_told_of_its_place(&self, event: &Event) -> bool {
        match event {
            Event::Granted {
                arrival, behind, ..
            } => self.follower(*arrival).map(|follower| follower.behind) == *behind,
            _ => true,
        }
    }
}
