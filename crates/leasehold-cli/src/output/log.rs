//! The library's log lines, on standard error in the command's own shape.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, registry};

use super::{Event, OutputArgs, Printer};
use crate::env;

/// Shows warnings; more with `-v`, less with `-q`, whatever is asked for by `LEASEHOLD_LOG`.
pub(super) fn begin(printer: &Printer, options: &OutputArgs) {
    let level = match (options.quiet, options.verbose) {
        (true, _) => "off",
        (_, true) => "warn,leasehold=debug,leasehold_core=debug",
        // What becomes of the lock the command says itself.
        _ => "off,leasehold=warn,leasehold::observe=off",
    };
    let asked = std::env::var_os(env::LOG).unwrap_or_default();
    // What is no text is no filter either.
    let asked = asked.to_str().unwrap_or("=");
    let asked = Some(asked).filter(|asked| !asked.trim().is_empty());
    let filter = EnvFilter::try_new(asked.unwrap_or(level)).unwrap_or_else(|_| {
        printer.warn_with_hint(
            format!("{} is not a filter of log lines", env::LOG),
            "for example: info, debug, or leasehold=trace",
        );
        EnvFilter::new(level)
    });
    // Only the first call of a process counts.
    let _ = registry().with(filter).with(printer.clone()).try_init();
}

impl<S: Subscriber> Layer<S> for Printer {
    fn on_event(&self, event: &tracing::Event<'_>, _context: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let message = text.message + &text.fields;
        self.event(match *event.metadata().level() {
            Level::WARN => Event::warning(&message, None),
            level => Event::log(&level.to_string(), &message),
        });
    }
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
