//! `postgres://` where roles and servers are set otherwise than usual.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;

use futures_util::future::join_all;
use leasehold::doctor::examine;
use leasehold_testkit::proxy::Proxy;

use super::postgres_server::{asleep, database, end_sleep, granted_role, schema, sql};
use super::postgres_store::*;

/// Who is in the way of others tries again, and keeps its place.
#[tokio::test]
async fn a_lock_that_came_too_late_is_waited_for() {
    let server = Postgres::start_with("fsync = off");
    let fresh = Fresh::at(&server.url(), "");
    let strict = [
        "lock_timeout = '200ms'",
        "default_transaction_isolation = 'repeatable read'",
    ];
    let url = granted_role(fresh.url().await, "set", &strict).await;
    let client = leasehold::connect(&url).await.unwrap();
    let holder = lock(&client, "k").await;
    let locks = "lock table {schema}.keys in exclusive mode";
    let _session = asleep(fresh.bare_url(), locks).await;
    let waiter = waiting(&client, "k");
    let late = async || server.log().contains("lock timeout");
    until("it came too late", late).await;
    end_sleep(fresh.bare_url());
    in_line(&client, "k", 1).await;
    drop(hand_over(holder, waiter).await);

    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let client = leasehold::connect(&url).await.unwrap();
        tasks.spawn(async move {
            for _ in 0..5 {
                use_once(&client, "hot").await;
            }
        });
    }
    soon("everyone's turns", tasks.join_all()).await;
}

/// A client gives up what takes too long, and tries again with another connection: each try would stay at
/// the server until the row is free.
#[tokio::test]
async fn what_waits_for_a_locked_row_ends_at_the_server() {
    let nulls = "array[null]::bigint[]";
    let out = ", null".repeat(8);
    let steps = [
        "select {schema}.append('k', 1, null, null, 'a', 0, null, null, null, null)".to_owned(),
        format!(
            "select {{schema}}.append_all(array['k'], 1, {nulls}, {nulls}, array['a']::bytea[], null, 0)"
        ),
        format!(
            "call {{schema}}.append_and_ring('k', 1, null, null, 'a', array['i'], null, 0, null, null{out})"
        ),
    ];
    let row = "select 1 from {schema}.keys where key = 'k' for update";
    end_at_the_server(row, &steps).await;
}

/// So does who makes the schema, opens it or lists its keys: all are told in time.
#[tokio::test]
async fn a_schema_that_is_kept_locked_is_not_waited_for_without_end() {
    let server = Postgres::shared();
    // Others who make theirs in this database would wait behind it.
    let fresh = Fresh::at(&server.url_of(&server.database()), "");
    let url = fresh.url().await;
    let patient = format!("{url}&response_timeout=1m");
    let settings = Settings::default().with_operation_timeout(LIMIT / 2);
    let client = client_with(&patient, settings).await;
    let _session = asleep(url, "lock table {schema}.about, {schema}.keys").await;
    let all = async {
        tokio::join!(
            init(&patient),
            leasehold::connect(&patient),
            client.list("*")
        )
    };
    let (made, opened, listed) = soon("answers", all).await;
    let said = &["due to lock timeout"];
    fails(made, ErrorKind::Unavailable, said);
    fails(opened, ErrorKind::Unavailable, said);
    fails(listed, ErrorKind::Unavailable, said);
    let silent = format!("{url}&response_timeout=10ms");
    fails(init(&silent).await, ErrorKind::Unavailable, &["in time"]);
    end_sleep(url);
}

/// So does what only waits for the table.
#[tokio::test]
async fn what_waits_for_a_locked_table_ends_at_the_server() {
    let nulls = "array[null]::bigint[]";
    let steps = [
        format!(
            "select {{schema}}.append_each(array['k'], 1, {nulls}, {nulls}, array['a']::bytea[], {nulls}, \
             0, array[null]::bytea[], {nulls})"
        ),
        format!("select {{schema}}.news(array['k'], {nulls}, {nulls})"),
    ];
    end_at_the_server("lock table {schema}.keys", &steps).await;
}

/// These wait for what somebody has locked, and give up.
async fn end_at_the_server(locks: &str, steps: &[String]) {
    let fresh = Fresh::direct();
    let url = fresh.url().await;
    use_once(&fresh.connect().await, "k").await;
    let _session = asleep(url, locks).await;
    let run =
        |step: &String| Process::run(psql(database(url), &step.replace("{schema}", schema(url))));
    for ended in join_all(steps.iter().map(run)).await {
        ended.has_said("due to lock timeout");
    }
    end_sleep(url);
}

/// Where a role may make functions that another's path leads to, one that fits better than the server's
/// would run with the rights of whoever locks.
#[tokio::test]
async fn functions_of_others_are_not_taken_for_the_servers() {
    let fresh = Fresh::at(&Postgres::shared().url(), "");
    let admin = fresh.url().await.to_owned();
    let strange = format!("strange_{}", schema(&admin));
    sql(&admin, &format!("create schema {strange}"));
    let body = "language plpgsql as 'begin raise exception $$it was taken$$; end'";
    for function in [
        "cardinality(text[]) returns int",
        "hashtextextended(text, int) returns bigint",
        "pg_stat_get_dead_tuples(regclass) returns bigint",
        "int8send(int) returns bytea",
    ] {
        let create = format!("create function {strange}.{function} {body}");
        sql(&admin, &create);
    }
    let path = format!("search_path = {strange}, public");
    let url = granted_role(&admin, "set", &[&path]).await;
    let usage = format!("grant usage on schema {strange} to public");
    sql(&admin, &usage);
    let client = leasehold::connect(&url).await.unwrap();
    let other = leasehold::connect(&url).await.unwrap();
    let (holder, waiter) = contended(&client, &other, "k").await;
    drop(hand_over(holder, waiter).await);
    let report = examine(&url, &Access::default()).await.unwrap();
    assert!(!report.promise.starts_with("Nothing"), "{report:?}");

    // The procedure commits, and what has a path of its own may not: it names nothing that is ambiguous.
    let open = "select coalesce(string_agg(proname, ', '), '') from pg_proc \
         where pronamespace = '{schema}'::regnamespace and prokind = 'f' and prosqlbody is null \
         and coalesce(proconfig[1], '') <> 'search_path=pg_catalog, pg_temp'";
    assert_eq!(sql(&admin, open), "");
}

/// A batch waits for a key that somebody makes just now, and nobody for the batch.
#[tokio::test]
async fn what_waits_for_a_new_key_holds_no_other() {
    let server = Postgres::start_with("fsync = off");
    let fresh = Fresh::at(&server.url(), "");
    let url = fresh.url().await;
    let append = "select * from {schema}.append_each";
    let nulls = "array[null, null]::bigint[]";
    let each = format!(
        "{append}(array['held', 'new'], 1, {nulls}, {nulls}, array['a', 'b']::bytea[], {nulls}, 0, \
         array[null, null]::bytea[], {nulls})"
    );
    sql(url, &each.replace("'new'", "'other'"));
    let _making = asleep(url, &each.replace("'held'", "'mine'")).await;
    let each = each.replace("{schema}", schema(url));
    let _batch = Process::spawn(psql(&server.url(), &each));
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    until("a batch waits for it", async || server.sql(waits) == "1").await;
    let held = "select 1 from {schema}.keys where key = 'held' for update nowait";
    sql(url, held);
}

/// One that accepts connections and says nothing leaves time for the next.
#[tokio::test]
async fn a_host_that_does_not_answer_is_passed_over() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let fresh = Fresh::direct();
    let first = format!("postgres@{},", silent.local_addr().unwrap());
    let both = fresh.url().await.replace("postgres@", &first);
    let limit = Duration::from_secs(6);
    let client = leasehold::connect(format!("{both}&connect_timeout=6s"));
    let client = timeout(limit, client).await.expect("time for the next");
    use_once(&client.unwrap(), "k").await;
}

/// A planned switch: the server that had the locks takes no more writes.
#[tokio::test]
async fn a_host_that_becomes_read_only_is_left() {
    let servers = [(); 2].map(|()| Postgres::start_with("fsync = off"));
    let [alone, other] = servers.each_ref().map(|it| it.url() + "?schema=locks");
    for url in [&alone, &other] {
        init(url).await.unwrap();
    }
    let both = other.replace("postgres@", &format!("postgres@{},", servers[0].address()));
    let client = leasehold::connect(both).await.unwrap();
    use_once(&client, "k").await;
    servers[0].sql("alter system set default_transaction_read_only = on");
    servers[0].sql("select pg_reload_conf()");
    let setting = "show default_transaction_read_only";
    until("it is read-only", async || servers[0].sql(setting) == "on").await;
    drop(soon("the other server", lock(&client, "k")).await);
    let used = "select count(*) from locks.keys where key = 'k'";
    until("it is used", async || servers[1].sql(used) == "1").await;

    let refused = leasehold::connect(alone).await;
    let error = fails(refused, ErrorKind::Unavailable, &["read-only"]);
    hints(&error, "all hosts");
}

/// What waiting does not mend is said at once.
#[tokio::test]
async fn a_password_that_is_missing_is_not_waited_for() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    // Asks for a password, as a server does.
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut startup = [0; 512];
            let _ = stream.read(&mut startup);
            let _ = stream.write_all(&[b'R', 0, 0, 0, 8, 0, 0, 0, 3]);
        }
    });
    let url = format!("postgres://nobody@{address}/nowhere?sslmode=disable");
    let refused = leasehold::connect(url).await;
    fails(refused, ErrorKind::Refused, &["wants a password"]);
}

/// Who owns a schema need not be allowed to make one.
#[tokio::test]
async fn a_schema_that_was_made_for_a_role_is_filled() {
    let server = Postgres::shared();
    let database = server.url_of(&server.database());
    let owner = "create role filler login; create schema made authorization filler";
    sql_at(&database, owner);
    let url = database.replace("postgres@", "filler@") + "?schema=made";
    init(&url).await.unwrap();
    let client = leasehold::connect(&url).await.unwrap();
    drop(lock(&client, "k").await);
}

/// It says that there is no schema for locks, and init cannot make one there.
#[tokio::test]
async fn who_names_the_schema_of_others_is_told_to_name_another() {
    let server = Postgres::shared();
    let database = server.url_of(&server.database());
    sql_at(
        &database,
        "create schema theirs; create table theirs.keys ()",
    );
    let url = database + "?schema=theirs";
    let error = fails(init(&url).await, ErrorKind::Refused, &["already exists"]);
    hints(&error, "another schema");
}

/// What helps is no right to a schema that is not there.
#[tokio::test]
async fn who_may_not_make_a_schema_is_told_who_can() {
    let server = Postgres::shared();
    let database = server.url_of(&server.database());
    sql_at(&database, "create role guest login");
    let url = database.replace("postgres@", "guest@") + "?schema=made";
    let error = fails(init(&url).await, ErrorKind::Refused, &[]);
    hints(&error, "--dry-run");
}

/// A crash of one process of the server takes back commits that did not wait for the disk, and what is
/// appended then may end where they did.
#[tokio::test]
async fn what_a_crash_has_taken_back_is_not_believed() {
    let server = Postgres::start();
    let fresh = Fresh::at(&server.url(), "&commit=async");
    // It asks once, however slow the machine is.
    let slow = format!("{}&response_timeout=5m", fresh.url().await);
    let later = client_with(&slow, Settings::default().with_operation_timeout(LIMIT / 2)).await;
    let proxy = Proxy::start(server.address());
    let port = |port: u16| format!("127.0.0.1:{port}");
    let (near, far) = (port(server.port()), port(proxy.port()));
    let far = fresh.bare_url().replace(&near, &far);
    let former = leasehold::connect(far).await.unwrap();
    use_once(&former, "k").await;
    server.sql("checkpoint");
    // These write what has been committed.
    let writers = ["walwriter", "background writer", "checkpointer"];
    let writers = writers.map(|writer| {
        let pid = format!("select pid from pg_stat_activity where backend_type = '{writer}'");
        Pid::from_raw(server.sql(&pid).parse().unwrap()).unwrap()
    });
    for writer in writers {
        kill_process(writer, Signal::STOP).unwrap();
    }
    let lost = lock(&former, "k").await;
    let end = "select tail_at + octet_length(tail) from {schema}.keys where key = 'k'";
    let end = || sql(fresh.bare_url(), end);
    let ended = end();
    let starts = || server.log().matches("ready to accept connections").count();
    let before = starts();
    // The former asks nothing before somebody else has what it has.
    proxy.refuse();
    for writer in writers {
        kill_process(writer, Signal::KILL).unwrap();
    }
    until("the server to recover", async || starts() > before).await;
    assert_ne!(end(), ended, "the commit is undone");
    let lease = soon("a grant", lock(&later, "k")).await;
    assert_eq!(end(), ended, "as long as the one that is undone");
    proxy.accept();
    soon("the former learns of it", async {
        while lost.is_valid() {
            let _ = lost.renew().await;
        }
    })
    .await;
    lease.renew().await.unwrap();
}
