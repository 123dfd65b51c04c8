//! Arguments that are understood, and those that are refused.

use std::time::Duration;

use proptest::strategy::Strategy;

use super::*;
use crate::config::{Key, Value};

#[test]
fn the_definitions_are_sound() {
    Cli::command().debug_assert();
}

#[test]
fn every_subcommand_has_an_example() {
    let mut all = Cli::command();
    all.build();
    let ours = |command: &&clap::Command| command.get_name() != "help";
    for command in all.get_subcommands().filter(ours) {
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        let (head, examples) = help.split_once('\n').unwrap_or_default();
        let has_one = matches!(head, "Example:" | "Examples:");
        let has_one = has_one && examples.starts_with("  leasehold ");
        assert!(has_one, "{}", command.get_name());
    }
}

#[test]
fn what_follows_the_dashes_is_the_commands_own() {
    let typed = ["leasehold", "run", "k", "--", "grep", "-n", "--", "-w"];
    let Command::Run(run) = parse(typed).unwrap().command else {
        panic!("another subcommand");
    };
    assert_eq!(run.command, ["grep", "-n", "--", "-w"]);
    assert_eq!(run.common.store.settings.wait().value, Duration::MAX);
    assert!(Cli::try_parse_from(["leasehold", "run", "k", "grep", "-n"]).is_err());
}

#[test]
fn options_that_are_settings_are_read_with_their_types() {
    let typed = "leasehold run k -S local:/x --tls-ca ca.pem --ttl 9s -w 5m -- true";
    let mut command = parse(typed.split(' ')).unwrap().command;
    let settings = &command.store().unwrap().settings;
    let set = settings.layer.iter();
    let set = set.map(|(key, set)| (*key, set.value.clone()));
    let (ttl, wait) = (Duration::from_secs(9), Duration::from_secs(300));
    assert_eq!(
        set.collect::<Vec<_>>(),
        [
            (Key::Store, Value::Text("local:/x".to_owned())),
            (Key::TlsCa, Value::Path("ca.pem".into())),
            (Key::Ttl, Value::Duration(ttl)),
            (Key::Wait, Value::Duration(wait)),
        ]
    );
    // How long a lease lasts from now on is none.
    let typed = "leasehold renew f --ttl 9s";
    let mut command = parse(typed.split(' ')).unwrap().command;
    assert!(command.store().unwrap().settings.layer.is_empty());
}

/// An option that is called as a setting is read as one.
#[test]
fn what_is_called_as_a_setting_is_one() {
    let mut all = Cli::command();
    all.build();
    let mut seen = 0;
    for command in all.get_subcommands() {
        for row in &crate::config::TABLE {
            let mut arguments = command.get_arguments();
            let Some(option) = arguments.find(|it| it.get_id().as_str() == row.id()) else {
                continue;
            };
            seen += 1;
            let help = option.get_help().map(ToString::to_string);
            let says = help.is_some_and(|help| help.contains(&row.variable()));
            assert!(says, "{} --{}", command.get_name(), row.name);
        }
    }
    assert!(seen > crate::config::TABLE.len(), "{seen}");
}

/// What people and scripts type, and what goes wrong in both.
const WORDS: &str = "run hold elect show ls top --watch --watch=1s --interval break resize doctor \
    init bench config --config --profile completions man help k -- - -w -w=5s 5m --wait \
    584942417355y --ttl 99999999999999999999s --limit 0 4294967296 -1 --shared -s --every \
    --recover-as ../x -S --store redis://u:p@h --json --no-wait --help --version --grace --label \
    \u{1f512} \u{1b}[2J";

proptest::proptest! {
    /// Arguments are understood, or refused with words and a status; nothing else.
    #[test]
    fn any_arguments_are_understood_or_refused(
        typed in proptest::collection::vec(
            proptest::prop_oneof![
                // These, and what is no word.
                8 => proptest::sample::select(WORDS.split(' ').chain(["", " "]).collect::<Vec<_>>())
                    .prop_map(str::to_owned),
                1 => proptest::prelude::any::<String>(),
            ],
            0..12,
        ),
    ) {
        if let Err(refused) = parse(std::iter::once("leasehold".to_owned()).chain(typed)) {
            assert!(!refused.render().to_string().is_empty());
            assert!(matches!(refused.exit_code(), 0 | 2));
        }
    }
}
