//! `leasehold.toml`: from its text to settings, with the line of each mistake.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use leasehold::store::describe;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::settings::Layer;
use super::table::{Key, Origin, nearest, of_files, unusable};
use crate::failure::Failure;

const PROFILE: &str = "profile";

/// A file, as far as its settings need it.
pub(super) struct Source<'a> {
    pub(super) path: Arc<Path>,
    pub(super) text: &'a str,
    /// Whether everybody may read it.
    pub(super) is_public: bool,
    /// Whether it was named on the command line.
    pub(super) named: bool,
    /// Whether the profile was.
    pub(super) profile_named: bool,
}

/// What a file sets.
#[derive(Default)]
pub(super) struct Sections {
    /// Outside of profiles.
    pub(super) top: Layer,
    pub(super) profiles: BTreeMap<Arc<str>, Layer>,
}

type Entry<'a, 'i> = (&'a Spanned<DeString<'i>>, &'a Spanned<DeValue<'i>>);

impl Source<'_> {
    /// Reads all of it: a mistake in a profile that is not used is one, too.
    pub(super) fn parse(&self) -> Result<Sections, Failure> {
        let table = DeTable::parse(self.text).map_err(|error| {
            // The error itself would show the line, with whatever secret stands there.
            let place = self.place(error.span().unwrap_or_default());
            Failure::usage(format!("{place}: not valid TOML: {}", error.message()))
                .hint("a line is like ttl = \"30s\", or [profile.prod] before those of a profile")
        })?;
        let mut sections = Sections::default();
        for (key, value) in in_order(table.get_ref()) {
            if key.get_ref() != PROFILE {
                self.set(&mut sections.top, None, (key, value))?;
                continue;
            }
            for (name, value) in in_order(self.table(PROFILE, value)?) {
                let name: Arc<str> = Arc::from(&**name.get_ref());
                let mut layer = Layer::default();
                for entry in in_order(self.table(&format!("{PROFILE}.{name}"), value)?) {
                    self.set(&mut layer, Some(&name), entry)?;
                }
                sections.profiles.insert(name, layer);
            }
        }
        Ok(sections)
    }

    fn set(
        &self,
        layer: &mut Layer,
        profile: Option<&Arc<str>>,
        (name, value): Entry<'_, '_>,
    ) -> Result<(), Failure> {
        let line = self.line(name.span());
        let place = format!("{}:{line}", self.path.display());
        let row = of_files().find(|row| row.name == name.get_ref());
        let row = row.ok_or_else(|| unknown(&place, name.get_ref(), profile.is_none()))?;
        let place = format!("{place}: the value of {}", row.name);
        let DeValue::String(text) = value.get_ref() else {
            let example = format!("write it in quotes: {} = {:?}", row.name, row.example);
            return Err(Failure::usage(format!("{place} is not a text")).hint(example));
        };
        let from = Origin::File {
            path: Arc::clone(&self.path),
            line,
            profile: profile.cloned(),
            named: self.named || (profile.is_some() && self.profile_named),
        };
        let directory = self.path.parent().unwrap_or_else(|| Path::new(""));
        let set = row.read(OsStr::new(&**text), Some(directory), from);
        let set = set.map_err(|why| unusable(&place, why))?;
        if row.key == Key::Store && self.is_public && describe(&set.value.show())?.has_password {
            let message = format!(
                "{place} has a password in it, and every user of this machine can read this file"
            );
            let hint = "put the password into a file of its own, and name that with password-file; \
                        or chmod o-r this one";
            return Err(Failure::usage(message).hint(hint));
        }
        layer.insert(row.key, set);
        Ok(())
    }

    fn table<'a, 'i>(
        &self,
        name: &str,
        value: &'a Spanned<DeValue<'i>>,
    ) -> Result<&'a DeTable<'i>, Failure> {
        let DeValue::Table(table) = value.get_ref() else {
            let place = self.place(value.span());
            return Err(Failure::usage(format!("{place}: {name} is not a table"))
                .hint("a profile begins with a line like [profile.prod]"));
        };
        Ok(table)
    }

    fn place(&self, span: Range<usize>) -> String {
        format!("{}:{}", self.path.display(), self.line(span))
    }

    fn line(&self, span: Range<usize>) -> usize {
        let before = self.text.as_bytes().iter().take(span.start);
        1 + before.filter(|byte| **byte == b'\n').count()
    }
}

/// As they stand in the file, so that the first mistake is told first.
fn in_order<'a, 'i>(table: &'a DeTable<'i>) -> Vec<Entry<'a, 'i>> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn unknown(place: &str, name: &str, at_top: bool) -> Failure {
    if name == "password" {
        return Failure::usage(format!("{place}: a password cannot be set here")).hint(
            "put it into a file that only its user can read, and name that with password-file",
        );
    }
    let names = || {
        let profile = at_top.then_some(PROFILE);
        of_files().map(|row| row.name).chain(profile)
    };
    let hint = match nearest(name, names()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("the keys are {}", names().collect::<Vec<_>>().join(", ")),
    };
    Failure::usage(format!("{place}: there is no key {name:?}")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Sections, Failure> {
        let source = Source {
            path: Path::new("/x/leasehold.toml").into(),
            text,
            is_public: true,
            named: false,
            profile_named: false,
        };
        source.parse()
    }

    #[test]
    fn each_key_can_be_set_to_its_example() {
        for row in of_files() {
            let line = format!("{} = {:?}\n", row.name, row.example);
            parse(&line).unwrap();
            let profiles = parse(&format!("[profile.a]\n{line}")).unwrap().profiles;
            assert_eq!(profiles.len(), 1, "{line}");
            assert!(parse(&format!("{} = 30", row.name)).is_err(), "{line}");
        }
    }

    proptest::proptest! {
        /// A text is understood, or refused with a sentence and a hint; nothing else.
        #[test]
        fn any_text_is_understood_or_refused(
            lines in proptest::collection::vec(
                proptest::prop_oneof![
                    4 => proptest::sample::select(LINES).prop_map(str::to_owned),
                    1 => proptest::prelude::any::<String>(),
                ],
                0..6,
            ),
        ) {
            if let Err(refused) = parse(&lines.join("\n")) {
                assert!(refused.message.starts_with("/x/leasehold.toml:"), "{refused:?}");
                assert!(refused.hint.is_some(), "{refused:?}");
                assert!(!format!("{refused:?}").contains("hunter2"), "{refused:?}");
            }
        }
    }

    use proptest::strategy::Strategy as _;

    const LINES: &[&str] = &[
        "store = \"redis://host/\"",
        "store = \"redis://u:hunter2@host/\"",
        "store = \"redis://u:hunter2@host:x/\"",
        "store = redis://u:hunter2@host/",
        "store = \"foo:\"",
        "password = \"hunter2\"",
        "ttl = \"1ms\"",
        "ttl = 30",
        "wait = \"forever\"",
        "label = \"\"",
        "grace = \"",
        "[profile.prod]",
        "[profile]",
        "[[profile]]",
        "profile.a.ttl = \"3s\"",
        "profile = { a = { ttl = \"3s\" } }",
        "= \"x\"",
        "\u{feff}",
    ];
}
