//! `leasehold elect`: a command where it leads, term after term.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::acquire::Outcome;
use crate::args::ElectArgs;
use crate::child::Ended;
use crate::exit::Status;
use crate::failure::Failure;
use crate::lock_request::LockRequest;
use crate::output::{Event, Printer};
use crate::run_child::RunChild;
use crate::session::Session;
use crate::signals::Signals;
use crate::{lease_status, store_warnings};

/// Stands, leads, stands again; answers the exit status.
pub(crate) async fn elect(args: &ElectArgs, printer: &Printer) -> Result<Status, Failure> {
    let (store, key) = (&args.common.store.settings, &args.key);
    let request = LockRequest::leader(key, args.note.as_deref(), store)?;
    store_warnings::check_of_election(store)?;
    let is_last = |ended: &Ended| ended.asks_us_to_end || (args.once && !ended.lost);
    let (ttl, how) = (store.ttl(), &args.guard);
    let command = RunChild::check(&args.command, how, store, &ttl, None, &is_last)?;
    let stand = async |session: &mut Session<'_>| {
        let mut pause = Duration::ZERO;
        loop {
            session.retries.begin_again();
            let held = match session.acquire(&request).await? {
                Outcome::Granted(held, _) => Some(held),
                Outcome::Signalled(signal) => return Ok(Status::ended_by(signal)),
                // Waiting for ever does not end without an answer.
                Outcome::Busy | Outcome::TimedOut => None,
            };
            let begun = Instant::now();
            if let Some(held) = held {
                let tokens = lease_status::tokens(&held);
                let term = tokens.first().and_then(|(_, term)| *term);
                printer.event(Event::leading(key, term));
                let done = command.run(session, &request, held, None).await?;
                if done.ends {
                    return Ok(done.status);
                }
                pause = pause_after(begun.elapsed(), pause);
                let status = (!done.lost).then_some(done.status.code);
                printer.event(Event::term_ended(key, status, pause));
            } else {
                pause = pause_after(Duration::ZERO, pause);
            }
            tokio::select! {
                signal = session.signals.next() => return Ok(Status::ended_by(signal)),
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
