//! `leasehold wait`: until a key is free, without taking it.

use std::pin::pin;
use std::time::Duration;

use leasehold::{Key, Settings};
use tokio::time::{sleep, timeout};

use crate::args::WaitForArgs;
use crate::exit::{self, Status};
use crate::failure::Failure;
use crate::output::{Event, Printer};
use crate::retries::{Patience, Retries};
use crate::session::Session;
use crate::signals::Signals;
use crate::view::KeyView;
use crate::waiting::SHORT_WAIT;

/// Waits until nobody holds the key.
pub(crate) async fn wait(args: &WaitForArgs, printer: &Printer) -> Result<Status, Failure> {
    let key = &args.key;
    Key::new(key)?;
    let work = async |session: &mut Session<'_>| {
        let (client, retries) = (&session.client, &mut session.retries);
        let mut told = false;
        // Answers whether it is free; else the time is over, and who holds it was said.
        let until_free = async |retries: &mut Retries<'_>| {
            let look = async || Ok::<_, Failure>(KeyView::from(&client.inspect(key).await?));
            let seen = retries.answer(look()).await?;
            retries.usable();
            let freed = client.wait_until_free(key);
            // A key that is free when the time is over is free.
            let mut waiting = pin!(timeout(retries.left(), freed));
            let live = printer.is_live();
            let pause = if live { Duration::ZERO } else { SHORT_WAIT };
            let freed = loop {
                tokio::select! {
                    biased;
                    freed = &mut waiting => break freed,
                    () = sleep(pause), if !told && !seen.holders.is_empty() => {
                        told = true;
                        printer.event(Event::waiting_until_free(key, &seen.holders));
                    }
                }
            };
            let holders = match freed {
                Ok(freed) => freed.map(|()| Vec::new())?,
                // It may have become free just now.
                Err(_) => look().await?.holders,
            };
            let (is_free, waited) = (holders.is_empty(), retries.elapsed());
            printer.event(match is_free {
                true => Event::free(key, waited, told),
                false => Event::conflict(key, waited, &holders),
            });
            Ok::<_, Failure>(is_free)
        };
        let is_free = retries.retry(&mut session.signals, until_free).await?;
        let taken = args.conflict_exit_code.unwrap_or(exit::CONFLICT);
        Ok(Status::from(if is_free { exit::OK } else { taken }))
    };
    let store = &args.common.store.settings;
    let asking = (std::slice::from_ref(key), Patience::of(store));
    let (settings, signals) = (Settings::default(), Signals::listen()?);
    Session::with(store, &settings, asking, signals, printer, work).await
}
