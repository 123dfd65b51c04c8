use leasehold_store::Acknowledged;
use leasehold_testkit::expect::says;

use super::super::facts::{Clock, Users};
use super::promise::{CLUSTER, NOTHING, REDLOCK, WITHOUT_QUARANTINE};
use super::*;
use crate::connection::rights::{MissingPermission, Rights};
use crate::options::RedisOptions;
use crate::options::acknowledge::{Acknowledge, AcknowledgedBy};
use crate::options::restart::{Quarantine, Restart};

/// A server of which there is nothing to complain.
fn good() -> Facts {
    Facts {
        options: RedisOptions::tcp("host", 6379).prefix("app:"),
        user: Some("alice".to_owned()),
        info: fields(
            "redis_version=7.2.4; role=master; cluster_enabled=0; \
             maxmemory=1000; maxmemory_policy=noeviction; used_memory=10; \
             aof_enabled=1; connected_clients=3; maxclients=100",
        )
        .collect(),
        config: fields("appendfsync=always; save=; min-replicas-to-write=0; timeout=0").collect(),
        clock: Some(Clock {
            ahead: -1_500,
            within: Duration::from_micros(200),
            advances: true,
        }),
        latency: Some([60, 200].map(Duration::from_micros)),
        trial: Some(Trial {
            push: Some(Duration::from_micros(300)),
            ..Trial::default()
        }),
        ..Facts::default()
    }
}

/// Fields as text: `name=value; name=value`.
fn fields(text: &str) -> impl Iterator<Item = (String, String)> {
    let fields = text.split("; ").filter_map(|field| field.split_once('='));
    fields.map(|(name, value)| (name.to_owned(), value.to_owned()))
}

/// The good server, but for these fields of INFO and of its configuration.
fn with(info: &str, config: &str) -> Facts {
    let mut facts = good();
    facts.info.extend(fields(info));
    facts.config.extend(fields(config));
    facts
}

/// What is found beside all that is fine.
fn complaints(facts: &Facts) -> Vec<(Severity, &'static str)> {
    judge(facts)
        .into_iter()
        .filter(|finding| finding.severity > Severity::Fine)
        .inspect(|finding| assert!(!finding.consequence.is_empty(), "{finding:?}"))
        .map(|finding| (finding.severity, finding.check))
        .collect()
}

fn promised(facts: &Facts) -> String {
    promise(facts, &judge(facts))
}

#[test]
fn a_good_server_is_fine() {
    assert_eq!(complaints(&good()), []);
    assert!(judge(&good()).len() >= 7);
    assert!(promised(&good()).contains("also over a restart"));
}

#[test]
fn what_endangers_locks_is_found() {
    use Severity::{Note, Unsafe, Warning};
    let replica = "slave0=ip=10.0.0.2,port=6379,state=online,offset=1,lag=0";
    let late = "slave1=ip=10.0.0.2,port=6379,state=online,offset=1,lag=30";
    let new = "slave2=ip=10.0.0.2,port=6379,state=wait_bgsave,offset=0,lag=0";
    let three = format!("{replica}; {late}; {new}");
    let writes = "min-replicas-to-write=1";
    let no_limit = "maxmemory_policy=allkeys-lfu; maxmemory=0";
    let lags = (Warning, "replicas");
    let of_three = [lags, lags, (Note, "replicas")];
    let isolated = [(Note, "replicas"), (Warning, "isolation")];
    let evicts = "maxmemory_policy=volatile-lru";
    let leaves_out = "no-appendfsync-on-rewrite=yes";
    for (info, config, expected) in [
        (evicts, "", &[(Unsafe, "eviction")][..]),
        (no_limit, "", &[(Note, "eviction")]),
        ("used_memory=950", "", &[(Warning, "memory")]),
        ("", "appendfsync=everysec", &[(Note, "persistence")]),
        ("", "no-appendfsync-on-rewrite=no", &[]),
        ("", leaves_out, &[(Note, "persistence")]),
        ("aof_enabled=0", "save=3600 1", &[(Warning, "persistence")]),
        ("aof_enabled=0", "", &[(Warning, "persistence")]),
        ("aof_last_write_status=err", "", &[(Warning, "disk")]),
        (replica, "", &isolated),
        (replica, writes, &[(Note, "replicas")]),
        (&three, writes, &of_three),
        ("role=slave", "", &[(Unsafe, "role")]),
        ("cluster_enabled=1", "", &[(Unsafe, "role")]),
        ("connected_clients=95", "", &[(Warning, "connections")]),
        ("", "timeout=300", &[(Note, "connections")]),
    ] {
        let found = complaints(&with(info, config));
        assert_eq!(found, expected, "{info:?} {config:?}");
    }
    let promise = promised(&with("", leaves_out));
    assert!(!promise.contains("also over a restart"), "{promise}");
}

#[test]
fn a_voter_may_forget_and_a_node_is_one_of_many() {
    use Severity::{Note, Warning};
    let mut voter = with("aof_enabled=0", "");
    (voter.part, voter.trial, voter.vote) = (Part::Voter, None, Some(Vote::Now));
    assert_eq!(complaints(&voter), [(Note, "persistence")]);
    let later = Vote::After(Duration::from_secs(9));
    for vote in [Vote::Unmarked, Vote::Restarted, later] {
        voter.vote = Some(vote);
        let expected = [(Warning, "vote"), (Note, "persistence")];
        assert_eq!(complaints(&voter), expected);
    }
    let unmarked = votes(Vote::Unmarked, Part::Voter);
    says(unmarked.found, ["has lost its data"]);
    let mut node = with("cluster_enabled=1", "");
    (node.part, node.trial) = (Part::Node, None);
    assert_eq!(complaints(&node), []);
}

/// Where it is off, a restart ends what else it would keep.
#[test]
fn no_quarantine_is_promised_where_there_is_none() {
    let replica = "slave0=ip=10.0.0.2,port=6379,state=online,offset=1,lag=0";
    let mut voter = with(&format!("{replica}; aof_enabled=0"), "");
    (voter.part, voter.trial, voter.vote) = (Part::Voter, None, Some(Vote::Now));
    let said = |voter: &Facts| {
        let found = judge(voter).into_iter();
        found.map(|it| it.consequence).collect::<String>()
    };
    assert!(said(&voter).contains("quarantine"));
    voter.votes_at_once = true;
    let text = said(&voter);
    let claims = ["quarantine", "tokens"];
    assert!(!claims.iter().any(|it| text.contains(it)), "{text}");
    let facts = [voter.clone(), voter.clone(), voter];
    let promise = promise_together(&facts, &[], &[], None, 2);
    assert_eq!(promise, WITHOUT_QUARANTINE);
}

/// The classic layout has neither tokens nor a quarantine.
#[test]
fn what_there_is_not_is_no_advice() {
    let replica = "slave0=ip=10.0.0.2,port=6379,state=online,offset=1,lag=0";
    let said = |facts: &Facts| {
        let found = judge(facts).into_iter();
        let said = found.map(|it| it.consequence + &it.remedy.unwrap_or_default());
        said.collect::<String>()
    };
    let native = ["tokens keep rising", "check tokens", "quarantine"];
    for (info, config) in [(replica, "appendfsync=everysec"), ("aof_enabled=0", "")] {
        for part in [Part::Alone, Part::Node, Part::Voter] {
            let mut facts = with(info, config);
            facts.part = part;
            let text = said(&facts);
            assert!(native.iter().any(|it| text.contains(it)), "{text}");
            facts.options = facts.options.classic();
            let text = said(&facts);
            assert!(!native.iter().any(|it| text.contains(it)), "{text}");
        }
    }
}

#[test]
fn all_servers_together() {
    let worst = |facts: &[Facts], trial: &Trial| {
        let findings = together(facts, Some(trial), 2);
        findings.into_iter().map(|finding| finding.severity).max()
    };
    let (mut a, mut b) = (good(), good());
    (a.part, b.part) = (Part::Voter, Part::Voter);
    let trial = Trial::default();
    assert_eq!(worst(&[a.clone(), b.clone()], &trial), Some(Severity::Fine));
    let [twin, other] = [with("run_id=1", ""), with("run_id=2", "")];
    assert_eq!(worst(&[twin.clone(), other], &trial), Some(Severity::Fine));
    let twice = together(&[twin.clone(), twin], Some(&trial), 2);
    says(&twice.last().unwrap().found, ["is the same server as"]);
    b.clock = b.clock.map(|clock| Clock {
        ahead: 3_000_000,
        ..clock
    });
    assert_eq!(worst(&[a.clone(), b], &trial), Some(Severity::Warning));
    let one = together(&[a.clone(), Facts::default()], Some(&trial), 2);
    assert!(one.iter().all(|it| it.check != CLOCK), "of one: {one:?}");
    let error = StoreError::new(ErrorKind::Unavailable, "nobody answered");
    let failed = Trial::failed("acquire a lock", error);
    assert_eq!(worst(&[a], &failed), Some(Severity::Unsafe));
    assert_eq!(worst(&[], &failed), Some(Severity::Unsafe));
}

#[test]
fn servers_that_are_new_are_not_tried() {
    let voter = |vote| Facts {
        part: Part::Voter,
        vote: Some(vote),
        trial: None,
        ..good()
    };
    let said = |votes: [Vote; 3]| {
        let facts = votes.map(voter);
        let found = together(&facts, None, 2);
        let promise = promise_together(&facts, &found, &[], None, 2);
        (found[0].severity, promise)
    };
    let (severity, promise) = said([Vote::Now, Vote::Unmarked, Vote::Unmarked]);
    assert_eq!(severity, Severity::Unsafe);
    let nothing = promise.starts_with("Nothing until 2 servers vote.");
    assert!(nothing, "{promise}");
    let (severity, promise) = said([Vote::Now, Vote::Unmarked, Vote::Now]);
    assert_eq!((severity, &*promise), (Severity::Note, REDLOCK));
}

#[test]
fn nothing_is_promised_where_locks_cannot_be_used() {
    assert!(promised(&good()).starts_with("Exclusion"));
    let refused = StoreError::new(ErrorKind::Refused, "no");
    let failed = || Trial::failed("open the store", refused.clone());
    let quarantine = Restart::Quarantine(Quarantine::default());
    for unusable in [
        with("role=slave", ""),
        with("cluster_enabled=1", ""),
        Facts {
            trial: Some(failed()),
            ..good()
        },
        Facts {
            trial: None,
            rights: Some(Err(refused.clone())),
            ..good()
        },
        Facts {
            vote: Some(Vote::Foreign),
            options: good().options.restart(quarantine),
            ..good()
        },
        Facts {
            options: good().options.classic(),
            trial: Some(failed()),
            ..good()
        },
    ] {
        assert_eq!(promised(&unusable), NOTHING);
    }
    let closed = Facts {
        vote: Some(Vote::Unmarked),
        options: good().options.restart(quarantine),
        trial: None,
        ..good()
    };
    assert!(promised(&closed).starts_with("Nothing until it grants."));
    // Several servers.
    let node = |facts: Facts| Facts {
        part: Part::Node,
        trial: None,
        ..facts
    };
    let facts = [node(good()), node(good())];
    let of = |unusable: &[String], trial| {
        let found = together(&facts, Some(trial), 1);
        promise_together(&facts, &found, unusable, Some(trial), 1)
    };
    let tried = Trial::default();
    assert_eq!(of(&[], &tried), CLUSTER);
    assert_eq!(of(&["a".to_owned(), "b".to_owned()], &tried), NOTHING);
    assert!(of(&["a".to_owned()], &tried).ends_with("the locks on a: they cannot be used."));
    assert_eq!(of(&[], &failed()), NOTHING);
}

#[test]
fn a_promise_names_the_eviction_that_ends_it() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let promise = promised(&with(&format!("maxmemory_policy={policy}"), ""));
        assert!(promise.starts_with("Exclusion"), "{promise}");
        assert!(promise.contains(policy), "{promise}");
    }
}

#[test]
fn who_may_speak_on_all_channels_is_named() {
    let mut facts = good();
    let mut found = |users: Option<Users>, setting: &str| {
        facts.users = users;
        let setting = format!("acl-pubsub-default={setting}");
        facts.config.extend(fields(&setting));
        complaints(&facts)
    };
    let users = |others, wide: &[&str]| {
        Some(Users {
            others,
            on_all_channels: wide.iter().map(|name| (*name).to_owned()).collect(),
        })
    };
    let note = vec![(Severity::Note, "channels")];
    assert_eq!(found(users(0, &[]), "allchannels"), []);
    assert_eq!(found(users(1, &[]), "resetchannels"), []);
    assert_eq!(found(users(1, &["bob"]), "resetchannels"), note);
    assert_eq!(found(users(1, &[]), "allchannels"), note);
    assert_eq!(found(None, "allchannels"), note);
    assert_eq!(found(None, "resetchannels"), []);
}

#[test]
fn clocks_and_round_trips() {
    let mut facts = good();
    let mut clock = |ahead, advances| {
        facts.clock = Some(Clock {
            ahead,
            within: Duration::from_millis(1),
            advances,
        });
        complaints(&facts)
    };
    assert_eq!(clock(900_000, true), []);
    assert_eq!(clock(-2_000_000, true), [(Severity::Warning, "clock")]);
    assert_eq!(clock(0, false), [(Severity::Unsafe, "clock")]);
    let mut facts = good();
    facts.latency = Some([1, 200].map(Duration::from_millis));
    assert_eq!(complaints(&facts), [(Severity::Warning, "latency")]);
}

#[test]
fn what_could_not_be_asked_is_not_complained_of() {
    let facts = Facts {
        trial: good().trial,
        ..Facts::default()
    };
    assert_eq!(complaints(&facts), []);
}

#[test]
fn a_missing_right_comes_with_the_rule_that_would_do() {
    let mut facts = good();
    let error = StoreError::new(ErrorKind::Refused, "the user may not do this: evalsha");
    facts.trial = Some(Trial::failed("acquire a lock", error));
    let findings = judge(&facts);
    let scripts = findings.iter().find(|finding| finding.check == "scripts");
    let remedy = scripts.unwrap().remedy.clone().unwrap();
    let rule = "ACL SETUSER alice on ><password> resetchannels ~app:* &app:*";
    says(&remedy, [rule]);
    assert_eq!(complaints(&facts), [(Severity::Unsafe, "scripts")]);
}

#[test]
fn who_is_not_there_is_all_there_is_to_say() {
    let error = StoreError::new(ErrorKind::Unavailable, "cannot connect");
    let facts = Facts {
        unreachable: Some(error),
        ..good()
    };
    let findings = judge(&facts);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].severity, Severity::Unsafe);
    assert_eq!(findings[0].server.as_deref(), Some("host:6379"));
}

#[test]
fn what_is_forbidden_is_found_with_what_would_do() {
    use Severity::{Note, Warning};
    let mut facts = good();
    facts.rights = Some(Ok(Rights {
        missing: vec![MissingPermission::PUBLISH, MissingPermission::INFO],
        ..Rights::default()
    }));
    facts.trial = Some(Trial {
        deaf: true,
        unlisted: Some(StoreError::new(ErrorKind::Refused, "no SCAN")),
        ..Trial::default()
    });
    let expected = [(Warning, "pushes"), (Warning, "info"), (Note, "listing")];
    assert_eq!(complaints(&facts), expected);
    let remedies: Vec<_> = judge(&facts).into_iter().filter_map(|f| f.remedy).collect();
    assert!(remedies[0].contains("+publish &app:*"), "{remedies:?}");

    // What is unknown is not complained of besides.
    facts.info.clear();
    facts.trial = None;
    let found = complaints(&facts);
    assert_eq!(found.len(), 2, "{found:?}");
    let error = StoreError::new(ErrorKind::Refused, "scripts are forbidden");
    facts.rights = Some(Err(error));
    assert_eq!(complaints(&facts), [(Severity::Unsafe, "scripts")]);
}

#[test]
fn who_acknowledges_is_counted() {
    let judged = |replicas, wanted, online: usize| {
        let line = |number| format!("slave{number}=ip=h,port=1,state=online,lag=0");
        let online: Vec<_> = (0..online).map(line).collect();
        let mut facts = with(&online.join("; "), "min-replicas-to-write=1");
        let time = Duration::from_secs(1);
        let acknowledged = Acknowledged::new(replicas, wanted, (wanted == 0).then_some(true), time);
        facts.trial = Some(Trial {
            acknowledged: Some(acknowledged),
            push: Some(Duration::ZERO),
            ..Trial::default()
        });
        let mut found = judge(&facts).into_iter();
        let one = found.find(|found| found.check == "acknowledged").unwrap();
        (one.severity, one.consequence)
    };
    assert_eq!(judged(0, 0, 0).0, Severity::Fine);
    let (severity, means) = judged(1, 2, 2);
    assert_eq!(severity, Severity::Unsafe, "{means}");
    let (severity, means) = judged(1, 1, 2);
    assert_eq!(severity, Severity::Note);
    assert!(means.contains("may be promoted"), "{means}");
    let (severity, means) = judged(2, 2, 2);
    assert_eq!(severity, Severity::Note);
    assert!(means.contains("no lock is granted"), "{means}");
}

/// What replicas or a disk have before it counts is not lost with the rest.
#[test]
fn what_is_acknowledged_is_promised() {
    let replica = "slave0=ip=10.0.0.2,port=6379,state=online,offset=1,lag=0";
    let mut facts = with(replica, "min-replicas-to-write=1");
    facts.options.acknowledge = Some(Acknowledge::replicas(1));
    says(promised(&facts), ["a replica that lacks a lock"]);
    let mut facts = with("", "appendfsync=everysec");
    let disk = Acknowledge::by(AcknowledgedBy::Disk { replicas: 0 });
    facts.options.acknowledge = Some(disk);
    assert_eq!(complaints(&facts), []);
    says(promised(&facts), ["also over a restart"]);
    // A restart brings back what was not renewed there.
    facts.options.acknowledge = Some(disk.renewals(false));
    says(promised(&facts), ["until the server loses data"]);
}

/// Whatever the server does not tell is said to be unknown, and not guessed: without a field, each
/// finding is either the same as with it, or gone, or says what is unknown.
#[test]
fn what_was_not_read_is_unknown() {
    let replica = "slave0=ip=10.0.0.2,port=6379,state=online,offset=1,lag=0";
    let unlimited = format!("{replica}; maxmemory=0");
    let mut bases = vec![
        good(),
        with("aof_enabled=0", "save=3600 1"),
        with(&unlimited, "min-replicas-to-write=1"),
        with("redis_version=6.2.6", "acl-pubsub-default=resetchannels"),
    ];
    let (mut voter, mut gated, mut seen) = (good(), with(replica, ""), bases[3].clone());
    (voter.part, voter.trial, voter.vote) = (Part::Voter, None, Some(Vote::Now));
    gated.options.restart = Restart::Quarantine(Quarantine::default());
    let lag = fields("min-replicas-to-write=1; min-replicas-max-lag=10");
    gated.config.extend(lag);
    seen.users = Some(Users {
        others: 1,
        on_all_channels: Vec::new(),
    });
    bases.extend([voter, gated, seen]);
    for base in bases {
        let texts = |facts: &Facts| -> Vec<String> {
            judge(facts).into_iter().map(|it| it.found).collect()
        };
        let told = texts(&base);
        let unknown = |text: &String| text.contains("unknown");
        assert!(!told.iter().any(unknown), "{told:?}");
        let without = |info: Option<&String>, config: Option<&String>| {
            let mut less = base.clone();
            info.map(|field| less.info.remove(field));
            config.map(|name| less.config.remove(name));
            for text in texts(&less).into_iter().filter(|text| !told.contains(text)) {
                let honest = text.contains("unknown") || text.contains("does not report");
                assert!(honest, "without {info:?} {config:?}: {text}");
            }
            let survives = |facts| promised(facts).contains("also over a restart");
            // INFO has a line for each replica there is.
            let replica = info.is_some_and(|field| field == "slave0");
            let honest = survives(&base) || !survives(&less) || replica;
            assert!(honest, "without {info:?} {config:?}");
        };
        let (info, config) = (base.info.keys(), base.config.keys());
        info.for_each(|field| without(Some(field), None));
        config.for_each(|name| without(None, Some(name)));
    }
    let mut silent = good();
    silent.info.clear();
    let unknown = ["a replica is promoted", "maxmemory-policy is unknown"];
    says(promised(&silent), unknown);
}

/// The remedy is what is missing, where the server names it.
#[test]
fn a_missing_right_is_named() {
    let said = "the user may not do this: User bob has no permissions to run the 'select' command";
    let error = StoreError::new(ErrorKind::Refused, said).with_hint("this rule is enough: …");
    let mut facts = good();
    facts.unreachable = Some(error.clone());
    let add = Some("add +select to the user's ACL rule");
    assert_eq!(judge(&facts)[0].remedy.as_deref(), add);
    facts.unreachable = None;
    facts.trial = Some(Trial::failed("acquire a lock", error));
    let found = judge(&facts);
    let scripts = found.iter().find(|finding| finding.check == "scripts");
    assert_eq!(scripts.unwrap().remedy.as_deref(), add);
}

#[test]
fn a_primary_that_was_replaced_has_to_stop_in_time() {
    let settings = |needed: &str, lag: &str, quarantine| {
        let config = format!("min-replicas-to-write={needed}; min-replicas-max-lag={lag}");
        let options = RedisOptions::from_url("redis-sentinel://h/main").unwrap();
        Facts {
            options: options.restart(Restart::Quarantine(quarantine)),
            config: fields(&config).collect(),
            ..Facts::default()
        }
    };
    let usual = Quarantine::default();
    let short = Quarantine::new(Duration::from_secs(10));
    let severity = |facts: &Facts| server::isolation(facts).map(|it| it.severity);
    assert_eq!(severity(&settings("1", "10", usual)), None);
    assert_eq!(severity(&settings("1", "8", short)), None);
    let warning = Some(Severity::Warning);
    assert_eq!(severity(&settings("1", "9", short)), warning);
    assert_eq!(severity(&settings("0", "1", usual)), warning);
    let found = server::isolation(&settings("1", "10", short)).unwrap();
    assert!(found.remedy.unwrap().contains("23 s or more"));
    // A server can say anything.
    let longest = settings("1", "18446744073709551615", usual);
    assert_eq!(severity(&longest), warning);
    // Nobody can take the place of a server without replicas or Sentinels.
    let mut alone = settings("0", "10", usual);
    alone.options = RedisOptions::default().restart(Restart::Quarantine(usual));
    assert_eq!(severity(&alone), None);
}
