//! `leasehold run`: a command under a lock.

use std::ffi::OsString;
use std::time::Duration;

use crate::args::RunArgs;
use crate::child::{Ended, OnLost};
use crate::exit::{self, Status};
use crate::failure::Failure;
use crate::lock_request::LockRequest;
use crate::output::Printer;
use crate::recovery::Recovery;
use crate::run_child::RunChild;
use crate::session::Session;
use crate::signals::Signals;
use crate::store_warnings;

/// The most that a period is cut by: two starts of a scheduler are never exactly one apart.
const LONGEST_CUT: Duration = Duration::from_secs(30);

/// Runs the command; answers the exit status.
pub(crate) async fn run(args: &RunArgs, printer: &Printer) -> Result<Status, Failure> {
    let store = &args.common.store.settings;
    let mut request = LockRequest::of(&args.lock, &args.wait, store)?;
    if let Some(period) = args.every {
        let least = period.saturating_sub((period / 10).min(LONGEST_CUT));
        request.min_hold = Some(least);
        request.once = Some(least);
        request.patience.wait = Duration::ZERO;
        request.conflict = args.wait.conflict_exit_code.unwrap_or(exit::OK);
    }
    let (ttl, max_hold) = (request.ttl(store), request.max_hold);
    let command: &[OsString] = match &args.shell {
        Some(line) => &["/bin/sh".into(), "-c".into(), line.into()],
        None => &args.command,
    };
    let is_last = |_: &Ended| true;
    let command = RunChild::check(command, &args.guard, store, &ttl, max_hold, &is_last)?;
    request.settings = request.settings.with_ttl(ttl.value);
    request.settings.check()?;
    if args.guard.on_lost != OnLost::Ignore {
        // The command is ended then, and the lease kept until it has: it need not obey.
        request.max_hold = None;
    }
    if args.every.is_some() {
        store_warnings::say_if_every_machine_runs_it(store, printer);
    }
    let (settings, keys) = (request.settings.clone(), request.keys.clone());
    let asking = (&*keys, request.patience);
    let signals = Signals::listen()?;
    let work = async |session: &mut Session<'_>| {
        let recovery = match &args.recover_as {
            None => None,
            Some(name) => {
                Some(Recovery::begin(name, &session.client, &mut request, printer).await?)
            }
        };
        let work = async |session: &mut Session<'_>, held| {
            let kept = recovery.and_then(|recovery| recovery.keep(&held, printer));
            let done = command.run(session, &request, held, kept.as_ref()).await?;
            Ok(done.status)
        };
        session.hold(&request, work).await
    };
    Session::with(store, &settings, asking, signals, printer, work).await
}
