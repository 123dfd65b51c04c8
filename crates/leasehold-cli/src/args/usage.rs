//! What the arguments were refused for, with what to write instead.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::error::{ContextKind, ErrorKind};
use clap::{Command, CommandFactory};

use super::Cli;
use crate::exit;
use crate::output::{PREFIX, Printer, escape, is_read};

/// Options of other lock commands (flock, `consul lock`): their names, the option here that a
/// subcommand must have, and what to write, with two spaces between.
const OTHERS: &str = include_str!("other_commands.txt");

/// What others call a subcommand, or another build has, and what to do, with two spaces between.
const SUBCOMMANDS: &str = include_str!("other_subcommands.txt");

/// Prints what the arguments were refused for, or the help that was asked for.
pub(crate) fn usage(mut asked: clap::Error) -> u8 {
    if !asked.use_stderr() {
        let Err(failure) = is_read(asked.print()) else {
            return exit::OK;
        };
        return Printer::default().failure(&failure);
    }
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let hint = match asked.kind() {
        ErrorKind::UnknownArgument => of_unknown(&arguments, &mut asked),
        ErrorKind::MissingRequiredArgument => example(&arguments),
        ErrorKind::InvalidSubcommand => of_subcommand(&arguments)
            .inspect(|_| _ = asked.remove(ContextKind::SuggestedSubcommand)),
        _ => None,
    };
    let hint = hint.map_or_else(String::new, |hint| format!("\n\nhint: {hint}"));
    // Where a tip was taken out, its empty line stays.
    let mut text = asked.render().to_string().replace("\n\n\n", "\n\n");
    for argument in arguments.iter().map(|argument| argument.to_string_lossy()) {
        if let Some(login) = login(&argument) {
            text = text.replace(&format!("://{login}@"), "://***@");
        }
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    let text: Vec<_> = text.lines().map(escape).collect();
    let _ = writeln!(io::stderr().lock(), "{PREFIX}{}{hint}", text.join("\n"));
    exit::USAGE
}

/// What may be a password in a URL, also where that is a part of the argument, as in `--ttl=URL`.
fn login(argument: &str) -> Option<&str> {
    let (_, rest) = argument.split_once("://")?;
    Some(rest.rsplit_once('@')?.0)
}

/// What to do for a subcommand that is not known, if another build has it, or others call it so.
fn of_subcommand(arguments: &[OsString]) -> Option<String> {
    let name = arguments.first()?.to_str()?;
    let mut rows = SUBCOMMANDS.lines().filter_map(|row| row.split_once("  "));
    let (_, ours) = rows.find(|(names, _)| names.split(' ').any(|it| it == name))?;
    Some(ours.trim_start().to_owned())
}

fn of_unknown(arguments: &[OsString], asked: &mut clap::Error) -> Option<String> {
    let (subcommand, arguments) = arguments.split_first()?;
    if subcommand.as_encoded_bytes().starts_with(b"-") {
        asked.remove(ContextKind::Suggested);
        return Some("options follow the subcommand, as in leasehold ls -S URL".to_owned());
    }
    let own = arguments.split(|argument| argument == "--").next()?;
    if let Some(hint) = of_others(subcommand.to_str()?, own) {
        asked.remove(ContextKind::Suggested);
        return Some(hint.to_owned());
    }
    let runs = subcommand == "run" || subcommand == "elect";
    let any = |is: fn(&str) -> bool| own.iter().filter_map(|it| it.to_str()).any(is);
    let hint = if !runs {
        let is_named = any(|it| it.starts_with("-S") || it.starts_with("--store"));
        let url = !is_named && any(|it| it.contains("://"));
        return url.then(|| "write -S before the URL of a store".to_owned());
    } else if own.len() == arguments.len() {
        "write -- before the command"
    } else if asked.remove(ContextKind::Suggested).is_none() {
        return None;
    } else if subcommand == "run" {
        // What follows -- is the command here, and not a key, as clap would have it.
        "for a key that begins with a dash write --key=-KEY"
    } else {
        "the key of an election cannot begin with a dash"
    };
    Some(hint.to_owned())
}

/// What to write for the first option of another command.
fn of_others(subcommand: &str, arguments: &[OsString]) -> Option<&'static str> {
    let named = built(subcommand)?;
    let has = |long: &str| named.get_arguments().any(|it| it.get_long() == Some(long));
    let typed = arguments.iter().filter_map(|argument| {
        let name = argument.to_str()?.strip_prefix('-')?;
        let name = name.strip_prefix('-').unwrap_or(name);
        Some(name.split('=').next().unwrap_or(name))
    });
    let row = |row: &'static str| {
        let (names, rest) = row.split_once("  ")?;
        let (ours, hint) = rest.trim_start().split_once("  ")?;
        Some((names, ours, hint.trim_start()))
    };
    let of = |name: &str| {
        let mut others = OTHERS.lines().filter_map(row);
        others.find(|(names, ours, _)| names.split(' ').any(|it| it == name) && has(ours))
    };
    typed.filter_map(of).map(|(.., hint)| hint).next()
}

/// The first example of the help.
fn example(arguments: &[OsString]) -> Option<String> {
    let command = built(arguments.first()?.to_str()?)?;
    let help = command.get_after_help()?.to_string();
    let mut lines = help.lines().map(str::trim);
    let line = lines.find(|line| line.starts_with("leasehold "))?;
    Some(format!("for example: {line}"))
}

fn built(subcommand: &str) -> Option<Command> {
    let mut all = Cli::command();
    all.build();
    all.find_subcommand(subcommand).cloned()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn what_it_was_built_without_is_said() {
        for name in ["top", "serve"] {
            let parsed = Cli::try_parse_from(["leasehold", name]);
            let is_unknown = parsed.is_err_and(|it| it.kind() == ErrorKind::InvalidSubcommand);
            assert_eq!(is_unknown, !cfg!(feature = "console"), "{name}");
            let hint = of_subcommand(&[name.into()]).unwrap();
            let said = "without it: build it with --features console";
            assert!(hint.ends_with(said), "{hint}");
        }
        assert_eq!(of_subcommand(&["tops".into()]), None);
    }
}
