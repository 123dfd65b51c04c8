//! `leasehold elect --observe`: who leads, one line for each change.

use std::ops::ControlFlow;

use crate::args::ElectArgs;
use crate::failure::Failure;
use crate::output::{Fields, Printer, escape};
use crate::retries::Patience;
use crate::session::{Session, leave};
use crate::signals::Signals;
use crate::view::{OwnerView, known, to_the_second};
use crate::{exit, store_warnings};
use leasehold::Key;
use leasehold::{Leader, Settings, Token};

/// Prints leaders until a signal comes, or nobody reads.
pub(crate) async fn observe(args: &ElectArgs, printer: &Printer) -> Result<u8, Failure> {
    Key::new(&args.key)?;
    let store = &args.common.store.settings;
    store_warnings::check_of_election(store)?;
    let settings = Settings::default().with_ttl(store.ttl().value);
    settings.check()?;
    let patience = Patience::of(store).for_ever();
    let asking = (std::slice::from_ref(&args.key), patience);
    let signals = Signals::listen()?;
    let connecting = Session::connect(store, &settings, asking, signals, printer);
    let ControlFlow::Continue(mut session) = connecting.await? else {
        return Ok(exit::OK);
    };
    let (client, signals) = (&session.client, &mut session.signals);
    let watch = async {
        let mut leaders = client.election(&args.key)?.observe();
        loop {
            let told = tokio::select! {
                _ = signals.next() => return Ok(()),
                told = leaders.next() => told.map_err(Failure::from),
            };
            let is_read = match told {
                Ok(leader) => {
                    let text = text(args, leader.as_ref(), printer)?;
                    signals.while_writing(printer.beside(&text)).await?
                }
                Err(failure) if !failure.passing => return Err(failure),
                Err(failure) => {
                    // It goes on by itself when the store answers again.
                    printer.warn(failure.message);
                    true
                }
            };
            if !is_read {
                return Ok(());
            }
        }
    };
    let watched: Result<(), Failure> = watch.await;
    leave(client).await;
    watched.map(|()| exit::OK)
}

fn text(args: &ElectArgs, leader: Option<&Leader>, printer: &Printer) -> Result<String, Failure> {
    let term = leader.and_then(|leader| leader.term.some()).map(Token::get);
    let note = leader.and_then(|leader| leader.note.as_deref());
    let owner = leader.and_then(|leader| OwnerView::of(&leader.owner));
    let since = leader.and_then(|leader| known(leader.since));
    // Nulls when nobody leads, and for what the store does not keep.
    let seen = Fields::default()
        .with("key", &args.key)
        .with("term", term)
        .with("note", note)
        .with("owner", &owner)
        .with("since", since);
    printer.shown(&[seen], || {
        if leader.is_none() {
            return "nobody leads\n".to_owned();
        }
        let owner = owner.as_ref().map(ToString::to_string);
        let owner = owner.unwrap_or_else(|| "somebody leads".to_owned());
        let since = since.map(|since| format!(" since {}", to_the_second(since)));
        let parts = [
            term.map(|term| format!("term {term}")),
            note.map(str::to_owned),
            Some(owner + &since.unwrap_or_default()),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        format!("{}\n", escape(&parts.join(", ")))
    })
}
