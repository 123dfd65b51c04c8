//! The simulated server against a real one: every script call that clients made in a
//! few runs, on both, with the same time. Each answer and each record has to be the same.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::ValueEnum;

use leasehold_testkit::server::RedisServer;
use redis::{Connection, Value};

use super::reply::Reply;
use super::{CALLS, Call, Data, Server};
use crate::simulate::flaws::Flaw;
use crate::simulate::invariants::Deployment;
use crate::simulate::plan::Plan;
use crate::simulate::run::run_here;

/// What stands at a key, in an order that does not depend on the server.
const LOOK: &[u8] = include_bytes!("look.lua");

fn calls(plan: Plan) -> Vec<Call> {
    let thread = std::thread::spawn(move || {
        let outcome = run_here(plan, false).unwrap();
        assert_eq!(outcome.violated, None);
        CALLS.take()
    });
    thread.join().unwrap()
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let first = self.text.split(|byte| *byte == b'\n').next();
        let first = first.unwrap_or_default();
        let words = self.keys.iter().chain(&self.arguments);
        let words: Vec<_> = words.map(|word| word.escape_ascii().to_string()).collect();
        write!(f, "{}: {}", first.escape_ascii(), words.join(" "))
    }
}

/// The script with the time of the call in it, so that both servers have the same; and without an
/// end of its keys, which the real server would count by its own clock.
fn timed(call: &Call) -> Vec<u8> {
    let text = String::from_utf8(call.text.clone()).unwrap();
    let (seconds, micros) = (call.wall.as_secs(), call.wall.subsec_micros());
    let time = format!("{{'{seconds}', '{micros}'}}");
    let text = text.replace("redis.call('TIME')", &time);
    let lives = "math.max(math.ceil(micros / 1000), 1)";
    text.replace(lives, "3600000").into_bytes()
}

fn of_value(value: Value) -> Reply {
    match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Int(number),
        Value::BulkString(bytes) => Reply::Bulk(bytes),
        Value::Okay => Reply::ok(),
        Value::SimpleString(text) => Reply::Status(text),
        Value::Array(items) => Reply::Array(items.into_iter().map(of_value).collect()),
        Value::ServerError(error) => Reply::Error(error.code().to_owned()),
        other => panic!("{other:?}"),
    }
}

/// Only the kind of an error: its words are the server's own.
fn without_words(reply: Reply) -> Reply {
    match reply {
        Reply::Error(text) => Reply::Error(text.split(' ').next().unwrap_or_default().to_owned()),
        other => other,
    }
}

/// How the script begins that answers with the fields of a hash, as they come.
const INSPECT: &[u8] = b"-- Looks at a key";

/// The same with the fields in order: a server has none where they are many or long.
fn in_order(reply: Reply) -> Reply {
    let Reply::Array(items) = reply else {
        return reply;
    };
    let (start, fields) = items.split_at(items.len().min(2));
    let mut fields: Vec<_> = fields.chunks(2).collect();
    fields.sort_by_key(|field| format!("{:?}", field[0]));
    Reply::Array([start, &fields.concat()].concat())
}

fn packed(words: &[impl redis::ToRedisArgs]) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.get_packed_command()
}

/// What a real server answers.
fn answer(real: &mut Connection, command: &[u8]) -> Reply {
    match redis::ConnectionLike::req_packed_command(real, command) {
        Ok(value) => without_words(of_value(value)),
        Err(error) => Reply::Error(error.code().expect("the server answers").to_owned()),
    }
}

/// The same server, asked without a network.
struct Direct(Arc<Server>);

impl Direct {
    fn evaluate(&self, text: &[u8], keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> Reply {
        super::lock(&self.0.inside.clock).tick();
        self.0.inside.dirty.store(false, super::Ordering::Relaxed);
        let mut scripts = super::lock(&self.0.scripts);
        let hash = scripts.load(text).unwrap();
        let reply = scripts.run(&hash, keys, arguments);
        // Every call is another script, and Lua has room for some thousands.
        scripts.forget_all();
        without_words(reply)
    }
}

fn ask(real: &mut Connection, text: &[u8], keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> Reply {
    let mut eval = redis::cmd("EVAL");
    eval.arg(text).arg(keys.len()).arg(keys).arg(arguments);
    answer(real, &eval.get_packed_command())
}

/// These tests take what time the others leave, and so does their server.
const PATIENCE: Duration = Duration::from_secs(600);

/// A real server compiles every call anew: so many are enough.
const CALLS_COMPARED: usize = 1_500;

fn compare(plan: Plan) -> usize {
    let mut calls = calls(plan);
    calls.truncate(CALLS_COMPARED);
    let server = RedisServer::start();
    let mut real = server.admin().unwrap();
    real.set_read_timeout(Some(PATIENCE)).unwrap();
    let simulated = Direct(Server::new(Arc::new(Mutex::new(Data::default())), 7, None).unwrap());
    for (at, call) in calls.iter().enumerate() {
        let text = timed(call);
        let answers = [
            simulated.evaluate(&text, &call.keys, &call.arguments),
            ask(&mut real, &text, &call.keys, &call.arguments),
        ];
        let answers = answers.map(|answer| match call.text.starts_with(INSPECT) {
            true => in_order(answer),
            false => answer,
        });
        assert_eq!(answers[0], answers[1], "call {at}: {call}");
        for key in &call.keys {
            let key = std::slice::from_ref(key);
            let looks = [
                simulated.evaluate(LOOK, key, &[]),
                ask(&mut real, LOOK, key, &[]),
            ];
            assert_eq!(looks[0], looks[1], "the record after call {at}: {call}");
        }
    }
    calls.len()
}

#[test]
fn answers_and_records_are_those_of_a_real_server() {
    let run = |deployment, quarantine| {
        let mut plan = Plan::new(1, deployment, Some(4));
        plan.quarantine = quarantine;
        compare(plan)
    };
    let locks = run(Deployment::Redis, false) + run(Deployment::Redis, true);
    let votes = run(Deployment::Redlock, false);
    let enough = locks > 1_000 && votes > 1_000;
    assert!(enough, "{locks} and {votes} calls are too few");
}

/// A flaw that changes nothing would be found by nothing.
#[test]
fn every_change_of_a_flaw_is_one_of_a_script() {
    let mut texts = BTreeSet::new();
    for flaw in [Flaw::OpenGate, Flaw::NoQuarantine] {
        let mut plan = Plan::new(1, flaw.deployment(), Some(3)).with_flaw(flaw);
        plan.flaw = None;
        texts.extend(calls(plan).into_iter().map(|call| call.text));
    }
    let texts = texts.into_iter().map(|it| String::from_utf8(it).unwrap());
    let texts: Vec<_> = texts.collect();
    for flaw in Flaw::value_variants() {
        let changes_none = matches!(flaw, Flaw::WildClocks | Flaw::ClockSleeps);
        assert_eq!(flaw.patches().is_empty(), changes_none, "{flaw:?}");
        for (from, _) in flaw.patches() {
            let there = texts.iter().any(|text| text.contains(&from));
            assert!(there, "{flaw:?}: no script has {from:?}");
        }
    }
}

/// Commands one after the other: on texts and when they end, on hashes, on whether there is
/// memory, some that are refused, and on what is left.
const COMMANDS: [&str; 7] = [
    "SET a 1|SET a 2 NX|SET b 2 NX|GET a|SET c 1 PX 100000",
    "PEXPIRE a 100000|PERSIST a|PERSIST a|PEXPIRE none 5|EXISTS a none a|TYPE a|TYPE none",
    "MGET a none h|HSET h x 1 y 2|HSET h x 3 z 4|HGET h x|HMGET h x none|HGETALL h",
    "HDEL h x none|HGET a x|HGETALL none|HGET none x|GET h",
    "SETRANGE a 0 ''|SETRANGE none 0 ''|SETRANGE h 0 ''",
    "SET a 1 PX 0|SET a 1 PX x|SET a 1 WHAT|HSET h x",
    "DEL a none h|HDEL h z|TYPE h",
];

#[test]
fn commands_answer_as_a_real_server_does() {
    let server = RedisServer::start();
    let mut real = server.admin().unwrap();
    let mut data = Data::default();
    for line in COMMANDS.join("|").split('|') {
        let words = line.split(' ').map(|word| word.trim_matches('\''));
        let words: Vec<_> = words.map(|word| word.as_bytes().to_vec()).collect();
        let name = String::from_utf8(words[0].clone()).unwrap();
        let wall = Duration::from_secs(1_700_000_000);
        let simulated = data.run(&name, &words[1..], wall, false);
        let simulated = simulated.unwrap_or_else(|| super::data::unknown(&words));
        let answer = answer(&mut real, &packed(&words));
        let flat = |reply: Reply| match reply {
            Reply::Map(pairs) => {
                let flat = pairs.into_iter().flat_map(|(name, value)| [name, value]);
                Reply::Array(flat.collect())
            }
            other => without_words(other),
        };
        assert_eq!(flat(simulated), answer, "{line}");
    }
}

/// What a script can answer, and the name that a server gives it.
const ANSWERS: &str =
    "return {KEYS[1], ARGV[1], 3.9, true, false, {ok = 'fine'}, {err = 'NO wrong'}}";
const NAME: &str = "9d3271cac17acabcd7586598ead0f11a22badc98";

const CONVERSATION: &[&[&str]] = &[
    &["SUBSCRIBE", "inbox"],
    &["PUBLISH", "inbox", "hello"],
    &["PUBLISH", "nobody", "hello"],
    &["SUBSCRIBE", "inbox"],
    &["UNSUBSCRIBE", "inbox"],
    &["UNSUBSCRIBE", "inbox"],
    &["PUBLISH", "inbox", "hello"],
    &["CLIENT", "SETNAME", "somebody"],
    &["SCRIPT", "LOAD", ANSWERS],
    &["EVAL", ANSWERS, "1", "key", "argument"],
    &["EVALSHA", NAME, "1", "key", "argument"],
    &["EVALSHA", "0000000000000000000000000000000000000000", "0"],
    &["EVALSHA", NAME, "2", "key"],
    &["SET", "text", "value"],
    &["GET", "text"],
    &["GET", "none"],
    &["HSET", "hash", "name", "value"],
    &["HGETALL", "hash"],
    &["HGET", "hash", "none"],
    &["GET", "hash"],
    &["EVAL", "return redis.call('HGETALL', 'hash')", "0"],
    &["EVAL", "return redis.pcall('GET', 'hash').err", "0"],
    &["EVAL", "return {err = 'LHTYPE string'}", "0"],
    &["EVAL", PUBLISH, "0"],
];

const PUBLISH: &str = "return redis.call('PUBLISH', 'inbox', 'hello')";

/// What a real server answers, up to the answer to a `PING` behind it.
fn hear(real: &mut TcpStream, words: &[&str]) -> Vec<u8> {
    const OVER: &[u8] = b"+PONG\r\n";
    let said = [packed(words), packed(&["PING"])].concat();
    real.write_all(&said).unwrap();
    let mut heard = Vec::new();
    while !heard.ends_with(OVER) {
        let mut bytes = [0; 4096];
        let some = real.read(&mut bytes).unwrap();
        assert!(some > 0, "the server closes the connection");
        heard.extend(&bytes[..some]);
    }
    heard.truncate(heard.len() - OVER.len());
    heard
}

/// To the byte, pushes and all: what the client's connection rests on.
#[test]
fn a_conversation_is_that_with_a_real_server() {
    let server = RedisServer::start();
    let mut real = TcpStream::connect(server.address()).unwrap();
    let simulated = Server::new(Arc::default(), 7, None).unwrap();
    let (out, mut outgoing) = super::unbounded_channel();
    let (number, resp3) = (1, Arc::default());
    let caller = super::Caller { number, resp3, out };
    let mut ask = |words: &[&str]| {
        assert!(simulated.take(&caller, &mut packed(words)), "no protocol");
        let answers = std::iter::from_fn(|| outgoing.try_recv().ok());
        answers.flatten().collect::<Vec<u8>>()
    };
    // What it says of itself is another's.
    hear(&mut real, &["HELLO", "3"]);
    ask(&["HELLO", "3"]);
    for words in CONVERSATION {
        let answers = [ask(words), hear(&mut real, words)];
        let [simulated, real] = answers.map(|answer| answer.escape_ascii().to_string());
        assert_eq!(simulated, real, "{words:?}");
    }
}
