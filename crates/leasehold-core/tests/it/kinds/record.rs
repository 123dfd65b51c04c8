//! Serialisation of a queue: what is read.

use crate::kinds::cast::*;

/// Two holders of one owner, two who wait.
fn written() -> serde_json::Value {
    let mut queue = Queue::default();
    for who in [1, 3, 5, 2] {
        let claim = Claim {
            secret: (who < 4).then(|| OwnerSecret::from_random(who as u128 % 2)),
            min_hold: Duration::from_secs(who as u64 % 3),
            note: (who == 2).then(|| Note::new("a note").unwrap()),
            ..claim(who, id(who), lock_mode(who != 5))
        };
        queue.apply(&Command::Claim(claim), StoreTime(1_000_000));
    }
    serde_json::to_value(&queue).unwrap()
}

/// What no queue writes down could not be gone on from: a token beyond all others, for
/// one, leaves no higher one to give.
#[test]
fn what_no_queue_writes_is_refused() {
    let read = |record: &serde_json::Value| serde_json::from_value::<Queue>(record.clone());
    let good = written();
    assert_eq!(good["granted"].as_array().unwrap().len(), 2);
    assert_eq!(good["waiting"].as_array().unwrap().len(), 2);
    assert!(read(&good).is_ok());
    let (last, none) = (serde_json::json!(u64::MAX), serde_json::Value::Null);
    let [holder, waiter] = [&good["granted"][0][1], &good["waiting"][0]];
    for (place, value, what) in [
        ("/last_seen", &last, "out of range"),
        ("/last_token", &last, "out of range"),
        ("/last_arrival", &last, "out of range"),
        ("/offset/secs", &last, "out of range"),
        ("/waiting/1/arrival", &last, "higher arrival"),
        ("/granted/1/0", &last, "higher arrival"),
        ("/waiting/1/id", &holder["id"], "twice"),
        ("/waiting/1/arrival", &waiter["arrival"], "twice"),
        ("/granted/1/1/arrival", &holder["arrival"], "twice"),
        ("/granted/1/1/secret", &none, "different owners"),
        ("/capacity", &none, "no capacity"),
    ] {
        let mut record = good.clone();
        *record.pointer_mut(place).unwrap() = value.clone();
        let why = read(&record).expect_err(place).to_string();
        assert!(why.contains(what), "{place}: {why}, not {what}");
    }
}
