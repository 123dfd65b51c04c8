//! The tables of locks, and of the claims on one key: for terminals that have room, and that have not.

use crate::table::{Column, Layout, Narrow, WHOLE};
use crate::view::{ClaimView, KeyView, to_the_second};

/// What is shown of a lock.
const LOCKS: &[Column<KeyView>] = &[
    ("KEY", |view| view.key.clone()),
    ("MODE", mode),
    ("HELD BY", |view| held_by(view, ClaimView::who)),
    ("SINCE", |view| of_first(view, ClaimView::began)),
    ("EXPIRES IN", |view| of_first(view, ClaimView::lapse)),
    ("WAITING", |view| view.waiters.len().to_string()),
    ("TOKEN", |view| {
        view.token()
            .map_or_else(|| "-".to_owned(), |token| token.to_string())
    }),
];

/// The same for a terminal that has no room for all of it.
const LOCKS_NARROW: &[Narrow<KeyView>] = &[
    (LOCKS[0], 0, 14),
    (LOCKS[1], 6, WHOLE),
    (HELD_BY, 1, 12),
    (HELD_FOR, 4, WHOLE),
    (LOCKS[4], 4, WHOLE),
    (LOCKS[5], 2, WHOLE),
];
const HELD_BY: Column<KeyView> = ("HELD BY", |view| held_by(view, ClaimView::short_name));
const HELD_FOR: Column<KeyView> = ("HELD FOR", |view| of_first(view, ClaimView::held_for));

/// What is shown of a claim.
pub const CLAIMS: &[Column<ClaimView>] = &[
    ("STATE", state),
    ("MODE", ClaimView::mode),
    ("HOST", |claim| match &claim.owner {
        Some(owner) => owner.host.clone(),
        None => claim.who(),
    }),
    ("PID", |claim| {
        shown(claim.owner.as_ref().map(|owner| owner.pid))
    }),
    ("LABEL", |claim| {
        shown(claim.owner.as_ref().and_then(|owner| owner.label.as_ref()))
    }),
    ("SINCE", ClaimView::began),
    ("EXPIRES IN", ClaimView::lapse),
    ("TOKEN", |claim| shown(claim.token)),
    ("WAITS FOR", |claim| claim.waits_for.join(", ")),
    ("NOTE", |claim| shown(claim.note.as_ref())),
];

/// The same for a terminal that has no room for all of it.
const CLAIMS_NARROW: &[Narrow<ClaimView>] = &[
    (CLAIMS[0], 0, 16),
    (CLAIMS[1], 7, WHOLE),
    (("WHO", ClaimView::short_name), 1, 12),
    (CLAIMS[3], 2, WHOLE),
    (("FOR", ClaimView::held_for), 6, WHOLE),
    (CLAIMS[6], 5, WHOLE),
    (CLAIMS[7], 4, WHOLE),
    (CLAIMS[8], 3, 16),
    (CLAIMS[9], 5, 8),
];

/// The columns of a table of these locks.
pub fn of_locks(views: &[KeyView], room: Option<usize>) -> Layout<KeyView> {
    Layout::new(LOCKS, LOCKS_NARROW, &views.iter(), room)
}

/// A key with its holders and its queue.
pub fn of_key(view: &KeyView, room: Option<usize>) -> String {
    let heading = heading(view);
    if !view.is_used() {
        return heading + "\n";
    }
    let claims = || view.holders.iter().chain(&view.waiters);
    let is_shown = |(heading, _): &Column<ClaimView>| match *heading {
        // Only leaders have notes.
        "NOTE" => claims().any(|claim| claim.note.is_some()),
        "WAITS FOR" => claims().any(|claim| !claim.waits_for.is_empty()),
        _ => true,
    };
    let (mut columns, mut narrow) = (CLAIMS.to_vec(), CLAIMS_NARROW.to_vec());
    columns.retain(is_shown);
    narrow.retain(|(column, ..)| is_shown(column));
    let table = Layout::new(&columns, &narrow, &claims(), room).text(claims(), true);
    format!("{heading}\n{table}")
}

/// `orders/42: lock, token 7`. The last token of a key is not shown: it may be that of all keys of
/// the store.
pub fn heading(view: &KeyView) -> String {
    let kind = match view.permits {
        _ if !view.is_used() && view.last_token == 0 => "free; no record of it".to_owned(),
        _ if !view.is_used() => "free".to_owned(),
        None => view.kind.to_owned(),
        Some(permits) => format!("{} of {permits}", view.kind),
    };
    let token = view.token().map(|token| format!(", token {token}"));
    format!("{}: {kind}{}", view.key, token.unwrap_or_default())
}

/// How the key is held; of a semaphore [`held_by`] says how much of it.
fn mode(view: &KeyView) -> String {
    let claim = view.holders.first().or_else(|| view.waiters.first());
    claim.map_or(String::new(), |claim| claim.mode.to_owned())
}

/// The holders in a cell of a table, each by its name: `deploy`, or `3/3 deploy and 2 more` of a
/// semaphore whose permits are all taken.
pub fn held_by(view: &KeyView, name: fn(&ClaimView) -> String) -> String {
    let taken = view.taken().map_or(String::new(), |taken| taken + " ");
    let holders = match &*view.holders {
        [] => "-".to_owned(),
        [one] if one.kept_until.is_some() => format!("{} (finished)", name(one)),
        [one] => name(one),
        [first, more @ ..] => format!("{} and {} more", name(first), more.len()),
    };
    taken + &holders
}

fn of_first(view: &KeyView, says: fn(&ClaimView) -> String) -> String {
    view.holders.first().map(says).unwrap_or_default()
}

fn state(claim: &ClaimView) -> String {
    match (claim.kept_until, claim.position) {
        (Some(until), _) => format!("taken until {}", to_the_second(until)),
        (None, Some(position)) => format!("waits, {position}"),
        (None, None) => "holds".to_owned(),
    }
}

fn shown(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use unicode_width::UnicodeWidthStr;

    use super::*;
    use crate::view::example as claim;

    fn view(key: &str, holders: Vec<ClaimView>, waiters: Vec<ClaimView>) -> KeyView {
        KeyView {
            key: key.to_owned(),
            kind: "lock",
            permits: None,
            last_token: 7,
            at: jiff::Timestamp::UNIX_EPOCH,
            holders,
            waiters,
        }
    }

    fn waiter(position: u64, label: Option<&str>) -> ClaimView {
        ClaimView {
            position: Some(position),
            ..claim(label)
        }
    }

    /// Locks that take much room: with long names, and a semaphore whose permits are all taken.
    pub(crate) fn long() -> Vec<KeyView> {
        let label = Some("a-label-that-never-ends");
        let permit = |token| ClaimView {
            mode: "permits",
            weight: Some(1),
            of: Some(3),
            token: Some(token),
            age: Some(Duration::from_secs(86_399)),
            ..claim(label)
        };
        let waiters = (1..=1234).map(|position| waiter(position, label));
        let pool = KeyView {
            kind: "semaphore",
            permits: Some(3),
            ..view(
                "a-pool/with/many/parts/that/would/fill/the/line",
                (1..=3).map(permit).collect(),
                waiters.collect(),
            )
        };
        vec![pool, view("short", vec![claim(None)], vec![])]
    }

    /// In each width that a terminal may have these parts are shown, and no line is longer.
    fn fits(
        text: impl Fn(usize) -> String,
        widths: std::ops::Range<usize>,
        least: usize,
        parts: &[&str],
    ) {
        for room in widths {
            let text = text(room);
            for part in parts {
                assert!(text.contains(part), "{room}: {text}");
            }
            let widest = text.lines().map(UnicodeWidthStr::width).max();
            assert!(widest <= Some(room.max(least)), "{room}: {text}");
        }
    }

    #[test]
    fn at_40_columns_key_holder_and_waiting_are_there() {
        let views = long();
        let text = |room| of_locks(&views, room).text(views.iter(), true);
        assert_eq!(
            text(Some(40)),
            "KEY              HELD BY         WAITING\n\
         a-pool/with/ma…  3/3 a-label-t…  1234\n\
         short            build7 (pid 8…  0\n"
        );
        let parts = ["KEY", "HELD BY", "WAITING", "a-", "3/3", "1234"];
        fits(|room| text(Some(room)), 26..200, 28, &parts);
        let whole = text(None);
        assert!(
            whole.contains(&views[0].key) && whole.contains("SINCE"),
            "{whole}"
        );
    }

    #[test]
    fn rows_that_come_later_have_no_heading() {
        let of = |keys: &[&str]| -> Vec<_> {
            let views = keys.iter().map(|key| view(key, vec![claim(None)], vec![]));
            views.collect()
        };
        let (first, second) = (of(&["a-long-key", "b"]), of(&["c"]));
        let mut layout = of_locks(&first, None);
        let first = layout.text(first.iter(), true);
        let second = layout.text(second.iter(), false);
        assert!(first.starts_with("KEY "), "{first}");
        let at = |text: &str| text.lines().last().and_then(|line| line.find("exclusive"));
        assert_eq!(second.lines().count(), 1, "{second}");
        assert_eq!(at(&first), at(&second), "{first}{second}");
    }

    #[test]
    fn at_40_columns_claims_are_there() {
        let pool = &long()[0];
        let text = of_key(pool, Some(40));
        let lines: Vec<_> = text.lines().skip(1).take(5).collect();
        assert_eq!(
            lines,
            [
                "STATE        WHO              PID  TOKEN",
                "holds        a-label-that-n…  812  1",
                "holds        a-label-that-n…  812  2",
                "holds        a-label-that-n…  812  3",
                "waits, 1     a-label-that-n…  812",
            ]
        );
        let mut leader = KeyView {
            key: "k".to_owned(),
            ..pool.clone()
        };
        leader.holders.truncate(1);
        leader.waiters.truncate(1);
        leader.holders[0].note = Some("10.0.0.7:80".into());
        leader.holders[0].waits_for = vec!["other".into()];
        leader.holders[0].kept_until = Some("2026-01-31T13:00:00Z".parse().unwrap());
        let parts = ["STATE", "WHO", "taken", "waits,", "a-la"];
        fits(|room| of_key(&leader, Some(room)), 26..140, 0, &parts);
    }

    #[test]
    fn a_table_of_holder_and_queue() {
        let holder = |claim| ClaimView {
            token: Some(7),
            ..claim
        };
        let shown = of_key(
            &view(
                "orders/42",
                vec![holder(claim(Some("deploy")))],
                vec![waiter(1, None)],
            ),
            None,
        );
        let lines: Vec<_> = shown.lines().map(str::trim_end).collect();
        assert_eq!(
            lines,
            [
                "orders/42: lock, token 7",
                "STATE     MODE       HOST    PID  LABEL   SINCE                 EXPIRES IN  TOKEN",
                "holds     exclusive  build7  812  deploy  2026-01-31T12:00:00Z  12 s        7",
                "waits, 1  exclusive  build7  812          2026-01-31T12:00:00Z  12 s",
            ]
        );
        let kept = ClaimView {
            kept_until: Some("2026-01-31T13:00:00Z".parse().unwrap()),
            note: Some("10.0.0.7:80".into()),
            ..holder(claim(None))
        };
        let shown = of_key(&view("orders/42", vec![kept], vec![]), None);
        assert!(
            shown.contains("\ntaken until 2026-01-31T13:00:00Z  exclusive  "),
            "{shown}"
        );
        assert!(shown.trim_end().ends_with("10.0.0.7:80"), "{shown}");
        let free = KeyView {
            last_token: 0,
            ..view("orders/42", vec![], vec![])
        };
        assert_eq!(of_key(&free, None), "orders/42: free; no record of it\n");
    }
}
