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
    (
        ("HELD BY", |view| held_by(view, ClaimView::short_name)),
        1,
        12,
    ),
    (
        ("HELD FOR", |view| of_first(view, ClaimView::held_for)),
        4,
        WHOLE,
    ),
    (LOCKS[4], 4, WHOLE),
    (LOCKS[5], 2, WHOLE),
];

/// What is shown of a claim.
pub(crate) const CLAIMS: &[Column<ClaimView>] = &[
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
pub(crate) fn heading(view: &KeyView) -> String {
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
pub(crate) fn held_by(view: &KeyView, name: fn(&ClaimView) -> String) -> String {
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
pub(crate) mod tests;
