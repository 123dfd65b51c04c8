//! The table of what is assumed, and the types of file systems.

use std::fs;

use super::*;

/// What is assumed, and how it is checked: in the order of the assumptions in the test.
const ASSUMED: &str = "\
| no other kernel writes to the file system | its type is that of a local disk or of memory, and \
  not FUSE (virtiofs), 9p or a network's
| `flock` excludes | each client tries to take its own lock a second time
| `/proc` is that of the kernel | the type of its file system
| the boot has a number | `/proc/sys/kernel/random/boot_id` is read
| all living clients have that number | a client that finds the number of another boot looks \
  whether clients of that boot live
| the time since the boot is known | the offset of a time namespace is read in \
  `/proc/self/timens_offsets`, and taken off";

/// The page says what is assumed, how it is checked, and what is said where it does not hold.
#[test]
fn the_page_has_the_table() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stores/local.md");
    let page = fs::read_to_string(page).unwrap();
    let assumptions = [&FILE_SYSTEM, &LOCKS, &PROC, &BOOT, &ONE_BOOT, &TIME];
    assert_eq!(ASSUMED.lines().count(), assumptions.len());
    for (row, Assumption { said, .. }) in ASSUMED.lines().zip(assumptions) {
        let row = format!("{row} | {said} |");
        assert!(page.contains(&row), "{row}");
    }
}

#[test]
fn only_what_one_kernel_alone_writes_to_is_local() {
    let here = tempfile::tempdir().unwrap();
    let open = fs::File::open(here.path()).unwrap();
    check_file_system(here.path(), &open).unwrap();
    for (magic, name) in [
        (0x6969, "nfs"),
        (0x0102_1997, "9p"),
        (0x6573_5546, "fuse"),
        (0xfe53_4d42, "smb"),
        (0x0116_1970, "gfs2"),
    ] {
        assert!(shared(magic).is_some_and(|found| found.contains(name)));
    }
    let unknown = "type 0x12345678, unknown to leasehold";
    assert_eq!(shared(0x1234_5678).as_deref(), Some(unknown));
    let open = fs::File::open("/proc").unwrap();
    let error = check_file_system(Path::new("/proc"), &open).unwrap_err();
    assert!(error.to_string().contains("type 0x9fa0"), "{error}");
    assert!(error.hint().is_some());
}
