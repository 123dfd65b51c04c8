//! What the local store assumes of its machine, looked at from other namespaces: containers of one
//! kernel go on excluding each other, and where it cannot know, it is refused.
#![cfg(all(target_os = "linux", feature = "local"))]

use crate::local_support::*;

/// A shell in a mount namespace of its own, which prepares it and goes on with the rest.
fn after(prepare: &str) -> Vec<String> {
    let script = format!("{prepare} && exec \"$@\"");
    let words = ["unshare", "--mount", "sh", "-c", &script, "sh"];
    words.map(str::to_owned).to_vec()
}

/// As containers that share a volume.
#[tokio::test]
async fn processes_of_all_namespaces_exclude_each_other() {
    let place = Place::new();
    let client = place.connect().await;
    let time = ["--time", "--boottime", "100000", "--monotonic", "7"];
    for namespaces in [
        &["--pid", "--fork"][..],
        &["--pid", "--fork", "--mount-proc"],
        &["--user", "--map-root-user"],
        &["--mount"],
        &["--net", "--ipc", "--uts", "--cgroup"],
        &time,
    ] {
        let by = [&["unshare"], namespaces].concat();
        if !is_allowed(&by) {
            continue;
        }
        let lease = client.mutex("k").unwrap().lock().await.unwrap();
        place.start_under(&by, "try").says("busy").await;
        let _ = lease.release().await.unwrap();
        place.start_under(&by, "try").says("granted").await;
    }
}

/// What cannot be known is not guessed.
#[tokio::test]
async fn a_machine_that_cannot_be_known_is_refused() {
    let place = Place::new();
    drop(place.connect().await);
    for (prepare, said) in [
        ("mount -t tmpfs none /proc", "/proc is missing"),
        ("umount -l /proc", "/proc is missing"),
        (
            "mount --bind /dev/null /proc/sys/kernel/random/boot_id",
            "the number of this boot is unknown",
        ),
        (
            "mount --bind /dev/null /proc/$$/timens_offsets",
            "the machine's time is unknown",
        ),
    ] {
        let by = after(prepare);
        let by: Vec<_> = by.iter().map(String::as_str).collect();
        if is_allowed(&by) {
            let line = place.start_under(&by, "try").says("refused: ").await;
            assert!(line.contains(said), "{prepare}: {line}");
        }
    }
}

/// As in a container of systemd-nspawn, which has one for itself. It took the claims of the others
/// for those of a boot before.
#[tokio::test]
async fn a_boot_of_another_number_beside_living_clients_is_refused() {
    let place = Place::new();
    let number = place.0.path().join("boot_id");
    fs::write(&number, "00000000-0000-4000-8000-000000000000\n").unwrap();
    let over = "/proc/sys/kernel/random/boot_id";
    let by = after(&format!("mount --bind {} {over}", number.display()));
    let by: Vec<_> = by.iter().map(String::as_str).collect();
    if !is_allowed(&by) {
        return;
    }
    let (client, lease) = held(&place.1).await;
    let line = place.start_under(&by, "try").says("refused: ").await;
    assert!(line.contains("another boot"), "{line}");
    lease.renew().await.unwrap();
    let _ = lease.release().await.unwrap();
    drop(client);
    place.is_deserted().await;
    place.start_under(&by, "try").says("granted").await;
}

/// As one of a network file system that is new.
#[tokio::test]
async fn a_file_system_that_is_not_known_is_refused() {
    let place = TempDir::new().unwrap();
    let mount = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).arg(place.path()).output()
    };
    let mounted = mount("mount", &["-t", "hugetlbfs", "-o", "mode=0700", "none"]);
    if !mounted.is_ok_and(|output| output.status.success()) {
        eprintln!("left out: such a mount is not allowed here");
        return;
    }
    let connected = connect(format!("local:{}", place.path().display())).await;
    mount("umount", &["-l"]).unwrap();
    let said = "other machines may use its file system (type 0x958458f6";
    fails(connected, ErrorKind::Refused, &[said]);
}
