//! The hosts of a URL one by one, each with its password.

use std::env::{home_dir, var, var_os};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_store::access::read_file;
use tokio::net::lookup_host;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

pub(crate) const PORT: u16 = 5432;

/// What is between forgets a connection that is silent for minutes, without a word: after so long
/// without one, and then so often, it has to be answered.
const SILENCE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(5));

/// The hosts, each with its port.
pub(crate) fn hosts_of(config: &Config) -> impl Iterator<Item = (&Host, u16)> {
    let (hosts, ports) = (config.get_hosts().iter(), config.get_ports());
    hosts.enumerate().map(move |(place, host)| {
        let port = ports.get(place).or_else(|| ports.first());
        (host, port.copied().unwrap_or(PORT))
    })
}

/// One configuration for each host, for a session that writes; with the passwords of a file.
pub(crate) fn one_by_one(config: &Config, passwords: &str) -> Vec<Config> {
    let user = config.get_user().map(str::to_owned);
    let user = user.unwrap_or_else(|| usual_user(|name| var(name).ok()));
    let database = config.get_dbname().unwrap_or(&user);
    hosts_of(config)
        .map(|(host, port)| {
            let mut one = Config::new();
            let name = match host {
                Host::Tcp(name) => {
                    one.host(name);
                    name.clone()
                }
                Host::Unix(path) => {
                    one.host_path(path);
                    path.to_string_lossy().into_owned()
                }
            };
            let of_file = password_of(passwords, [&name, &port.to_string(), database, &user]);
            let password = config.get_password();
            let password = password.or_else(|| of_file.as_deref().map(str::as_bytes));
            log_in(&mut one, config.get_user(), password);
            if let Some(database) = config.get_dbname() {
                one.dbname(database);
            }
            one.port(port)
                .keepalives_idle(SILENCE.0)
                .keepalives_interval(SILENCE.1)
                .application_name("leasehold")
                .target_session_attrs(TargetSessionAttrs::ReadWrite);
            one
        })
        .collect()
}

/// Whom the client takes by default, as the environment has it: cron sets the second variable only.
fn usual_user(variable: impl Fn(&str) -> Option<String>) -> String {
    let mut set = ["USER", "LOGNAME"].into_iter().filter_map(variable);
    set.find(|user| !user.is_empty()).unwrap_or_default()
}

/// One configuration for each address that the name of the host of this one has just now.
pub(crate) async fn each_address(host: Config) -> Vec<Config> {
    let [Host::Tcp(name)] = host.get_hosts() else {
        return vec![host];
    };
    let addresses = lookup_host((&**name, PORT)).await;
    let at = |address: SocketAddr| host.clone().hostaddr(address.ip()).clone();
    let each: Vec<_> = addresses.into_iter().flatten().map(at).collect();
    // The client says why there is none.
    if each.is_empty() { vec![host] } else { each }
}

/// Logs in as that user and with that password, where there are such.
pub(crate) fn log_in(config: &mut Config, user: Option<&str>, password: Option<impl AsRef<[u8]>>) {
    if let Some(user) = user {
        config.user(user);
    }
    if let Some(password) = password {
        config.password(password);
    }
}

/// The password of the first line that fits of a file of passwords: host, port, database, user and
/// password.
fn password_of(text: &str, wanted: [&str; 4]) -> Option<String> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.find_map(|line| {
        let mut names = fields_of(line);
        let password = names.pop().filter(|_| names.len() == 4)?;
        let fits = |(name, wanted): (&String, &str)| name == "*" || name == wanted;
        names.iter().zip(wanted).all(fits).then_some(password)
    })
}

/// The file that `PGPASSFILE` names, or `~/.pgpass`, as it is now; why there is none, if it was named,
/// or cannot be read.
pub(crate) fn text_of_file() -> Result<String, String> {
    // As `psql` has it, an empty name is none.
    let named = var_os("PGPASSFILE").filter(|name| !name.is_empty());
    // An empty `HOME` does not mean the working directory.
    let home = || home_dir().filter(|home| home.is_absolute());
    let usual = || Some(home()?.join(".pgpass"));
    let is_named = named.is_some();
    let Some(path) = named.map(PathBuf::from).or_else(usual) else {
        return Ok(String::new());
    };
    match read_file(&path).map(String::from_utf8) {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(_)) => Err(format!("{} is not UTF-8", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_named => Ok(String::new()),
        Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
    }
}

/// The fields of a line: between colons; a backslash stands before a colon or a backslash that is
/// meant.
fn fields_of(line: &str) -> Vec<String> {
    let (mut fields, mut chars) = (vec![String::new()], line.chars());
    while let Some(c) = chars.next() {
        match (c, fields.last_mut()) {
            (':', _) => fields.push(String::new()),
            ('\\', Some(field)) => field.extend(chars.next()),
            (c, Some(field)) => field.push(c),
            (_, None) => {}
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_password_file_has_five_fields() {
        assert_eq!(fields_of("h:5432:*:u:p"), ["h", "5432", "*", "u", "p"]);
        assert_eq!(
            fields_of(r"a\:b:1:d:u:p\\w\:x"),
            ["a:b", "1", "d", "u", r"p\w:x"]
        );
    }

    #[test]
    fn jobs_of_cron_have_a_user() {
        let of_cron = |name: &str| (name == "LOGNAME").then(|| "app".to_owned());
        assert_eq!(usual_user(of_cron), "app");
    }

    /// One is kept however rarely a client asks.
    #[test]
    fn a_connection_is_not_silent_for_minutes() {
        let each = one_by_one(&"postgres://a,b/d".parse().unwrap(), "");
        for one in each {
            let most = Duration::from_secs(60);
            assert!(one.get_keepalives() && one.get_keepalives_idle() <= most);
            let interval = one.get_keepalives_interval();
            assert!(interval.is_some_and(|interval| interval <= most));
        }
    }

    #[test]
    fn each_host_has_its_own_password() {
        let passwords = "# a:1:*:*:no\na:1:d:u:of a\nb:*:*:u:of b\n";
        let of = |url: &str| {
            let config = url.parse().unwrap();
            let each = one_by_one(&config, passwords).into_iter();
            each.map(|one| one.get_password().map(<[u8]>::to_vec))
                .collect::<Vec<_>>()
        };
        let found = ["of a", "of b"].map(|password| Some(password.into()));
        assert_eq!(of("postgres://u@a:1,b:2/d"), found);
        assert_eq!(of("postgres://other@a:1/d"), [None]);
        assert_eq!(of("postgres://u:own@a:1/d"), [Some(b"own".to_vec())]);
    }
}
