//! Findings about the Sentinels: each of them, and whether they agree.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use leasehold_store::StoreError;
use leasehold_store::report::{Finding, Severity};
use redis::Value;

use crate::connection::address::Address;
use crate::connection::primary::Search;
use crate::connection::sentinel::refusal;
use crate::connection::socket::Socket;
use crate::connection::value::field;
use crate::errors;

/// So many it takes, so that one may fail.
const FEWEST: u64 = 3;

/// What one Sentinel says of the primary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct View {
    primary: String,
    /// How many other Sentinels it knows.
    others: u64,
    /// How many must agree that the primary is down.
    quorum: u64,
    replicas: u64,
    /// Whether it takes the primary for dead.
    down: bool,
    /// Why it could not get a fail-over under way.
    stuck: Option<String>,
}

/// A Sentinel, and its answers if it can be reached.
pub(super) type Asked = (String, Result<View, StoreError>);

/// Asks each Sentinel of the URL, and judges what all say.
pub(super) async fn examine(search: &Search) -> Vec<Finding> {
    // One that is named twice is asked once.
    let nodes: BTreeSet<_> = search.nodes.iter().collect();
    let asked = nodes.into_iter().map(async |node: &Address| {
        let view = async {
            let sentinel = search.reach(node, None).await?;
            look(&sentinel, &search.sentinels.master).await
        };
        (node.to_string(), view.await)
    });
    judge(&join_all(asked).await)
}

async fn look(sentinel: &Socket, master: &str) -> Result<View, StoreError> {
    let mut ask = redis::pipe();
    ask.cmd("SENTINEL").arg("MASTER").arg(master);
    ask.cmd("SENTINEL").arg("CKQUORUM").arg(master);
    let answers = sentinel.ask_all(ask.cmd_iter()).await;
    let answers = answers.map_err(errors::of_connection)?;
    match answers.first() {
        Some(Value::ServerError(error)) => Err(refusal(error)),
        Some(about) => Ok(View::read(about, answers.get(1))),
        None => Ok(View::default()),
    }
}

impl View {
    pub(super) fn read(about: &Value, quorum: Option<&Value>) -> Self {
        let text = |name: &str| errors::tame(&field(about, name).unwrap_or_default());
        let number = |name: &str| text(name).parse().unwrap_or(0);
        Self {
            primary: format!("{}:{}", text("ip"), text("port")),
            others: number("num-other-sentinels"),
            quorum: number("quorum"),
            replicas: number("num-slaves"),
            down: text("flags").contains("_down"),
            stuck: match quorum {
                Some(Value::ServerError(error)) if error.code() == "NOQUORUM" => {
                    Some(errors::tame(error.details().unwrap_or_default()))
                }
                _ => None,
            },
        }
    }
}

pub(super) fn judge(asked: &[Asked]) -> Vec<Finding> {
    let views = asked.iter().filter_map(|(_, view)| view.as_ref().ok());
    let mut findings = together(&views.collect::<Vec<_>>(), asked.len());
    for (name, view) in asked {
        let found = match view {
            Ok(view) => of_one(view),
            Err(error) => {
                let hint = error.hint();
                let remedy = hint.unwrap_or("start it, or make it reachable from this host");
                let silent = Finding::new(Severity::Warning, "sentinel", error.to_string());
                let meaning = "the other Sentinels must agree on the primary without it";
                vec![silent.meaning(meaning).remedied(remedy)]
            }
        };
        findings.extend(found.into_iter().map(|finding| finding.at(name)));
    }
    findings
}

fn of_one(view: &View) -> Vec<Finding> {
    let (primary, others, quorum) = (&view.primary, view.others, view.quorum);
    let found =
        format!("it watches {primary}, with {others} other Sentinels and a quorum of {quorum}");
    let mut findings = vec![Finding::new(Severity::Fine, "sentinel", found)];
    let warning = |found: &str| Finding::new(Severity::Warning, "sentinel", found);
    findings.extend(view.down.then(|| {
        warning("it considers the primary down")
            .meaning("a fail-over is in progress, or this Sentinel is cut off from the primary")
            .remedied("check its log, and the network between the two")
    }));
    findings.extend(view.stuck.as_ref().map(|stuck| {
        warning(&format!("it cannot start a fail-over: {stuck}"))
            .meaning("if the primary fails, no replica is promoted")
            .remedied("start the other Sentinels again, or set `quorum` to a majority of them")
    }));
    findings.extend((view.replicas == 0).then(|| {
        warning("it knows no replica")
            .meaning("if the primary fails, no replica can be promoted")
            .remedied("add a replica")
    }));
    findings
}

/// What all say together; of `listed` that the URL names.
fn together(views: &[&View], listed: usize) -> Vec<Finding> {
    let finding = |severity, found: String| Finding::new(severity, "sentinels", found);
    let warning = |found| finding(Severity::Warning, found);
    let mut findings = Vec::new();
    let primaries: BTreeSet<_> = views.iter().map(|view| view.primary.as_str()).collect();
    findings.extend((primaries.len() > 1).then(|| {
        let named = Vec::from_iter(primaries).join(", ");
        warning(format!("they name different primaries: {named}"))
            .meaning("a fail-over is in progress, or some do not know of the last one yet")
            .remedied("if this persists, check the network between the Sentinels")
    }));
    let counts = views.iter().map(|view| view.others.saturating_add(1));
    let counts: BTreeSet<_> = counts.collect();
    let Some(&all) = counts.last() else {
        return findings;
    };
    findings.extend((counts.len() > 1).then(|| {
        warning("they do not all know each other".to_owned())
            .meaning("a Sentinel that others do not know does not count for their quorum")
            .remedied("check `known-sentinel` in their configuration, and the network between them")
    }));
    findings.extend((all < FEWEST).then(|| {
        warning(format!("there are {all}"))
            .meaning("if one fails, the rest are no majority, and no fail-over is possible")
            .remedied("run three or more, each on a machine of its own")
    }));
    findings.extend(((listed as u64) < all).then(|| {
        finding(Severity::Note, format!("the URL names {listed} of {all}"))
            .meaning("a client finds the primary only while one of these answers")
            .remedied("name all of them")
    }));
    if findings.is_empty() {
        let answered = views.len();
        let found = format!("{answered} of {listed} name the same primary, and know each other");
        findings.push(finding(Severity::Fine, found));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> View {
        View {
            primary: "h:6379".to_owned(),
            others: 2,
            quorum: 2,
            replicas: 1,
            ..View::default()
        }
    }

    /// Findings, grouped by the first words of their message.
    fn complaints(views: &[View]) -> Vec<(Severity, String)> {
        let asked: Vec<Asked> = (views.iter().cloned())
            .map(|view| ("s".to_owned(), Ok(view)))
            .collect();
        let words = |text: &str| {
            let words: Vec<_> = text.split(' ').take(4).collect();
            words.join(" ")
        };
        judge(&asked)
            .into_iter()
            .filter(|finding| finding.severity > Severity::Fine)
            .inspect(|finding| assert!(finding.remedy.is_some(), "{finding:?}"))
            .map(|finding| (finding.severity, words(&finding.found)))
            .collect()
    }

    #[test]
    fn each_is_judged_and_all_together() {
        let all = |change: &dyn Fn(&mut View)| {
            let mut views = vec![good(); 3];
            change(&mut views[1]);
            complaints(&views)
        };
        let warning = |found: &str| vec![(Severity::Warning, found.to_owned())];
        assert_eq!(all(&|_| {}), []);
        for (found, complaints) in [
            (
                "they name different primaries:",
                all(&|view| view.primary = "i:1".to_owned()),
            ),
            ("they do not all", all(&|view| view.others = 1)),
            ("it considers the primary", all(&|view| view.down = true)),
            (
                "it cannot start a",
                all(&|view| view.stuck = Some("why".to_owned())),
            ),
            ("it knows no replica", all(&|view| view.replicas = 0)),
        ] {
            assert_eq!(complaints, warning(found));
        }
        let note = vec![(Severity::Note, "the URL names 2".to_owned())];
        assert_eq!(complaints(&[good(), good()]), note);
        let lonely = View {
            others: 0,
            ..good()
        };
        assert_eq!(complaints(&[lonely]), warning("there are 1"));
    }

    #[test]
    fn whatever_one_says_can_be_shown() {
        let bytes = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
        let about = [
            b"ip".as_slice(),
            b"\x1b[2J",
            b"num-other-sentinels",
            b"18446744073709551615",
        ];
        let about = Value::Array(about.map(bytes).into());
        let quorum = redis::parse_redis_value(b"-NOQUORUM \x1b[1m no\r\n").unwrap();
        let view = View::read(&about, Some(&quorum));
        let findings = judge(&[("s".to_owned(), Ok(view))]);
        assert!(findings.len() > 3, "{findings:?}");
        for finding in findings {
            assert!(!finding.found.contains(char::is_control), "{finding:?}");
        }
    }

    #[test]
    fn one_that_is_silent_is_named() {
        let silent = StoreError::new(leasehold_store::ErrorKind::Unavailable, "no answer");
        let asked = [
            ("s:1".to_owned(), Err(silent)),
            ("s:2".to_owned(), Ok(good())),
            ("s:3".to_owned(), Ok(good())),
        ];
        let found = judge(&asked);
        let agree = |one: &Finding| one.found.starts_with("2 of 3 name the same primary");
        assert!(found.iter().any(agree), "{found:?}");
        let complaint = found.iter().find(|one| one.severity == Severity::Warning);
        assert_eq!(complaint.unwrap().server.as_deref(), Some("s:1"));
    }
}
