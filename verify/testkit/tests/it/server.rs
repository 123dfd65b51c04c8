//! The servers of the testkit: real ones, that come, misbehave and go as the test says.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use leasehold_testkit::expect::says;
use leasehold_testkit::process::{End, PATIENCE, Process, Signal};
use leasehold_testkit::server::{ClientCertificate, Data, Program, RedisServer};
use rustix::process::Pid;
use tempfile::TempDir;
use tokio::net::TcpSocket;

fn value(server: &RedisServer) -> Option<String> {
    server.query(&["GET", "k"])
}

pub(crate) fn end_of(pid: u32) -> End {
    End::of(Pid::from_raw(pid.try_into().unwrap()).unwrap())
}

/// Of these tests this one alone, which does nothing without the variable.
pub(crate) fn only(test: &str, variable: &str, value: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    command.env(variable, value);
    command
}

mod life {
    use super::*;

    #[test]
    fn drop_ends_it_and_leaves_no_zombie() {
        for pause in [false, true] {
            let server = RedisServer::start();
            let (pid, end) = (server.pid(), end_of(server.pid()));
            if pause {
                server.stop();
            }
            drop(server);
            assert!(end.comes_within(Duration::ZERO), "paused: {pause}");
            let path = format!("/proc/{pid}");
            assert!(!Path::new(&path).exists(), "{pid} was not reaped");
        }
    }

    /// The body of the process that the next test runs and kills; by itself it does nothing.
    #[test]
    fn a_process_with_a_server() {
        if std::env::var_os("WITH_REDIS").is_none() {
            return;
        }
        let server = RedisServer::start();
        println!("\nserver {}", server.pid());
        thread::park_timeout(PATIENCE);
    }

    #[tokio::test]
    async fn a_killed_test_leaves_no_server() {
        // For what such a process leaves on disk, which is all that it can leave.
        let rest = tempfile::tempdir().unwrap();
        let mut command = only("server::life::a_process_with_a_server", "WITH_REDIS", "1");
        command.env("TMPDIR", rest.path());
        let test = Process::spawn(command);
        let line = test.prints("server ").await;
        let server = end_of(line.strip_prefix("server ").unwrap().parse().unwrap());
        assert!(!server.comes_within(Duration::ZERO));
        test.signal(Signal::KILL);
        assert!(server.comes_within(PATIENCE));
    }

    /// A program that is this script of a shell.
    fn script(text: &str) -> (TempDir, Program) {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("server");
        fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        (directory, program.into())
    }

    #[test]
    fn one_that_does_not_start_says_why() {
        let (_directory, plain) = script("echo \">>> 'tls-port 1'\"; echo 'Bad directive'; exit 1");
        let plain = RedisServer::builder().program(plain);
        let missing = "`/nowhere/redis-server` cannot be started";
        for (builder, said) in [
            // And the log.
            (
                RedisServer::builder().config("no-such-directive", "1"),
                ["ended at once", "no-such-directive"],
            ),
            (
                RedisServer::builder().program("/nowhere/redis-server"),
                [missing, "LEASEHOLD_REDIS_SERVER"],
            ),
            (
                plain.tls(ClientCertificate::NotAsked),
                ["ended at once", "built without TLS"],
            ),
        ] {
            says(builder.try_start().unwrap_err(), said);
        }
    }

    #[test]
    fn one_that_does_not_answer_is_given_up_and_ended() {
        let (_directory, program) = script("echo \"pid $$\"\nexec sleep 60");
        // Longer where the machine is so busy that a shell has not said a word in that time.
        let pid = (0..10).find_map(|turn| {
            let patience = Duration::from_millis(100 << turn);
            let builder = RedisServer::builder().program(program.clone());
            let error = builder.patience(patience).try_start().unwrap_err();
            assert!(error.contains("does not answer within"), "{error}");
            let pid = error.lines().find_map(|line| line.strip_prefix("pid "));
            pid.map(str::to_owned)
        });
        let pid = pid.expect("its log");
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        assert_ne!(name.trim(), "sleep", "{pid} is still there");
    }
}

mod faults {
    use super::*;

    #[test]
    fn nobody_is_given_the_port_of_one_that_is_down() {
        let server = RedisServer::start();
        server.kill();
        let other = TcpSocket::new_v4().unwrap();
        let error = other.bind(server.address()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    }

    #[test]
    fn a_stop_is_over_when_the_call_returns() {
        let server = RedisServer::start();
        let state = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
            let (_, behind_the_name) = stat.rsplit_once(") ").unwrap();
            behind_the_name.chars().next().unwrap()
        };
        for _ in 0..500 {
            server.stop();
            server.stop(); // Once more changes nothing.
            assert_eq!(state(), 'T');
            server.cont();
            server.cont();
            assert_ne!(state(), 'T');
        }
    }

    #[test]
    fn a_crash_loses_what_is_not_persistent_even_if_a_restart_had_kept_it_and_nothing_else() {
        let builder = RedisServer::builder();
        let persistent = builder.clone().persistent();
        for (builder, kept) in [(builder, None), (persistent, Some("v"))] {
            let server = builder.start();
            server.command(&["SET", "k", "v"]);
            server.restart(Data::Keep);
            server.command(&["SET", "late", "v"]);
            server.kill();
            server.start_again();
            assert_eq!(value(&server).as_deref(), kept);
            let late: Option<String> = server.query(&["GET", "late"]);
            assert_eq!(late.as_deref(), kept);
        }
    }
}

mod options {
    use super::*;

    /// `scripts/test --install` gets one that is not there.
    #[test]
    fn programs_are_what_they_are_called() {
        for (program, line) in [
            (Program::Valkey, "server_name:valkey"),
            (Program::OldestRedis, "redis_version:6.2."),
        ] {
            let server = RedisServer::builder().program(program).start();
            let info: String = server.query(&["INFO", "server"]);
            assert!(info.contains(line), "{info}");
        }
    }

    #[test]
    fn a_replica_without_persistence_comes_back_empty_from_a_crash() {
        let primary = RedisServer::start();
        primary.command(&["SET", "k", "v"]);
        let replica = RedisServer::builder().replica_of(primary.port()).start();
        primary.wait_for_replicas(1);
        assert_eq!(value(&replica).as_deref(), Some("v"));
        primary.kill();
        replica.kill();
        replica.start_again();
        assert_eq!(value(&replica), None);
    }
}

mod stats {
    use super::*;

    #[test]
    fn cpu_time_grows_with_the_work() {
        let server = RedisServer::start();
        let burn = "for i = 1, tonumber(ARGV[1]) do redis.sha1hex(i) end";
        let cost = |rounds: &str| {
            let before = server.stats();
            server.command(&["EVAL", burn, "0", rounds]);
            server.stats().since(&before)
        };
        let (little, much) = (cost("1"), cost("300000"));
        assert!(much.cpu > little.cpu * 2, "{much:?} {little:?}");
        // Both are about the same work; the second counts on while another process has the CPU.
        assert!(much.cpu > Duration::from_millis(5), "{much:?}");
        assert!(much.command("eval").time * 2 > much.cpu, "{much:?}");
    }
}
