//! The leasehold command: guard any program with a distributed lock.
//!
//! The arguments as typed are in `args`; each subcommand has a file under
//! `commands`; `child` runs the guarded program; `output` is the only place
//! that writes, but for the screen of `top`.

#[cfg(not(unix))]
compile_error!("the leasehold command needs process groups and signals, as Unix has them");

mod acquire;
mod args;
mod background;
mod child;
mod commands;
mod config;
mod connect;
mod duration;
mod env;
mod exit;
mod failure;
mod lease_status;
mod lifetime;
mod lock_request;
mod metrics_file;
mod moment;
mod named_process;
mod output;
mod recovery;
mod retries;
mod run_child;
mod self_deadlock;
mod session;
mod signals;
mod store_warnings;
mod sys;
mod user_file;
mod waiting;

use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;

use leasehold_console::{history, view};

use crate::args::Command;
use crate::config::Config;
use crate::exit::Status;
use crate::failure::Failure;
use crate::metrics_file::MetricsFile;
use crate::output::{Event, OutputArgs, Printer};

fn main() {
    if let Some(status) = child::run_if_started_anew() {
        Status::from(status).end()
    }
    lifetime::note();
    // What our caller has blocked would not reach the command, which has no signal blocked.
    sys::unblock(sys::ALL);
    sys::survive_file_size();
    let status = match args::parse(std::env::args_os()) {
        Ok(cli) => perform(cli.command)
            .unwrap_or_else(|failure| Printer::default().failure(&failure).into()),
        Err(asked) => args::usage(asked).into(),
    };
    status.end()
}

fn perform(mut command: Command) -> Result<Status, Failure> {
    let mut front = Ok(None);
    if let Command::Hold(args) = &mut command {
        front = args.lifetime.go_to_background(args.save.is_some());
    }
    if let Ok(Some(status)) = front {
        return Ok(status);
    }
    // One thread: the guarded program dies with the thread that started it.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = descriptors_left().and_then(|()| builder.enable_all().build());
    let runtime = runtime.map_err(|error| {
        Failure::system(format!("cannot start: {error}"))
            .hint("raise the limits of open files and memory (ulimit -n, ulimit -v)")
    })?;
    child::reap_orphans(&runtime);
    let status = runtime.block_on(dispatch(command, front.map(drop)));
    // A name that is still being looked up keeps nobody waiting.
    runtime.shutdown_background();
    Ok(status)
}

/// Refuses to start where no files can be opened: the runtime's pipe for signals panics
/// without.
fn descriptors_left() -> io::Result<()> {
    /// A runtime takes six.
    const WANTED: usize = 8;
    let open = || io::stderr().as_fd().try_clone_to_owned();
    let all: io::Result<Vec<_>> = std::iter::repeat_with(open).take(WANTED).collect();
    all.map(drop)
}

/// Carries the command out, unless it was to go to the `background` and cannot.
async fn dispatch(mut command: Command, background: Result<(), Failure>) -> Status {
    let is_job = command.is_job();
    // Of those without options of their output only `top` has settings. It fills the screen, which
    // lines of the log would tear.
    let has_log = command.store().is_some() && !io::stderr().is_terminal();
    let printer = &match command.common() {
        Some(common) => Printer::new(&common.output, is_job),
        None if has_log => Printer::new(&OutputArgs::default(), false),
        None => Printer::default(),
    };
    let metrics = command.metrics_file();
    let metrics = metrics.map(|(file, key)| MetricsFile::begin(file, key, printer));
    let done = async {
        background?;
        carry_out(&mut command, printer).await
    };
    let ended = done.await.unwrap_or_else(|failure| match failure.signal {
        Some(signal) => Status::of_signal(signal.as_raw()),
        None => printer.failure(&failure).into(),
    });
    // These say how it ended, whatever happened.
    let says_the_end = match &command {
        Command::Run(_) | Command::Wait(_) => true,
        Command::Elect(args) => !args.observe,
        _ => false,
    };
    if says_the_end {
        printer.event(Event::exit(ended.code, ended.signal));
    }
    if let Some(metrics) = metrics {
        // A write may take for ever.
        ended.at_the_latest();
        metrics.finish(ended.code, printer);
    }
    printer.finish();
    ended
}

async fn carry_out(command: &mut Command, printer: &Printer) -> Result<Status, Failure> {
    // The saved lease may name another store.
    let is_of_saved = matches!(command, Command::Renew(_) | Command::Release(_));
    // It shows what there is, and reads it itself.
    let is_config = matches!(command, Command::Config(_));
    if let Some(store) = command.store().filter(|_| !is_config) {
        Config::load(&store.settings, &store.files)?.fill(&mut store.settings);
        if !is_of_saved {
            store_warnings::say_if_not_sent(&store.settings, printer);
        }
    }
    Ok(match command {
        Command::Run(args) => commands::run::run(args, printer).await?,
        Command::Elect(args) => commands::elect::elect(args, printer).await?,
        Command::Wait(args) => commands::wait::wait(args, printer).await?,
        Command::Hold(args) => commands::hold::hold(args, printer).await?,
        Command::Bench(args) => commands::bench::bench(args, printer).await?,
        Command::Renew(args) => commands::saved_lease::renew(args, printer).await?.into(),
        Command::Release(args) => commands::saved_lease::release(args, printer).await?.into(),
        Command::Show(args) => commands::show::show(args, printer).await?.into(),
        Command::Log(args) => commands::log::log(args, printer).await?.into(),
        Command::Ls(args) => commands::ls::ls(args, printer).await?.into(),
        #[cfg(feature = "console")]
        Command::Top(args) => commands::top::top(args, printer).await?.into(),
        Command::Deadlocks(args) => commands::deadlocks::deadlocks(args, printer).await?.into(),
        #[cfg(feature = "console")]
        Command::Serve(args) => commands::serve::serve(args, printer).await?.into(),
        Command::Break(args) => commands::break_key::break_key(args, printer).await?.into(),
        Command::Resize(args) => commands::resize::resize(args, printer).await?.into(),
        Command::Doctor(args) => commands::doctor::doctor(args, printer).await?.into(),
        Command::Init(args) => commands::init::init(args, printer).await?.into(),
        Command::Config(args) => commands::config::config(args, printer)?.into(),
        Command::Completions(args) => commands::completions::completions(args, printer)?.into(),
        Command::Man(args) => commands::man::man(args, printer)?.into(),
    })
}
