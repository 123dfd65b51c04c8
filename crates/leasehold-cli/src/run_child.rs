//! A command under what is held: started, guarded to its end, and the lock given back.

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use leasehold::{Any, Client, MultiLease, Released};
use tokio::time::{Instant, timeout};

use crate::args::GuardArgs;
use crate::child::{self, Ended, LossPolicy, Shim, Start, Supervision};
use crate::config::{CommandSettings, Setting};
use crate::connect::{Opening, hand_on, path_of};
use crate::env;
use crate::failure::Failure;
use crate::lock_request::LockRequest;
use crate::output::{Event, Printer};
use crate::recovery::clear;
use crate::session::Session;
use crate::user_file::UserFile;

/// How long it may take to say with the lock that its job has failed.
const NOTE_LIMIT: Duration = Duration::from_secs(1);

/// How long the store has to confirm a release: shorter than all that is left to do may take.
const RELEASE: Duration = Duration::from_secs(2);

/// A command that may run, and how it is guarded.
pub(crate) struct RunChild<'a> {
    program: &'a OsString,
    arguments: &'a [OsString],
    how: &'a GuardArgs,
    store: &'a CommandSettings,
    grace: Duration,
    ttl: Duration,
    max_hold: Option<Duration>,
    /// Whether no other run follows one that has ended so.
    is_last: &'a dyn Fn(&Ended) -> bool,
    /// The shim of the first run, which gets ready while the lock is asked for.
    shim: RefCell<Option<Shim>>,
}

impl<'a> RunChild<'a> {
    /// Refuses what cannot work, before the lock is asked for.
    pub(crate) fn check(
        command: &'a [OsString],
        how: &'a GuardArgs,
        store: &'a CommandSettings,
        ttl: &Setting<Duration>,
        max_hold: Option<Duration>,
        is_last: &'a dyn Fn(&Ended) -> bool,
    ) -> Result<Self, Failure> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(Failure::usage("there is no command").hint("write it after --"));
        };
        let grace = store.grace(ttl)?.value;
        child::check(program)?;
        let guarded = Self {
            program,
            arguments,
            how,
            store,
            grace,
            ttl: ttl.value,
            max_hold,
            is_last,
            shim: RefCell::default(),
        };
        guarded.shim.replace(Some(guarded.begin_shim()?));
        Ok(guarded)
    }

    fn begin_shim(&self) -> Result<Shim, Failure> {
        Shim::begin(self.program, self.arguments, self.how.with_children)
            .map_err(|error| child::failure(self.program, &error))
    }

    /// Runs the command to its end, and gives the lock back. `kept`: the file by which a restart goes on.
    pub(crate) async fn run(
        &self,
        session: &mut Session<'_>,
        request: &LockRequest,
        held: MultiLease<Any>,
        kept: Option<&UserFile>,
    ) -> Result<Ended, Failure> {
        let (client, printer) = (&session.client, session.printer);
        let handed_on = self.hand_on(client, printer);
        let lifeline = kept.map(|kept| kept.file.as_fd());
        let start = Start {
            program: self.program,
            environment: self.environment(client, request, &held, handed_on.as_ref()),
            child_fds: client.child_fds().into_iter().chain(lifeline).collect(),
        };
        let longest = self.max_hold.and_then(|it| Instant::now().checked_add(it));
        let policy = LossPolicy::new(self.how.on_lost, self.grace, self.ttl, longest);
        // Those of a leader's later terms begin here.
        let shim = self.shim.take().filter(Shim::is_there);
        let signals = &mut session.signals;
        let run = async {
            let shim = shim.map_or_else(|| self.begin_shim(), Ok)?;
            let child = Supervision::start(shim, &start, (&held, policy), signals, printer)?;
            child.run(self.how.with_children).await
        };
        let mut ended: Result<Ended, Failure> = run.await;
        if let Ok(ended) = &mut ended {
            ended.ends_us = (self.is_last)(ended);
            if ended.ends_us {
                ended.status.at_the_latest();
            }
        }
        let released = match &ended {
            // Whatever is left of it is given back while we leave.
            Ok(Ended { lost: true, .. }) => {
                drop(held);
                None
            }
            ended => {
                if let Ok(Ended { status, .. }) = ended {
                    say_failure(&held, request, status.code).await;
                }
                give_back(held, &request.keys, printer).await
            }
        };
        if let Some(released) = released {
            printer.event(Event::released(&request.keys, released == Released::Held));
            // It is known to be given back, or to be another's.
            if let Some(kept) = kept {
                clear(kept, printer);
            }
        }
        let mut ended = ended?;
        ended.lost |= released == Some(Released::AlreadyGone);
        if ended.lost {
            ended.status = ended.status.lost();
        }
        Ok(ended)
    }

    /// What is set for the command, and what of our environment is not for it.
    fn environment(
        &self,
        client: &Client,
        request: &LockRequest,
        held: &MultiLease<Any>,
        handed_on: Option<&OwnedFd>,
    ) -> Vec<(&'static str, Option<String>)> {
        let mut all = request.given(client, held);
        all.extend([
            (env::STORE, Some(client.store_url().to_owned())),
            (env::STORE_FILE, handed_on.map(path_of)),
            (env::PASSWORD, None),
        ]);
        // In the command's environment they would belong to this store.
        if self.store.without_environment {
            all.extend(env::CREDENTIALS.map(|name| (name, None)));
        }
        // A token that an outer lock has left in the environment is not this one's.
        if !client.capabilities().tokens {
            all.extend([env::TOKEN, env::TOKENS, env::TERM].map(|name| (name, None)));
        }
        all
    }

    /// Hands on how the store was opened. Without it all works but an inner leasehold, where the
    /// store asks for a password.
    fn hand_on(&self, client: &Client, printer: &Printer) -> Option<OwnedFd> {
        let opening = Opening::of(self.store);
        let store = client.store_url();
        if !cfg!(target_os = "linux") || !opening.has_more_than(store) {
            return None;
        }
        let handed_on = hand_on(store, &opening);
        let cannot = |error| {
            format!("cannot pass the credentials of the store to an inner leasehold: {error}")
        };
        handed_on.map_err(|error| printer.warn(cannot(error))).ok()
    }
}

/// Says with a lock that stays taken that its job has failed: to the starts that are skipped.
async fn say_failure(held: &MultiLease<Any>, request: &LockRequest, status: u8) {
    if let ([lease], Some(_), 1..) = (held.leases(), request.min_hold, status) {
        // Without an answer it is not known.
        let _ = timeout(NOTE_LIMIT, lease.set_note(format!("exit status {status}"))).await;
    }
}

/// A release that fails changes nothing about what the command did. One that comes too late does:
/// the lock was lost under the command, and nobody had noticed.
pub(crate) async fn give_back(
    held: MultiLease<Any>,
    keys: &[String],
    printer: &Printer,
) -> Option<Released> {
    match timeout(RELEASE, held.release()).await {
        Ok(Ok(released)) => return Some(released),
        Ok(Err(error)) => printer.warn(error.to_string()),
        Err(_) => {
            let keys = keys.join(", ");
            printer.warn(format!(
                "the store has not confirmed the release of {keys} within 2 s; without it the \
                 lease ends with its TTL"
            ));
        }
    }
    None
}
