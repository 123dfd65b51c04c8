//! How a server's process is started.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::scratch::Scratch;

/// What Debian's `zookeeper.jar` does not name in its manifest: the rest of Netty, which TLS needs,
/// and a log that needs no configuration.
const JARS: &str =
    "zookeeper netty-codec netty-resolver netty-transport-native-unix-common slf4j-simple";

/// Quick to start and small, as tests are; and nothing outside of the directory.
const JVM: &str = "-Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData \
    -Djava.io.tmpdir=..";

/// Everything but the line for each four-letter word.
const LOG: [&str; 4] = [
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn=warn",
    "-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.NettyServerCnxn=warn",
];

pub(super) fn command(scratch: &Scratch) -> Command {
    let mut command = scratch.command("java");
    command
        // By this directory what cleans up knows the process.
        .current_dir(scratch.path("data"))
        .args(JVM.split(' '))
        .args(LOG)
        .arg("-cp")
        .arg(class_path())
        .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
        .arg(scratch.path("zoo.cfg"));
    command
}

fn class_path() -> OsString {
    if let Some(named) = env::var_os("LEASEHOLD_ZOOKEEPER_CLASSPATH") {
        return named;
    }
    let jars = JARS.split(' ');
    let jars = jars.map(|name| format!("/usr/share/java/{name}.jar"));
    let jars: Vec<_> = jars.collect();
    assert!(
        Path::new(&jars[0]).is_file(),
        "ZooKeeper is not in /usr/share/java: `scripts/test --install` gets it, \
         and LEASEHOLD_ZOOKEEPER_CLASSPATH can name other jars"
    );
    jars.join(":").into()
}
