//! `leasehold elect`: a command where it leads, term after term.

use std::ops::ControlFlow;
use std::time::Duration;

use leasehold::{Any, Client, MultiLease, Wait};
use tokio::time::{Instant, sleep};

use crate::acquire::{self, Outcome, Patience};
use crate::cli::ElectArgs;
use crate::connect::{Asking, connect_to_hold, leave};
use crate::duration::millis;
use crate::exit::Status;
use crate::failure::Failure;
use crate::guarded::{Again, Guarded, ended_by};
use crate::output::{Event, Printer};
use crate::retries::Retries;
use crate::signals::Signals;
use crate::wanted::Wanted;
use crate::{place, standing};

/// Stands, leads, stands again; answers the exit status.
pub(crate) async fn elect(args: &ElectArgs, printer: &Printer) -> Result<Status, Failure> {
    let (store, lease) = (&args.common.store, &args.lease);
    let wanted = Wanted::leader(&args.key, args.note.as_deref(), lease)?;
    place::check_of_election(store)?;
    let again = if args.once {
        Again::IfLost
    } else {
        Again::Always
    };
    let command = Guarded::check(&args.command, &args.guard, store, &lease.ttl(), None, again)?;
    let connecting = connect_to_hold(store, lease, asking(&wanted, args), printer);
    let connected = match connecting.await? {
        ControlFlow::Continue(connected) => connected,
        ControlFlow::Break(signal) => return Ok(ended_by(signal)),
    };
    let (client, mut signals) = (connected.client, connected.signals);
    let mut retries = connected.retries;
    let mut candidate = Candidate {
        args,
        wanted,
        command,
        client: &client,
        printer,
        pauses: Pauses::default(),
    };
    let status = candidate.stand(&mut retries, &mut signals).await;
    leave(&client).await;
    status
}

/// Candidates wait for ever, and for an outage as long as was said.
fn asking<'a>(wanted: &'a Wanted, args: &ElectArgs) -> Asking<'a> {
    Asking {
        keys: &wanted.keys,
        wait: Wait::Forever,
        retry_for: args.retry.limit(),
    }
}

struct Candidate<'a> {
    args: &'a ElectArgs,
    wanted: Wanted,
    command: Guarded<'a>,
    client: &'a Client,
    printer: &'a Printer,
    pauses: Pauses,
}

impl Candidate<'_> {
    async fn stand(
        &mut self,
        retries: &mut Retries<'_>,
        signals: &mut Signals,
    ) -> Result<Status, Failure> {
        loop {
            let (client, wanted, printer) = (self.client, &self.wanted, self.printer);
            retries.begin_again();
            let patience = Patience::Wait(Wait::Forever);
            let elected = acquire::acquire(client, wanted, patience, retries, signals, printer);
            match elected.await? {
                Outcome::Granted(held) => {
                    if let Some(status) = self.lead(held, signals).await? {
                        return Ok(status);
                    }
                }
                Outcome::Signalled(signal) => return Ok(ended_by(signal)),
                // Waiting for ever does not end without an answer.
                Outcome::Conflict => self.pauses.after(Duration::ZERO),
            }
            tokio::select! {
                signal = signals.next() => return Ok(ended_by(signal)),
                () = sleep(self.pauses.next) => {}
            }
        }
    }

    /// One term; answers the status unless we are to stand again.
    async fn lead(
        &mut self,
        held: MultiLease<Any>,
        signals: &mut Signals,
    ) -> Result<Option<Status>, Failure> {
        let begun = Instant::now();
        let (client, printer, key) = (self.client, self.printer, &self.args.key);
        printer.event(&Event::Leading {
            key: key.clone(),
            term: standing::tokens(&held).first().and_then(|(_, term)| *term),
        });
        let command = &self.command;
        let run = command.run(client, &self.wanted, held, None, signals, printer);
        let done = run.await?;
        if done.ends {
            return Ok(Some(done.outcome()));
        }
        self.pauses.after(begun.elapsed());
        printer.event(&Event::TermEnded {
            key: key.clone(),
            status: (!done.lost).then_some(done.status.code),
            again_in_ms: millis(self.pauses.next),
        });
        Ok(None)
    }
}

/// How long to wait between terms: a command that ends at once is not to spin.
#[derive(Debug, Default)]
struct Pauses {
    next: Duration,
}

impl Pauses {
    const FIRST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(30);
    /// A term that was so long was no failure to start.
    const LONG_TERM: Duration = Duration::from_secs(10);

    fn after(&mut self, term: Duration) {
        self.next = match term >= Self::LONG_TERM {
            true => Self::FIRST,
            false => (self.next * 2).clamp(Self::FIRST, Self::LONGEST),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_short_terms_only() {
        let mut pauses = Pauses::default();
        let secs = Duration::from_secs;
        let mut after = |term| {
            pauses.after(secs(term));
            pauses.next.as_secs()
        };
        let short: Vec<_> = (0..7).map(|_| after(1)).collect();
        assert_eq!(short, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!([after(10), after(0)], [1, 2]);
    }
}
