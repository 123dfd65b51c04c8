//! The examples of `docs/fencing.md`, which quotes this file: each resource refuses the stale holder.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use leasehold::Token;
use leasehold::fence::{Fenced, Gate, Guarded};
use leasehold_testkit::dice::Dice;
use object_store::memory::InMemory;
use object_store::path::Path as Location;
use object_store::{
    Attribute, Attributes, GetOptions, ObjectStore, PutMode, PutOptions, PutPayload, UpdateVersion,
};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, named_params};

use crate::sources;

type AnyError = Box<dyn Error + Send + Sync>;
type Done<T = ()> = Result<T, AnyError>;

/// The tokens of a holder that stalled, and of the one that came after it.
async fn stalled_and_next() -> (Token, Token) {
    let client = leasehold::connect("memory:").await.unwrap();
    let mutex = client.mutex("orders/42").unwrap();
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let lease = mutex.lock().await.unwrap();
        tokens.push(lease.token());
        let _ = lease.release().await.unwrap();
    }
    (tokens[0], tokens[1])
}

#[track_caller]
fn is_fenced<T: std::fmt::Debug>(answer: Done<T>, token: Token, seen: Token) {
    let error = answer.unwrap_err();
    let fenced = error.downcast::<Fenced>().expect("a refusal by the fence");
    assert_eq!(*fenced, Fenced::new(token, seen));
}

// ---- in this process ----

struct Printer {
    gate: Gate,
    one_at_a_time: tokio::sync::Mutex<Vec<String>>,
}

impl Printer {
    async fn print(&self, token: Token, page: &str) -> Result<(), Fenced> {
        let mut paper = self.one_at_a_time.lock().await; // over check and effect
        self.gate.admit(token)?;
        tokio::task::yield_now().await; // the effect may await
        paper.push(page.to_owned());
        Ok(())
    }
}

#[tokio::test]
async fn in_this_process() {
    let (old, new) = stalled_and_next().await;

    let state = Guarded::new("new");
    state.update(new, |state| *state = "paid").unwrap();
    assert!(state.update(old, |state| *state = "cancelled").is_err());
    assert_eq!(state.read(|state| *state), "paid");

    let printer = Printer {
        gate: Gate::new(),
        one_at_a_time: tokio::sync::Mutex::default(),
    };
    printer.print(new, "page 1").await.unwrap();
    let refused = printer.print(old, "a stale page").await;
    is_fenced(refused.map_err(Into::into), old, new);
    assert_eq!(printer.one_at_a_time.into_inner(), ["page 1"]);
}

// ---- SQL: the token in the row ----

fn set_state(db: &Connection, id: i64, token: Token, state: &str) -> Done {
    let rows = db.execute(
        "UPDATE orders SET state = :state, token = :token
          WHERE id = :id AND token <= :token",
        named_params! { ":id": id, ":state": state, ":token": token.as_i64() },
    )?;
    if rows == 1 {
        return Ok(());
    }
    let sql = "SELECT token FROM orders WHERE id = ?1";
    let seen: Option<i64> = db.query_row(sql, [id], |row| row.get(0)).optional()?;
    let seen = Token::try_from(seen.ok_or("no such order")?)?;
    Err(Fenced::new(token, seen).into())
}

// ---- SQL: one token for many rows ----

fn raise_fence(db: &Connection, name: &str, token: Token) -> Done {
    let rows = db.execute(
        "INSERT INTO fence (name, token) VALUES (:name, :token)
             ON CONFLICT (name) DO UPDATE SET token = excluded.token
          WHERE fence.token <= excluded.token",
        named_params! { ":name": name, ":token": token.as_i64() },
    )?;
    if rows == 1 {
        return Ok(()); // and the row is locked until the transaction ends
    }
    let sql = "SELECT token FROM fence WHERE name = ?1";
    let seen: i64 = db.query_row(sql, [name], |row| row.get(0))?;
    let seen = Token::try_from(seen)?;
    Err(Fenced::new(token, seen).into())
}

fn move_money(db: &mut Connection, token: Token, amount: i64) -> Done {
    let step = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    raise_fence(&step, "accounts", token)?; // first of all, also before what is read
    let sql = "SELECT balance FROM accounts WHERE id = 1";
    let balance: i64 = step.query_row(sql, [], |row| row.get(0))?;
    if balance < amount {
        return Err("not enough money".into()); // and the transaction is rolled back
    }
    let sql = "UPDATE accounts SET balance = balance + ?2 WHERE id = ?1";
    step.execute(sql, [1, -amount])?;
    step.execute(sql, [2, amount])?;
    step.commit()?;
    Ok(())
}

fn database() -> Connection {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(
        "CREATE TABLE orders (
             id INTEGER PRIMARY KEY, state TEXT NOT NULL, token BIGINT NOT NULL DEFAULT 0);
         CREATE TABLE fence (name TEXT PRIMARY KEY, token BIGINT NOT NULL);
         CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL);
         INSERT INTO orders (id, state) VALUES (42, 'new');
         INSERT INTO accounts VALUES (1, 100), (2, 0);",
    )
    .unwrap();
    db
}

#[tokio::test]
async fn sql_with_the_token_in_the_row() {
    let (old, new) = stalled_and_next().await;
    let db = database();
    set_state(&db, 42, old, "packed").unwrap();
    set_state(&db, 42, new, "paid").unwrap();
    set_state(&db, 42, new, "paid").unwrap();
    is_fenced(set_state(&db, 42, old, "cancelled"), old, new);
    let missing = set_state(&db, 43, new, "paid").unwrap_err();
    assert_eq!(missing.to_string(), "no such order");
    let state: String = db
        .query_row("SELECT state FROM orders", [], |row| row.get(0))
        .unwrap();
    assert_eq!(state, "paid");
}

/// What one column has in all rows.
fn numbers(db: &Connection, sql: &str) -> Vec<i64> {
    let mut all = db.prepare(sql).unwrap();
    let rows = all.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

#[tokio::test]
async fn sql_with_one_token_for_many_rows() {
    let (old, new) = stalled_and_next().await;
    let mut db = database();
    let balances = |db: &Connection| numbers(db, "SELECT balance FROM accounts ORDER BY id");
    move_money(&mut db, old, 10).unwrap();
    move_money(&mut db, new, 30).unwrap();
    move_money(&mut db, new, 30).unwrap();
    is_fenced(move_money(&mut db, old, 20), old, new);
    assert_eq!(balances(&db), [30, 70]);
    let error = move_money(&mut db, Token::from(new.get() + 1), 100).unwrap_err();
    assert_eq!(error.to_string(), "not enough money");
    // Rolled back, the raised token too: nothing was done in its name.
    move_money(&mut db, new, 30).unwrap();
    assert_eq!(balances(&db), [0, 100]);
}

/// One writer of the race: its transactions, with tokens in no order.
fn race(file: &Path, seed: u64) {
    let mut dice = Dice(seed);
    let mut db = Connection::open(file).unwrap();
    db.busy_timeout(Duration::from_secs(30)).unwrap();
    for _ in 0..50 {
        let token = Token::from(1 + dice.roll(1000));
        let immediate = TransactionBehavior::Immediate;
        let step = db.transaction_with_behavior(immediate).unwrap();
        match raise_fence(&step, "log", token) {
            Ok(()) => {
                let sql = "INSERT INTO log (token) VALUES (?1)";
                step.execute(sql, [token.get().cast_signed()]).unwrap();
                step.commit().unwrap();
            }
            Err(error) => {
                let fenced = error.downcast::<Fenced>().unwrap();
                assert!(fenced.seen > fenced.token);
            }
        }
    }
}

#[test]
fn sql_transactions_of_many_writers_never_go_back() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("race.db");
    let db = Connection::open(&file).unwrap();
    db.execute_batch(
        "CREATE TABLE fence (name TEXT PRIMARY KEY, token BIGINT NOT NULL);
         CREATE TABLE log (id INTEGER PRIMARY KEY AUTOINCREMENT, token BIGINT NOT NULL);",
    )
    .unwrap();
    std::thread::scope(|scope| {
        for writer in 1..=4 {
            let file = &file;
            scope.spawn(move || race(file, writer));
        }
    });
    let log = numbers(&db, "SELECT token FROM log ORDER BY id");
    assert!(!log.is_empty() && log.is_sorted(), "{log:?}");
}

// ---- an object store ----

async fn change_object(
    store: &dyn ObjectStore,
    location: &Location,
    token: Token,
    change: impl Fn(&[u8]) -> Vec<u8>,
) -> Done {
    loop {
        let (mode, seen, before) = match store.get_opts(location, GetOptions::default()).await {
            Ok(found) => {
                let seen = found.attributes.get(&Attribute::Metadata("token".into()));
                let seen = Token::from(seen.map_or(Ok(0), |seen| seen.parse())?);
                let read = UpdateVersion {
                    e_tag: found.meta.e_tag.clone(),
                    version: found.meta.version.clone(),
                };
                (PutMode::Update(read), seen, found.bytes().await?)
            }
            Err(object_store::Error::NotFound { .. }) => {
                (PutMode::Create, Token::NONE, Default::default())
            }
            Err(error) => return Err(error.into()),
        };
        if token < seen {
            return Err(Fenced::new(token, seen).into());
        }
        let token = (Attribute::Metadata("token".into()), token.to_string());
        let options = PutOptions {
            mode, // only if it is still the object that was read
            attributes: Attributes::from_iter([token]),
            ..PutOptions::default()
        };
        let after = PutPayload::from(change(&before));
        match store.put_opts(location, after, options).await {
            Ok(_) => return Ok(()),
            Err(object_store::Error::Precondition { .. })
            | Err(object_store::Error::AlreadyExists { .. }) => {} // somebody was faster: look again
            Err(error) => return Err(error.into()),
        }
    }
}

async fn content(store: &dyn ObjectStore, location: &Location) -> String {
    let found = store.get_opts(location, GetOptions::default()).await;
    String::from_utf8(found.unwrap().bytes().await.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn an_object_with_a_precondition() {
    let (old, new) = stalled_and_next().await;
    let store = InMemory::new();
    let order = Location::from("orders/42");
    let line = |text: &'static str| move |before: &[u8]| [before, text.as_bytes()].concat();
    let append = async |token, text| change_object(&store, &order, token, line(text)).await;
    append(old, "packed\n").await.unwrap();
    append(new, "paid\n").await.unwrap();
    is_fenced(append(old, "cancelled\n").await, old, new);
    assert_eq!(content(&store, &order).await, "packed\npaid\n");
}

/// The new holder writes between the stale one's check and its write: that is what the e-tag is for.
#[tokio::test]
async fn an_object_that_changed_between_check_and_write() {
    let (old, new) = stalled_and_next().await;
    for exists in [false, true] {
        let store = InMemory::new();
        let order = Location::from("orders/42");
        if exists {
            let packed = change_object(&store, &order, old, |_| b"packed".to_vec());
            packed.await.unwrap();
        }
        let overtake = |_: &[u8]| {
            let overtaking = change_object(&store, &order, new, |_| b"paid".to_vec());
            futures_util::FutureExt::now_or_never(overtaking)
                .expect("a store in memory does not wait")
                .unwrap();
            b"cancelled".to_vec()
        };
        is_fenced(change_object(&store, &order, old, overtake).await, old, new);
        assert_eq!(content(&store, &order).await, "paid");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_many_writers_never_goes_back() {
    let store: &'static InMemory = Box::leak(Box::default());
    let log = Location::from("log");
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 1..=4 {
        let log = log.clone();
        tasks.spawn(async move {
            let mut dice = Dice(writer);
            for _ in 0..50 {
                let token = Token::from(1 + dice.roll(1000));
                let line = format!("{token:04}\n", token = token.get());
                let append = |before: &[u8]| [before, line.as_bytes()].concat();
                if let Err(error) = change_object(store, &log, token, append).await {
                    let fenced = error.downcast::<Fenced>().unwrap();
                    assert!(fenced.seen > fenced.token);
                }
            }
        });
    }
    tasks.join_all().await;
    let log = content(store, &log).await;
    assert!(!log.is_empty() && log.lines().is_sorted(), "{log}");
}

// ---- a value in Redis ----

#[cfg(feature = "redis")]
mod redis_value {
    use leasehold::fence::redis::Register;
    use leasehold_testkit::server::RedisServer;

    use super::*;

    async fn pay(redis: &mut redis::aio::MultiplexedConnection, token: Token) -> Done {
        let state = Register::at("order:42:state");
        let before = state.claim(redis, token).await?; // the token first, then read
        if before.as_deref() != Some(b"cancelled") {
            state.set(redis, token, "paid").await?;
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_stale_holder_is_refused() {
        let (old, new) = stalled_and_next().await;
        let server = RedisServer::start();
        let client = redis::Client::open(server.url()).unwrap();
        let mut redis = client.get_multiplexed_async_connection().await.unwrap();
        let state = Register::at("order:42:state");
        state.set(&mut redis, old, "packed").await.unwrap();
        pay(&mut redis, new).await.unwrap();
        let late = state.set(&mut redis, old, "cancelled").await.unwrap_err();
        assert_eq!(late.fenced(), Some(Fenced::new(old, new)));
        let stored = state.get(&mut redis).await.unwrap();
        assert_eq!(stored.value.as_deref(), Some(b"paid".as_slice()));
    }
}

// ---- the page ----

#[test]
fn the_page_quotes_what_is_tested() {
    quotes("fencing.md", "fencing_examples.rs", 6);
}

/// Each Rust snippet of the page, and there are so many at least, stands in that file of tests, but
/// for the indentation.
pub(crate) fn quotes(page: &str, tests: &str, least: usize) {
    let squeeze = |text: &str| -> String {
        let words = text.split_whitespace();
        words.map(|word| format!("{word} ")).collect()
    };
    let tested = sources::read(&format!("crates/leasehold/tests/it/{tests}"));
    let tested = squeeze(&tested);
    let page = sources::read(&format!("docs/{page}"));
    let snippets = page.split("```rust\n").skip(1);
    let snippets = snippets.map(|rest| rest.split("```").next().unwrap());
    let snippets: Vec<_> = snippets.collect();
    assert!(snippets.len() >= least, "{} snippets", snippets.len());
    for snippet in snippets {
        assert!(tested.contains(&squeeze(snippet)), "not tested:\n{snippet}");
    }
}
