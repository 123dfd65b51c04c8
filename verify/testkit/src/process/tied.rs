//! Children that end with this process, however it ends; and those that clean up after it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{LazyLock, Mutex, mpsc};
use std::thread;

#[cfg(target_os = "linux")]
use rustix::process::Signal;

/// Starts `command` so that it is killed when this process ends, however this process ends.
///
/// `Drop` cannot promise that: it does not run when a test is killed, aborts, or leaves through
/// `exit`. The kernel can: it sends the child a SIGKILL when its parent is gone (on Linux; elsewhere
/// `Drop` is all there is).
///
/// For the kernel "the parent" is the *thread* that started the child, and the test harness ends a
/// thread with each test. So every child is started by one thread that lives as long as the process.
///
/// # Errors
///
/// As [`Command::spawn`].
pub fn spawn_tied(mut command: Command) -> io::Result<Child> {
    #[cfg(target_os = "linux")]
    end_with_parent(&mut command);
    spawn_free(command)
}

/// Starts `command`, by the same thread, as a child that outlives this process: for what cleans up
/// after it, once its standard input ends.
pub(crate) fn spawn_free(command: Command) -> io::Result<Child> {
    struct Order {
        command: Command,
        answer: mpsc::Sender<io::Result<Child>>,
    }

    static LAUNCHER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::Builder::new()
            .name("launcher".to_owned())
            .spawn(move || {
                // Ends never: the sender is a static.
                for mut order in inbox {
                    let forking = FORKING.lock();
                    let child = order.command.spawn();
                    drop(forking);
                    let _ = order.answer.send(child);
                }
            })
            .expect("a thread can be started");
        orders
    });

    let (answer, answered) = mpsc::channel();
    LAUNCHER
        .send(Order { command, answer })
        .expect("the launcher lives as long as the process");
    answered.recv().expect("the launcher answers every order")
}

static FORKING: Mutex<()> = Mutex::new(());

/// Returns when what this process has closed is closed for good.
///
/// Between fork and exec a child has copies of all sockets of its parent: one that the parent
/// closes meanwhile lives a little longer, and a port that should refuse accepts. [`spawn_free`]
/// returns from its fork after the exec.
pub(crate) fn forks_settled() {
    drop(FORKING.lock());
}

#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "only the child itself can ask for a death signal, between fork and exec"
)]
fn end_with_parent(command: &mut Command) {
    use rustix::io::Errno;
    use rustix::process::{getpid, getppid, set_parent_process_death_signal};

    let parent = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A parent that died before the request was made sends nothing any more.
        if getppid() == Some(parent) {
            Ok(())
        } else {
            Err(Errno::SRCH.into())
        }
    };
    // SAFETY: between fork and exec only what is safe in a signal handler may be called, since
    // another thread may have held any lock, the allocator's too. `ask` makes two system calls and
    // builds errors out of numbers: no lock, no allocation, nothing that runs on drop.
    unsafe { command.pre_exec(ask) };
}
