//! `leasehold elect`: a command where it leads, term after term; `--observe`: who leads, one line for
//! each change.

use std::slice::from_ref;
use std::time::Duration;

use leasehold::{Key, Leader, Settings, Token};
use tokio::time::{Instant, sleep};

use crate::args::ElectArgs;
use crate::child::Ended;
use crate::exit::{self, Status};
use crate::failure::Failure;
use crate::lock_request::LockRequest;
use crate::output::{Event, Fields, Printer, escape, reader_gone};
use crate::retries::Patience;
use crate::run_child::RunChild;
use crate::session::Session;
use crate::signals::Signals;
use crate::view::{OwnerView, known, to_the_second};
use crate::{lease_status, store_warnings};

/// Stands, leads, stands again; answers the exit status.
pub(crate) async fn elect(args: &ElectArgs, printer: &Printer) -> Result<Status, Failure> {
    let (store, key) = (&args.common.store.settings, &args.key);
    if args.observe {
        return observe(args, printer).await;
    }
    let request = LockRequest::leader(key, args.note.as_deref(), store)?;
    store_warnings::check_of_election(store)?;
    let is_last = |ended: &Ended| ended.ends_us || (args.once && !ended.lost);
    let (ttl, how) = (store.ttl(), &args.guard);
    let command = RunChild::check(&args.command, how, store, &ttl, None, &is_last)?;
    let stand = async |session: &mut Session<'_>| {
        let mut pause = Duration::ZERO;
        loop {
            session.retries.begin_again();
            // Waiting for ever does not end without an answer.
            let held = session.acquire(&request).await?;
            let begun = Instant::now();
            if let Some(held) = held {
                let tokens = lease_status::tokens(&held);
                let term = tokens.first().and_then(|(_, term)| *term);
                printer.event(Event::leading(key, term));
                let done = command.run(session, &request, held, None).await?;
                if done.ends_us {
                    return Ok(done.status);
                }
                pause = pause_after(begun.elapsed(), pause);
                let status = (!done.lost).then_some(done.status.code);
                printer.event(Event::term_ended(key, status, pause));
            } else {
                pause = pause_after(Duration::ZERO, pause);
            }
            tokio::select! {
                signal = session.signals.next() => return Err(Failure::ended_by(signal)),
                () = sleep(pause) => {}
            }
        }
    };
    let (asking, signals) = ((&*request.keys, request.patience), Signals::listen()?);
    Session::with(store, &request.settings, asking, signals, printer, stand).await
}

/// How long to wait after such a term, and after the pause before it: a command that ends at once is not
/// to spin.
fn pause_after(term: Duration, last: Duration) -> Duration {
    const FIRST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(30);
    /// A term that was so long was no failure to start.
    const LONG_TERM: Duration = Duration::from_secs(10);
    match term >= LONG_TERM {
        true => FIRST,
        false => (last * 2).clamp(FIRST, LONGEST),
    }
}

/// Prints leaders until a signal comes, or nobody reads.
async fn observe(args: &ElectArgs, printer: &Printer) -> Result<Status, Failure> {
    Key::new(&args.key)?;
    let store = &args.common.store.settings;
    store_warnings::check_of_election(store)?;
    let settings = Settings::default().with_ttl(store.ttl().value);
    settings.check()?;
    let patience = Patience::of(store).for_ever();
    let watch = async |session: &mut Session<'_>| {
        let mut leaders = session.client.election(&args.key)?.observe();
        let signals = &mut session.signals;
        loop {
            let told = tokio::select! {
                _ = signals.next() => return Ok(exit::OK.into()),
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
                return Ok(exit::OK.into());
            }
        }
    };
    let (asking, mut signals) = ((from_ref(&args.key), patience), Signals::listen()?);
    signals.end_with(reader_gone());
    match Session::with(store, &settings, asking, signals, printer, watch).await {
        // That is how it is to end, also where the store has not answered yet.
        Err(failure) if failure.signal.is_some() => Ok(exit::OK.into()),
        watched => watched,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_short_terms_only() {
        let mut pause = Duration::ZERO;
        let mut after = |term| {
            pause = pause_after(Duration::from_secs(term), pause);
            pause.as_secs()
        };
        let short: Vec<_> = (0..7).map(|_| after(1)).collect();
        assert_eq!(short, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!([after(10), after(0)], [1, 2]);
    }
}
