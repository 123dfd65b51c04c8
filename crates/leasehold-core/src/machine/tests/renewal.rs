use std::time::Duration;

use super::{TTL, WAITER, but, place, terms};
use crate::machine::LeaseState::{Held, Lost, Unknown};
use crate::machine::renewal::Renewal;
use crate::machine::types::Granted;
use crate::machine::{Loss, RenewalPolicy, Terms};
use crate::{Arrival, Moment, Reply, Standing, StoreTime, Token, Validity};

const THIRD: RenewalPolicy = RenewalPolicy::Automatic(1.0 / 3.0);

fn at(seconds: u64) -> Moment {
    Moment(1_000_000_000 + seconds * 1_000_000)
}

fn valid(sent: Moment, ttl: Duration) -> Validity {
    let mut validity = Validity::default();
    validity.confirm(sent, ttl);
    validity
}

fn standing(arrival: u64, token: Option<u64>) -> Reply {
    Reply::Standing(Standing {
        blocked_until: token.is_none().then_some(StoreTime(0)),
        ..place(arrival, token, None)
    })
}

fn grant(ttl: Duration, confirm_at: Option<Moment>) -> Granted {
    Granted {
        arrival: Arrival(7),
        token: Token(7),
        validity: valid(at(0), ttl),
        confirm_at,
    }
}

/// Granted at once, with the answer that comes then; asked for at second 0.
fn granted(now: Moment, terms: Terms) -> Renewal {
    Renewal::new(now, terms.into(), grant(TTL, None), false)
}

/// The same at second 0.
fn direct(policy: RenewalPolicy) -> Renewal {
    granted(at(0), Terms { policy, ..terms() })
}

/// The same, held for so long at most.
fn at_most(max_hold: Duration) -> Renewal {
    granted(at(0), but(terms(), |it| it.max_hold = Some(max_hold)))
}

/// Granted by a push at second 2; the last answered request went out at 0.
fn pushed(policy: RenewalPolicy, in_flight: bool) -> Renewal {
    let terms = Terms { policy, ..terms() };
    let granted = grant(WAITER, Some(at(3)));
    Renewal::new(at(2), terms.into(), granted, in_flight)
}

#[test]
fn a_grant_that_was_long_under_way_is_renewed_by_the_time_it_was_asked_for() {
    let due = granted(at(5), terms()).poll_timeout().unwrap();
    assert!(due <= at(10) && due > at(9), "{due:?}");
    let mut late = granted(at(25), terms());
    assert_eq!(late.poll_transmit(at(25)), Some(TTL));
}

#[test]
fn renews_at_its_share_and_counts_from_the_sending() {
    let mut renewal = direct(THIRD);
    let due = renewal.poll_timeout().unwrap();
    assert!(due <= at(10) && due > at(9), "on the grid: {due:?}");
    assert_eq!(renewal.poll_transmit(at(9)), None);
    assert_eq!(renewal.poll_transmit(at(10)), Some(TTL));
    assert_eq!(renewal.poll_transmit(at(10)), None, "one at a time");
    renewal.handle_reply(at(12), at(10), TTL, &standing(7, Some(7)));
    assert_eq!(renewal.validity(), valid(at(10), TTL));
    assert!(renewal.poll_timeout().unwrap() <= at(20));
}

#[test]
fn a_manual_or_fixed_lease_is_not_prolonged_by_a_reset() {
    for policy in [RenewalPolicy::Manual, RenewalPolicy::Fixed] {
        let mut renewal = direct(policy);
        renewal.handle_reset(at(5));
        assert_eq!(renewal.poll_transmit(at(5)), None, "{policy:?}");
        let end = renewal.validity().until();
        assert_eq!(renewal.poll_timeout(), Some(end));
        renewal.handle_timeout(end);
        assert_eq!(renewal.state(), Lost(Loss::Expired));
    }
    let mut renewal = direct(THIRD);
    renewal.handle_reset(at(5));
    assert_eq!(renewal.poll_transmit(at(5)), Some(TTL));
}

#[test]
fn an_answer_about_another_claim_of_the_id_is_a_loss() {
    for reply in [standing(8, None), standing(8, Some(9))] {
        let mut renewal = direct(THIRD);
        assert!(renewal.poll_transmit(at(10)).is_some());
        renewal.handle_reply(at(11), at(10), TTL, &reply);
        assert_eq!(renewal.state(), Lost(Loss::Forgotten));
        assert_eq!(renewal.validity(), Validity::default());
    }
    let mut named = direct(THIRD);
    for (arrival, kept) in [(7, true), (7, true), (8, false)] {
        named.handle_reply(at(1), at(1), TTL, &standing(arrival, Some(7)));
        assert_eq!(named.state() == Held, kept);
    }
}

#[test]
fn a_pushed_grant_gets_the_lease_ttl_whatever_the_policy() {
    for policy in [THIRD, RenewalPolicy::Manual] {
        let mut renewal = pushed(policy, false);
        assert_eq!(renewal.poll_timeout(), Some(at(3)));
        assert_eq!(renewal.poll_transmit(at(3)), Some(TTL));
        renewal.handle_reply(at(4), at(3), TTL, &standing(7, Some(7)));
        assert_eq!(renewal.validity(), valid(at(3), TTL));
    }
    let mut fixed = pushed(RenewalPolicy::Fixed, false);
    let rest = TTL - Duration::from_secs(1);
    assert_eq!(fixed.poll_transmit(at(3)), Some(rest));
    fixed.handle_reply(at(4), at(3), rest, &standing(7, Some(7)));
    assert_eq!(fixed.poll_transmit(at(31)), None);
    assert!(fixed.validity().until() <= at(32), "from the grant on");
}

#[test]
fn a_waiting_answer_after_the_push_confirms_what_it_may_and_no_more() {
    let mut renewal = pushed(THIRD, true);
    assert_eq!(renewal.poll_transmit(at(4)), None, "one is under way");
    renewal.handle_reply(at(4), at(1), WAITER, &standing(7, None));
    assert_eq!(renewal.state(), Held);
    assert_eq!(renewal.validity(), valid(at(1), WAITER));
    assert_eq!(renewal.poll_transmit(at(4)), Some(TTL));
}

/// A replica that has not heard of the grant was promoted, say.
#[test]
fn a_store_that_does_not_know_the_grant_any_more_does_not_keep_the_lease() {
    type Way<'a> = (bool, &'a dyn Fn(&mut Renewal));
    let never_asked = |renewal: &mut Renewal| {
        assert_eq!(renewal.poll_transmit(at(3)), Some(TTL));
    };
    let answered = |renewal: &mut Renewal| {
        renewal.handle_reply(at(3), at(1), WAITER, &standing(7, None));
        assert_eq!(renewal.poll_transmit(at(4)), Some(TTL));
    };
    let given_up = |renewal: &mut Renewal| {
        renewal.handle_unanswered(at(3), 1);
        assert_eq!(renewal.poll_transmit(at(4)), Some(TTL));
    };
    let ways: [Way; 3] = [(false, &never_asked), (true, &answered), (true, &given_up)];
    for (in_flight, goes) in ways {
        // It waits again, or was granted anew: others may have held meanwhile.
        for token in [None, Some(9)] {
            let mut renewal = pushed(THIRD, in_flight);
            goes(&mut renewal);
            renewal.handle_reply(at(5), at(4), TTL, &standing(7, token));
            assert_eq!(renewal.state(), Lost(Loss::Forgotten));
            assert_eq!(renewal.validity(), Validity::default());
        }
    }
}

#[test]
fn without_answers_it_is_unknown_then_lost() {
    let mut renewal = direct(THIRD);
    let (mut now, mut tries) = (at(10), 0);
    for _ in 0..1_000 {
        if renewal.state() == Lost(Loss::Unanswered) {
            break;
        }
        if renewal.poll_transmit(now).is_some() {
            tries += 1;
            renewal.handle_unanswered(now, 1);
            assert_eq!(renewal.state(), Unknown);
        }
        now = renewal.poll_timeout().unwrap();
        renewal.handle_timeout(now);
    }
    assert_eq!(now, valid(at(0), TTL).until());
    assert!((10..40).contains(&tries), "{tries}");
    assert_eq!(renewal.poll_timeout(), None);
    assert_eq!(renewal.poll_transmit(now), None);
    renewal.handle_reply(now, at(28), TTL, &standing(7, Some(7)));
    assert_eq!(renewal.state(), Lost(Loss::Unanswered));
}

#[test]
fn unknown_becomes_held_again() {
    let mut renewal = direct(THIRD);
    assert!(renewal.poll_transmit(at(10)).is_some());
    renewal.handle_unanswered(at(12), 1);
    assert!(renewal.poll_transmit(at(13)).is_some());
    renewal.handle_reply(at(14), at(13), TTL, &standing(7, Some(7)));
    assert_eq!(renewal.state(), Held);
    assert_eq!(renewal.validity(), valid(at(13), TTL));
}

#[test]
fn gone_and_revoked_are_losses_at_once_and_the_first_reason_stays() {
    let mut renewal = direct(THIRD);
    renewal.lose(Loss::Revoked);
    renewal.handle_reply(at(1), at(0), TTL, &Reply::Gone);
    assert_eq!(renewal.state(), Lost(Loss::Revoked));
    let mut renewal = direct(THIRD);
    renewal.handle_reply(at(1), at(0), TTL, &Reply::Gone);
    assert_eq!(renewal.state(), Lost(Loss::Gone));
    assert_eq!(renewal.validity().remaining(at(1)), Duration::ZERO);
}

/// On a busy machine the renewals of a short hold may come too late to be sent.
#[test]
fn a_hold_that_ends_with_its_longest_says_so_however_late_its_renewals_are() {
    for (max, loss) in [(TTL, Loss::MaxHold), (2 * TTL, Loss::Unanswered)] {
        let mut renewal = at_most(max);
        renewal.handle_timeout(at(30));
        assert_eq!(renewal.state(), Lost(loss), "{max:?}");
    }
}

#[test]
fn a_hold_is_not_renewed_beyond_its_longest() {
    let max = Duration::from_secs(45);
    let mut renewal = at_most(max);
    let mut now = at(0);
    let mut asked = Vec::new();
    while !matches!(renewal.state(), Lost(_)) {
        now = renewal.poll_timeout().unwrap();
        renewal.handle_timeout(now);
        if let Some(ttl) = renewal.poll_transmit(now) {
            assert!(now + ttl <= at(0) + max, "{ttl:?} at {now:?}");
            asked.push(ttl);
            renewal.handle_reply(now, now, ttl, &standing(7, Some(7)));
        }
    }
    assert_eq!(renewal.state(), Lost(Loss::MaxHold));
    assert!(now > at(44) && now <= at(45), "{now:?}");
    assert!(asked.len() >= 2 && asked[0] == TTL, "{asked:?}");
    assert_eq!(renewal.allowed(at(40), TTL), Duration::from_secs(5));
}

#[test]
fn an_adopted_claim_is_lost_by_push_or_answer() {
    let mut pushed = direct(THIRD);
    pushed.lose(Loss::Superseded);
    assert_eq!(pushed.state(), Lost(Loss::Superseded));
    let mut answered = direct(THIRD);
    answered.handle_reply(at(1), at(0), TTL, &Reply::Superseded);
    assert_eq!(answered.state(), Lost(Loss::Superseded));
    assert_eq!(answered.validity(), Validity::default());
}

/// A push that proves nothing is asked about, and is the reason if the answer confirms it.
#[test]
fn a_doubt_is_the_reason_if_the_store_confirms_it() {
    for (reply, state) in [
        (standing(7, Some(7)), Held),
        (Reply::Gone, Lost(Loss::Revoked)),
        (Reply::Superseded, Lost(Loss::Superseded)),
    ] {
        let mut renewal = direct(THIRD);
        renewal.handle_doubt(at(1), Loss::Revoked);
        assert_eq!(renewal.state(), Held);
        assert_eq!(renewal.poll_transmit(at(1)), Some(TTL));
        renewal.handle_reply(at(2), at(1), TTL, &reply);
        assert_eq!(renewal.state(), state);
    }
    let mut renewal = direct(THIRD);
    renewal.handle_doubt(at(1), Loss::Revoked);
    assert!(renewal.poll_transmit(at(1)).is_some());
    renewal.handle_reply(at(2), at(1), TTL, &standing(7, Some(7)));
    assert!(renewal.poll_transmit(at(11)).is_some());
    renewal.handle_reply(at(12), at(11), TTL, &Reply::Gone);
    assert_eq!(renewal.state(), Lost(Loss::Gone), "that was answered");
    let mut fixed = direct(RenewalPolicy::Fixed);
    fixed.handle_doubt(at(1), Loss::Revoked);
    assert_eq!(fixed.poll_transmit(at(1)), None, "asking would prolong it");
}

#[test]
fn odd_shares_are_tamed() {
    for (share, latest) in [(0.0, 1), (7.0, 27), (f64::NAN, 10)] {
        let renewal = direct(RenewalPolicy::Automatic(share));
        assert!(renewal.poll_timeout().unwrap() <= at(latest), "{share}");
    }
}
