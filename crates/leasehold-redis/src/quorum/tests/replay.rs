//! Random requests to a server's scripts and to the core's node: every answer,
//! every push and the whole record must be the same.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::quorum::{Acquire, Body, Extend, Node, Part, Told, Vote, VoteChange};
use leasehold_core::{
    ClaimId, ClientInfo, Inbox, Key, Marked, Marker, Note, Proof, SetTerms, StoreTime, Token,
};
use leasehold_store::AuditLimit;
use leasehold_testkit::dice::Dice;
use leasehold_testkit::server::RedisServer;
use redis::Commands;

use super::super::script::{Ask, SCRIPTS, read_look, read_vote};
use crate::codec::audit::{Audit, read_entries, read_votes};
use crate::codec::call::by_hash;
use crate::codec::script::{Script, micros};
use crate::connection::gate::read_left;

const CLOCK: &str = "local time = redis.call('TIME')\n";
const GIVEN: &str = "local time = {0, ARGV[#ARGV]}\n";
const RETENTION: Duration = Duration::from_secs(3_600);
const START: u64 = 1_700_000_000_000_000;
const SENTINEL: &str = "all-told";

/// A server, and what the core makes of it.
struct Twin {
    connection: redis::Connection,
    subscriber: redis::Connection,
    server: RedisServer,
    scripts: BTreeMap<&'static str, Script>,
    key: String,
    node: Node,
    marker: Option<Marker>,
    seen: BTreeMap<String, usize>,
    /// The server's audit log, where it keeps one in this history.
    audit: Option<Audit>,
}

/// Every other one at which nobody listens cannot hear.
fn inbox(number: u64) -> Inbox {
    let dash = if number % 4 == 3 { "-" } else { "" };
    Inbox::new(format!("{dash}i{number}")).unwrap()
}

/// Whether anybody listens there.
fn listens(inbox: &Inbox) -> bool {
    ["i0", "i2", "i4"].contains(&inbox.as_str())
}

impl Twin {
    fn new() -> Self {
        let server = RedisServer::start();
        let client = redis::Client::open(server.url()).unwrap();
        let mut connection = client.get_connection().unwrap();
        let mut subscriber = client.get_connection().unwrap();
        let channels = ["i0", "i2", "i4"].map(|name| format!("leasehold:inbox:{name}"));
        for channel in channels.iter().map(String::as_str).chain([SENTINEL]) {
            let mut subscribe = redis::cmd("SUBSCRIBE");
            subscribe.arg(channel).exec(&mut subscriber).unwrap();
        }
        let scripts = [
            ("acquire", &SCRIPTS.acquire),
            ("extend", &SCRIPTS.extend),
            ("release", &SCRIPTS.release),
            ("break", &SCRIPTS.break_key),
            ("watch", &SCRIPTS.watch),
            ("inspect", &SCRIPTS.inspect),
            ("init", &crate::codec::script::SCRIPTS.init),
        ]
        .map(|(verb, script)| {
            assert_eq!(
                script.text.matches(CLOCK).count(),
                1,
                "{verb} reads the clock once"
            );
            assert!(!script.text.contains("include"), "{verb} is assembled");
            let script = Script::new(script.text.replace(CLOCK, GIVEN));
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD")
                .arg(&script.text)
                .exec(&mut connection)
                .unwrap();
            (verb, script)
        });
        Self {
            connection,
            subscriber,
            server,
            scripts: scripts.into(),
            key: String::new(),
            node: Node::default(),
            marker: None,
            seen: BTreeMap::new(),
            audit: None,
        }
    }

    /// Goes on at another key, on an unmarked server.
    fn restart(&mut self, name: &str) {
        self.key = format!("leasehold:lock:{name}");
        let () = self.connection.del("leasehold:boot").unwrap();
        (self.node, self.marker) = (Node::default(), None);
    }

    /// What was published since the last call.
    fn heard(&mut self) -> Vec<(String, String)> {
        let () = self.connection.publish(SENTINEL, "").unwrap();
        let mut heard = Vec::new();
        loop {
            let message = self.subscriber.recv_response().unwrap();
            let message = redis::Msg::from_owned_value(message).unwrap();
            if message.get_channel_name() == SENTINEL {
                return heard;
            }
            let channel = message.get_channel_name().to_owned();
            heard.push((channel, message.get_payload().unwrap()));
        }
    }

    fn step(
        &mut self,
        ask: &Ask,
        inbox: &Inbox,
        run: &str,
        terms: &SetTerms,
        at: StoreTime,
        full: bool,
    ) {
        let verb = match ask {
            Ask::Acquire(_) => "acquire",
            Ask::Extend(_) => "extend",
            Ask::Release(_) => "release",
            Ask::Break(..) => "break",
            Ask::Watch(_) => "watch",
        };
        let voted =
            matches!(ask, Ask::Extend(e) if self.node.votes_for(&e.vote.id, e.vote.token, at));
        // What only lets go or holds on works when the memory is full.
        let full = full && (voted || matches!(ask, Ask::Release(_)));
        let limit = |connection: &mut redis::Connection, bytes: u8| {
            let mut limit = redis::cmd("CONFIG");
            limit
                .arg("SET")
                .arg("maxmemory")
                .arg(bytes)
                .exec(connection)
                .unwrap();
        };
        if full {
            limit(&mut self.connection, 1);
        }
        let audit = self.audit.clone().filter(|_| ask.is_audited());
        let marker = ask.needs_marker().then_some("leasehold:boot");
        let log = audit.is_some().then_some("leasehold:audit");
        let keys = [Some(&*self.key), marker, log];
        let keys: Vec<_> = keys.into_iter().flatten().collect();
        let script = &self.scripts[verb];
        let asked = by_hash(script, &keys, |call| {
            ask.add(call, run, inbox, terms, RETENTION, audit.as_ref());
            call.arg(at.0);
        });
        let value = asked.query(&mut self.connection).unwrap();
        if full {
            limit(&mut self.connection, 0);
        }
        let found = read_vote(&value).unwrap();

        let holder = self.node.live(at).map(|hold| hold.id.clone());
        let before = self.node.clone();
        let mut told = Vec::new();
        let expected = self.core(ask, run, terms, at, &mut told);
        assert_eq!(found, (expected, at), "the answer to {ask:?}");
        let name = self.key.strip_prefix("leasehold:lock:").unwrap();
        let told: Vec<_> = told
            .into_iter()
            .map(|(inbox, told)| {
                let text = match told {
                    Told::Changed => format!("2 c 0 {} {name}", at.0),
                    Told::Revoked(token) => {
                        let (token, at) = (token.0, at.0);
                        let said = format!("r {token} {at} {name}");
                        let proof = Proof::of(holder.as_ref().unwrap(), &said);
                        format!("2 r {token} {at} {proof} {name}")
                    }
                };
                (format!("leasehold:inbox:{}", inbox.as_str()), text)
            })
            .collect();
        assert_eq!(self.heard(), told, "what the inboxes heard of {ask:?}");
        self.compare(at);
        self.compare_notes(&before, ask, expected, at);
        let kind = format!("{expected:?}");
        let kind = kind.split([' ', '{']).next().unwrap_or_default().to_owned();
        *self.seen.entry(format!("{verb} {kind}")).or_default() += 1;
    }

    fn core(
        &mut self,
        ask: &Ask,
        run: &str,
        terms: &SetTerms,
        at: StoreTime,
        told: &mut Vec<(Inbox, Told)>,
    ) -> Vote {
        let tell = |inbox: &Inbox, what| {
            if listens(inbox) {
                told.push((inbox.clone(), what));
            }
            listens(inbox)
        };
        match ask {
            Ask::Acquire(ask) => match Marker::admit(&mut self.marker, run, terms, at) {
                Ok(()) => self.node.acquire(ask, at, tell),
                Err(no) => no.into(),
            },
            Ask::Extend(ask) => {
                if !self.node.votes_for(&ask.vote.id, ask.vote.token, at)
                    && let Err(no) = Marker::admit(&mut self.marker, run, terms, at)
                {
                    return no.into();
                }
                self.node.extend(ask, at, tell)
            }
            Ask::Release(part) => self.node.release(part, at, tell),
            Ask::Break(token, _) => self.node.break_key(*token, at, tell),
            Ask::Watch(_) => Vote::Done,
        }
    }

    /// What the step has noted.
    fn compare_notes(&mut self, before: &Node, ask: &Ask, vote: Vote, at: StoreTime) {
        let change = match ask {
            Ask::Acquire(ask) => Some(VoteChange::Acquire(&ask.id)),
            Ask::Extend(ask) => Some(VoteChange::Extend(&ask.vote.id)),
            Ask::Release(part) => Some(VoteChange::Release(part)),
            Ask::Break(token, by) => Some(VoteChange::Break(*token, by)),
            Ask::Watch(_) => None,
        };
        let change = change.filter(|_| self.audit.is_some());
        let notes = change.map(|change| self.node.noted(before, change, at));
        let value = redis::cmd("XRANGE")
            .arg("leasehold:audit")
            .arg("-")
            .arg("+")
            .query(&mut self.connection)
            .unwrap();
        let () = self.connection.del("leasehold:audit").unwrap();
        let entries = read_entries("leasehold:audit", value).unwrap();
        assert!(entries.len() <= 1, "one entry for each call");
        let key = Key::new(self.key.strip_prefix("leasehold:lock:").unwrap()).unwrap();
        let mut found = Vec::new();
        for (_, value) in entries {
            for (of, note) in read_votes("leasehold:", &value.unwrap()).unwrap() {
                assert_eq!(of, key);
                found.push(note);
            }
        }
        assert_eq!(
            found,
            notes.unwrap_or_default(),
            "noted of {ask:?}: {vote:?}"
        );
        for note in found {
            let kind = format!("{:?}", note.event);
            let kind = kind.split([' ', '{']).next().unwrap_or_default().to_owned();
            *self.seen.entry(format!("noted {kind}")).or_default() += 1;
        }
    }

    /// The record as it lies there, without what has lapsed in it.
    fn compare(&mut self, at: StoreTime) {
        let look = by_hash(&self.scripts["inspect"], &[&self.key], |call| {
            call.arg(at.0);
        });
        let value = look.query(&mut self.connection).unwrap();
        let (clock, mut found) = read_look(&value).unwrap();
        assert_eq!(clock, at);
        let mut expected = self.node.clone();
        for node in [&mut found, &mut expected] {
            node.waiting.retain(|ear| ear.until > at);
            node.watchers.retain(|ear| ear.until > at);
        }
        assert_eq!(found, expected, "the record");
    }
}

fn body(dice: &mut Dice, inbox: &Inbox) -> Body {
    Body {
        inbox: inbox.clone(),
        owner: ClientInfo::new("a host", 7, Some("ü")),
        note: [None, Some("x"), Some("here\nand there")][dice.roll(8).min(2) as usize]
            .map(|text| Note::new(text).unwrap()),
    }
}

fn history(twin: &mut Twin, seed: u64) {
    let mut dice = Dice(seed);
    let limits = [AuditLimit::Entries(100), AuditLimit::Age(RETENTION)];
    let limit = limits.get((seed % 3) as usize);
    twin.audit = limit.map(|limit| Audit::new("leasehold:", *limit));
    twin.restart(&format!("run lock: {seed}"));
    let mut at = StoreTime(START);
    let terms = |set: &str, quarantine| SetTerms {
        set: set.to_owned(),
        quarantine: Duration::from_millis(quarantine),
    };
    let usual = terms("a set", if seed.is_multiple_of(5) { 0 } else { 400 });
    let (mut run, mut highest) = (0, START);
    for _ in 0..200 {
        at = at + Duration::from_micros(dice.roll(40) * dice.roll(20_000));
        run += u64::from(dice.roll(60) == 0);
        let number = dice.roll(5);
        let (id, inbox) = (ClaimId::from_random(number.into()), inbox(number));
        let inbox = if dice.roll(30) == 0 {
            self::inbox(9)
        } else {
            inbox
        };
        highest = highest.max(at.0.min(highest + 1_000_000));
        let low = highest.saturating_sub(3);
        let token = match dice.roll(12) {
            0 => Token(at.0 + 2_000_000 + dice.roll(3)),
            1 => Token(twin.node.highest().0 + 1),
            _ => Token(low + dice.roll(6)),
        };
        let known = twin.node.hold.clone().filter(|_| dice.roll(2) == 0);
        let (id, token, inbox) = known.map_or((id, token, inbox), |hold| {
            (hold.id, hold.token, hold.body.inbox)
        });
        highest = highest.max(token.0.min(at.0 + 1_000_000));
        let acquire = Acquire {
            id: id.clone(),
            token,
            ttl: Duration::from_micros(1 + dice.roll(1_500_000)),
            body: body(&mut dice, &inbox),
            wait: dice.roll(3) > 0,
            ahead: Duration::from_secs(2),
        };
        let other = terms(["another", "a set"][dice.roll(2) as usize], 700);
        let terms = if dice.roll(50) == 0 { &other } else { &usual };
        let ask = match dice.roll(12) {
            0..5 => Ask::Acquire(acquire),
            5..8 => Ask::Extend(Extend {
                vote: acquire,
                repair: dice.roll(2) == 0,
            }),
            8..10 => Ask::Release(Part {
                id,
                token: if dice.roll(4) == 0 { Token(0) } else { token },
                wake: dice.roll(4) > 0,
            }),
            10 if dice.roll(3) == 0 => Ask::Break(token, ClientInfo::new("ops", 1, None)),
            _ => Ask::Watch(Duration::from_millis(dice.roll(3) * 300)),
        };
        if let Ask::Watch(ttl) = &ask {
            twin.node.watch(&inbox, *ttl, at);
        }
        let full = dice.roll(8) == 0;
        twin.step(&ask, &inbox, &format!("run {run}"), terms, at, full);
    }
}

#[test]
fn the_scripts_do_what_the_core_does() {
    let mut twin = Twin::new();
    let runs = std::env::var("LEASEHOLD_REPLAY_RUNS").ok();
    let runs = runs.and_then(|runs| runs.parse().ok()).unwrap_or(60);
    for seed in 0..runs {
        history(&mut twin, seed);
    }
    eprintln!("{:?}", twin.seen);
    for kind in [
        "acquire Yes",
        "acquire Busy",
        "acquire Stale",
        "acquire Skewed",
        "acquire Taken",
        "acquire Quarantined",
        "acquire Foreign",
        "extend Yes",
        "extend Lost",
        "extend Quarantined",
        "extend Foreign",
        "release Released",
        "break Broken",
        "watch Done",
        "noted Given",
        "noted Released",
        "noted GivenUp",
        "noted Lapsed",
        "noted Broken",
    ] {
        let seen = twin.seen.get(kind).copied().unwrap_or(0);
        assert!(seen > 10, "too little of {kind}: {:?}", twin.seen);
    }
    drop(twin.server);
}

#[test]
fn marking_is_what_the_core_does() {
    let mut twin = Twin::new();
    let mut dice = Dice(7);
    for round in 0..300_u64 {
        if round.is_multiple_of(20) {
            twin.restart("marks");
        }
        let at = StoreTime(START + round * 300_000);
        let terms = SetTerms {
            set: ["a", "b"][dice.roll(4).min(1) as usize].to_owned(),
            quarantine: Duration::from_secs(1 + dice.roll(5) / 4),
        };
        let run = format!("run {}", dice.roll(3) / 2);
        let asked = by_hash(&twin.scripts["init"], &["leasehold:boot"], |call| {
            call.arg(&run)
                .arg(&terms.set)
                .arg(micros(terms.quarantine))
                .arg(at.0);
        });
        let value = asked.query(&mut twin.connection).unwrap();
        let marked = Marker::init(&mut twin.marker, &run, &terms, at);
        let (left, became) = read_left(&value).unwrap();
        let expected = match marked {
            Marked::New => 1,
            Marked::Moved { .. } => 2,
            _ => 0,
        };
        assert_eq!((left, became), (marked.left(), expected));
    }
}

/// Lua prints such numbers rounded unless told not to.
#[test]
fn numbers_are_exact_to_the_last_microsecond() {
    let mut twin = Twin::new();
    let terms = SetTerms {
        set: "s".to_owned(),
        quarantine: Duration::ZERO,
    };
    for start in [1_700_000_000_000_001, StoreTime::LATEST.0 - 100_000_001] {
        twin.restart(&format!("from {start}"));
        for step in 0..50 {
            let at = StoreTime(start + step * 1_000_003);
            let inbox = inbox(step % 3);
            let ask = Acquire {
                id: ClaimId::from_random(step.into()),
                token: Token(at.0 + 1),
                ttl: Duration::from_secs(1),
                body: body(&mut Dice(step), &inbox),
                wait: true,
                ahead: Duration::from_secs(1),
            };
            twin.step(&Ask::Acquire(ask), &inbox, "run", &terms, at, false);
        }
        twin.step(
            &Ask::Break(Token(start + 99_000_000), ClientInfo::new("ops", 1, None)),
            &inbox(0),
            "run",
            &terms,
            StoreTime(start + 60_000_001),
            false,
        );
    }
}
