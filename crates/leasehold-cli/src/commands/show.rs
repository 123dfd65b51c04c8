//! `leasehold show`: one key, its holders and its queue.

use std::time::Duration;

use leasehold::core::Key;

use crate::cli::ShowArgs;
use crate::connect::connect;
use crate::duration::spoken;
use crate::exit;
use crate::failure::Failure;
use crate::output::{Printer, table};
use crate::view::{ClaimView, KeyView, to_the_second};

/// Shows who holds the key and who waits for it.
pub(crate) async fn show(args: &ShowArgs, printer: &Printer) -> Result<u8, Failure> {
    Key::new(&args.key)?;
    let client = connect(&args.store).await?;
    let view = KeyView::from(&client.inspect(&args.key).await?);
    if args.json {
        printer.json(&view)?;
    } else {
        printer.data(&text(&view))?;
    }
    Ok(exit::OK)
}

fn text(view: &KeyView) -> String {
    let kind = match view.permits {
        None => view.kind.to_owned(),
        Some(permits) => format!("{} of {permits}", view.kind),
    };
    let token = match view.last_token {
        0 => "no token remembered".to_owned(),
        token => format!("last token {token}"),
    };
    if view.holders.is_empty() && view.waiters.is_empty() {
        return format!("{}: free, {token}\n", view.key);
    }
    let mut rows = table(&[
        "STATE",
        "MODE",
        "HOST",
        "PID",
        "LABEL",
        "SINCE",
        "EXPIRES IN",
        "TOKEN",
    ]);
    for claim in &view.holders {
        rows.add_row(row("holds".to_owned(), claim));
    }
    for claim in &view.waiters {
        rows.add_row(row(
            format!("waits, {}", claim.position.unwrap_or_default()),
            claim,
        ));
    }
    format!("{}: {kind}, {token}\n{}\n", view.key, rows.trim_fmt())
}

fn row(state: String, claim: &ClaimView) -> Vec<String> {
    vec![
        state,
        claim.mode(),
        claim.owner.host.clone(),
        claim.owner.pid.to_string(),
        claim.owner.label.clone().unwrap_or_default(),
        to_the_second(&claim.since),
        spoken(Duration::from_millis(claim.expires_in_ms)),
        claim
            .token
            .map(|token| token.to_string())
            .unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::claim;

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
            at: String::new(),
            holders: vec![holder],
            waiters: vec![waiter],
        };
        let shown = text(&view);
        let lines: Vec<_> = shown.lines().map(str::trim_end).collect();
        assert_eq!(
            lines,
            [
                "orders/42: lock, last token 7",
                "STATE     MODE       HOST    PID  LABEL   SINCE                 EXPIRES IN  TOKEN",
                "holds     exclusive  build7  812  deploy  2026-01-31T12:00:00Z  12 s        7",
                "waits, 1  exclusive  build7  812          2026-01-31T12:00:00Z  12 s",
            ]
        );
        let free = KeyView {
            holders: vec![],
            waiters: vec![],
            last_token: 0,
            ..view
        };
        assert_eq!(text(&free), "orders/42: free, no token remembered\n");
    }
}
