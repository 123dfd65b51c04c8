//! `leasehold serve`: its API, its metrics, and who may ask.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::http::Request;
use crate::common::*;

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A server, and where it listens.
pub(crate) struct Serving {
    pub(crate) process: Process,
    pub(crate) address: String,
}

pub(crate) async fn serve(store: &Store, arguments: impl Arguments) -> Serving {
    let mut command = store.command("serve --listen 127.0.0.1:0");
    command.args(arguments.words());
    Serving::of(Process::spawn(command)).await
}

/// A file with the token.
pub(crate) fn token_file(store: &Store) -> String {
    let file = store.path("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    file.to_str().unwrap().to_owned()
}

impl Serving {
    async fn of(process: Process) -> Self {
        let line = process.prints("serving").await;
        let url = line.rsplit_once(" at http://").expect("a URL").1;
        let address = url.trim_end_matches('/').to_owned();
        Self { process, address }
    }

    /// The address of the page, or of a view of it.
    pub(crate) fn page(&self, view: &str) -> String {
        format!("http://{}/{view}", self.address)
    }

    pub(crate) fn get<'a>(&'a self, path: &'a str) -> Request<'a> {
        Request::get(&self.address, path)
    }

    fn post<'a>(&'a self, path: &'a str, body: &Value) -> Request<'a> {
        Request::post(&self.address, path, body)
    }
}

fn row<'a>(table: &'a Value, key: &str) -> Option<&'a Value> {
    let rows = table["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["key"] == key)
}

#[tokio::test]
async fn a_lock_of_another_process_appears_moves_on_and_goes() {
    let store = Store::redis();
    let serving = serve(&store, "").await;
    let mut events = serving.get("/api/v1/events").send().await;
    assert!(events.head.contains("content-type: text/event-stream"));
    events.event("locks", |table| table["total"] == 0).await;

    let (first, _) = store.holder(&["orders/42", "--label", "first"]).await;
    let held = |label: &'static str| {
        move |table: &Value| {
            let owner = row(table, "orders/42").map(|row| &row["holders"][0]["owner"]);
            owner.is_some_and(|owner| owner["label"] == label)
        }
    };
    events.event("locks", held("first")).await;
    let second = store.spawn("hold orders/42 --label second");
    let waiting = |table: &Value| row(table, "orders/42").is_some_and(|row| row["waiting"] == 1);
    let table = events.event("locks", waiting).await;
    assert_eq!(table["waiting"], 1);
    first.signal(Signal::TERM);
    events.event("locks", held("second")).await;
    second.signal(Signal::TERM);
    events.event("locks", |table| table["total"] == 0).await;

    let ended = serving.process.ends_by(Signal::TERM).await;
    ended.has_code(Some(0));
}

#[tokio::test]
async fn a_key_has_its_queue_and_its_history() {
    let mut store = Store::local();
    store.url += "?audit=1000";
    let serving = serve(&store, "").await;
    let key = "orders/é <b>&?#\"";
    let path = "/api/v1/events?limit=1&key=orders%2F%C3%A9%20%3Cb%3E%26%3F%23%22";
    let mut events = serving.get(path).send().await;
    events.event("lock", |lock| lock["lock"].is_null()).await;
    let run = ["run", "--label", "<script>", key, "--", "true"];
    store.run(&run).await.has_code(Some(0));
    // The log is read after the key, and may be ahead of it.
    let ended = |lock: &Value| lock["history"][0]["event"] == "released" && lock["lock"].is_null();
    let lock = events.event("lock", ended).await;
    assert_eq!(lock["key"], key);
    assert_eq!(lock["history"][0]["owner"]["label"], "<script>");
    assert_eq!(lock["history"][1]["event"], "granted");

    let (holder, token) = store.holder(&[key]).await;
    let path = path.replace("events?limit=1&", "lock?");
    let lock = serving.get(&path).answers(200).await;
    assert_eq!(lock["history_error"], Value::Null);
    let holds = &lock["lock"]["holders"][0];
    assert_eq!(holds["token"], token);
    assert_eq!(holds["owner"]["pid"], holder.pid());

    for key in ["%00", ""] {
        let path = format!("/api/v1/lock?key={key}");
        let problem = serving.get(&path).answers(400).await;
        assert!(problem["error"].is_string(), "{problem}");
    }
}

#[tokio::test]
async fn a_key_that_cannot_be_read_says_why_beside_others() {
    let store = Store::redis();
    let foreign = ["RPUSH", "leasehold:lock:other", "x"];
    store.server().command(&foreign);
    let _holder = store.holder(&["k"]).await;
    let serving = serve(&store, "").await;
    let mut events = serving.get("/api/v1/events?key=other").send().await;
    let says_why = |lock: &Value| {
        let why = lock["lock_error"].as_str();
        lock["lock"].is_null() && why.is_some_and(|why| why.contains("not leasehold's"))
    };
    events.event("lock", says_why).await;
    let problem = serving.get("/api/v1/lock?key=other").answers(500).await;
    says(&problem["error"].to_string(), ["not leasehold's"]);
    let table = events.event("locks", |_| true).await;
    assert!(row(&table, "k").is_some(), "{table}");
    assert_eq!(table["error"], Value::Null, "{table}");
    store.server().command(&["DEL", "leasehold:lock:other"]);
    let is_free = |lock: &Value| lock["lock"].is_null() && lock["lock_error"].is_null();
    events.event("lock", is_free).await;
}

#[tokio::test]
async fn who_waits_for_whom_and_a_deadlock() {
    let store = Store::local();
    let serving = serve(&store, "").await;
    let graph = serving.get("/api/v1/waits").answers(200).await;
    includes(&graph, json!({"keys": [], "deadlocks": []}));
    let both = deadlocked(&store, ["j", "k"]).await;
    both[0].says("deadlock").await;
    let graph = loop {
        let graph = serving.get("/api/v1/waits").answers(200).await;
        if graph["deadlocks"] != json!([]) {
            break graph;
        }
    };
    let sentence = graph["deadlocks"][0]["sentence"].as_str().unwrap();
    assert!(sentence.contains("holds k and waits for j"), "{sentence}");
    // What each run holds and waits for is one piece of work.
    assert_eq!(graph["claims"].as_array().unwrap().len(), 2, "{graph}");
}

#[tokio::test]
async fn only_this_machine_and_this_site_may_ask() {
    let store = Store::memory();
    let serving = serve(&store, "--host locks.example").await;
    let info = || serving.get("/api/v1/info");
    let headers = info().send().await.head;
    let policy = "content-security-policy: default-src 'none'; script-src 'self';";
    let resources = "cross-origin-resource-policy: same-origin";
    says(&headers, [policy, resources, "x-frame-options: deny"]);
    let sniffing = "x-content-type-options: nosniff";
    says(&headers, [sniffing, "cache-control: no-store"]);
    says(&headers, ["x-accel-buffering: no"]);
    info().header("Host: locks.example:80").answers(200).await;
    let unknown = info().header("Host: evil.example").answers(421).await;
    let error = "unknown host name \"evil.example\"";
    assert_eq!(unknown["error"], error);

    let body = json!({ "key": "k", "tokens": [1] });
    for foreign in ["Origin: http://evil.example", "Sec-Fetch-Site: cross-site"] {
        let breaking = serving.post("/api/v1/break", &body).header(foreign);
        breaking.answers(403).await;
        let reading = serving.get("/api/v1/events").header(foreign);
        reading.answers(403).await;
        let page = serving.get("/").header(foreign).send().await;
        assert_eq!(page.status, 200, "{foreign}");
    }
    let refused = serving.post("/api/v1/break", &body).answers(403).await;
    assert_eq!(refused["error"], "breaking locks is not allowed here");
    serving.get("/nothing").answers(404).await;
    serving.post("/api/v1/locks", &body).answers(405).await;
    let long = json!("x".repeat(5000));
    serving.get("/api/v1/locks?limit=0").answers(400).await;
    serving.get("/api/v1/locks?sort=nothing").answers(400).await;
    let pattern = |bytes| format!("/api/v1/events?pattern={}", "x".repeat(bytes));
    serving.get(&pattern(257)).answers(400).await;
    assert_eq!(serving.get(&pattern(20_000)).send().await.status, 431);
    // A proxy before it could take the other one for the one that counts.
    let host = format!("Host: {}", serving.address);
    let own = format!("Origin: http://{}", serving.address);
    for [one, other] in [
        [&*host, "Host: evil.example"],
        [&*host, &host],
        ["Origin: http://evil.example", &own],
        ["Origin: http://é.example", "X: y"],
        ["Sec-Fetch-Site: none", "Sec-Fetch-Site: cross-site"],
    ] {
        info().header(one).header(other).answers(400).await;
    }
    let elsewhere = serving.get("http://evil.example/api/v1/info");
    elsewhere.answers(400).await;
    let page = serving.get("/").send().await.text().await;
    assert!(page.starts_with("<!doctype html>"), "{page}");

    let breaks = serve(&store, ("--allow-break --token-file", &token_file(&store))).await;
    let too_long = breaks.post("/api/v1/break", &long);
    let too_long = too_long.header(&format!("Authorization: Bearer {TOKEN}"));
    too_long.answers(413).await;
}

#[tokio::test]
async fn with_a_token_all_data_takes_it_and_a_lock_can_be_broken() {
    let store = Store::local();
    let serving = serve(&store, ("--allow-break --token-file", &token_file(&store))).await;
    let right = format!("Authorization: Bearer {TOKEN}");
    for path in "/api/v1/info /api/v1/events /api/v1/locks /metrics".split(' ') {
        let refused = serving.get(path).send().await;
        assert_eq!(refused.status, 401, "{path}");
        says(&refused.head, ["www-authenticate: bearer"]);
        let other = "Authorization: Bearer 0123456789abcdef";
        for (header, status) in [(other, 401), (&*right, 200)] {
            let answer = serving.get(path).header(header).send().await;
            assert_eq!(answer.status, status, "{path}");
        }
    }
    let lower = format!("authorization: bearer  {TOKEN}");
    let info = serving.get("/api/v1/info").header(&lower);
    info.answers(200).await;
    let twice = serving.get("/api/v1/info").header(&right).header(&right);
    assert_eq!(twice.send().await.status, 400);
    for path in ["/", "/app.js", "/style.css"] {
        assert_eq!(serving.get(path).send().await.status, 200, "{path}");
    }
    // Whoever asks whether it is there by whatever name.
    let health = serving.get("/healthz").header("Host: pod.example");
    assert_eq!(health.send().await.text().await, "ok\n");

    let (holder, token) = store.holder(&["k"]).await;
    let breaking = |token: u64| {
        let body = json!({ "key": "k", "tokens": [token] });
        serving.post("/api/v1/break", &body).header(&right)
    };
    let problem = breaking(token - 1).answers(409).await;
    let error = problem["error"].as_str().unwrap();
    assert!(error.starts_with("nothing was broken"), "{error}");
    assert_eq!(breaking(token).answers(200).await["holders"], 1);
    assert_eq!(holder.wait().await.code(), Some(79));

    let said = serving.process.ends_by(Signal::TERM).await;
    assert!(!said.stdout.contains(TOKEN) && !said.stderr.contains(TOKEN));
}

#[tokio::test]
async fn metrics_have_a_bound_on_series_and_quote_names() {
    let store = Store::local();
    let serving = serve(&store, "--max-series 2").await;
    let mut holders = Vec::new();
    for key in ["a/1", "a/2", "a \"b\\/1", "c/1", "d/1"] {
        holders.push(store.holder(&[key]).await);
    }
    let _waiter = store.waiter("a/1", "run a/1 -- true").await;
    let read = async || {
        let text = serving.get("/metrics").send().await.text().await;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let parsed = lines.map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            (series.to_owned(), value.parse::<f64>().expect("a number"))
        });
        (parsed.collect::<std::collections::BTreeMap<_, _>>(), text)
    };
    let of = |name: &str, prefix: &str| format!("leasehold_store_{name}{{prefix=\"{prefix}\"}}");
    let (values, text) = loop {
        let (values, text) = read().await;
        let waits = values.get(&of("waiters", "a")) == Some(&1.0);
        if waits && values["leasehold_store_prefixes_dropped"] == 2.0 {
            break (values, text);
        }
    };
    assert_eq!(values[&of("locks_held", "a")], 2.0, "{text}");
    assert_eq!(values[&of("locks_held", "d")], 1.0, "{text}");
    assert_eq!(values[&of("locks_held", "other")], 2.0, "{text}");
    assert!(values[&of("oldest_hold_seconds", "a")] > 0.0, "{text}");
    assert_eq!(values["leasehold_store_up"], 1.0);
    let page = include_str!("../../../../docs/metrics.md");
    let help = text.lines().filter_map(|line| line.strip_prefix("# HELP "));
    for (name, meaning) in help.filter_map(|line| line.split_once(' ')) {
        let row = format!("| `{name}` | {meaning} |");
        assert!(page.contains(&row), "docs/metrics.md lacks {row}");
        assert!(text.contains(&format!("# TYPE {name} gauge\n")), "{text}");
    }

    let quoted = serve(&store, "").await;
    let text = quoted.get("/metrics").send().await.text().await;
    assert!(text.contains(r#"{prefix="a \"b\\"} 1"#), "{text}");
}

#[tokio::test]
async fn the_last_data_stays_while_the_store_does_not_answer() {
    let server = RedisServer::start();
    let mut command = leasehold(("serve --listen 127.0.0.1:0 -S", &server.url()));
    command.env("NO_COLOR", "1");
    let Serving {
        process: _process,
        address,
    } = Serving::of(Process::spawn(command)).await;
    let _holder = holder_at(&server.url(), "k").await;
    let mut events = Request::get(&address, "/api/v1/events").send().await;
    let shows = |table: &Value| row(table, "k").is_some();
    let answers = |table: &Value| shows(table) && table["error"].is_null();
    events.event("locks", answers).await;
    server.stop();
    let is_silent = |table: &Value| shows(table) && table["error"].is_string();
    events.event("locks", is_silent).await;
    let graph = Request::get(&address, "/api/v1/waits").answers(200).await;
    assert!(graph["error"].is_string(), "{graph}");
    assert!(graph["read_ms_ago"].is_u64(), "{graph}");
    server.cont();
    events.event("locks", answers).await;
}

#[tokio::test]
async fn what_cannot_be_served_has_one_sentence() {
    let store = Store::memory();
    let serving = serve(&store, "").await;
    let short = store.path("short");
    std::fs::write(&short, "short").unwrap();
    let short = format!("--token-file {}", short.display());
    let taken = format!("--listen {}", serving.address);
    for (arguments, status, says) in [
        (&*taken, 69, "cannot listen at"),
        ("--listen nowhere", 64, "name an address and a port"),
        ("--listen 0.0.0.0:0", 64, "a token is required"),
        ("--allow-break", 64, "--allow-break requires a token"),
        ("--allow-break", 64, "umask 077; openssl"),
        ("--token-file /nowhere", 64, "cannot read the token"),
        (&short, 64, "too short"),
    ] {
        ends_saying(&store, format!("serve {arguments}"), status, says).await;
    }
    let mut odd = store.command("serve --listen 127.0.0.1:0");
    let token = [TOKEN.as_bytes(), b"\xff"].concat();
    odd.env("LEASEHOLD_SERVE_TOKEN", OsStr::from_bytes(&token));
    let refused = Process::run(odd).await;
    refused.has_ended_saying(Some(64), "printable characters");
}

#[tokio::test]
async fn unfinished_requests_lock_nobody_out() {
    let store = Store::memory();
    let command = store.command("serve --listen 127.0.0.1:0");
    let limited = in_shell("ulimit -n 100; exec \"$@\"", &command);
    let serving = Serving::of(Process::spawn(limited)).await;
    let mut unfinished = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(&serving.address).await.unwrap();
        // It may be closed already.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: ").await;
        unfinished.push(stream);
    }
    let mut events = serving.get("/api/v1/events").send().await;
    events.event("locks", |table| table["total"] == 0).await;
    for path in ["/healthz", "/api/v1/info", "/metrics"] {
        assert_eq!(serving.get(path).send().await.status, 200, "{path}");
    }
    // The oldest were closed, and not the stream.
    let mut nothing = Vec::new();
    let _ = unfinished[0].read_to_end(&mut nothing).await;
    assert!(nothing.is_empty());
    events.event("locks", |table| table["total"] == 0).await;
}

#[tokio::test]
async fn so_many_pages_are_kept_up_to_date() {
    let store = Store::memory();
    let serving = serve(&store, "").await;
    let mut open = Vec::new();
    for key in 0..200 {
        let path = format!("/api/v1/events?key=k{key}");
        let events = serving.get(&path).send().await;
        assert_eq!(events.status, 200);
        open.push(events);
    }
    // The histories of some are followed, and all of them stay open.
    let mut refused = open.pop().unwrap();
    let told = |lock: &Value| {
        let why = lock["history_error"].as_str();
        why.is_some_and(|why| why.contains("20 other keys"))
    };
    for _ in 0..3 {
        refused.event("lock", told).await;
    }
    let problem = serving.get("/api/v1/events").answers(503).await;
    // With few descriptors there are fewer than elsewhere.
    assert_eq!(problem["error"], "too many pages are open");
    assert_eq!(problem["hint"], "close some of them");
    open.clear();
    // There is room for its history now.
    refused.event("lock", |lock| !told(lock)).await;
    drop(refused);
    while serving.get("/api/v1/events").send().await.status != 200 {}
}
