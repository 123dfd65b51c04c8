//! `--metrics-file`, and the alert rules and the dashboard for it and for the library's metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::*;

/// By the names of the metrics.
type Values = BTreeMap<String, f64>;

/// What the file says, by the names of the metrics without `leasehold_job_`.
fn read(file: &Path, key: &str) -> Values {
    let text = fs::read_to_string(file).unwrap();
    let mut values = BTreeMap::new();
    let lines: Vec<_> = text.lines().collect();
    for family in lines.chunks(3) {
        let [help, kind, sample] = family else {
            panic!("{text}");
        };
        let (series, value) = sample.rsplit_once(' ').unwrap();
        let name = series.strip_suffix(&format!("{{key=\"{key}\"}}")).unwrap();
        assert!(help.starts_with(&format!("# HELP {name} ")), "{text}");
        let counts = name.ends_with("_total");
        let expected = if counts { "counter" } else { "gauge" };
        assert_eq!(*kind, format!("# TYPE {name} {expected}"));
        let name = name.strip_prefix("leasehold_job_").unwrap().to_owned();
        assert_eq!(values.insert(name, value.parse().unwrap()), None, "{text}");
    }
    values
}

/// Expects these values.
#[track_caller]
fn has(values: &Values, expected: &[(&str, f64)]) {
    for (name, value) in expected {
        assert_eq!(values[*name], *value, "{name} of {values:?}");
    }
}

/// Reads it until something is so: it is written by a thread of its own.
async fn until(file: &Path, key: &str, is_so: impl Fn(&Values) -> bool) {
    let comes = within(Duration::from_secs(30), async || is_so(&read(file, key))).await;
    assert!(comes, "{:?}", read(file, key));
}

fn now() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_secs_f64()
}

#[tokio::test]
async fn a_run_leaves_its_metrics() {
    let store = Store::local();
    let file = store.path("job.prom");
    let name = file.to_str().unwrap();
    let before = now();
    let run = format!("run --metrics-file {name} 'a \"key\"' -- sh -c");
    store.run((&run, "true")).await.has_been_quiet(Some(0));
    let key = "a \\\"key\\\"";
    let first = read(&file, key);
    has(&first, &[("held", 0.0), ("acquired", 1.0)]);
    has(&first, &[("exit_status", 0.0), ("losses_total", 0.0)]);
    assert!(first["wait_seconds"] > 0.0 && first["hold_seconds"] > 0.0);
    let ran = "last_run_timestamp_seconds";
    let succeeded = "last_success_timestamp_seconds";
    assert!(before <= first[ran] && first[ran] <= first[succeeded] && first[succeeded] <= now());

    // A failure leaves the time of the last success.
    store.run((&run, "exit 3")).await.has_code(Some(3));
    let second = read(&file, key);
    has(&second, &[("acquired", 1.0), ("exit_status", 3.0)]);
    assert!(second[ran] > first[ran] && second[succeeded] == first[succeeded]);

    // So does a start that does not get the lock, and it leaves the time of the last run.
    let (holder, _) = store.holder(&["a \"key\""]).await;
    let refused = format!("run -n --metrics-file {name} 'a \"key\"' -- true");
    store.run(&refused).await.has_code(Some(75));
    let third = read(&file, key);
    has(&third, &[("acquired", 0.0), ("exit_status", 75.0)]);
    for kept in [ran, "hold_seconds"] {
        has(&third, &[(kept, second[kept])]);
    }
    drop(holder);

    let left = fs::read_dir(file.parent().unwrap()).unwrap();
    let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<_> = names.filter(|name| name.contains("job.prom")).collect();
    assert_eq!(left, ["job.prom"], "no half of a file is left");
}

/// A machine that began with a wrong clock: nobody would be told that the job fails ever since.
#[tokio::test]
async fn a_time_to_come_does_not_stay() {
    let store = Store::local();
    let file = store.path("job.prom");
    let run = "run --metrics-file job.prom k -- sh -c";
    store.run((run, "true")).await.has_code(Some(0));
    let succeeded = "last_success_timestamp_seconds";
    let at = read(&file, "k")[succeeded].to_string();
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(&at, "32503680000")).unwrap();
    assert!(read(&file, "k")[succeeded] > now());
    store.run((run, "exit 3")).await.has_code(Some(3));
    assert!(read(&file, "k")[succeeded] <= now());
}

#[tokio::test]
async fn a_hold_is_seen_while_it_lasts_and_when_it_is_lost() {
    let store = Store::local();
    let file = store.path("job.prom");
    let hold = format!("--metrics-file {} k", file.display());
    let (holder, _) = store.holder(&hold).await;
    let is_held = |it: &Values| it["held"] == 1.0 && !it.contains_key("exit_status");
    until(&file, "k", is_held).await;
    holder.ends_by(Signal::TERM).await.has_code(Some(0));
    let ended = read(&file, "k");
    has(&ended, &[("held", 0.0), ("exit_status", 0.0)]);
    has(&ended, &[("losses_total", 0.0)]);

    let (holder, _) = store.holder(&hold).await;
    store.run("break --yes k").await.has_code(Some(0));
    holder.finish().await.has_code(Some(79));
    let ended = read(&file, "k");
    has(&ended, &[("held", 0.0), ("exit_status", 79.0)]);
    has(&ended, &[("losses_total", 1.0)]);

    // It has set this end itself: nobody is to be woken.
    let limited = store.run(format!("hold --max-hold 1s {hold}")).await;
    limited.has_code(Some(79));
    has(&read(&file, "k"), &[("held", 0.0), ("losses_total", 1.0)]);
}

#[tokio::test]
async fn a_waiter_and_a_leader_are_seen() {
    let store = Store::local();
    let file = store.path("job.prom");
    let name = file.to_str().unwrap();
    let (holder, _) = store.holder(&["k"]).await;
    let url = &store.url;
    let elect = format!("elect -S {url} --once --metrics-file {name} k -- sh -c");
    let candidate = saying(&store, (elect, "echo leads; exec sleep 60"), "waiting").await;
    let waits = |it: &Values| it["acquired"] == 0.0 && it["wait_seconds"] > 0.0;
    until(&file, "k", waits).await;
    holder.signal(Signal::TERM);
    candidate.prints("leads").await;
    until(&file, "k", |it| it["held"] == 1.0).await;
    let ended = candidate.ends_by(Signal::TERM).await;
    assert_eq!(ended.signal(), Some(Signal::TERM));
    has(&read(&file, "k"), &[("held", 0.0), ("exit_status", 143.0)]);
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_named_once_and_stops_nothing() {
    let store = Store::local();
    let file = store.path("no/such/job.prom");
    let name = file.to_str().unwrap();
    let run = format!("run --metrics-file {name} k -- echo done");
    let done = ends_printing(&store, run, 0, "done\n").await;
    let said: Vec<_> = done.stderr.lines().collect();
    let [warning] = said[..] else {
        panic!("{said:?}");
    };
    says(&warning, ["cannot write the metrics to", name]);
}

// ---- rules and dashboard ----

/// The names and labels that `docs/metrics.md` lists, as Prometheus has them. The library's tests
/// and the command's hold its tables against what is recorded.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../../../docs/metrics.md");
    let mut names = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| `leasehold")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let name = cells[1].split('`').nth(1).unwrap().replace('.', "_");
        // Five columns for the library, three for jobs, two for labels; those of spans are no metrics.
        if cells.len() == 5 && !name.starts_with("leasehold_job_") {
            continue;
        }
        let suffixes: &[_] = match (cells[2], cells[3]) {
            ("histogram", "s") => &["_seconds_bucket", "_seconds_count", "_seconds_sum"],
            ("counter", "1") => &["_total"],
            _ => &[""],
        };
        names.extend(suffixes.iter().map(|suffix| format!("{name}{suffix}")));
    }
    names
}

/// What is used of them in expressions.
fn used(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| word.starts_with("leasehold_"));
    ours.map(str::to_owned).collect()
}

#[test]
fn rules_use_what_is_recorded_and_say_why() {
    let rules = include_str!("../../../../contrib/prometheus/leasehold.rules.yml");
    let unknown: Vec<_> = used(rules).difference(&documented()).cloned().collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let lines: Vec<_> = rules.lines().collect();
    let alerts = lines.iter().enumerate();
    let alerts = alerts.filter(|(_, line)| line.contains("- alert: "));
    let mut found = 0;
    for (at, alert) in alerts {
        found += 1;
        let reason = lines[at - 1].trim_start();
        assert!(reason.starts_with("# "), "{alert}: a reason");
        let rest = lines[at + 1..].iter().take_while(|line| !line.is_empty());
        let rule: Vec<_> = rest.map(|line| line.trim_start()).collect();
        for part in "expr: |labels:|severity: |annotations:|summary: ".split('|') {
            let parts = rule.iter().filter(|line| line.starts_with(part)).count();
            assert_eq!(parts, 1, "{alert}: {part}");
        }
    }
    assert!(found > 5);
}

#[test]
fn the_dashboard_shows_all_that_is_recorded() {
    let dashboard = include_str!("../../../../contrib/grafana/leasehold.json");
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries = targets.map(|target| target["expr"].as_str().unwrap());
    let variable = &dashboard["templating"]["list"][1]["query"]["query"];
    let variable = variable.as_str().unwrap();
    let shown = used(&queries.chain([variable]).collect::<Vec<_>>().join(" "));
    let documented = documented();
    let unknown: Vec<_> = shown.difference(&documented).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    // Of a histogram the buckets or the counts are enough, and of a run its last success.
    let left: Vec<_> = documented.difference(&shown).collect();
    let minor = |name: &&&String| {
        let seconds = name.contains("_seconds_") || name.ends_with("_timestamp_seconds");
        let label = ["mode", "outcome", "reason", "verb", "key_class"];
        let is_it = |label: &&str| **name == &format!("leasehold_{label}");
        let label = label.iter().any(is_it);
        !seconds && !label
    };
    let missing: Vec<_> = left.iter().filter(minor).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
