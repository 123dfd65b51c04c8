//! `leasehold completions`.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::exit;
use crate::failure::Failure;
use crate::output::Printer;

/// Prints what makes a shell complete our arguments.
pub(crate) fn completions(args: &CompletionsArgs, printer: &Printer) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "leasehold", &mut script);
    printer.data(&String::from_utf8_lossy(&script))?;
    Ok(exit::OK)
}
