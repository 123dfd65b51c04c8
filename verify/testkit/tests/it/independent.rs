//! Independent servers of the testkit.

use std::time::Duration;

use leasehold_testkit::deployment::Independent;
use leasehold_testkit::process::PATIENCE;
use leasehold_testkit::server::{ClientCertificate, Data, RedisServer};

#[test]
fn they_have_nothing_in_common() {
    let servers = Independent::start(3);
    for (at, server) in servers.servers().iter().enumerate() {
        server.command(&["SET", "k", &at.to_string()]);
    }
    let own = servers.servers().iter();
    let own = own.map(|it| it.query::<String>(&["GET", "k"]));
    assert_eq!(own.collect::<Vec<_>>(), ["0", "1", "2"]);
    servers[0].kill();
    servers[1].restart(Data::Lose);
    assert_eq!(servers[1].query::<Option<String>>(&["GET", "k"]), None);
    assert_eq!(servers[2].query::<String>(&["GET", "k"]), "2");
    let up: Vec<_> = servers.servers().iter().map(|it| it.is_up()).collect();
    assert_eq!(up, [false, true, true]);
    servers[2].stop();
    assert!(!servers[2].is_up());
    servers[2].cont();
    assert!(servers[2].is_up());
}

#[test]
fn the_url_names_all_in_order_each_with_its_password() {
    let servers = Independent::builder(3)
        .server(RedisServer::builder().password("all"))
        .one(1, RedisServer::builder())
        .one(2, RedisServer::builder().password("own").persistent())
        .start();
    let ports: Vec<_> = servers.servers().iter().map(|it| it.port()).collect();
    let [first, second, third] = ports[..] else {
        panic!("{ports:?}")
    };
    let [first, second, third] = [first, second, third].map(|port| format!("127.0.0.1:{port}"));
    let url = format!("redlock://:all@{first},{second},:own@{third}/");
    assert_eq!(servers.url(), url);
}

#[test]
fn one_is_cut_off_from_its_clients_and_comes_back() {
    let server = RedisServer::builder().password("secret");
    let servers = Independent::builder(3).server(server);
    let servers = servers.behind_proxies().start();
    // Who is cut off is not waited for.
    let connect = |limits: [Duration; 3]| {
        let urls = servers.servers().iter().map(|server| {
            let proxy = servers.proxy(server).address().to_string();
            assert!(servers.url().contains(&format!(":secret@{proxy}")));
            format!("redis://:secret@{proxy}/")
        });
        urls.zip(limits)
            .map(|(url, limit)| {
                let client = redis::Client::open(url).unwrap();
                let connection = client.get_connection_with_timeout(limit)?;
                connection.set_read_timeout(Some(limit))?;
                Ok(connection)
            })
            .collect::<Vec<redis::RedisResult<redis::Connection>>>()
    };
    let answers = |connections: &mut [redis::RedisResult<redis::Connection>]| {
        let pings = connections.iter_mut().map(|connection| {
            let connection = connection.as_mut().ok()?;
            redis::cmd("PING").query::<String>(connection).ok()
        });
        pings.map(|answer| answer.is_some()).collect::<Vec<_>>()
    };
    let all = [PATIENCE; 3];
    let two = [PATIENCE, Duration::from_millis(100), PATIENCE];
    let mut before = connect(all);
    assert_eq!(answers(&mut before), [true, true, true]);
    let shorter = before[1].as_ref().unwrap();
    shorter.set_read_timeout(Some(two[1])).unwrap();
    servers.cut_off(&servers[1]);
    assert_eq!(answers(&mut before), [true, false, true]);
    assert_eq!(answers(&mut connect(two)), [true, false, true]);
    servers[1].command(&["PING"]);
    servers.rejoin(&servers[1]);
    assert_eq!(answers(&mut connect(all)), [true, true, true]);
    // Only who was concerned has to connect again.
    assert_eq!(answers(&mut before), [true, false, true]);
}

#[test]
#[should_panic(expected = "do not speak TLS")]
fn tls_is_refused_instead_of_being_waited_for() {
    let server = RedisServer::builder().tls(ClientCertificate::NotAsked);
    Independent::builder(3).server(server).start();
}
