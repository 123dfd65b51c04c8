//! Why a server cannot be used is said in the error's own sentence, without `-v`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::common::*;
use leasehold_testkit::server::ClientCertificate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn run(url: &str) -> Finished {
    run_at(url, "run -n k -- echo ran").await
}

/// It fails with this cause, and names the address.
async fn fails(url: &str, address: &str, cause: &str) {
    has_failed(&run(url).await, address, cause);
}

#[track_caller]
fn has_failed(ended: &Finished, address: &str, cause: &str) {
    ended.has_printed(Some(69), "");
    let first = ended.stderr.lines().next().unwrap();
    assert!(first.contains(cause), "{cause}: {}", ended.stderr);
    assert!(first.contains(address), "{address}: {}", ended.stderr);
    ended.has_not_said("hunter");
}

#[tokio::test]
async fn a_file_of_passwords_that_cannot_be_read_is_named() {
    let address = one_that_says("R\0\0\0\x08\0\0\0\x03").await;
    let url = format!("postgres://nobody@{address}/d?sslmode=disable");
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let below = empty.join("x");
    let named = format!("wants a password, and {} cannot be read", below.display());
    let strange = OsStr::from_bytes(b"/\xff/x");
    for (file, said) in [
        (below.as_os_str(), &*named),
        (empty.as_os_str(), "PostgreSQL at 127.0.0.1:"),
        (strange, "/x cannot be read"),
    ] {
        let mut command = at(&url, "run -n k -- true");
        command.env("PGPASSFILE", file);
        Process::run(command).await.has_ended_saying(Some(69), said);
    }
    // An empty variable is none, as `psql` has it.
    for name in ["PGPASSWORD", "PGPASSFILE"] {
        let mut command = at(&url, "run -n k -- true");
        command.env("HOME", directory.path()).env(name, "");
        let ended = Process::run(command).await;
        ended.has_ended_saying(Some(69), "wants a password");
        ended.has_not_said("cannot be read");
    }
    // A password need not be a text.
    let mut command = at(&url, "run -n k -- true");
    command.env("PGPASSWORD", OsStr::from_bytes(b"\xff"));
    let ended = Process::run(command).await;
    ended.has_ended_saying(Some(69), "cannot be reached");
    // Without a home, the file of the working directory is not meant.
    std::fs::write(directory.path().join(".pgpass"), "*:*:*:*:hunter2").unwrap();
    let mut command = at(&url, "run -n k -- true");
    command.current_dir(directory.path()).env("HOME", "");
    let ended = Process::run(command).await;
    ended.has_ended_saying(Some(69), "wants a password");
}

/// A server that says this to everybody and closes the connection once it was asked, until the test
/// ends.
async fn one_that_says(line: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                stream.readable().await.unwrap();
                let mut asked = [0; 4096];
                let _ = stream.try_read(&mut asked);
                stream.write_all(line.as_bytes()).await.unwrap();
            });
        }
    });
    address
}

#[tokio::test]
async fn what_the_network_says() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    // The last is as it is by default: the whole has no longer than that.
    let causes = format!(
        "
        redis://no-such-host.invalid/            | no-such-host.invalid:6379 | cannot be resolved
        redis://127.0.0.1:1/                     | 127.0.0.1:1               | connection refused
        redis://:hunter2@127.0.0.1:1/            | 127.0.0.1:1               | connection refused
        redis://{address}/?connect_timeout=300ms | {address}                 | no answer within 300ms
        redis://{address}/                       | {address}                 | no answer within 5s
    "
    );
    for [url, address, cause] in table::<3>(&causes) {
        fails(&url, &address, &cause).await;
    }
}

#[tokio::test]
async fn what_the_server_says() {
    let server = RedisServer::builder().password("hunter2").start();
    let address = server.address().to_string();
    let wrong = format!("redis://:hunter3@{address}/");
    let cause = "WRONGPASS invalid username-password pair";
    fails(&wrong, &address, cause).await;
    fails(&format!("redis://{address}/"), &address, "NOAUTH").await;
    let denied = "-DENIED Redis is running in protected mode because\r\n";
    let full = "-ERR max number of clients reached\r\n";
    // So it says what it was sent.
    let renamed = "-ERR unknown command 'HELLO', with args beginning with: 'AUTH' 'hunter2' \r\n";
    for (login, line, cause) in [
        ("", denied, "protected mode"),
        ("", full, "maxclients"),
        (":hunter2@", renamed, "unknown command 'HELLO'"),
    ] {
        let address = one_that_says(line).await;
        fails(&format!("redis://{login}{address}/"), &address, cause).await;
    }
}

#[tokio::test]
async fn what_tls_says() {
    let server = RedisServer::builder().tls(ClientCertificate::Required);
    let server = server.start();
    let address = server.address().to_string();
    let tls = format!("rediss://{address}/");
    let cause = "the certificate of the server is not trusted";
    fails(&tls, &address, cause).await;
    let authority = server.certificates().authority.path.display();
    let trusting = format!("run -n k --tls-ca {authority} -- echo ran");
    let trusting = run_at(&tls, trusting).await;
    has_failed(&trusting, &address, "refuses the TLS handshake");
    let plain = one_that_says("-ERR what\r\n").await;
    fails(&format!("rediss://{plain}/"), &plain, "does not speak TLS").await;
    let ended = run(&format!("redis://{address}/")).await;
    ended.has_said("rediss://");
    // Redis waits for the end of what is no command to it.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain = silent.local_addr().unwrap().to_string();
    let url = format!("rediss://{plain}/?connect_timeout=300ms");
    fails(&url, &plain, "no TLS connection within 300ms").await;
    run(&url).await.has_said("use redis://");
    // What other servers of TLS, and of HTTP, answer to a command.
    for line in [
        "\u{15}\u{3}\u{1}\0\u{2}\u{2}\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
    ] {
        let other = one_that_says(line).await;
        let cause = "does not answer as a Redis server does";
        fails(&format!("redis://{other}/"), &other, cause).await;
    }
}

/// A proxy in front of a server, which closes a connection on each of these commands.
async fn proxy_that_forbids(server: &RedisServer, commands: &'static [&str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let upstream = server.address();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut server = TcpStream::connect(upstream).await.unwrap();
                let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
                loop {
                    let (said, to) = tokio::select! {
                        read = client.read(&mut asked) => (&asked[..read.unwrap_or(0)], &mut server),
                        read = server.read(&mut answered) => {
                            (&answered[..read.unwrap_or(0)], &mut client)
                        }
                    };
                    let text = String::from_utf8_lossy(said);
                    let forbidden = |command: &&str| text.contains(&format!("\r\n{command}\r\n"));
                    if said.is_empty() || commands.iter().any(forbidden) {
                        return;
                    }
                    to.write_all(said).await.unwrap();
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_proxy_that_closes_connections_is_named_or_does_without() {
    let server = RedisServer::start();
    let forbids_hello = proxy_that_forbids(&server, &["HELLO"]).await;
    let ran = run(&format!("redis://{forbids_hello}/")).await;
    ran.has_printed(Some(0), "ran\n");
    ran.has_said("does not speak RESP3");
    let forbids_all = proxy_that_forbids(&server, &["HELLO", "INFO"]).await;
    let url = format!("redis://{forbids_all}/");
    let cause = "closes connections at the first request";
    fails(&url, &forbids_all, cause).await;
    run(&url).await.has_said("twemproxy");
}

/// It would be shown by each message that names the store.
#[tokio::test]
async fn a_password_in_the_place_of_the_user_name_is_not_shown() {
    let server = RedisServer::builder().password("s3cret").start();
    let url = format!("redis://s3cret@{}/", server.address());
    for arguments in ["run -n k -- true", "doctor", "config"] {
        let ended = run_at(&url, arguments).await;
        let said = ended.stdout + &ended.stderr;
        assert!(!said.contains("s3cret"), "{said}");
        let is_said = said.contains("a user name without a password");
        assert!(is_said || arguments == "config", "{said}");
    }
}

/// A holder whose command runs until the file `go` is there; it may be stubborn.
fn holder(url: &str, files: &Store, more: &str, stubborn: bool) -> Process {
    let script = "echo up; until test -e go; do sleep 0.02; done";
    let script = match stubborn {
        true => format!("trap '' TERM; {script}"),
        false => script.to_owned(),
    };
    let mut command = at(url, (format!("run {more} --ttl 3s k -- sh -c"), script));
    command.current_dir(files.path("."));
    Process::spawn(command)
}

/// Changes the password, and ends all connections.
fn rotate(server: &RedisServer, password: &str) {
    server.command(&["CONFIG", "SET", "requirepass", password]);
    for kind in ["normal", "pubsub"] {
        server.command(&["CLIENT", "KILL", "TYPE", kind]);
    }
}

/// A server, and a holder that has its password from the file `password`.
async fn with_password_file() -> (RedisServer, Store, Process) {
    let server = RedisServer::builder().password("before").start();
    let url = format!("redis://{}/", server.address());
    let files = Store::memory();
    let file = files.path("password");
    std::fs::write(&file, "before\n").unwrap();
    let option = format!("--password-file {}", file.display());
    let holder = holder(&url, &files, &option, false);
    holder.prints("up").await;
    (server, files, holder)
}

#[tokio::test]
async fn a_password_that_has_changed_is_said_to_be_wrong() {
    let (server, _files, holder) = with_password_file().await;
    // Until the file follows, the holder says what the server says.
    rotate(&server, "after");
    let said = holder.says("cannot renew k (").await;
    assert!(said.contains("WRONGPASS"), "{said}");
    holder.wait().await;
}

#[tokio::test]
async fn a_password_that_has_changed_is_read_again() {
    let (server, files, holder) = with_password_file().await;
    std::fs::write(files.path("password"), "after\n").unwrap();
    rotate(&server, "after");
    let renewals = || server.stats().command("evalsha").calls;
    let before = renewals();
    let renews = async || renewals() >= before + 3;
    assert!(eventually(renews).await, "it is renewed again");
    std::fs::write(files.path("go"), "").unwrap();
    holder.finish().await.has_been_quiet(Some(0));
}

/// What the server answers to the renewals is the cause of the loss.
#[tokio::test]
async fn a_loss_says_what_the_server_said() {
    let lost = async |change: &[&str], cause: &str| {
        let rights = "on >secret ~leasehold:* &leasehold:* +@all";
        let server = RedisServer::builder().user("bob", rights).start();
        let files = Store::memory();
        let holder = holder(&server.url_as("bob", "secret"), &files, "", true);
        holder.prints("up").await;
        server.command(change);
        let ended = holder.ends(79).await;
        // Before the end, and at the end.
        for words in ["cannot renew k", "lost k: "] {
            let mut lines = ended.stderr.lines();
            let told = lines.any(|line| line.contains(words) && line.contains(cause));
            assert!(told, "{words}, {cause}: {}", ended.stderr);
        }
    };
    let takes_none = ["CONFIG", "SET", "min-replicas-to-write", "1"];
    tokio::join!(
        lost(&takes_none, "too few replicas"),
        lost(&["ACL", "SETUSER", "bob", "-@all", "+ping"], "may not"),
        lost(&["REPLICAOF", "127.0.0.1", "1"], "read-only replica"),
    );
}

/// Also while it is not known why: it takes connections, and answers nothing.
#[tokio::test]
async fn a_server_that_does_not_answer_is_named() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let url = format!("redlock://{address},127.0.0.1:1,127.0.0.1:2/?response_timeout=100ms");
    // That it is not connected, or that it has not answered: the same time ends both.
    ends_saying(&url, "init", 69, format!(" to {address}")).await;
}
