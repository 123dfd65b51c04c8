//! `leasehold man`: the manual, from the same definitions as the help.

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::{Cli, ManArgs, TABLES};
use crate::exit;
use crate::failure::Failure;
use crate::output::Printer;

/// Prints a page.
pub(crate) fn man(args: &ManArgs, printer: &Printer) -> Result<u8, Failure> {
    let mut all = Cli::command();
    all.build();
    let command = match &args.of {
        None => all,
        Some(name) => {
            let of = all.find_subcommand(name).ok_or_else(|| {
                let names: Vec<_> = all.get_subcommands().map(Command::get_name).collect();
                Failure::usage(format!("no page for {name}"))
                    .hint(format!("there are {}", names.join(", ")))
            })?;
            of.clone().version(env!("CARGO_PKG_VERSION"))
        }
    };
    // To write to memory does not fail.
    printer.data(&page(command).unwrap_or_default())?;
    Ok(exit::OK)
}

fn page(command: Command) -> std::io::Result<String> {
    // The tables have sections of their own here.
    let example = command.get_after_help().map(ToString::to_string);
    let lines = example.iter().flat_map(|example| example.lines());
    let examples: Vec<_> = lines.filter_map(|line| line.strip_prefix("  ")).collect();
    let examples = examples.join("\n");
    let version = concat!("leasehold ", env!("CARGO_PKG_VERSION"));
    // What `-h` leaves out for its length would have no description here.
    let command = command.mut_args(|argument| argument.hide_short_help(false));
    let man = Man::new(command).source(version).manual("leasehold");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    man.render_subcommands_section(&mut page)?;
    let mut rest = Roff::new();
    for (title, rows) in TABLES {
        rest.control("SH", [&*title.to_uppercase()]);
        for (name, meaning) in rows.lines().filter_map(|row| row.split_once("  ")) {
            rest.control("TP", []);
            rest.text([bold(name)]);
            rest.text([roman(meaning.trim_start())]);
        }
    }
    rest.control("SH", ["EXAMPLES"]);
    rest.control("nf", []);
    rest.text([roman(examples)]);
    rest.control("fi", []);
    rest.to_writer(&mut page)?;
    man.render_version_section(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
