//! Collects the facts about servers.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::{Closed, ServerMarker, SetTerms, StoreTime};
use leasehold_store::clock;
use leasehold_store::random::random_u128;
use redis::{RedisResult, Value};

use super::facts::{Clock, Facts, Part, Users, Vote};
use super::trial;
use crate::codec::record::Bytes;
use crate::codec::script::micros;
use crate::connection::endpoint::Endpoint;
use crate::connection::socket::Socket;
use crate::connection::value::{items, text_of};
use crate::errors;
use crate::options::RedisOptions;
use crate::options::restart::Quarantine;
use crate::routing::Route;

/// How many round trips are measured, at most.
const ROUND_TRIPS: usize = 200;

/// For how long: over a slow network few of them tell enough.
const MEASURING: Duration = Duration::from_secs(1);

/// How often the clocks are compared: the quickest answer counts.
const CLOCK_LOOKS: usize = 5;

const SETTINGS: [&str; 7] = [
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "save",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "timeout",
    "acl-pubsub-default",
];

/// Asks one server; uses it too, if it keeps all locks. `set`: what all clients of the
/// set agree on that it is a voter of.
pub(super) async fn ask(options: &RedisOptions, part: Part, set: Option<&SetTerms>) -> Facts {
    let mut facts = Facts {
        part,
        options: options.clone(),
        votes_at_once: set.is_some_and(|terms| terms.quarantine.is_zero()),
        ..Facts::default()
    };
    let asked = async {
        let mut endpoint = Endpoint::new(options)?;
        if let Some(terms) = set {
            endpoint = endpoint.of_set(terms);
        }
        let channel = format!("{}inbox:doctor-{:032x}", options.prefix, random_u128());
        let found = endpoint.hearing(&channel).find_out().await?;
        facts.info = found.info;
        facts.rights = Some(found.rights);
        let of_set = set.filter(|_| !options.is_classic()).cloned();
        let quarantine = options.restart.quarantine();
        let terms = of_set.or_else(|| quarantine.map(Quarantine::terms));
        let looked = look(&found.socket, &mut facts, terms.as_ref()).await;
        looked.map_err(errors::of_connection)
    };
    match asked.await {
        // A lock of ours would start the quarantine of a server that is new.
        Ok(()) if part == Part::Alone && matches!(facts.vote, None | Some(Vote::Now)) => {
            let route = Route::open(options, options.layout).await;
            facts.trial = Some(trial::run(route).await);
        }
        Ok(()) => {}
        Err(error) => facts.unreachable = Some(error),
    }
    facts
}

async fn look(socket: &Socket, facts: &mut Facts, terms: Option<&SetTerms>) -> RedisResult<()> {
    let mut questions = redis::pipe();
    questions.cmd("ACL").arg("WHOAMI");
    questions.cmd("ACL").arg("LIST");
    for setting in SETTINGS {
        questions.cmd("CONFIG").arg("GET").arg(setting);
    }
    let mut answers = socket.ask_all(questions.cmd_iter()).await?.into_iter();
    // What was refused is left out.
    facts.user = answers.next().as_ref().and_then(text_of);
    facts.users = answers.next().as_ref().and_then(users);
    for answer in answers {
        let pairs: Result<HashMap<String, String>, _> = redis::from_redis_value(answer);
        facts.config.extend(settings(pairs.unwrap_or_default()));
    }
    facts.clock = compare_clocks(socket).await?;
    facts.latency = Some(measure(socket).await?);
    if let Some(terms) = terms {
        facts.vote = read_vote(socket, facts, terms).await?;
    }
    Ok(())
}

/// Reads the answer to `ACL LIST`: a rule a line.
fn users(answer: &Value) -> Option<Users> {
    let mut users = Users::default();
    for line in items(answer)?.iter().filter_map(text_of) {
        // What stands in brackets gives rights besides, and never to all channels alone.
        let rule = line.split(" (").next().unwrap_or_default();
        let mut words = rule.split(' ').skip(1);
        let Some(name) = words.next().filter(|name| *name != "default") else {
            continue;
        };
        users.others += 1;
        let words: Vec<_> = words.collect();
        let has = |either: &str, or: &str| words.iter().any(|word| [either, or].contains(word));
        let publishes = words.iter().fold(false, |may, word| match *word {
            "+@all" | "allcommands" | "+@pubsub" | "+@fast" | "+publish" => true,
            "-@all" | "nocommands" | "-@pubsub" | "-@fast" | "-publish" => false,
            _ => may,
        });
        if has("on", "on") && publishes && has("&*", "allchannels") && !has("~*", "allkeys") {
            users.on_all_channels.push(errors::tame(name));
        }
    }
    Some(users)
}

/// Settings as they are shown.
pub(super) fn settings(pairs: HashMap<String, String>) -> impl Iterator<Item = (String, String)> {
    let tame = |(name, value): (String, String)| (name, errors::tame(&value));
    pairs.into_iter().map(tame)
}

/// Reads the boot marker that the scripts keep (`codec/lua/marker.lua`).
async fn read_vote(socket: &Socket, facts: &Facts, terms: &SetTerms) -> RedisResult<Option<Vote>> {
    if facts.info("run_id").is_empty() {
        // Nobody can tell; clients are refused, and say why.
        return Ok(None);
    }
    let key = format!("{}boot", facts.options.prefix);
    let found = socket.ask(redis::cmd("MGET").arg(key)).await?;
    let marker = match items(&found) {
        Some([Value::BulkString(marker)]) => Some(marker.as_slice()),
        Some([Value::Nil]) => None,
        _ => return Ok(None),
    };
    let theirs = facts.clock.map_or(0, |clock| clock.ahead);
    let ours = i64::try_from(clock::wall().as_micros()).unwrap_or(i64::MAX);
    let now = StoreTime(u64::try_from(ours.saturating_add(theirs)).unwrap_or(0));
    Ok(Some(vote_of(marker, facts.info("run_id"), now, terms)))
}

/// What a claim would be told by a server with this marker, and why.
pub(super) fn vote_of(marker: Option<&[u8]>, run: &str, now: StoreTime, terms: &SetTerms) -> Vote {
    let known = match marker.map(read_marker) {
        Some(None) => return Vote::Foreign,
        known => known.flatten(),
    };
    let terms = &SetTerms {
        set: terms.set.clone(),
        // As exact as the server has it.
        quarantine: Duration::from_micros(micros(terms.quarantine)),
    };
    match ServerMarker::look(known.as_ref(), run, terms, now) {
        Ok(()) => Vote::Now,
        Err(Closed::Foreign) => Vote::Foreign,
        Err(Closed::Quarantined { left }) => match known {
            None => Vote::Unmarked,
            Some(known) if known.run != run => Vote::Restarted,
            Some(_) => Vote::After(left),
        },
    }
}

/// A marker is: when the quarantine ends, how long one is, the run id, and the set.
pub(super) fn read_marker(bytes: &[u8]) -> Option<ServerMarker> {
    let mut bytes = Bytes(bytes);
    let (until, quarantine) = (bytes.time()?, Duration::from_micros(bytes.number()?));
    let (run, set) = (bytes.text()?.to_owned(), bytes.text()?.to_owned());
    let terms = SetTerms { set, quarantine };
    Some(ServerMarker { run, until, terms })
}

async fn compare_clocks(socket: &Socket) -> RedisResult<Option<Clock>> {
    let mut looks = Vec::with_capacity(CLOCK_LOOKS);
    for _ in 0..CLOCK_LOOKS {
        let (sent, ours) = (clock::now(), clock::wall());
        let answer = socket.ask(&redis::cmd("TIME")).await?;
        let within = clock::now().since(sent) / 2;
        let Ok((seconds, micros)) = redis::from_redis_value::<(i64, i64)>(answer) else {
            return Ok(None);
        };
        let theirs = seconds.saturating_mul(1_000_000).saturating_add(micros);
        let ours = i64::try_from((ours + within).as_micros()).unwrap_or(i64::MAX);
        looks.push((theirs, theirs.saturating_sub(ours), within));
    }
    let advances = looks.windows(2).any(|pair| pair[0].0 != pair[1].0);
    let nearest = looks.into_iter().min_by_key(|(.., within)| *within);
    Ok(nearest.map(|(_, ahead, within)| Clock {
        ahead,
        within,
        advances,
    }))
}

async fn measure(socket: &Socket) -> RedisResult<[Duration; 2]> {
    let mut took = Vec::with_capacity(ROUND_TRIPS);
    while !is_enough(&took) {
        let sent = clock::now();
        socket.ask(&redis::cmd("PING")).await?;
        took.push(clock::now().since(sent));
    }
    took.sort_unstable();
    Ok([50, 99].map(|share| took[took.len() * share / 100]))
}

fn is_enough(took: &[Duration]) -> bool {
    took.len() >= ROUND_TRIPS || took.iter().sum::<Duration>() >= MEASURING
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_of_all_channels_is_found() {
        let line = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let lines = [
            "user default on nopass ~* &* +@all",
            "user admin on #aa ~* &* +@all",
            "user off off #aa ~a:* &* +@all",
            "user mute on #aa ~a:* &* -@all +get",
            "user deaf on #aa ~a:* resetchannels +@all",
            "user own on #aa ~a:* &a:* -@all +publish (~* &* +@all)",
            "user \u{1b}wide on #aa ~a:* &* -@all +publish +subscribe",
        ];
        let users = users(&Value::Array(lines.map(line).into())).unwrap();
        assert_eq!(users.others, 6);
        assert_eq!(users.on_all_channels, ["wide"]);
    }

    /// An examination takes a second or two, however slow the network is.
    #[test]
    fn what_is_measured_ends_in_time() {
        let took = |millis, count| vec![Duration::from_millis(millis); count];
        assert!(is_enough(&took(0, ROUND_TRIPS)));
        assert!(!is_enough(&took(1, ROUND_TRIPS - 1)));
        assert!(is_enough(&took(300, 4)));
        assert!(!is_enough(&[]), "one at least");
    }

    #[test]
    fn a_marker_tells_when_its_server_votes() {
        let marker = |ends: f64, run: &str| {
            let mut marker = ends.to_le_bytes().to_vec();
            marker.extend(1e6_f64.to_le_bytes());
            marker.push(u8::try_from(run.len()).unwrap());
            marker.extend(run.as_bytes());
            marker.extend(b"\x03set");
            marker
        };
        let left = Duration::from_micros(500);
        let (own, former) = (marker(1_500.0, "run"), marker(1_500.0, "former"));
        let over = marker(1_000.0, "run");
        for (marker, set, seconds, expected) in [
            (Some(&*own), "set", 1, Vote::After(left)),
            (Some(&*over), "set", 1, Vote::Now),
            (Some(&*former), "set", 1, Vote::Restarted),
            (Some(&*former), "set", 2, Vote::Foreign),
            (Some(&*former), "sea", 1, Vote::Foreign),
            (Some(&b"short"[..]), "set", 1, Vote::Foreign),
            (Some(&own[..18]), "set", 1, Vote::Foreign),
            (None, "set", 1, Vote::Unmarked),
            // Without a quarantine there is nothing to wait for.
            (None, "set", 0, Vote::Now),
        ] {
            let terms = SetTerms {
                set: set.to_owned(),
                quarantine: Duration::from_secs(seconds),
            };
            let vote = vote_of(marker, "run", StoreTime(1_000), &terms);
            assert_eq!(vote, expected, "{marker:?} {set} {seconds}");
        }
    }
}
