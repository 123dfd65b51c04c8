//! `leasehold top`: the locks of a store on a full screen, as they change.

use std::io::{self, IsTerminal};
use std::thread;

use leasehold_console::ConsoleError;
use leasehold_console::top::{TopOptions, top as show};
use rustix::process::Signal;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::args::TopArgs;
use crate::connect::connect;
use crate::failure::Failure;
use crate::output::{Printer, takes_more};
use crate::signals::{LAST_WRITE, Signals};
use crate::{exit, sys};

/// Shows the locks until `q` or a signal.
pub(crate) async fn top(args: &TopArgs, printer: &Printer) -> Result<u8, Failure> {
    check_terminal()?;
    let client = connect(&args.store.settings).await?;
    let mut signals = Signals::listen()?;
    let options = TopOptions {
        store: client.store_url().to_owned(),
        pattern: args.keys.pattern.clone(),
        interval: args.interval,
        colour: std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()),
    };
    let (end, ends) = oneshot::channel::<()>();
    let (tell, told) = oneshot::channel();
    let (driver, modes) = (Handle::current(), tcgetattr(io::stdin()));
    // A terminal that was stopped holds up whoever draws: signals are heard beside it.
    let stop = || sys::stop_group(Signal::TSTP);
    let screen = move || tell.send(driver.block_on(show(client, options, ends, stop)));
    let _ = thread::Builder::new().spawn(screen);
    let stuck = async move {
        signals.next().await;
        drop(end);
        sleep(LAST_WRITE).await;
        // As long as it takes more, the answer to a break is waited for.
        while takes_more(&io::stdout()) {
            sleep(LAST_WRITE).await;
        }
    };
    let shown = tokio::select! {
        biased;
        shown = told => shown,
        () = stuck => {
            // The screen cannot be left, but what is typed is to be seen again.
            if let Ok(modes) = modes {
                let _ = tcsetattr(io::stdin(), OptionalActions::Now, &modes);
            }
            return Ok(exit::OK);
        }
    };
    let (ended, broke) =
        shown.map_err(|_| Failure::system("the thread of the screen has failed"))?;
    for broke in broke {
        printer.notice(&broke);
    }
    match ended {
        // A terminal that has gone away sends SIGHUP, too, which may be heard later.
        Err(ConsoleError::Terminal(_)) if tcgetattr(io::stdin()).is_err() => Ok(exit::OK),
        ended => ended.map(|()| exit::OK).map_err(Failure::from),
    }
}

/// Refuses what cannot show a full screen.
fn check_terminal() -> Result<(), Failure> {
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let message = match std::env::var("TERM") {
        _ if !is_terminal => "not a terminal: top needs one to show its screen".to_owned(),
        Ok(term) if !matches!(&*term, "" | "dumb") => return Ok(()),
        Ok(term) => format!("the terminal cannot show a full screen: TERM is {term:?}"),
        Err(_) => "the terminal is unknown: TERM is not set".to_owned(),
    };
    Err(Failure::usage(message).hint("use leasehold ls --watch, or ls --json for programs"))
}
