//! Unit files, read as systemd reads them.

use super::Machine;

/// A unit file: sections with their settings, in order.
pub(super) struct Unit {
    pub(super) name: String,
    pub(super) text: String,
    settings: Vec<(String, String, String)>,
}

/// What may be set where, as far as the recipes use it: another name may be a slip.
const KNOWN: &str = "Unit.Description Unit.Wants Unit.After \
    Service.Type Service.User Service.StateDirectory Service.Environment Service.ExecStart \
    Service.Restart Service.RestartSec Service.RestartPreventExitStatus Service.KillMode \
    Service.TimeoutStopSec Timer.OnCalendar Timer.Persistent Install.WantedBy";

impl Unit {
    /// The first line says where the file is.
    pub(super) fn parse(text: &str) -> Self {
        let first = text.lines().next().unwrap_or_default();
        let name = first.strip_prefix("# /etc/systemd/system/");
        let name = name.unwrap_or_else(|| panic!("{first:?} says where the unit is"));
        let (mut section, mut settings) = (String::new(), Vec::new());
        let lines = text.lines();
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(named) = line.strip_prefix('[') {
                section = named.trim_end_matches(']').to_owned();
                continue;
            }
            let (key, value) = line.split_once('=').expect("a setting");
            let setting = format!("{section}.{key}");
            let mut known = KNOWN.split(' ');
            assert!(known.any(|it| it == setting), "{name}: [{section}] {key}");
            settings.push((section.clone(), key.to_owned(), value.to_owned()));
        }
        Self {
            name: name.to_owned(),
            text: text.to_owned(),
            settings,
        }
    }

    pub(super) fn all(&self, key: &str) -> Vec<&str> {
        let with_key = self.settings.iter().filter(|(_, it, _)| it == key);
        with_key.map(|(_, _, value)| &**value).collect()
    }

    pub(super) fn get(&self, key: &str) -> &str {
        self.all(key).first().copied().unwrap_or_default()
    }

    pub(super) fn is_service(&self) -> bool {
        self.name.ends_with(".service")
    }

    pub(super) fn is_oneshot(&self) -> bool {
        self.get("Type") == "oneshot"
    }

    /// What it starts.
    pub(super) fn exec(&self) -> Vec<String> {
        let words = words(self.get("ExecStart"));
        assert!(words[0].starts_with('/'), "a whole path: {}", words[0]);
        words
    }

    /// The value of an option of leasehold.
    pub(super) fn option(&self, name: &str) -> Option<String> {
        let words = words(self.get("ExecStart"));
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1).cloned()
    }

    /// The variables that it sets, with the machine's state directory.
    pub(super) fn variables(&self, machine: &Machine<'_>) -> Vec<(String, String)> {
        let states = machine.place.path("state").display().to_string();
        let set = self.all("Environment").into_iter().flat_map(words);
        set.map(|set| {
            let (name, value) = set.split_once('=').expect("NAME=VALUE");
            (name.to_owned(), value.replace("%S", &states))
        })
        .collect()
    }
}

/// The words of a line: separated by spaces, together in quotes. Of escapes, variables and
/// specifiers the recipes use `%S` only.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut open) = (vec![String::new()], None);
    for c in line.chars() {
        assert!(!['\\', '$'].contains(&c), "not needed so far: {line}");
        let last = words.last_mut().expect("there is one");
        match (c, open) {
            ('"' | '\'', None) => open = Some(c),
            (_, Some(quote)) if c == quote => open = None,
            (' ', None) => words.push(String::new()),
            _ => last.push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn a_line_is_split_at_spaces_and_not_in_quotes() {
    let words = words("/bin/a -b  'c d' \"e\"");
    assert_eq!(words, ["/bin/a", "-b", "c d", "e"]);
}

#[test]
#[should_panic(expected = "a.service: [Service] Kilmode")]
fn a_setting_that_does_not_exist_is_seen() {
    Unit::parse("# /etc/systemd/system/a.service\n[Service]\nKilmode=mixed\n");
}
