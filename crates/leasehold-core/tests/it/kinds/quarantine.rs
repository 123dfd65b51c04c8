//! A store in quarantine: it grants nothing while it is closed, and afterwards grants to all
//! remaining waiters in order.

use crate::kinds::cast::*;

const START: StoreTime = StoreTime(1_700_000_000_000_000);

fn after(seconds: u64) -> StoreTime {
    START + Duration::from_secs(seconds)
}

/// Closed until ten seconds after the start.
fn closed(seconds: u64) -> Now {
    let clock = after(seconds);
    but(Now::from(clock), |it| it.closed = after(10).since(clock))
}

fn patient(who: usize) -> Claim {
    Claim {
        lease_ttl: Duration::from_secs(60),
        waiter_ttl: Duration::from_secs(60),
        ..claim(who, id(who), Mode::EXCLUSIVE)
    }
}

#[test]
fn who_waits_is_told_when_it_opens_and_is_granted_then_in_order() {
    let mut queue = Queue::default();
    for who in 0..3 {
        let joined = Command::Claim(patient(who));
        let reply = standing(queue.apply(&joined, closed(1)).reply);
        assert_eq!(reply.token, None);
        assert_eq!(reply.blocked_until, Some(after(10)));
    }
    let hasty = Claim {
        wait: false,
        ahead: true,
        ..patient(3)
    };
    let refused = queue.apply(&Command::Claim(hasty), closed(2)).reply;
    assert_eq!(refused, Reply::Quarantined { until: after(10) });
    let asks = queue.apply(&renew(id(0)), closed(9));
    assert_eq!(standing(asks.reply).token, None);
    let asks = queue.apply(&renew(id(0)), after(10));
    assert!(standing(asks.reply).token.is_some());
    for (leaves, next) in [(0, 1), (1, 2)] {
        let left = queue.apply(&release(id(leaves)), after(11));
        let granted = |event: &Event| matches!(event, Event::Granted { .. });
        assert_eq!(left.events.iter().filter(|event| granted(event)).count(), 1);
        let reply = queue.apply(&renew(id(next)), after(11)).reply;
        assert!(standing(reply).token.is_some());
    }
}

/// The record may be of before its release, of which only its own client knows: another may hold.
#[test]
fn a_lease_is_not_taken_over_and_goes_on_by_its_own_client() {
    let mut queue = Queue::default();
    queue.apply(&Command::Claim(patient(0)), START);
    let adopted = rotate(id(0), id(1), 0, Some(adopt(1)));
    let refused = queue.apply(&adopted, closed(1));
    assert_eq!(refused.reply, Reply::Superseded);
    assert!(refused.events.is_empty());
    let rotated = queue.apply(&rotate(id(0), id(2), 0, None), closed(2));
    let before = standing(rotated.reply).token;
    assert!(before.is_some());
    let opened = queue.apply(&rotate(id(2), id(1), 1, Some(adopt(1))), after(10));
    assert!(standing(opened.reply).token > before);
}
