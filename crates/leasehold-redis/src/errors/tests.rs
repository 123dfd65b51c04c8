//! Tests of the messages of errors.

use leasehold_testkit::expect::says;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use leasehold_store::{ErrorKind, StoreError};
use redis::ServerError;

use super::table::{ANSWERS, Answer, Made, Outlook};
use super::{
    Dialling, acl, foreign, in_classic, is_answered, is_forbidden, lacking, no_right, no_scripts,
    of_connection, of_opening, of_server, refusal,
};
use crate::connection::rights;

const FIRST: Dialling = Dialling {
    limit: Duration::from_secs(5),
    encrypted: false,
    worked: false,
};

/// An error as a server sends it.
fn server_error(text: &str) -> ServerError {
    let error = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
    match error {
        redis::Value::ServerError(error) => error,
        other => panic!("no error: {other:?}"),
    }
}

/// What every way to an error says of this answer.
fn judged(text: &str) -> Vec<StoreError> {
    let error = server_error(text);
    let opening = of_opening(error.clone().into(), &FIRST);
    vec![of_server(&error), of_connection(error.into()), opening]
}

#[test]
fn each_answer_passes_or_stays_however_it_comes() {
    for answer in ANSWERS {
        let plain = format!("{} {} and more", answer.code, answer.part);
        let mut ways = vec![
            plain.clone(),
            format!("EXECABORT Transaction discarded because of: {plain}"),
        ];
        // As Redis 6.2 says it in a script.
        ways.push(match answer.code {
            "ERR" => format!("ERR Error running script (call to f_1): @user_script:1: {plain}"),
            _ => format!("ERR Error running script (call to f_1): @user_script:1: -{plain}"),
        });
        // The same where the script returns the error.
        let mark = if answer.code == "ERR" { "" } else { "-" };
        ways.push(format!("@user_script: 98: {mark}{plain}"));
        if answer.code == "EXECABORT" {
            ways.truncate(1);
        }
        for way in ways {
            for error in judged(&way) {
                let passes = answer.outlook == Outlook::Passes;
                let unavailable = error.kind() == ErrorKind::Unavailable;
                assert_eq!(unavailable, passes, "{way}: {error:?}");
                assert_eq!(error.retry_after().is_some(), passes, "{way}: {error:?}");
                assert!(is_answered(&error), "{way}: {error:?}");
                let verbatim = matches!(answer.made, Made::Verbatim);
                let said = error.hint().is_some() && !error.message().contains("answered");
                assert!(said || verbatim, "{way}: {error:?}");
                if let Made::Of(message, hint) = answer.made {
                    assert_eq!((error.message(), error.hint()), (message, Some(hint)));
                }
            }
        }
        let of_the_moment = answer.outlook == Outlook::Passes
            || matches!(answer.code, "MOVED" | "ASK" | "NOAUTH" | "WRONGPASS");
        assert_eq!(is_forbidden(&server_error(&plain)), !of_the_moment);
    }
}

/// Nothing is known of it, so nothing is promised: it is not waited for, and no grant.
#[test]
fn an_answer_that_is_not_known_stays() {
    for odd in [
        "NEWCODE what is this",
        "ERR odd",
        "odd",
        "NOREPLICASX no",
        "@user_script: 98: -NEWCODE what is this",
        "NEWCODE what is this script: f_1, on @user_script:98.",
        "ERR Script attempted to access a non local key script: f_1, on @user_script:98.",
        "ERR NOREPLICAS without its dash",
    ] {
        for error in judged(odd) {
            assert_eq!(error.kind(), ErrorKind::Refused, "{odd}: {error:?}");
            assert_eq!(error.retry_after(), None, "{odd}: {error:?}");
        }
        assert!(is_forbidden(&server_error(odd)), "{odd}");
    }
}

/// A script that fails by itself has met a record that is none, whatever server runs it.
#[test]
fn what_lua_says_is_about_the_record() {
    for said in [
        "ERR user_script:98: bad argument #2 to 'unpack' script: f_1, on @user_script:98.",
        "ERR Error running script (call to f_1): @user_script:98: user_script:98: bad argument",
    ] {
        for error in judged(said) {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{said}: {error:?}");
        }
    }
}

/// All codes in the sources of Redis 8 and Valkey 9, and those of the scripts.
#[test]
fn each_code_of_the_servers_has_a_row() {
    let known = "ASK BUSY BUSYGROUP BUSYKEY CLUSTERDOWN CROSSSLOT DENIED EXECABORT INPROG \
        INVALIDOBJ IOERR LOADING MASTERDOWN MISCONF MOVED NOAUTH NOGOODSLAVE NOGROUP NOMASTERLINK \
        NOPERM NOPROTO NOQUORUM NOREPLICAS NOSCRIPT NOSUB NOTBUSY OOM READONLY REDIRECT TRYAGAIN \
        UNBLOCKED UNKILLABLE WRONGPASS WRONGTYPE";
    let rows: BTreeSet<_> = ANSWERS.iter().map(|answer| answer.code).collect();
    for code in known.split_whitespace() {
        assert!(rows.contains(code), "{code}");
    }
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = 0;
    for file in sources(&scripts) {
        if file.extension().is_none_or(|extension| extension != "lua") {
            continue;
        }
        for raised in fs::read_to_string(&file).unwrap().split("err = '").skip(1) {
            let code = raised.split([' ', '\'']).next().unwrap();
            // What the classic layout says has its own words: `classic/errors.rs`.
            let known = rows.contains(code) || code == "LHNATIVE";
            assert!(known, "{file:?}: {code}");
            found += 1;
        }
    }
    assert!(found > 3, "{found}");
}

fn sources(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(sources(&path)),
            false => found.push(path),
        }
    }
    found
}

/// Only the table says what passes: other code may name these codes for what else it does.
#[test]
fn no_other_code_judges_an_answer() {
    let passes = |answer: &&Answer| answer.outlook == Outlook::Passes && answer.code != "ERR";
    let passing = ANSWERS.iter().filter(passes);
    let codes: Vec<_> = passing.map(|answer| answer.code).collect();
    let known = [
        // Loads the script again.
        ("connection/multiplexed.rs", "NOSCRIPT"),
        // Asks another node, or one key at a time.
        ("routing/cluster/redirect.rs", "CLUSTERDOWN"),
        ("routing/cluster/redirect.rs", "TRYAGAIN"),
        ("queue/mod.rs", "TRYAGAIN"),
        // Reports what `SENTINEL CKQUORUM` found.
        ("doctor/sentinels.rs", "NOQUORUM"),
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = BTreeSet::new();
    for file in sources(&root) {
        let name = file.strip_prefix(&root).unwrap();
        let name = name.to_str().unwrap().to_owned();
        let is_code = name.ends_with(".rs") && !name.contains("tests");
        if !is_code || name.starts_with("errors") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for code in &codes {
            if text.contains(&format!("\"{code}\"")) {
                seen.insert((name.clone(), *code));
            }
        }
    }
    let known = known.map(|(file, code)| (file.to_owned(), code));
    assert_eq!(seen, BTreeSet::from(known));
}

/// `docs/stores/one-primary.md` has each row, and no other.
#[test]
fn the_page_has_the_table() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/stores/one-primary.md");
    let page = fs::read_to_string(page).unwrap();
    let section = page.split("## What the server answers").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut on_page = BTreeSet::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [names, means, becomes] = cells[..] else {
            panic!("{row}");
        };
        assert!(!means.is_empty(), "{row}");
        for name in names.split(", ") {
            let fresh = on_page.insert((name.trim_matches('`').to_owned(), becomes.to_owned()));
            assert!(fresh, "twice: {name}");
        }
    }
    let row = |answer: &Answer| {
        let name = format!("{} {}", answer.code, answer.part);
        let becomes = match answer.outlook {
            Outlook::Passes => "passes",
            Outlook::Stays => "stays",
        };
        (name.trim().to_owned(), becomes.to_owned())
    };
    let rows: BTreeSet<_> = ANSWERS.iter().map(row).collect();
    assert_eq!(on_page, rows);
}

#[test]
fn why_a_connection_was_not_opened_is_said() {
    let of = |error: io::Error| of_opening(error.into(), &FIRST);
    let kind = |kind: io::ErrorKind| of(kind.into());
    let lookup = "failed to lookup address information: Name or service not known";
    let resolved = "the name of the host cannot be resolved (Name or service not known)";
    for (error, said) in [
        (of(io::Error::other(lookup)), resolved),
        (kind(io::ErrorKind::TimedOut), "no answer within 5s"),
        (kind(io::ErrorKind::ConnectionRefused), "connection refused"),
        (kind(io::ErrorKind::NotFound), "there is no such socket"),
    ] {
        assert_eq!(error.to_string(), said);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{said}");
        assert!(error.hint().is_some(), "{said}");
    }
    let closed = kind(io::ErrorKind::UnexpectedEof);
    says(&closed, ["closed the connection"]);
    let wrong = "WRONGPASS invalid username-password pair";
    let protected = "DENIED Redis is running in protected mode because";
    let (stays, passes) = (ErrorKind::Refused, ErrorKind::Unavailable);
    for (text, code, kind) in [
        (wrong, "WRONGPASS invalid", stays),
        ("NOAUTH HELLO must be called", "NOAUTH", stays),
        (protected, "protected mode", stays),
        ("ERR max number of clients reached", "maxclients", passes),
    ] {
        let error = of_opening(server_error(text).into(), &FIRST);
        assert!(error.to_string().contains(code), "{error}");
        assert_eq!(error.kind(), kind, "{error}");
    }
}

/// A certificate that has expired passes, and so does whatever fails where it worked before:
/// certificates are renewed at both ends, one after the other.
#[cfg(feature = "tls")]
#[test]
fn what_tls_says_passes_if_a_renewal_mends_it() {
    use rustls::AlertDescription as Alert;
    use rustls::CertificateError::{Expired, NotValidForName, UnknownIssuer};
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
    use rustls::InvalidMessage::InvalidContentType;
    let (stays, passes) = (ErrorKind::Refused, ErrorKind::Unavailable);
    let (untrusted, refuses, plain) = ("not trusted", "refuses the TLS", "does not speak TLS");
    for (failed, said, at_first) in [
        (InvalidCertificate(UnknownIssuer), untrusted, stays),
        (InvalidCertificate(NotValidForName), untrusted, stays),
        (InvalidCertificate(Expired), untrusted, passes),
        (AlertReceived(Alert::CertificateRequired), refuses, stays),
        (AlertReceived(Alert::CertificateExpired), refuses, passes),
        (InvalidMessage(InvalidContentType), plain, stays),
    ] {
        for (worked, kind) in [(false, at_first), (true, passes)] {
            let error = io::Error::new(io::ErrorKind::InvalidData, failed.clone());
            let dialling = Dialling {
                encrypted: true,
                worked,
                ..FIRST
            };
            let error = of_opening(error.into(), &dialling);
            assert!(error.to_string().contains(said), "{error}");
            assert_eq!(error.kind(), kind, "{error}, worked: {worked}");
        }
    }
}

/// It may be an impostor, or a proxy with much to say.
#[test]
fn what_a_server_says_is_shown_in_one_line() {
    let odd = format!("\u{1b}[2Jno\r\n{}", "x".repeat(10_000));
    let codes = ["ODD", "NOPERM", "LHTYPE", "WRONGPASS"];
    let refusals = codes.map(|code| (refusal(code, &odd), 500));
    let forbidden = redis::Value::BulkString(odd.clone().into());
    let forbidden = redis::Value::Array(vec![forbidden]);
    let rights = rights::allowed(&forbidden, "leasehold:").unwrap_err();
    let others = [(rights, 1_000), (foreign(&odd), 1_000)];
    for (refused, longest) in refusals.into_iter().chain(others) {
        let said = refused.to_string();
        assert!(said.contains("[2Jnox") && said.len() < longest, "{said}");
        assert!(!said.contains(char::is_control), "{said:?}");
    }
    let info = rights::fields("redis_version:\u{1b}[2J7").next();
    assert_eq!(info.unwrap().1, "[2J7");
    assert!(!acl(&odd, "app:").contains(char::is_control));
}

#[test]
fn a_command_that_is_named_is_the_remedy() {
    let select = "User bob has no permissions to run the 'select' command";
    let get = "this user has no permissions to run the 'CONFIG|GET' command or its subcommand";
    for (said, rule) in [
        (select, Some("+select")),
        (get, Some("+config|get")),
        ("No permissions to access a key", None),
        ("has no permissions to run the 'rm -rf' command", None),
        ("has no permissions to run the '", None),
    ] {
        let remedy = rule.map(|rule| format!("add {rule} to the user's ACL rule"));
        assert_eq!(lacking(said), remedy, "{said}");
    }
}

/// Who follows it must not lose what they had.
#[test]
fn a_rule_that_is_enough_says_what_a_cluster_or_a_database_needs_besides() {
    let denied = || of_server(&server_error("NOPERM No permissions to access a key"));
    for (error, keys) in [
        (no_scripts("app:", false), "~app:*"),
        (no_scripts("app:", true), "~app:*"),
        (no_right("HSET", "app:"), "~app:*"),
        (denied(), "(with the prefix you use)"),
        (in_classic(denied()), "(with the prefix you use)"),
    ] {
        let hint = error.hint().unwrap();
        says(hint, [keys, "+cluster|slots +asking", "+select"]);
    }
}
