//! `leasehold hold`: a lock without a command.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use futures_util::future::{OptionFuture, TryFutureExt};
use leasehold::{Any, Client, Lease, Loss, MultiLease, Released};
use tokio::time::{sleep, timeout};

use crate::args::HoldArgs;
use crate::background::cannot;
use crate::commands::saved_lease::{SaveTarget, save};
use crate::exit::{self, Status};
use crate::failure::Failure;
use crate::lease_status::{lease_end, tokens};
use crate::lock_request::LockRequest;
use crate::output::{Event, Fields, Measure, Printer, Tokens};
use crate::run_child::give_back;
use crate::session::Session;
use crate::signals::Signals;
use crate::user_file::UserFile;

/// How often it is looked whether `leasehold release` has ended.
const LOOK_AT_RELEASE: Duration = Duration::from_millis(20);

/// How long that may take.
const LONGEST_RELEASE: Duration = Duration::from_secs(10);

/// The same once this ends: with the release shorter than all that is left to do may take.
const AT_THE_END: Duration = Duration::from_secs(2);

/// How often the file of --save is looked at.
const LOOK_AT_FILE: Duration = Duration::from_secs(1);

/// Holds until a signal, the loss, or the end of what it is bound to.
pub(crate) async fn hold(args: &HoldArgs, printer: &Printer) -> Result<Status, Failure> {
    let store = &args.common.store.settings;
    let request = LockRequest::of(&args.lock, &args.wait, store)?;
    // Before the lock is waited for.
    args.save.as_deref().map(SaveTarget::at).transpose()?;
    let lifetime = args.lifetime.watch()?;
    let mut signals = Signals::listen()?;
    signals.end_with(lifetime.clone().end());
    let work = async |session: &mut Session<'_>| {
        if args.detach && session.client.capabilities().liveness {
            let message = "on this store a lock ends with the process that has acquired it";
            return Err(Failure::usage(message)
                .hint("leave --detach out, and let `leasehold hold` run in the background"));
        }
        let keeping = async |session: &mut Session<'_>, held| {
            let status = keep(args, session, held).await?;
            if status == exit::LOST {
                lifetime.lost();
            }
            Ok(status.into())
        };
        session.hold(&request, keeping).await
    };
    let asking = (&*request.keys, request.patience);
    Session::with(store, &request.settings, asking, signals, printer, work).await
}

async fn keep(
    args: &HoldArgs,
    session: &mut Session<'_>,
    held: MultiLease<Any>,
) -> Result<u8, Failure> {
    let (client, printer) = (&session.client, session.printer);
    let signals = &mut session.signals;
    let tokens = tokens(&held);
    let told = told(client.store_url(), &tokens, printer)?;
    // Who has closed the pipe knows enough, and the lock is held.
    let telling = printer.beside(&told).map_ok(|_| true);
    if let Some(file) = args.save.as_deref().filter(|_| args.detach) {
        // Whoever has read the token relies on the lease, also where a signal came before that.
        let written = Cell::new(false);
        let telling = telling.inspect_ok(|_| written.set(true));
        let telling = signals.while_writing(telling).map_ok(|_| written.get());
        leave_to_others(client, held, args, file, telling).await?;
        return Ok(exit::OK);
    }
    let saved = match args.save.as_deref() {
        None => None,
        Some(file) => {
            let parts: Result<_, _> = held.leases().iter().map(Lease::parts).collect();
            Some(save(parts?, file, client, &args.common.store.settings).await?)
        }
    };
    let ended = async {
        // A signal that comes with the lock keeps the token from nobody.
        if signals.while_writing(telling).await? {
            // The token was written: only the status says that nobody holds the lock.
            let left = args.lifetime.front.as_ref().map(|front| front.leave());
            if left.transpose().map_err(|error| cannot(&error))? != Some(false) {
                signals.next().await;
            }
            // Else nobody knows of the lock.
        } else if args.lifetime.front.is_some() {
            // The script would go on without the lock.
            return Err(cannot(&std::io::ErrorKind::Interrupted.into()));
        }
        Ok::<_, Failure>(exit::OK)
    };
    let mut status = tokio::select! {
        biased;
        status = lost(&held, saved.as_ref(), printer) => Ok(status),
        ended = ended => ended,
        Some(()) = OptionFuture::from(saved.as_ref().map(removed)) => Ok(exit::OK),
    };
    let code = status.as_ref().copied().unwrap_or_else(|it| it.status);
    Status::from(code).at_the_latest();
    if code == exit::OK {
        let keys: Vec<_> = tokens.into_iter().map(|(key, _)| key).collect();
        // As `run` has it: nobody had noticed.
        let was_late = give_back(held, &keys, printer).await == Some(Released::AlreadyGone);
        if was_late && !is_released(saved.as_ref(), AT_THE_END).await {
            printer.event(Event::released(&keys, false));
            status = Ok(exit::LOST);
        }
    }
    if let Some(saved) = saved {
        // A lease that has ended is found nowhere: the file does no harm.
        let _ = saved.remove();
    }
    status
}

/// Saves the lease without releasing it, and tells its token: unless a signal comes before that. A lease
/// that cannot be saved, or of which nothing can be told, is released: nobody else could, or would.
async fn leave_to_others(
    client: &Client,
    held: MultiLease<Any>,
    args: &HoldArgs,
    file: &Path,
    telling: impl Future<Output = Result<bool, Failure>>,
) -> Result<(), Failure> {
    let mut leases = Vec::new();
    let mut saved = Ok(());
    for lease in held.into_leases() {
        match lease.into_parts().await {
            Ok(parts) => leases.push(parts),
            Err(error) => saved = Err(Failure::from(error)),
        }
    }
    let saving = async {
        saved?;
        let kept = save(leases.clone(), file, client, &args.common.store.settings).await?;
        let told = match telling.await {
            Ok(false) => {
                let message = "stopped by a signal before the token was written";
                Err(Failure::new(exit::OUTPUT, message))
            }
            told => told.map(drop),
        };
        told.inspect_err(|_| drop(kept.remove()))
    };
    let saved: Result<(), Failure> = saving.await;
    if saved.is_err() {
        for lease in &leases {
            // One that is not reached ends with its TTL.
            let _ = client.release_by_parts(lease).await;
        }
    }
    saved
}

/// Completes when the lease is gone, also by `leasehold release`.
async fn lost(held: &MultiLease<Any>, saved: Option<&UserFile>, printer: &Printer) -> u8 {
    let reason = held.lost().await;
    if reason == Loss::Gone && is_released(saved, LONGEST_RELEASE).await {
        return exit::OK;
    }
    let end = lease_end(held, reason, Measure::None);
    printer.event(Event::lost(&end, false));
    exit::LOST
}

/// Whether `leasehold release` has released what is saved there: it keeps the file locked until it has
/// removed it.
async fn is_released(saved: Option<&UserFile>, longest: Duration) -> bool {
    let Some(saved) = saved else {
        return false;
    };
    let ended = async {
        while let Ok(false) = saved.try_lock() {
            sleep(LOOK_AT_RELEASE).await;
        }
    };
    // One that is stopped keeps no script from learning that its lock is lost.
    let _ = timeout(longest, ended).await;
    matches!(saved.is_there(), Ok(false))
}

/// Completes when another has removed the file, as `leasehold release` does.
async fn removed(saved: &UserFile) {
    // One that cannot be looked at just now was not removed.
    while saved.is_there().unwrap_or(true) {
        sleep(LOOK_AT_FILE).await;
    }
}

/// What is printed of the lock.
fn told(store: &str, tokens: &Tokens, printer: &Printer) -> Result<String, Failure> {
    let shown = Fields::default()
        .with("key", tokens.first().map_or("", |(key, _)| key))
        .with_tokens(tokens)
        .with("store", store);
    let line = |(key, token): &(String, Option<u64>)| {
        // A line says that it is held, also where there is no token.
        let token = token.map_or("-".to_owned(), |token| token.to_string());
        match tokens {
            [_] => format!("{token}\n"),
            _ => format!("{token} {key}\n"),
        }
    };
    printer.shown(&[shown], || tokens.iter().map(line).collect())
}
