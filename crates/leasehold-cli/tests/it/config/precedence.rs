//! Which place of a setting goes before which, and what sets each.

use std::fs;
use std::process::Command;

use super::{Place, settings, shown, write};
use crate::pages::root;
use serde_json::{Value, json};

/// A place where a setting can stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    Option,
    Variable,
    UsersProfile,
    SystemsProfile,
    User,
    System,
    NamedProfile,
    Named,
}

impl Layer {
    /// A TTL that nothing else sets.
    fn ttl(self) -> String {
        format!("{}s", 11 + self as usize)
    }
}

/// The TTL in force where it is set at these places.
async fn ttl(set: &[Layer], arguments: &str, variables: &[(&str, &str)]) -> Value {
    let place = Place::new();
    let line = |from: Layer| match set.contains(&from) {
        true => format!("ttl = \"{}\"\n", from.ttl()),
        false => String::new(),
    };
    for (path, top, profile) in [
        (place.user(), Layer::User, Layer::UsersProfile),
        (place.system(), Layer::System, Layer::SystemsProfile),
        (place.path("named.toml"), Layer::Named, Layer::NamedProfile),
    ] {
        let text = format!("{}[profile.p]\n{}", line(top), line(profile));
        write(&path, &text);
    }
    let mut command = place.command(format!("config {arguments}"));
    command.envs(variables.iter().copied());
    if set.contains(&Layer::Option) {
        command.args(["--ttl", &Layer::Option.ttl()]);
    }
    if set.contains(&Layer::Variable) {
        command.env("LEASEHOLD_TTL", Layer::Variable.ttl());
    }
    settings(&shown(command).await)["ttl"].0.clone()
}

/// Each row of the order of precedence: with what is above it taken away, it is in force.
#[tokio::test]
async fn each_place_goes_before_those_below_it() {
    use Layer::{
        Named, NamedProfile, Option, System, SystemsProfile, User, UsersProfile, Variable,
    };
    let of_profile = [Option, Variable, UsersProfile, SystemsProfile, User, System];
    let of_typed_profile = [Option, UsersProfile, SystemsProfile, Variable, User, System];
    let (named, p) = ("--config named.toml --profile p", "--profile p");
    let file = ("LEASEHOLD_CONFIG", "named.toml");
    let [of_p, of_q] = ["p", "q"].map(|name| ("LEASEHOLD_PROFILE", name));
    for (arguments, variables, order) in [
        ("", &[of_p][..], &of_profile[..]),
        (p, &[], &of_typed_profile),
        ("", &[], &[Option, Variable, User, System]),
        (named, &[], &[Option, NamedProfile, Named, Variable]),
        ("", &[file, of_p], &[Option, Variable, NamedProfile, Named]),
        (p, &[file, of_q], &[Option, NamedProfile, Variable, Named]),
    ] {
        let mut elsewhere = [&of_profile[..], &[NamedProfile, Named]].concat();
        elsewhere.retain(|from| !order.contains(from));
        for (above, expected) in order.iter().enumerate() {
            let set = [&order[above..], &elsewhere].concat();
            let found = ttl(&set, arguments, variables).await;
            assert_eq!(found, expected.ttl(), "{arguments:?} {variables:?} {set:?}");
        }
        let found = ttl(&elsewhere, arguments, variables).await;
        assert_eq!(found, "30s", "{arguments:?} {variables:?} {elsewhere:?}");
    }
}

/// A row of the table of keys in `docs/configuration.md`.
struct Documented {
    key: String,
    variable: String,
    option: String,
    default: String,
}

fn documented() -> Vec<Documented> {
    let page = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let rows = page.lines().filter(|line| line.contains("| `LEASEHOLD_"));
    let row = |line: &str| {
        let cells = line.split('|').map(|cell| cell.trim().trim_matches('`'));
        let cells: Vec<_> = cells.collect();
        Documented {
            key: cells[1].to_owned(),
            variable: cells[2].to_owned(),
            option: cells[3].to_owned(),
            default: cells[4].to_owned(),
        }
    };
    rows.map(row).collect()
}

/// A value for each key, as it is shown.
const VALUES: [(&str, &str); 11] = [
    ("store", "local:/somewhere"),
    ("user", "app"),
    ("password-file", "/x/password"),
    ("tls-ca", "/x/ca.pem"),
    ("tls-cert", "/x/client.pem"),
    ("tls-key", "/x/client.key"),
    ("ttl", "1m30s"),
    ("wait", "5m"),
    ("retry-for", "10m"),
    ("grace", "2s"),
    ("label", "billing"),
];

#[tokio::test]
async fn the_page_has_each_key_with_what_else_sets_it() {
    let place = Place::new();
    let table = documented();
    let unset = settings(&shown(place.command("config")).await);
    assert_eq!(unset.len(), table.len());
    for row in table {
        let key = &*row.key;
        let (_, value) = VALUES.iter().find(|(of, _)| *of == key).unwrap();
        let in_force = async |command: Command| settings(&shown(command).await)[key].clone();

        let usual = match &*row.default {
            "none" => Value::Null,
            "TTL/4, at most 5s" => json!("5s"),
            usual => json!(usual),
        };
        assert_eq!(unset[key], (usual, json!({"kind": "default"})), "{key}");

        let typed = place.command(["config", &row.option, value]);
        let from = json!({"kind": "option", "name": row.option});
        assert_eq!(in_force(typed).await, (json!(value), from), "{key}");

        let mut set = place.command("config");
        set.env(&row.variable, value);
        let from = json!({"kind": "variable", "name": row.variable});
        assert_eq!(in_force(set).await, (json!(value), from), "{key}");

        let file = place.path("of-key.toml");
        write(&file, &format!("# A comment.\n{key} = {value:?}\n"));
        let read = place.command(("config --config", file.to_str().unwrap()));
        let from = json!({"kind": "file", "path": file, "line": 2, "profile": null});
        assert_eq!(in_force(read).await, (json!(value), from), "{key}");
    }
}
