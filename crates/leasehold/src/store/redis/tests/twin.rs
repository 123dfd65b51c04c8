//! A queue of the core and its twin on a server, taking the same steps at the
//! same times.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::{Command, Event, Inbox, Key, Outcome, Queue, Reply, StoreTime};
use leasehold_testkit::server::RedisServer;
use redis::{Commands, Value};
use serde_json::json;

use super::super::record::{Entry, Record};
use super::super::script::{self, SCRIPTS, Script, Terms};

pub(super) const RETENTION: Duration = Duration::from_secs(24 * 3600);
const PREFIX: &str = "leasehold:";
const SENTINEL: &str = "all-told";

/// The line of each script that reads the clock, and what replaces it here.
const CLOCK: &str = "local time = redis.call('TIME')\n";
const GIVEN: &str = "local time = {0, ARGV[#ARGV]}\n";

/// What each inbox heard, line by line.
type Heard = BTreeMap<String, Vec<String>>;

pub(super) struct Twin {
    connection: redis::Connection,
    subscriber: redis::Connection,
    scripts: [Script; 5],
    inboxes: BTreeSet<String>,
    key: Key,
    pub(super) queue: Queue,
    /// How many answers of each kind were compared.
    pub(super) seen: BTreeMap<&'static str, usize>,
}

impl Twin {
    pub(super) fn new(server: &RedisServer, heard: &[&str]) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        let mut subscriber = client.get_connection().unwrap();
        let channels = heard.iter().map(|name| format!("{PREFIX}inbox:{name}"));
        for channel in channels.chain([SENTINEL.to_owned()]) {
            subscriber.as_pubsub_without_unsubscribe(&channel);
        }
        let scripts = [
            &SCRIPTS.claim,
            &SCRIPTS.renew,
            &SCRIPTS.release,
            &SCRIPTS.break_key,
            &SCRIPTS.inspect,
        ]
        .map(|script| {
            assert_eq!(
                script.text.matches(CLOCK).count(),
                1,
                "one line reads the clock"
            );
            Script::new(script.text.replace(CLOCK, GIVEN))
        });
        Self {
            connection: client.get_connection().unwrap(),
            subscriber,
            scripts,
            inboxes: heard.iter().map(|name| (*name).to_owned()).collect(),
            key: Key::new("a key").unwrap(),
            queue: Queue::default(),
            seen: BTreeMap::new(),
        }
    }

    /// Goes on with an empty queue at another key.
    pub(super) fn restart(&mut self, name: &str) {
        self.key = Key::new(name).unwrap();
        self.queue = Queue::default();
    }

    fn redis_key(&self) -> String {
        format!("{PREFIX}lock:{}", self.key)
    }

    fn eval(
        &mut self,
        script: usize,
        arguments: impl Fn(&mut redis::Cmd),
        clock: StoreTime,
    ) -> Value {
        let script = &self.scripts[script];
        let mut call = script::call(script, &self.redis_key());
        arguments(&mut call);
        call.arg(clock.0);
        let mut ask = || call.query::<Value>(&mut self.connection);
        match ask() {
            Err(error) if error.code() == Some("NOSCRIPT") => {}
            answer => return answer.unwrap(),
        }
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&script.text);
        let _: String = load.query(&mut self.connection).unwrap();
        call.query(&mut self.connection).unwrap()
    }

    /// One step on both; panics where they differ.
    pub(super) fn step(&mut self, command: &Command, clock: StoreTime) -> Reply {
        let terms = Terms {
            retention: RETENTION,
            believed: true,
        };
        let script = match command {
            Command::Claim(_) => 0,
            Command::Renew(_) => 1,
            Command::Release(_) => 2,
            Command::Break => 3,
            _ => panic!("no verb of a store"),
        };
        let arguments = |call: &mut redis::Cmd| match command {
            Command::Claim(claim) => script::add_claim(call, claim, terms),
            Command::Renew(renew) => script::add_renew(call, renew, terms),
            Command::Release(release) => script::add_release(call, release, terms),
            _ => script::add_break(call, terms),
        };
        let value = self.eval(script, arguments, clock);
        let (reply, at) = script::read_reply(&value).unwrap();
        let heard = self.heard();

        let expected = self.queue.apply(command, clock);
        assert_eq!((reply, at), (expected.reply, expected.at), "the answer");
        assert_eq!(
            heard,
            self.deliver(expected, clock),
            "what the inboxes heard"
        );
        self.compare_records(clock);
        *self.seen.entry(kind(&reply)).or_default() += 1;
        reply
    }

    fn deliver(&mut self, outcome: Outcome, clock: StoreTime) -> Heard {
        let mut told = Heard::new();
        let Self {
            queue,
            inboxes,
            key,
            seen,
            ..
        } = self;
        queue.deliver(outcome.events, clock, |event| {
            let inbox = event.inbox().as_str();
            let heard = inboxes.contains(inbox);
            let what = if heard { "heard" } else { "unheard" };
            *seen.entry(what).or_default() += 1;
            if heard {
                let line = line(event, outcome.at, key);
                told.entry(inbox.to_owned()).or_default().push(line);
            }
            heard
        });
        told
    }

    /// All that was published in the last step.
    fn heard(&mut self) -> Heard {
        let mut heard = Heard::new();
        let _: usize = self.connection.publish(SENTINEL, "").unwrap();
        loop {
            let message = self.subscriber.recv_response().unwrap();
            let message = redis::Msg::from_owned_value(message).unwrap();
            let channel = message.get_channel_name();
            if channel == SENTINEL {
                return heard;
            }
            let inbox = channel.strip_prefix("leasehold:inbox:").unwrap();
            let text: String = message.get_payload().unwrap();
            let lines = heard.entry(inbox.to_owned()).or_default();
            lines.extend(text.split('\n').map(str::to_owned));
        }
    }

    fn compare_records(&mut self, clock: StoreTime) {
        let value = self.eval(4, |_| {}, clock);
        let (record, _) = Record::read(value.clone()).unwrap();
        let mut expected = serde_json::to_value(&self.queue).unwrap();
        let mut found = as_json(&record);
        if record.granted.is_empty() {
            // Means nothing then.
            expected["earliest"] = json!(0);
            found["earliest"] = json!(0);
        }
        assert_eq!(found, expected, "the record");
        let (record, _) = Record::read(value).unwrap();
        assert_eq!(record.look(clock), self.queue.look(clock), "the look");

        let left: i64 = self.connection.pttl(self.redis_key()).unwrap();
        let keep = self.queue.keep_for(clock, RETENTION) - RETENTION / 16;
        let slack = Duration::from_secs(30);
        assert!(
            Duration::from_millis(u64::try_from(left).expect("it expires")) + slack > keep,
            "the record lives {left} ms, too short for {keep:?}"
        );
    }
}

trait SubscribeRaw {
    fn as_pubsub_without_unsubscribe(&mut self, channel: &str);
}

impl SubscribeRaw for redis::Connection {
    /// Subscribes for good, so that messages can be read one by one.
    fn as_pubsub_without_unsubscribe(&mut self, channel: &str) {
        let command = redis::cmd("SUBSCRIBE").arg(channel).get_packed_command();
        self.send_packed_command(&command).unwrap();
        self.recv_response().unwrap();
    }
}

fn kind(reply: &Reply) -> &'static str {
    match reply {
        Reply::Standing(standing) if standing.token.is_some() => "granted",
        Reply::Standing(_) => "waiting",
        Reply::Busy { .. } => "busy",
        Reply::Gone => "gone",
        Reply::Released { .. } => "released",
        Reply::Absent => "absent",
        Reply::Mismatch { .. } => "mismatch",
        Reply::Broken { .. } => "broken",
        Reply::Superseded => "superseded",
        Reply::Taken => "taken",
        Reply::Resized => "resized",
        Reply::Done => "done",
    }
}

fn line(event: &Event, at: StoreTime, key: &Key) -> String {
    let at = at.0;
    match event {
        Event::Granted {
            arrival,
            token,
            deadline,
            ..
        } => format!("1 g {arrival} {token} {} {at} {key}", deadline.0),
        Event::Next {
            arrival,
            blocked_until,
            ..
        } => format!("1 n {arrival} {} {at} {key}", blocked_until.0),
        Event::Revoked { arrival, .. } => format!("1 r {arrival} {at} {key}"),
        Event::Adopted { arrival, .. } => format!("1 a {arrival} {at} {key}"),
        Event::Unfit {
            arrival, in_use, ..
        } => format!("1 u {arrival} {} {at} {key}", in_use.units()),
        Event::Changed { .. } => format!("1 c 0 {at} {key}"),
    }
}

/// A record as the core writes a queue down.
fn as_json(record: &Record) -> serde_json::Value {
    let entry = |entry: &Entry| {
        json!({
            "id": entry.id,
            "arrival": entry.arrival,
            "mode": entry.mode,
            "deadline": entry.deadline,
            "since": entry.since,
            "inbox": entry.inbox.as_ref().map(Inbox::as_str),
            "owner": entry.owner,
        })
    };
    json!({
        "last_seen": record.last_seen,
        "offset": Duration::from_micros(record.offset),
        "last_token": record.last_token,
        "last_arrival": record.last_arrival,
        "capacity": record.capacity,
        "earliest": record.earliest,
        "furthest": record.furthest,
        "granted": record.granted.iter().map(|e| json!([e.token, entry(e)])).collect::<Vec<_>>(),
        "waiting": record.waiting.iter().map(entry).collect::<Vec<_>>(),
        "released": record.released,
    })
}
