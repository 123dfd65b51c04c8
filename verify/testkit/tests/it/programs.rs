//! Every program that is tested with is what it is called.
//!
//! A program that is not there fails this test: `scripts/test --install` gets it.

use leasehold_testkit::server::{Program, RedisServer};

#[test]
fn they_are_what_they_are_called() {
    for (program, line) in [
        (Program::Valkey, "server_name:valkey"),
        (Program::OldestRedis, "redis_version:6.2."),
    ] {
        let server = RedisServer::builder().program(program).start();
        let info: String = server.query(&["INFO", "server"]);
        assert!(info.contains(line), "{info}");
    }
}
