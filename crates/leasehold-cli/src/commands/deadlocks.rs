//! `leasehold deadlocks`: the locks that wait for each other.

use std::time::Duration;

use leasehold_console::deadlocks::DeadlockView;

use crate::args::DeadlocksArgs;
use crate::connect::connect;
use crate::duration::spoken;
use crate::exit;
use crate::failure::Failure;
use crate::output::Printer;

/// Prints the deadlocks of the store. The status says whether there are some.
pub(crate) async fn deadlocks(args: &DeadlocksArgs, printer: &Printer) -> Result<u8, Failure> {
    let client = connect(&args.common.store.settings).await?;
    if !client.capabilities().queueing {
        let message = "this store does not record who waits, so deadlocks cannot be found";
        let hint = "docs/deadlocks.md says which stores do";
        return Err(Failure::new(exit::UNAVAILABLE, message).hint(hint));
    }
    let found = client.deadlocks().await?;
    for deadlock in &found {
        let view = DeadlockView::from(deadlock);
        let lasts = spoken(Duration::from_millis(view.for_ms));
        printer.show(&view, || format!("{}, for {lasts}\n", view.sentence))?;
    }
    if found.is_empty() {
        printer.nothing("no deadlocks");
        return Ok(exit::OK);
    }
    Ok(exit::DEADLOCKED)
}
