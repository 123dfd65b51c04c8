//! The servers of the testkit: real ones, that come, misbehave and go as the test says.

use leasehold_testkit::expect::says;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use leasehold_testkit::process::{End, PATIENCE, Process, Signal};
use leasehold_testkit::server::{ClientCertificate, Data, RedisServer};
use redis::{Commands, Connection, RedisResult};
use rustix::process::Pid;
use tokio::net::TcpSocket;

fn connect(url: &str) -> RedisResult<Connection> {
    let connection = redis::Client::open(url)?.get_connection()?;
    connection.set_read_timeout(Some(PATIENCE))?;
    Ok(connection)
}

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

    #[test]
    fn it_outlives_the_thread_that_started_it() {
        let server = thread::spawn(RedisServer::start).join().unwrap();
        let end = end_of(server.pid());
        server.command(&["PING"]);
        assert!(!end.comes_within(Duration::ZERO));
    }

    /// The body of the process that the next two tests run and end; by itself it does nothing.
    #[test]
    #[expect(clippy::exit, reason = "an end that drops nothing is what is tested")]
    fn a_process_with_a_server() {
        let Ok(how) = std::env::var("HOW_TO_END") else {
            return;
        };
        let server = RedisServer::start();
        println!("\nserver {}", server.pid());
        match how.as_str() {
            "exit" => std::process::exit(0),
            _ => thread::park_timeout(PATIENCE),
        }
    }

    /// `rest` takes what such a process leaves on disk, which is all that it can leave.
    fn process_with_a_server(how: &str, rest: &Path) -> Process {
        let mut command = only("server::life::a_process_with_a_server", "HOW_TO_END", how);
        command.env("TMPDIR", rest);
        Process::spawn(command)
    }

    #[tokio::test]
    async fn a_killed_test_leaves_no_server() {
        let rest = tempfile::tempdir().unwrap();
        let test = process_with_a_server("killed", rest.path());
        let line = test.stdout().wait_for("server ").await;
        let server = end_of(line.strip_prefix("server ").unwrap().parse().unwrap());
        assert!(!server.comes_within(Duration::ZERO));
        test.signal(Signal::KILL);
        assert!(server.comes_within(PATIENCE));
    }

    #[tokio::test]
    async fn a_test_that_exits_leaves_no_server() {
        let rest = tempfile::tempdir().unwrap();
        let test = process_with_a_server("exit", rest.path());
        let line = test.stdout().wait_for("server ").await;
        assert_eq!(test.wait().await.code(), Some(0));
        let pid: u32 = line.strip_prefix("server ").unwrap().parse().unwrap();
        // It may be gone already, and its pid may be anybody's: ask for the name as well.
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.contains("redis") {
            assert!(end_of(pid).comes_within(PATIENCE));
        }
    }

    #[test]
    fn one_that_does_not_start_says_why() {
        let builder = RedisServer::builder().config("no-such-directive", "1");
        let error = builder.try_start().unwrap_err();
        // And the log.
        says(error, ["ended at once", "no-such-directive"]);
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let builder = RedisServer::builder().program("/nowhere/redis-server");
        let cannot = "`/nowhere/redis-server` cannot be started";
        let error = builder.try_start().unwrap_err();
        says(error, [cannot, "LEASEHOLD_REDIS_SERVER"]);
    }

    #[test]
    fn one_that_does_not_answer_is_given_up_and_ended() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("mute-server");
        fs::write(&program, "#!/bin/sh\necho \"pid $$\"\nexec sleep 60\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();

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

    fn refused(server: &RedisServer) -> bool {
        let error = TcpStream::connect(server.address()).map(drop);
        error.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    }

    #[test]
    fn a_killed_one_refuses_until_it_is_started_again_on_its_port() {
        let server = RedisServer::start();
        let (url, end) = (server.url(), end_of(server.pid()));
        let mut connection = connect(&url).unwrap();
        let () = connection.set("k", "v").unwrap();

        server.kill();
        assert!(end.comes_within(Duration::ZERO));
        assert!(refused(&server));
        assert!(connection.get::<_, String>("k").unwrap_err().is_io_error());

        server.start_again();
        assert_eq!(server.url(), url);
        let found: Option<String> = connect(&url).unwrap().get("k").unwrap();
        assert_eq!(found, None, "there was no persistence");
    }

    #[test]
    fn nobody_is_given_the_port_of_one_that_is_down() {
        let server = RedisServer::start();
        server.kill();
        let other = TcpSocket::new_v4().unwrap();
        let error = other.bind(server.address()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    }

    #[test]
    fn a_stopped_one_accepts_and_keeps_silent_until_it_goes_on() {
        let server = RedisServer::start();
        let mut connection = connect(&server.url()).unwrap();
        let brief = Some(Duration::from_millis(50));
        connection.set_read_timeout(brief).unwrap();
        server.stop();
        server.stop(); // Once more changes nothing.
        assert!(!refused(&server));
        let silence = connection.get::<_, Option<String>>("k").unwrap_err();
        assert!(silence.is_timeout(), "{silence}");

        server.cont();
        server.cont();
        let () = connect(&server.url()).unwrap().set("k", "v").unwrap();
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
            assert_eq!(state(), 'T');
            server.cont();
            assert_ne!(state(), 'T');
        }
    }

    #[test]
    fn a_restart_keeps_or_loses_the_data_as_asked() {
        let builder = RedisServer::builder();
        for builder in [builder.clone(), builder.persistent()] {
            let server = builder.start();
            let run_id = || {
                let info: String = server.query(&["INFO", "server"]);
                let mut lines = info.lines();
                lines.find(|it| it.starts_with("run_id")).map(str::to_owned)
            };
            let first = run_id();
            server.command(&["SET", "k", "v"]);
            server.restart(Data::Keep);
            assert_ne!(run_id(), first, "it is the same process");
            assert_eq!(value(&server).as_deref(), Some("v"));
            server.restart(Data::Lose);
            assert_eq!(value(&server), None);
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

    #[test]
    fn memory_can_be_short() {
        let server = RedisServer::builder().config("maxmemory", "2mb");
        let server = server.config("maxmemory-policy", "noeviction").start();
        let mut client = connect(&server.url()).unwrap();
        let value = vec![b'x'; 64 * 1024];
        let error = (0..64).find_map(|n| client.set::<_, _, ()>(n, &value).err());
        let error = error.unwrap();
        assert_eq!(error.code(), Some("OOM"), "{error}");
        assert!(server.stats().command("set").rejected > 0);
    }

    #[test]
    fn a_replica_follows_and_a_primary_without_one_can_refuse_to_write() {
        let primary = RedisServer::builder().password("secret");
        let primary = primary.config("min-replicas-to-write", "1").start();
        let error = primary.try_command(&["SET", "k", "v"]).unwrap_err();
        assert_eq!(error.code(), Some("NOREPLICAS"), "{error}");

        let replica = RedisServer::builder().replica_of(primary.port()).start();
        primary.wait_for_replicas(1);
        primary.command(&["SET", "k", "v"]);
        primary.wait_for_replicas(1);
        assert_eq!(value(&replica).as_deref(), Some("v"));
        let error = replica.try_command(&["SET", "k", "v"]).unwrap_err();
        assert_eq!(error.code(), Some("READONLY"), "{error}");
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

mod tls {
    use super::*;

    #[test]
    fn a_server_built_without_it_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("plain-server");
        let script = "#!/bin/sh\necho \">>> 'tls-port 1'\"; echo 'Bad directive'; exit 1\n";
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let builder = RedisServer::builder().program(program);
        let builder = builder.tls(ClientCertificate::NotAsked);
        let error = builder.try_start().unwrap_err();
        assert!(error.contains("built without TLS"), "{error}");
    }
}

mod stats {
    use super::*;

    #[test]
    fn commands_are_counted_and_timed() {
        let server = RedisServer::start();
        let mut client = connect(&server.url()).unwrap();
        let () = client.set("warm", "up").unwrap();
        let before = server.stats();
        for n in 0..10 {
            let () = client.set("k", n).unwrap();
        }
        let _: Option<String> = client.get("k").unwrap();
        assert!(client.lpush::<_, _, ()>("k", "not a list").is_err());
        let since = server.stats().since(&before);
        assert_eq!(since.command("set").calls, 10);
        assert_eq!(since.command("get").calls, 1);
        let pushed = since.command("lpush");
        assert_eq!((pushed.calls, pushed.failed), (1, 1));
        assert_eq!(since.command("del").calls, 0);
    }

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
