//! `leasehold show`: one key, its holders and its queue.

use std::time::Duration;

use leasehold::{Client, Error, Inspection, Key};
use tokio::time::timeout;

use crate::args::ShowArgs;
use crate::connect::connect;
use crate::duration::spoken;
use crate::exit;
use crate::failure::Failure;
use crate::output::{Column, Layout, Narrow, Printer, WHOLE, width};
use crate::view::{ClaimView, KeyView, to_the_second};

/// How long it may take to find out what the holders wait for.
const WAITS_LIMIT: Duration = Duration::from_secs(1);

/// Shows who holds the key and who waits for it.
pub(crate) async fn show(args: &ShowArgs, printer: &Printer) -> Result<u8, Failure> {
    Key::new(&args.key)?;
    let client = connect(&args.common.store).await?;
    let seen = client.inspect(&args.key).await?;
    let mut view = KeyView::from(&seen);
    match timeout(WAITS_LIMIT, add_waits(&client, &seen, &mut view)).await {
        Ok(added) => added?,
        Err(_) => printer.warn(format!(
            "could not find what the holders wait for within {}",
            spoken(WAITS_LIMIT)
        )),
    }
    if !(args.exit_code && args.common.output.quiet) {
        printer.show(&view, || text(&view))?;
    }
    Ok(match args.exit_code && !view.holders.is_empty() {
        true => exit::HELD,
        false => exit::OK,
    })
}

/// Adds what the holders wait for elsewhere. All keys are read, if a holder has told which piece of
/// work it belongs to.
async fn add_waits(client: &Client, seen: &Inspection, view: &mut KeyView) -> Result<(), Error> {
    let contexts = seen.holders.iter().zip(&mut view.holders);
    let mut contexts: Vec<_> = contexts
        .filter_map(|(holder, view)| Some((holder.owner.context.as_ref()?, view)))
        .collect();
    if contexts.is_empty() {
        return Ok(());
    }
    let mut listing = client.listing("*");
    while let Some(part) = listing.next().await? {
        for other in part.keys {
            let waiting = || {
                other
                    .waiters
                    .iter()
                    .filter_map(|w| w.owner.context.as_ref())
            };
            for (context, view) in &mut contexts {
                if waiting().any(|waiting| context.covers(waiting)) {
                    view.waits_for.push(other.key.to_string());
                }
            }
        }
    }
    for (_, view) in contexts {
        view.waits_for.sort();
    }
    Ok(())
}

fn text(view: &KeyView) -> String {
    let heading = heading(view);
    if view.holders.is_empty() && view.waiters.is_empty() {
        return heading + "\n";
    }
    format!("{heading}\n{}", table(view, width()))
}

fn table(view: &KeyView, room: Option<usize>) -> String {
    let claims = || view.holders.iter().chain(&view.waiters);
    let is_shown = |(heading, _): &Column<ClaimView>| match *heading {
        // Only leaders have notes.
        "NOTE" => claims().any(|claim| claim.note.is_some()),
        "WAITS FOR" => claims().any(|claim| !claim.waits_for.is_empty()),
        _ => true,
    };
    let columns: Vec<_> = COLUMNS.iter().copied().filter(is_shown).collect();
    let narrow: Vec<_> = NARROW
        .iter()
        .copied()
        .filter(|(column, ..)| is_shown(column))
        .collect();
    Layout::new(&columns, &narrow, &claims(), room).text(claims(), true)
}

/// `orders/42: lock, token 7`. The last token of a key is not shown: it may be that of all keys of
/// the store.
pub(super) fn heading(view: &KeyView) -> String {
    let kind = match view.permits {
        _ if !view.is_used() && view.last_token == 0 => "free; no record of it".to_owned(),
        _ if !view.is_used() => "free".to_owned(),
        None => view.kind.to_owned(),
        Some(permits) => format!("{} of {permits}", view.kind),
    };
    let token = view.token().map(|token| format!(", token {token}"));
    format!("{}: {kind}{}", view.key, token.unwrap_or_default())
}

/// What is shown of a claim.
pub(super) const COLUMNS: &[Column<ClaimView>] = &[
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
const NARROW: &[Narrow<ClaimView>] = &[
    (("STATE", state), 0, 16),
    (("MODE", ClaimView::mode), 7, WHOLE),
    (("WHO", ClaimView::short_name), 1, 12),
    (COLUMNS[3], 2, WHOLE),
    (("FOR", ClaimView::held_for), 6, WHOLE),
    (("EXPIRES IN", ClaimView::lapse), 5, WHOLE),
    (("TOKEN", |claim| shown(claim.token)), 4, WHOLE),
    (("WAITS FOR", |claim| claim.waits_for.join(", ")), 3, 16),
    (("NOTE", |claim| shown(claim.note.as_ref())), 5, 8),
];

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
mod tests {
    use super::*;
    use crate::view::tests::claim;

    #[test]
    fn at_40_columns_key_holder_and_waiting_are_there() {
        let pool = &crate::commands::ls::tests::long()[0];
        let text = table(pool, Some(40));
        let lines: Vec<_> = text.lines().take(5).collect();
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
        let mut leader = pool.clone();
        leader.holders.truncate(1);
        leader.waiters.truncate(1);
        leader.holders[0].note = Some("10.0.0.7:80".into());
        leader.holders[0].waits_for = vec!["other".into()];
        leader.holders[0].kept_until = Some("2026-01-31T13:00:00Z".parse().unwrap());
        for room in 26..140 {
            let text = table(&leader, Some(room));
            for part in ["STATE", "WHO", "taken", "waits,", "a-la"] {
                assert!(text.contains(part), "{room}: {text}");
            }
            let widths = text.lines().map(unicode_width::UnicodeWidthStr::width);
            assert!(widths.max() <= Some(room), "{room}: {text}");
        }
    }

    #[test]
    fn a_table_of_holder_and_queue() {
        let holder = ClaimView {
            token: Some(7),
            ..claim(Some("deploy"))
        };
        let waiter = ClaimView {
            position: Some(1),
            ..claim(None)
        };
        let view = KeyView {
            key: "orders/42".into(),
            kind: "lock",
            permits: None,
            last_token: 7,
            at: jiff::Timestamp::UNIX_EPOCH,
            holders: vec![holder],
            waiters: vec![waiter],
        };
        let shown = text(&view);
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
        let kept = KeyView {
            holders: vec![ClaimView {
                kept_until: Some("2026-01-31T13:00:00Z".parse().unwrap()),
                note: Some("10.0.0.7:80".into()),
                token: Some(7),
                ..claim(None)
            }],
            waiters: vec![],
            ..view.clone()
        };
        let shown = text(&kept);
        assert!(
            shown.contains("\ntaken until 2026-01-31T13:00:00Z  exclusive  "),
            "{shown}"
        );
        assert!(shown.trim_end().ends_with("10.0.0.7:80"), "{shown}");
        let free = KeyView {
            holders: vec![],
            waiters: vec![],
            last_token: 0,
            ..view
        };
        assert_eq!(text(&free), "orders/42: free; no record of it\n");
    }
}
