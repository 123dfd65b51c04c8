//! The fenced value in Redis, against a real server.
#![cfg(feature = "redis")]

use std::collections::HashMap;

use leasehold::fence::Fenced;
use leasehold::fence::redis::{Error, Register, Stored};
use redis::aio::MultiplexedConnection;

use crate::redis_support::*;

async fn start() -> (RedisServer, MultiplexedConnection) {
    let server = RedisServer::start();
    let connection = connect(&server.url()).await;
    (server, connection)
}

async fn connect(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

fn token(number: u64) -> Token {
    Token::from(number)
}

fn stored(seen: u64, value: Option<&str>) -> Stored {
    let mut stored = Stored::default();
    stored.seen = token(seen);
    stored.value = value.map(|value| value.as_bytes().to_vec());
    stored
}

fn fenced<T: std::fmt::Debug>(answer: Result<T, Error>) -> (u64, u64) {
    let Fenced { token, seen, .. } = answer.unwrap_err().fenced().unwrap();
    (token.get(), seen.get())
}

#[tokio::test]
async fn a_lower_token_writes_nothing() {
    let (_server, mut c) = start().await;
    let order = Register::at("order:42");
    assert_eq!(order.key(), "order:42");
    assert_eq!(order.get(&mut c).await.unwrap(), Stored::default());
    order.set(&mut c, token(41), "new").await.unwrap();
    order.set(&mut c, token(41), "packed").await.unwrap();
    assert_eq!(order.get(&mut c).await.unwrap(), stored(41, Some("packed")));
    order.set(&mut c, token(42), "paid").await.unwrap();

    assert_eq!(fenced(order.set(&mut c, token(41), "x").await), (41, 42));
    assert_eq!(fenced(order.claim(&mut c, token(41)).await), (41, 42));
    assert_eq!(fenced(order.clear(&mut c, token(41)).await), (41, 42));
    assert_eq!(order.get(&mut c).await.unwrap(), stored(42, Some("paid")));
}

#[tokio::test]
async fn who_claims_first_reads_what_nobody_older_can_change() {
    let (_server, mut c) = start().await;
    let order = Register::at("order:42");
    assert_eq!(order.claim(&mut c, token(7)).await.unwrap(), None);
    assert_eq!(order.get(&mut c).await.unwrap(), stored(7, None));
    order.set(&mut c, token(7), b"\0\xff\r\n").await.unwrap();
    let read = order.claim(&mut c, token(8)).await.unwrap();
    assert_eq!(read.as_deref(), Some(b"\0\xff\r\n".as_slice()));
    assert_eq!(fenced(order.set(&mut c, token(7), "late").await), (7, 8));

    order.clear(&mut c, token(8)).await.unwrap();
    assert_eq!(order.get(&mut c).await.unwrap(), stored(8, None));
    assert_eq!(fenced(order.set(&mut c, token(7), "late").await), (7, 8));
    order.set(&mut c, token(8), "").await.unwrap();
    assert_eq!(order.get(&mut c).await.unwrap(), stored(8, Some("")));
}

#[tokio::test]
async fn tokens_are_compared_and_kept_to_the_last_digit() {
    let (server, mut c) = start().await;
    let rising = [
        1,
        2,
        9,
        10,
        99_999,
        1_772_377_184_123_456,
        (1 << 53) - 1,
        1 << 53,
        (1 << 53) + 1,
        9_999_999_999_999_999_999,
        10_000_000_000_000_000_000,
        u64::MAX - 1,
        u64::MAX,
    ];
    for (i, &low) in rising.iter().enumerate() {
        for (j, &high) in rising.iter().enumerate().skip(i + 1) {
            let value = Register::at(format!("{i}-{j}"));
            value.set(&mut c, token(low), "low").await.unwrap();
            value.set(&mut c, token(low), "low").await.unwrap();
            value.set(&mut c, token(high), "high").await.unwrap();
            let refused = value.set(&mut c, token(low), "late").await;
            assert_eq!(fenced(refused), (low, high));
            assert_eq!(value.get(&mut c).await.unwrap(), stored(high, Some("high")));
        }
    }
    let text: String = server.query(&["HGET", "11-12", "token"]);
    assert_eq!(text, u64::MAX.to_string());
}

#[tokio::test]
async fn what_is_not_ours_is_left_alone() {
    let (server, mut c) = start().await;
    let dump = |key: &str| server.query::<Vec<u8>>(&["DUMP", key]);
    for (command, what) in [
        ("SET string x", "a string"),
        ("RPUSH list x", "a list"),
        ("HSET hash field x", "a hash without a token"),
        ("HSET valued value x", "a hash without a token"),
        ("HSET named token abc", "a hash whose token is no number"),
        ("HSET negative token -1", "a hash whose token is no number"),
        (
            "HSET long token 000000000000000000001",
            "a hash whose token is no number",
        ),
    ] {
        let words: Vec<_> = command.split(' ').collect();
        server.command(&words);
        let key = words[1];
        let before = dump(key);
        let there = Register::at(key);
        let answers = [
            there.get(&mut c).await.unwrap_err(),
            there.set(&mut c, token(5), "y").await.unwrap_err(),
            there.claim(&mut c, token(5)).await.unwrap_err(),
            there.clear(&mut c, token(5)).await.unwrap_err(),
        ];
        for error in answers {
            let said = format!("the key {key:?} holds {what}, not a fenced value");
            assert_eq!(error.to_string(), said);
            assert!(matches!(error, Error::Foreign { .. }), "{error:?}");
            assert_eq!(error.fenced(), None);
        }
        assert_eq!(dump(key), before);
    }
    // Higher than any token: refused, with the number.
    server.command(&["HSET", "huge", "token", "99999999999999999999"]);
    let error = Register::at("huge").set(&mut c, token(u64::MAX), "y").await;
    says(error.unwrap_err(), ["99999999999999999999"]);
}

#[tokio::test]
async fn an_expiry_takes_the_token_along() {
    let (server, mut c) = start().await;
    let lasting = Register::at("k");
    let fleeting = lasting.clone().expire_after(Duration::from_secs(100));
    let fleeting = fleeting.unwrap();
    let left = || server.query::<i64>(&["PTTL", "k"]);
    fleeting.set(&mut c, token(7), "x").await.unwrap();
    assert!((1..=100_000).contains(&left()), "{}", left());
    server.command(&["PEXPIRE", "k", "500000"]);
    assert_eq!(fenced(fleeting.set(&mut c, token(6), "y").await), (6, 7));
    fleeting.get(&mut c).await.unwrap();
    assert!(left() > 100_000, "refusals and reads leave it");
    fleeting.claim(&mut c, token(7)).await.unwrap();
    assert!((1..=100_000).contains(&left()), "{}", left());
    lasting.clear(&mut c, token(7)).await.unwrap();
    assert_eq!(left(), -1);
    let longest = lasting.clone().expire_after(Register::MAX_EXPIRY);
    longest.unwrap().claim(&mut c, token(7)).await.unwrap();
    assert!(left() > 1_000_000);
    server.command(&["DEL", "k"]);
    lasting.set(&mut c, token(1), "forgotten").await.unwrap();
}

#[tokio::test]
async fn a_server_that_forgot_the_script_is_told_again() {
    let (server, mut c) = start().await;
    let value = Register::at("k");
    value.set(&mut c, token(7), "x").await.unwrap();
    server.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(fenced(value.set(&mut c, token(6), "y").await), (6, 7));
}

#[tokio::test]
async fn a_server_that_says_no_has_its_say() {
    let (server, mut c) = start().await;
    let value = Register::at("k");
    value.set(&mut c, token(7), "x").await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = value.set(&mut c, token(8), "y").await.unwrap_err();
    assert!(matches!(error, Error::Redis { .. }), "{error:?}");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("maxmemory"), "{source}");
    // Nothing was written, the token neither.
    assert_eq!(value.get(&mut c).await.unwrap(), stored(7, Some("x")));
}

#[tokio::test]
async fn the_least_of_rights_is_enough() {
    let server = RedisServer::start();
    let rights = "~order:* -@all +evalsha +script|load +type +hmget +hset +hdel +persist +pexpire";
    let mut setuser = vec!["ACL", "SETUSER", "app", "on", ">secret"];
    setuser.extend(rights.split(' '));
    server.command(&setuser);
    let mut c = connect(&server.url_as("app", "secret")).await;
    let order = Register::at("order:42");
    order.set(&mut c, token(7), "x").await.unwrap();
    order.claim(&mut c, token(8)).await.unwrap();
    order.clear(&mut c, token(8)).await.unwrap();
    let order = order.expire_after(Duration::from_secs(60)).unwrap();
    order.set(&mut c, token(8), "y").await.unwrap();
    assert_eq!(order.get(&mut c).await.unwrap(), stored(8, Some("y")));
}

#[test]
fn the_blocking_twins_do_the_same() {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).unwrap();
    let mut c = client.get_connection().unwrap();
    let value = Register::at("k");
    assert_eq!(value.get_blocking(&mut c).unwrap(), Stored::default());
    value.set_blocking(&mut c, token(7), "x").unwrap();
    let read = value.claim_blocking(&mut c, token(8)).unwrap();
    assert_eq!(read.as_deref(), Some(b"x".as_slice()));
    assert_eq!(fenced(value.set_blocking(&mut c, token(7), "y")), (7, 8));
    assert_eq!(fenced(value.clear_blocking(&mut c, token(7))), (7, 8));
    assert_eq!(value.get_blocking(&mut c).unwrap(), stored(8, Some("x")));
    value.clear_blocking(&mut c, token(8)).unwrap();
    assert_eq!(value.get_blocking(&mut c).unwrap(), stored(8, None));
}

/// Many writers with tokens in no order, each writing its token as the value:
/// what is read never goes back, and value and token always fit each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_many_writers_it_never_goes_back() {
    const WRITERS: u64 = 8;
    const WRITES: u64 = 300;
    let server = RedisServer::start();
    let seed = leasehold_store::random::random_u64();
    let mut tasks = JoinSet::new();
    for writer in 0..WRITERS {
        let mut c = connect(&server.url()).await;
        tasks.spawn(async move {
            let value = Register::at("k");
            let mut dice = Dice(seed ^ (writer << 32));
            let mut highest = 0;
            let mut admitted = 0;
            for _ in 0..WRITES {
                let drawn = 1 + dice.roll(10_000);
                match value.set(&mut c, token(drawn), drawn.to_string()).await {
                    Ok(()) => {
                        assert!(drawn >= highest, "{drawn} after {highest}, seed {seed}");
                        admitted += 1;
                    }
                    Err(error) => {
                        let Fenced { seen, .. } = error.fenced().unwrap();
                        assert!(seen.get() > drawn && seen.get() >= highest, "seed {seed}");
                    }
                }
                let now = value.get(&mut c).await.unwrap();
                assert_eq!(now.value, Some(now.seen.to_string().into_bytes()));
                assert!(now.seen.get() >= highest.max(drawn), "seed {seed}");
                highest = now.seen.get();
            }
            (highest, admitted)
        });
    }
    let done = tasks.join_all().await;
    assert!(done.iter().map(|&(_, admitted)| admitted).sum::<u64>() > 0);
    let all: HashMap<String, String> = server.query(&["HGETALL", "k"]);
    let last = done.iter().map(|&(highest, _)| highest).max().unwrap();
    assert_eq!(all["token"], last.to_string());
    assert_eq!(all["value"], last.to_string());
}
