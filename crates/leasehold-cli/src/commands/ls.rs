//! `leasehold ls`: the keys that somebody holds or waits for.

use std::io::{self, IsTerminal};

use crate::cli::LsArgs;
use crate::connect::connect;
use crate::exit;
use crate::failure::Failure;
use crate::output::{Printer, table};
use crate::view::{ClaimView, KeyView, to_the_second};

/// Lists keys.
pub(crate) async fn ls(args: &LsArgs, printer: &Printer) -> Result<u8, Failure> {
    let client = connect(&args.store).await?;
    let found = client.list(&args.pattern).await?;
    let views: Vec<_> = found.iter().map(KeyView::from).collect();
    if args.json {
        for view in &views {
            printer.json(view)?;
        }
    } else if !views.is_empty() {
        printer.data(&text(&views))?;
    } else if io::stderr().is_terminal() {
        printer.notice("no locks");
    }
    Ok(exit::OK)
}

fn text(views: &[KeyView]) -> String {
    let mut rows = table(&[
        "KEY",
        "MODE",
        "HELD BY",
        "SINCE",
        "EXPIRES IN",
        "WAITING",
        "LAST TOKEN",
    ]);
    for view in views {
        let first = view.holders.first();
        let claim = first.or_else(|| view.waiters.first());
        let who = match (first, view.holders.len()) {
            (None, _) => "-".to_owned(),
            (Some(first), 1) if first.kept_until.is_some() => format!("kept for {}", first.who()),
            (Some(first), 1) => first.who(),
            (Some(first), all) => format!("{} and {} more", first.who(), all - 1),
        };
        rows.add_row(vec![
            view.key.clone(),
            claim.map(ClaimView::mode).unwrap_or_default(),
            who,
            first
                .and_then(|first| first.since.as_deref().map(to_the_second))
                .unwrap_or_default(),
            first.map(ClaimView::lapse).unwrap_or_default(),
            view.waiters.len().to_string(),
            match view.last_token {
                0 => "-".to_owned(),
                token => token.to_string(),
            },
        ]);
    }
    rows.trim_fmt() + "\n"
}
