//! What clients of `postgres://` see when something is not as it should be, and what its schema does
//! beside locks.

use std::convert::Infallible;
use std::path::Path;

use futures_util::future::{join_all, try_join_all};
use leasehold::core::{Claim, Command, Mode};
use leasehold::doctor::{Severity, examine};
use leasehold::{Credentials, CredentialsProvider, Mutex};
use leasehold_testkit::tls::Certificates;

use super::log::Log;
use super::postgres_store::*;

pub(crate) fn schema(url: &str) -> &str {
    let (_, rest) = url.split_once("schema=").unwrap();
    rest.split('&').next().unwrap()
}

/// The URL without its parameters.
pub(crate) fn database(url: &str) -> &str {
    url.split('?').next().unwrap()
}

pub(crate) fn sql(url: &str, text: &str) -> String {
    sql_at(database(url), &text.replace("{schema}", schema(url)))
}

/// The URL for a new role, with these settings, and with the rights that it is told to ask for.
pub(crate) async fn granted_role(url: &str, name: &str, settings: &[&str]) -> String {
    let role = format!("{name}_{}", schema(url));
    sql(url, &format!("create role {role} login"));
    for setting in settings {
        sql(url, &format!("alter role {role} set {setting}"));
    }
    let theirs = url.replace("postgres@", &format!("{role}@"));
    let error = fails(leasehold::connect(&theirs).await, ErrorKind::Refused, &[]);
    let grants = error.hint().expect("what to grant").replace("ROLE", &role);
    sql(url, &grants);
    theirs
}

/// A session that has done this in a transaction, and sleeps before its end.
pub(crate) async fn asleep(url: &str, work: &str) -> Process {
    let work = format!("begin; {work}; select pg_sleep(600)");
    let session = Process::spawn(psql(database(url), &work.replace("{schema}", schema(url))));
    let sleeps = "select count(*) from pg_stat_activity \
                  where wait_event = 'PgSleep' and query like '%{schema}.%'";
    until("it sleeps", async || sql(url, sleeps) == "1").await;
    session
}

/// Ends the sessions that do.
pub(crate) fn end_sleep(url: &str) {
    let end = "select pg_terminate_backend(pid) from pg_stat_activity \
               where wait_event = 'PgSleep' and query like '%{schema}.%'";
    sql(url, end);
}

#[tokio::test]
async fn a_schema_that_is_not_there_is_made_once() {
    let fresh = Fresh::direct();
    let url = fresh.bare_url();
    let error = fails(leasehold::connect(url).await, ErrorKind::Refused, &[]);
    hints(&error, "leasehold init");
    // Of two that make it at once, one is told that it has made it, and the other that it was there.
    let (one, other) = tokio::join!(init(url), init(url));
    let made = [one.unwrap(), other.unwrap()];
    assert!(made.contains(&Marked::New), "{made:?}");
    assert!(made.contains(&Marked::Already), "{made:?}");
    // As of one that was made earlier.
    sql(url, "alter table {schema}.keys drop constraint sound");
    assert_eq!(init(url).await.unwrap(), Marked::Already);
    sql(url, "alter table {schema}.keys validate constraint sound");
    let quick = "select attcompression = 'l' or not 'lz4' = any(enumvals) \
                 from pg_attribute, pg_settings where attrelid = '{schema}.keys'::regclass \
                 and attname = 'tail' and name = 'default_toast_compression'";
    assert_eq!(sql(url, quick).trim(), "t", "where it can be had");
    let client = fresh.connect().await;
    assert!(try_lock(&client, "k").await.is_some());
    // As where a part of it was restored: there is nothing to make.
    sql(url, "drop function {schema}.news");
    let error = client.listing("*").next().await;
    let error = fails(error, ErrorKind::Refused, &["is incomplete", "news("]);
    hints(&error, "name another");
    sql(url, "update {schema}.about set version = 9");
    let refused = leasehold::connect(url).await.unwrap_err();
    says(refused, ["has version 9"]);
    says(init(url).await.unwrap_err(), ["has version 9"]);
}

/// Also where its name is a word of SQL.
#[tokio::test]
async fn a_schema_has_any_name() {
    let server = Postgres::shared();
    let url = format!("{}?schema=user", server.url_of(&server.database()));
    assert_eq!(init(&url).await.unwrap(), Marked::New);
    assert_eq!(init(&url).await.unwrap(), Marked::Already);
    let client = leasehold::connect(&url).await.unwrap();
    let (held, waiter) = contended(&client, &client, "k").await;
    drop(hand_over(held, waiter).await);
    assert!(examine(&url, &Access::default()).await.unwrap().worst() < Severity::Unsafe);
}

/// The server keeps what is rung for until the slowest session has heard it, and has a limit: then it
/// takes no more, behind a step that it has taken.
#[tokio::test]
async fn a_step_whose_ring_is_not_taken_is_taken() {
    let fresh = Fresh::direct();
    let (holder, waiter) = (fresh.client().await, fresh.client().await);
    let _listening = waiter.listen(sink().0).await.unwrap();
    let k = key("k");
    claimed(&*holder, &k, 1).await;
    claimed(&*waiter, &k, 2).await;
    assert_eq!(holder.inspect(&k).await.unwrap().waiters.len(), 1);
    let full =
        "create or replace function {schema}.notify(wanted text, inboxes text[], mask bigint)
        returns void language plpgsql as $$ begin raise exception using errcode = '54000',
            message = 'too many notifications in the NOTIFY queue'; end $$";
    sql(fresh.url().await, full);
    holder.release(&k, &settled(id(1))).await.unwrap();
    let seen = holder.inspect(&k).await.unwrap();
    let passed = seen.waiters.is_empty() && seen.holders.len() == 1;
    assert!(passed, "{seen:?}");
}

/// A step that has looked whether it lives may wait for its standby for long: each try to listen would
/// keep a connection at the server until then.
#[tokio::test]
async fn who_cannot_show_that_it_lives_gives_up_at_the_server() {
    let fresh = Fresh::at(&Postgres::shared().url(), "&response_timeout=1m");
    let (store, url) = (fresh.client().await, fresh.url().await);
    let lock = "select pg_advisory_xact_lock_shared({schema}.inbox_lock";
    let _session = asleep(url, &format!("{lock}('{}'))", store.inbox().as_str())).await;
    let refused = soon("an answer", store.listen(sink().0)).await;
    let refused = fails(refused, ErrorKind::Unavailable, &["due to lock timeout"]);
    hints(&refused, "pg_locks");
    end_sleep(url);
}

/// What cannot be read is left as it is, and other keys go on.
#[tokio::test]
async fn a_record_that_is_not_ours_is_refused_for_its_key_only() {
    let fresh = Fresh::direct();
    let url = fresh.url().await.to_owned();
    let client = fresh.connect().await;
    for key in ["format", "torn", "cut", "short", "beyond", "before", "fine"] {
        give_back(try_lock(&client, key).await.expect("free")).await;
    }
    let beyond = "update {schema}.keys set base_at = 1 << 30";
    let refused = psql(database(&url), &beyond.replace("{schema}", schema(&url))).output();
    assert!(!refused.unwrap().status.success(), "by the server");
    sql(&url, "alter table {schema}.keys drop constraint sound");
    for (key, broken) in [
        ("format", "format = 7"),
        ("torn", "tail = overlay(tail placing '\\x00' from 40)"),
        ("cut", "tail = substring(tail from 1 for 50)"),
        ("short", "tail = substring(tail from 1 for 4)"),
        ("beyond", "base_at = 1 << 30"),
        ("before", "base_at = -1"),
    ] {
        let update = format!("update {{schema}}.keys set {broken} where key = '{key}'");
        sql(&url, &update);
    }
    let rows = "select key, format, md5(tail), md5(base) from {schema}.keys where key <> 'fine'";
    let before = sql(&url, rows);
    let other = fresh.connect().await;
    for (key, kind) in [
        ("format", ErrorKind::Unsupported),
        ("torn", ErrorKind::Corrupt),
        ("cut", ErrorKind::Corrupt),
        ("short", ErrorKind::Corrupt),
        ("beyond", ErrorKind::Corrupt),
        ("before", ErrorKind::Corrupt),
    ] {
        let error = other.mutex(key).unwrap().try_lock().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{key}: {error}");
    }
    let refused = other.multi(["fine", "format"]).unwrap().try_lock().await;
    fails(refused, ErrorKind::Unsupported, &["format 7"]);
    assert_eq!(sql(&url, rows), before, "nothing was changed");
    let _held = try_lock(&other, "fine").await.expect("free");
    let listed = other.list("*").await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    let all = ["before", "beyond", "cut", "format", "short", "torn"];
    assert_eq!(skipped(&other).await, all);
}

/// Whoever has not read it appends to it, and does so once.
#[tokio::test]
async fn a_damaged_record_does_not_grow_with_each_try() {
    let fresh = Fresh::direct();
    let url = fresh.url().await;
    use_once(&fresh.connect().await, "k").await;
    let cut = "update {schema}.keys set tail = substring(tail from 1 for 50)";
    sql(url, cut);
    let client = fresh.connect().await;
    let refused = async || {
        let tried = client.mutex("k").unwrap().lock().await;
        fails(tried, ErrorKind::Corrupt, &["is damaged"]);
        sql(url, "select octet_length(tail) from {schema}.keys")
    };
    assert_eq!(refused().await, refused().await);
}

/// A crash of the server loses nothing, and no waiter is forgotten.
#[tokio::test]
async fn a_server_that_is_killed_has_kept_all() {
    let server = Postgres::start();
    let fresh = Fresh::at(&server.url(), "");
    let (holder, waiter) = (fresh.connect().await, fresh.connect().await);
    let (lease, wait) = contended(&holder, &waiter, "k").await;
    server.kill();
    assert!(lease.is_valid());
    server.start_again();
    let released = soon("a release", lease.release()).await.unwrap();
    assert_eq!(released, Released::Held);
    give_back(granted(wait).await).await;
}

#[tokio::test]
async fn who_gets_no_connection_is_told_what_to_raise() {
    let server = Postgres::start_with("max_connections = 10");
    let fresh = Fresh::at(&server.url(), "");
    let connect = async || leasehold::connect(fresh.url().await).await;
    let mut clients = Vec::new();
    let error = loop {
        match connect().await {
            Ok(client) => clients.push(client),
            Err(error) => break error,
        }
        assert!(clients.len() <= 10, "more than the server lets in");
    };
    is_error(&error, ErrorKind::Unavailable, &[]);
    hints(&error, "max_connections");
    clients.pop();
    until("there is room again", async || connect().await.is_ok()).await;
}

/// A crash can undo what was committed without the disk. Nobody goes on from what is not there.
#[tokio::test]
async fn a_server_that_has_forgotten_steps_is_read_anew() {
    let server = Postgres::start();
    let fresh = Fresh::at(&server.url(), "&commit=async");
    let (one, other) = (fresh.connect().await, fresh.connect().await);
    use_once(&one, "k").await;
    server.sql("checkpoint");
    // From here on nobody writes to the disk what was not waited for.
    let writer = "select pid from pg_stat_activity where backend_type = 'walwriter'";
    let writer = Pid::from_raw(server.sql(writer).parse().unwrap()).unwrap();
    kill_process(writer, Signal::STOP).unwrap();
    let rows = "select sum(octet_length(tail)) from {schema}.keys";
    let rows = || sql(fresh.bare_url(), rows);
    let before = rows();
    for _ in 0..3 {
        use_once(&one, "k").await;
        use_once(&other, "k").await;
    }
    server.kill();
    server.start_again();
    assert_eq!(rows(), before, "the last steps are forgotten");
    // As many as were forgotten, so that only the start of the server tells.
    for _ in 0..3 {
        use_once(&other, "k").await;
        use_once(&one, "k").await;
    }
    let anew = fresh.connect().await;
    let last = async |client: &Client| client.inspect("k").await.unwrap().last_token;
    let seen = [last(&one).await, last(&other).await];
    assert_eq!(seen, [last(&anew).await; 2]);
}

/// All sessions end, as when a pooler or a failing node is replaced.
#[tokio::test]
async fn ended_sessions_are_opened_again_and_waiters_hear() {
    let fresh = Fresh::direct();
    let url = fresh.url().await.to_owned();
    let (holder, waiter) = (fresh.connect().await, fresh.connect().await);
    let (lease, wait) = contended(&holder, &waiter, "k").await;
    listens(&url).await;
    let end = "select pg_terminate_backend(pid) from pg_stat_activity \
               where application_name = 'leasehold' and query ilike '%\"{schema}\".clock%'";
    sql(&url, end);
    listens(&url).await;
    assert!(hand_over(lease, wait).await.is_valid());
}

/// Until that client's session that listens shows that it lives.
async fn listens(url: &str) {
    let held = "select count(*) from pg_locks l join pg_stat_activity a using (pid) where \
                l.locktype = 'advisory' and l.granted and a.application_name = 'leasehold' and \
                a.query ilike '%\"{schema}\".clock%'";
    until("somebody listens", async || sql(url, held) != "0").await;
}

/// Through a pooler in transaction mode nobody hears, and the error says what to set. Waiters ask.
#[tokio::test]
async fn who_cannot_hear_asks() {
    let server = Postgres::start();
    let pooler = PgBouncer::start(&server);
    let fresh = Fresh::at(&pooler.url(), "");
    let log = Log::start();
    let (holder, waiter) = (fresh.connect().await, fresh.connect().await);
    let (lease, wait) = contended(&holder, &waiter, "k").await;
    let what = "four times a second; name a way past it";
    let said = async || !log.lines(what).is_empty();
    until("it is said what to set", said).await;
    give_back(hand_over(lease, wait).await).await;
    // No lock of a session is left at the pooler's connections.
    let left = "select count(*) from pg_locks where locktype = 'advisory'";
    assert_eq!(server.sql(left), "0");
}

/// Keys that nobody has used for long go, and later tokens are higher all the same.
#[tokio::test]
async fn idle_keys_go() {
    let fresh = Fresh::direct();
    let url = fresh.url().await.to_owned();
    let client = fresh.connect().await;
    let lease = lock(&client, "k").await;
    let token = lease.token();
    give_back(lease).await;
    let two_hours = Duration::from_secs(2 * 3600);
    let held = client.mutex("held").unwrap().with_ttl(two_hours);
    let held = held.lock().await.unwrap();
    let old = "update {schema}.keys set touched = touched - 25 * 3600 * 1000000::bigint";
    sql(&url, old);
    until("the idle key to go", async || {
        // One in eight clients looks at its first step.
        let other = fresh.connect().await;
        let _ = try_lock(&other, "other").await;
        sql(&url, "select count(*) from {schema}.keys where key = 'k'") == "0"
    })
    .await;
    held.renew().await.unwrap();
    assert!(lock(&client, "k").await.token() > token);
    drop(held);
}

/// The rows of keys that are in use do not grow: the schema has a size, and keeps it.
#[tokio::test]
async fn the_schema_stops_growing() {
    // With a server of its own: a transaction of any database keeps old rows from being reused.
    let server = Postgres::start_with("fsync = off");
    // It works for long, and a busy machine may not answer for seconds.
    let fresh = Fresh::at(&server.url(), "&response_timeout=30s");
    let url = fresh.url().await.to_owned();
    let patient = Settings::default().with_operation_timeout(Duration::from_secs(30));
    let client = client_with(&url, patient).await;
    let work = async |times: usize| {
        for round in 0..times {
            use_once(&client, &format!("k{}", round % 20)).await;
        }
        sql(&url, "vacuum {schema}.keys");
        let size = "select pg_total_relation_size('{schema}.keys')";
        sql(&url, size).parse::<u64>().unwrap()
    };
    // What grows with the steps is three times as large then; pages come and go meanwhile.
    let sizes = [work(2_000).await, work(4_000).await];
    assert!(sizes[1] <= 2 * sizes[0], "{sizes:?} bytes");
    let longest = "select max(octet_length(tail)) from {schema}.keys";
    let longest = sql(&url, longest).parse::<u64>().unwrap();
    assert!(longest < 64 * 1024, "{longest} bytes of entries at one key");
}

/// As `psql` does: without a word if the server can, and with the name of the server if it is asked.
#[tokio::test]
async fn connections_are_encrypted() {
    let directory = tempfile::tempdir().unwrap();
    let certificates = Certificates::generate(directory.path());
    let server = Postgres::start_encrypted(&certificates);
    let ca = certificates.authority.path.display().to_string();
    let with = |params: &str| format!("{}?schema=locks&{params}", server.url());
    let encrypted = "select count(*) from pg_stat_ssl join pg_stat_activity using (pid) where \
                     application_name = 'leasehold' and ssl";
    init(&with("sslmode=disable")).await.unwrap();
    for (params, is_encrypted) in [
        ("sslmode=disable".to_owned(), false),
        ("sslmode=prefer".to_owned(), true),
        ("sslmode=require".to_owned(), true),
        (format!("sslmode=require&ca={ca}"), true),
        (format!("sslmode=verify-full&ca={ca}"), true),
    ] {
        let client = leasehold::connect(with(&params)).await.unwrap();
        let lease = lock(&client, "k").await;
        assert_eq!(server.sql(encrypted) != "0", is_encrypted, "{params}");
        give_back(lease).await;
        drop(client);
        let gone = "select count(*) from pg_stat_activity where application_name = 'leasehold'";
        until("the connections to end", async || server.sql(gone) == "0").await;
    }
    // The authority of nobody here.
    let other = tempfile::tempdir().unwrap();
    let other = Certificates::generate(other.path());
    for params in [
        "sslmode=verify-full".to_owned(),
        format!("sslmode=verify-full&ca={}", other.authority.path.display()),
    ] {
        let refused = leasehold::connect(with(&params)).await;
        let why = "the certificate of the server is not trusted";
        hints(&fails(refused, ErrorKind::Refused, &[why]), "`ca`");
    }
    let plain = format!("{}?sslmode=require", Postgres::shared().url());
    let refused = leasehold::connect(plain).await;
    fails(refused, ErrorKind::Refused, &["TLS"]);
}

/// Who hears nothing tries again: it may have been the network.
#[tokio::test]
async fn who_could_not_hear_hears_later() {
    let server = Postgres::start();
    let bouncer = PgBouncer::start(&server);
    let fresh = Fresh::at(&server.url(), &format!("&listen={}", bouncer.url()));
    let url = fresh.url().await.to_owned();
    let (client, other) = (fresh.connect().await, fresh.connect().await);
    let (before, waiter) = contended(&other, &client, "k").await;
    let held = "select count(*) from pg_locks where locktype = 'advisory'";
    assert_eq!(sql(&url, held), "0", "nobody is heard");
    bouncer.kill();
    bouncer.configure(&server, "pool_mode = session");
    bouncer.start_again(&server);
    until("they are heard", async || sql(&url, held) != "0").await;
    drop(hand_over(before, waiter).await);
}

/// Locks and releases keys of their own, with a task each.
async fn use_keys(client: &Client, keys: std::ops::Range<u32>) {
    let mut tasks = JoinSet::new();
    for number in keys {
        let client = client.clone();
        tasks.spawn(async move {
            for _ in 0..5 {
                use_once(&client, &format!("k{number}")).await;
            }
        });
    }
    soon("all tasks", tasks.join_all()).await;
}

async fn look(client: &Client, key: u32) {
    client.inspect(&format!("k{key}")).await.unwrap();
}

#[tokio::test]
async fn what_many_tasks_ask_goes_together() {
    let server = Postgres::start_with("track_functions = all");
    let fresh = Fresh::at(&server.url(), "");
    let url = fresh.url().await.to_owned();
    let client = fresh.connect().await;
    use_keys(&client, 0..64).await;
    for _ in 0..10 {
        join_all((0..64).map(|key| look(&client, key))).await;
    }
    // What a session counts is seen when it has ended.
    drop(client);
    let others = "select count(*) from pg_stat_activity \
                  where backend_type = 'client backend' and pid <> pg_backend_pid()";
    until("the sessions have ended", async || sql(&url, others) == "0").await;
    let calls = |function: &str| {
        let calls = format!(
            "select coalesce(sum(calls), 0) from pg_stat_user_functions \
             where schemaname = '{{schema}}' and funcname = '{function}'"
        );
        sql(&url, &calls).parse::<u64>().unwrap()
    };
    let (together, alone) = (calls("append_each"), calls("append"));
    assert!(
        together > 0 && together + alone < 320,
        "{together} statements for several and {alone} for one, for 640 steps"
    );
    let looks = calls("news");
    assert!(looks < 320, "{looks} statements for 640 looks");
}

/// However steps are sent, one of them soon brings a base, and the row keeps no long part from before.
#[tokio::test]
async fn a_row_stays_short_however_its_steps_are_sent() {
    let fresh = Fresh::direct();
    let url = fresh.url().await.to_owned();
    let connect = async || {
        let settings = Settings::default().with_ttl(Duration::from_secs(900));
        let settings = settings.with_waiter_ttl(Duration::from_secs(900));
        client_with(&url, settings).await
    };
    let (one, other) = (connect().await, connect().await);
    let longest = |column: &str, key: &str| {
        let longest = format!("select max({column}) from {{schema}}.keys where key like '{key}'");
        sql(&url, &longest).parse::<u64>().unwrap()
    };
    let since_base = "tail_at + octet_length(tail) - base_at";

    for _ in 0..10 {
        give_back(try_lock(&one, "alone").await.unwrap()).await;
    }
    use_keys(&one, 0..64).await;
    use_keys(&one, 0..64).await;
    for keys in ["alone", "k%"] {
        assert!(longest(since_base, keys) < 2048, "{keys}");
        assert!(longest("octet_length(tail)", keys) < 4096, "{keys}");
    }

    // Each release but the last rings the other client.
    let mut leases = Vec::new();
    for number in 0..20 {
        leases.push(waiting([&one, &other][number % 2], "rung"));
        in_line(&one, "rung", number).await;
    }
    let last = leases.pop().unwrap();
    for lease in leases {
        give_back(granted(lease).await).await;
    }
    let last = granted(last).await;
    assert!(longest(since_base, "rung") < 2048);
    give_back(last).await;

    // One entry that is longer than all that follows.
    let held = try_lock(&one, "burst").await.unwrap();
    let waiters: Vec<_> = (0..1000).map(|_| waiting(&other, "burst")).collect();
    in_line(&one, "burst", waiters.len()).await;
    assert!(longest("octet_length(tail)", "burst") > 200 * 1024);
    for _ in 0..3 {
        held.renew().await.unwrap();
    }
    assert!(longest("octet_length(tail)", "burst") < 4096);
    for waiter in waiters {
        waiter.abort();
    }
}

/// What goes together at one client finds at each key what the others do there.
#[tokio::test]
async fn what_goes_together_lets_one_in_at_a_time() {
    const KEYS: usize = 16;
    let fresh = Fresh::direct();
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..KEYS).map(|_| AtomicU64::new(0)).collect());
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let client = fresh.connect().await;
        for task in 0..2 * KEYS {
            let key = task % KEYS;
            let lock = client.mutex(format!("k{key}")).unwrap();
            let counts = counts.clone();
            tasks.spawn(async move {
                for _ in 0..5 {
                    let lease = lock.lock().await.unwrap();
                    // Whoever came in between would be forgotten.
                    let count = counts[key].load(Ordering::Relaxed);
                    yield_now().await;
                    counts[key].store(count + 1, Ordering::Relaxed);
                    assert_eq!(lease.release().await.unwrap(), Released::Held);
                }
            });
        }
    }
    soon("all tasks", tasks.join_all()).await;
    let mut done = counts.iter().map(|count| count.load(Ordering::Relaxed));
    assert!(done.all(|count| count == 30), "{counts:?}");
}

/// A row that somebody keeps locked, by hand for instance, is waited for by those who ask for its key.
#[tokio::test]
async fn rows_that_are_kept_locked_hold_up_no_other() {
    let fresh = Fresh::direct();
    let url = fresh.url().await.to_owned();
    let with_room = url.replace("&pool=2", "&pool=8");
    let client = leasehold::connect(&with_room).await.unwrap();
    use_keys(&client, 0..16).await;
    let locks = "select 1 from {schema}.keys where key in ('k0', 'k1', 'k2', 'k3') for update";
    let _session = asleep(&url, locks).await;
    let wait = [0, 1, 2, 3].map(|number| waiting(&client, &format!("k{number}")));
    use_keys(&client, 4..16).await;
    assert!(wait.iter().all(|waits| !waits.is_finished()));
    end_sleep(&url);
    for waits in wait {
        drop(granted(waits).await);
    }
}

/// Whoever asks for several keys, or for one in that way, may give up at any time. What others have
/// asked meanwhile, and travels with it, is answered.
#[tokio::test]
async fn who_gives_up_takes_nobody_along() {
    let store = Fresh::direct().client().await;
    let others = (0..8).map(|number| {
        let store = store.clone();
        async move {
            let key = key(&format!("k{number}"));
            for round in 0..60 {
                let id = id(1 + number * 1000 + round);
                let claim = Claim::new(id.clone(), Mode::EXCLUSIVE, Duration::from_secs(30));
                store.step(&key, &Command::Claim(claim)).await?;
                store.inspect(&key).await?;
                store.step(&key, &Command::Release(settled(id))).await?;
            }
            Ok::<_, StoreError>(())
        }
    });
    let mut others = std::pin::pin!(try_join_all(others));
    let mut given_up = 0;
    let done = loop {
        let id = id(1_000_000 + given_up);
        let claim = Claim {
            wait: false,
            ..Claim::new(id, Mode::EXCLUSIVE, Duration::from_millis(50))
        };
        let parts = [(key("one"), claim)];
        tokio::select! {
            biased;
            done = &mut others => break done,
            _ = store.claim_all(&parts) => {}
            () = sleep(Duration::from_micros(u64::try_from(given_up % 7).unwrap() * 300)) => {}
        }
        given_up += 1;
    };
    done.expect("an answer for each");
    assert!(given_up > 20, "{given_up}");
}

/// A role that may do everything, for one test.
fn role(url: &str, name: &str) -> String {
    let role = format!("{}_{name}", schema(url));
    sql(url, &format!("create role {role} superuser login"));
    role
}

/// Ends the sessions of a role.
fn end_sessions(url: &str, role: &str) {
    let ended = "select pg_terminate_backend(pid) from pg_stat_activity where usename = ";
    sql(url, &format!("{ended}'{role}'"));
}

/// Waits until it says so.
async fn until_an_outage(mutex: &Mutex, said: &str) {
    until(said, async || {
        let error = mutex.is_locked().await.err();
        error.is_some_and(|error| {
            is_error(&error, ErrorKind::Unavailable, &[]);
            error.to_string().contains(said)
        })
    })
    .await;
}

/// That it is asked at each connection, the file of a password shows below.
#[tokio::test]
async fn the_user_is_who_the_provider_names() {
    let fresh = Fresh::direct();
    let url = fresh.url().await;
    let role = role(url, "app");
    let user = role.clone();
    let provider = CredentialsProvider::new(move || {
        let login = Credentials::new(user.as_str(), "secret");
        async move { Ok::<_, Infallible>(login) }
    });
    let builder = Client::builder().store(url).credentials(provider);
    let client = builder.connect().await.unwrap();
    use_once(&client, "k").await;
    let theirs = format!("select count(*) > 0 from pg_stat_activity where usename = '{role}'");
    assert_eq!(sql(url, &theirs), "t");
}

/// It is read with each connection; while it is replaced, that is an outage. A session that listens with
/// a login of its own keeps that.
#[tokio::test]
async fn a_password_file_is_read_at_each_connection() {
    let fresh = Fresh::direct();
    let url = fresh.url().await;
    let (app, ear) = (role(url, "app"), role(url, "ear"));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "secret").unwrap();
    let listen = database(url).replace("postgres@", &format!("{ear}:own@"));
    let open = async |path: &Path| {
        let builder = Client::builder().store(format!("{url}&listen={listen}"));
        builder.user(&app).password_file(path).connect().await
    };
    let client = open(file.path()).await.unwrap();
    let (held, waits) = contended(&client, &client, "k").await;
    let listens = format!("select count(*) from pg_stat_activity where usename = '{ear}'");
    until("it listens", async || sql(url, &listens) == "1").await;
    let gone = file.path().with_extension("gone");
    std::fs::rename(file.path(), &gone).unwrap();
    end_sessions(url, &app);
    until_an_outage(&client.mutex("l").unwrap(), "cannot read the password file").await;
    // Who begins with it may have the wrong one.
    fails(open(file.path()).await, ErrorKind::Invalid, &[]);
    std::fs::rename(&gone, file.path()).unwrap();
    answered("a renewal", async || held.renew().await).await;
    drop(hand_over(held, waits).await);
}

/// The file of passwords of `psql` is read with each connection, too, and so is a certificate.
#[tokio::test]
async fn a_login_without_a_password_is_waited_for_once_it_has_worked() {
    let fresh = Fresh::direct();
    let url = fresh.url().await;
    let role = role(url, "bare");
    let theirs = url.replace("postgres@", &format!("{role}@"));
    let client = leasehold::connect(&theirs).await.unwrap();
    let mutex = client.mutex("k").unwrap();
    assert!(mutex.is_locked().await.is_ok_and(|locked| !locked));
    sql(url, &format!("alter role {role} nologin"));
    end_sessions(url, &role);
    until_an_outage(&mutex, "not permitted to log in").await;
    // Who begins with it may have the wrong one.
    let refused = leasehold::connect(&theirs).await;
    let error = fails(refused, ErrorKind::Refused, &["not permitted to log in"]);
    hints(&error, "pg_hba.conf");
    sql(url, &format!("alter role {role} login"));
    use_once(&client, "k").await;
}
