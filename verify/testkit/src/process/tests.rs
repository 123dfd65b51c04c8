//! Processes that are started, met and ended.

use super::*;

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[tokio::test]
async fn lines_are_events_and_each_is_met_once() {
    let process = Process::spawn(sh("echo tick 1; echo tick 2; echo oops >&2; exec sleep 60"));
    assert_eq!(process.stdout().wait_for("tick").await, "tick 1");
    assert_eq!(process.stdout().wait_for("tick").await, "tick 2");
    assert_eq!(process.stderr().wait_for("oops").await, "oops");
    assert_eq!(process.stdout().so_far(), ["tick 1", "tick 2"]);
    assert_eq!(process.status(), None);
}

#[tokio::test]
#[should_panic(expected = "wrote no \"ready\" to Stdout before it ended")]
async fn a_line_that_cannot_come_any_more_is_not_waited_for() {
    let process = Process::spawn(sh("echo unready >&2"));
    process.stdout().wait_for("ready").await;
}

#[tokio::test]
async fn input_comes_when_the_test_says_so_and_ends_with_its_handle() {
    let (process, mut input) = Process::spawn_to_feed(sh("cat; echo end"));
    for line in ["one", "two"] {
        writeln!(input, "{line}").unwrap();
        process.prints(line).await;
    }
    assert_eq!(process.stdout().so_far(), ["one", "two"]);
    drop(input);
    process.prints("end").await;
}

#[tokio::test]
async fn a_signal_reaches_the_process_and_not_its_children() {
    let process = Process::spawn(sh(
        "sh -c 'trap \"echo child\" TERM; echo child ready; while :; do wait; sleep 0.01; done' &
         trap 'echo parent; exit 3' TERM; echo parent ready; wait",
    ));
    process.stdout().wait_for("ready").await;
    process.stdout().wait_for("ready").await;
    process.signal(Signal::TERM);
    process.stdout().wait_for("parent").await;
    assert_eq!(process.wait().await.code(), Some(3));
    assert!(!process.stdout().so_far().contains(&"child".to_owned()));

    process.signal_group(Signal::TERM);
    process.stdout().wait_for("child").await;
}

#[test]
fn drop_takes_the_children_along() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let (process, child) = runtime.block_on(async {
        // Longer than is waited for it: it has to be killed.
        let process = Process::spawn(sh("sleep 600 & echo $!; wait"));
        let child = process.stdout().wait_for("").await.parse().unwrap();
        (process, Pid::from_raw(child).unwrap())
    });
    let end = End::of(child);
    drop(process);
    end.has_come();
}

#[test]
fn a_child_outlives_the_thread_that_asked_for_it() {
    let asked = thread::spawn(|| {
        let mut command = Command::new("sleep");
        command.arg("60");
        spawn_tied(command).unwrap()
    });
    let mut child = asked.join().unwrap();
    // The kernel sends the death signal before the thread can be joined.
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
#[should_panic(expected = "no binary `leasehold-nonesuch`")]
fn a_binary_that_was_not_built_is_named() {
    binary("leasehold-nonesuch");
}
