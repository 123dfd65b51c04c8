//! `leasehold elect --observe`: who leads, one line for each change.

use std::ops::ControlFlow;

use leasehold::Key;
use leasehold::{Leader, Token, Wait};
use serde::Serialize;

use crate::cli::ElectArgs;
use crate::connect::{connect_to_hold, leave};
use crate::failure::Failure;
use crate::output::{Printer, escape};
use crate::retries::Retries;
use crate::signals::Signals;
use crate::view::{OwnerView, known, to_the_second};
use crate::{exit, place};

/// What `--json` prints; nulls when nobody leads, and for what the store does not keep.
#[derive(Serialize)]
struct Seen<'a> {
    key: &'a str,
    term: Option<u64>,
    note: Option<&'a str>,
    owner: Option<OwnerView>,
    since: Option<String>,
}

/// Prints leaders until a signal comes, or nobody reads.
pub(crate) async fn observe(args: &ElectArgs, printer: &Printer) -> Result<u8, Failure> {
    Key::new(&args.key)?;
    place::check_of_election(&args.store)?;
    place::say_if_elsewhere(&args.store, printer);
    let mut signals = Signals::listen()?;
    let mut retries = Retries::new(Wait::Forever, std::slice::from_ref(&args.key), printer);
    let connected = connect_to_hold(&args.store, &args.lease, &mut retries, &mut signals);
    let ControlFlow::Continue(client) = connected.await? else {
        return Ok(exit::OK);
    };
    let mut leaders = client.election(&args.key)?.observe();
    loop {
        let told = tokio::select! {
            _ = signals.next() => break,
            told = leaders.next() => told,
        };
        let read = match told {
            Ok(leader) => tell(args, leader.as_ref(), printer)?,
            // It goes on by itself when the store answers again.
            Err(error) => {
                printer.warn(error.to_string());
                true
            }
        };
        if !read {
            break;
        }
    }
    drop(leaders);
    leave(&client).await;
    Ok(exit::OK)
}

fn owner(leader: &Leader) -> Option<OwnerView> {
    (!leader.owner.is_unknown()).then(|| OwnerView::from(&leader.owner))
}

fn tell(args: &ElectArgs, leader: Option<&Leader>, printer: &Printer) -> Result<bool, Failure> {
    if args.json {
        return printer.json(&Seen {
            key: &args.key,
            term: leader.and_then(|leader| leader.term.some()).map(Token::get),
            note: leader.and_then(|leader| leader.note.as_deref()),
            owner: leader.and_then(owner),
            since: leader.and_then(|leader| known(leader.since)),
        });
    }
    let line = match leader {
        None => "nobody leads".to_owned(),
        Some(leader) => {
            let mut parts = Vec::new();
            parts.extend(leader.term.some().map(|term| format!("term {term}")));
            parts.extend(leader.note.clone());
            let owner = owner(leader).map(|owner| owner.to_string());
            let owner = owner.unwrap_or_else(|| "somebody leads".to_owned());
            let since = known(leader.since).map(|since| to_the_second(&since));
            parts.push(owner + &since.map_or(String::new(), |since| format!(" since {since}")));
            parts.join(", ")
        }
    };
    printer.text(&format!("{}\n", escape(&line)))
}
