//! `leasehold resize`: another number of permits.

use crate::args::ResizeArgs;
use crate::connect::connect;
use crate::exit;
use crate::failure::Failure;
use crate::output::{Fields, Printer};

/// Changes the number of permits, if it is what was said.
pub(crate) async fn resize(args: &ResizeArgs, printer: &Printer) -> Result<u8, Failure> {
    let (key, from, to) = (&*args.key, args.from, args.to);
    leasehold::Key::new(key)?;
    let client = connect(&args.common.store.settings).await?;
    client.semaphore(key, from)?.resize(to).await.map(drop)?;
    // While nobody uses it a key has no number, and nothing was changed.
    let in_use = client.inspect(key).await?.permits.is_some();
    let sentence = match in_use {
        true => format!("resized {key} from {from} to {to} permits"),
        false => {
            format!("{key} is idle: there is nothing to resize; the next --limit sets the permits")
        }
    };
    let done = Fields::default().with("key", key).with("from", from);
    let done = done.with("to", to).with("in_use", in_use);
    printer.done(&done, &sentence)?;
    Ok(exit::OK)
}
