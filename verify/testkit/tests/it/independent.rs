//! Independent servers of the testkit.

use leasehold_testkit::deployment::Independent;
use leasehold_testkit::server::{ClientCertificate, RedisServer};

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
#[should_panic(expected = "do not speak TLS")]
fn tls_is_refused_instead_of_being_waited_for() {
    let server = RedisServer::builder().tls(ClientCertificate::NotAsked);
    Independent::builder(3).server(server).start();
}
