//! Identifies this machine in readable claim ids.

use std::fs;
use std::path::Path;

/// In the first byte of an address: it is that of a group, or made up rather than a maker's.
const GROUP: u64 = 1 << 40;
const MADE_UP: u64 = 2 << 40;

/// `mac-` and twelve digits, or `host-` and ten of a hash of its name.
pub(super) fn mark() -> String {
    let machine = rustix::system::uname();
    let name = machine.nodename().to_string_lossy();
    mark_of(Path::new("/sys/class/net"), &name)
}

fn mark_of(interfaces: &Path, host_name: &str) -> String {
    match address(interfaces) {
        Some(address) => format!("mac-{address:012x}"),
        None => format!("host-{:010x}", hash(host_name) >> 24),
    }
}

/// The address to know the machine by: assigned by a maker rather than made up,
/// of a device rather than a bridge or a tunnel, then the first by name.
fn address(interfaces: &Path) -> Option<u64> {
    let entries = fs::read_dir(interfaces).ok()?;
    let candidates = entries.flatten().filter_map(|entry| {
        let text = fs::read_to_string(entry.path().join("address")).ok()?;
        let address = parse(text.trim())?;
        let made_up = address & MADE_UP != 0;
        let is_device = entry.path().join("device").exists();
        Some((made_up, !is_device, entry.file_name(), address))
    });
    candidates.min().map(|(.., address)| address)
}

/// Reads an Ethernet address. None for another kind, for loopback's zeros, and
/// for what is a group's address and nobody's own.
fn parse(text: &str) -> Option<u64> {
    let pairs = text.len() == 17 && text.split(':').all(|pair| pair.len() == 2);
    let address = u64::from_str_radix(&text.replace(':', ""), 16).ok()?;
    let own = address != 0 && address & GROUP == 0;
    (pairs && own).then_some(address)
}

/// FNV-1a: the same in every version, for ids are compared years later.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of interfaces: name, address, whether it is a device.
    fn with(interfaces: &[(&str, &str, bool)]) -> String {
        let root = tempfile::tempdir().unwrap();
        for (name, address, is_device) in interfaces {
            let interface = root.path().join(name);
            fs::create_dir(&interface).unwrap();
            fs::write(interface.join("address"), format!("{address}\n")).unwrap();
            if *is_device {
                fs::create_dir(interface.join("device")).unwrap();
            }
        }
        fs::write(root.path().join("bonding_masters"), "\n").unwrap();
        mark_of(root.path(), "web-7")
    }

    #[test]
    fn the_address_is_chosen_by_what_it_is_then_by_name() {
        let lo = ("lo", "00:00:00:00:00:00", false);
        let bridge = ("br0", "02:42:00:00:00:01", false);
        let made_up = ("eth2", "02:fc:00:00:00:02", true);
        let assigned = ("tun0", "3c:22:fb:00:00:03", false);
        let device = ("eth1", "3c:22:fb:00:00:04", true);
        let first = ("eth0", "3C:22:FB:00:00:05", true);
        assert_eq!(with(&[lo, bridge]), "mac-024200000001");
        assert_eq!(with(&[lo, bridge, made_up]), "mac-02fc00000002");
        assert_eq!(with(&[lo, bridge, made_up, assigned]), "mac-3c22fb000003");
        let all = [lo, bridge, made_up, assigned, device, first];
        assert_eq!(with(&all[..5]), "mac-3c22fb000004");
        assert_eq!(with(&all), "mac-3c22fb000005");
    }

    #[test]
    fn without_an_address_the_host_says_so() {
        let group = ("eth0", "ff:ff:ff:ff:ff:ff", true);
        let infiniband = ("ib0", "80:00:00:48:fe:80:00:00:00:00:00:00", true);
        let odd = ("odd", "+1:-2:03:04:05:06:", true);
        let none = ("none", "", true);
        let lo = ("lo", "00:00:00:00:00:00", false);
        // FNV-1a of "web-7", the upper forty bits.
        let expected = format!("host-{:010x}", hash("web-7") >> 24);
        for interfaces in [&[][..], &[lo, group, infiniband, odd, none]] {
            assert_eq!(with(interfaces), expected);
        }
        assert_eq!(mark_of(Path::new("/nowhere/at/all"), "web-7"), expected);
        assert_ne!(mark_of(Path::new("/nowhere/at/all"), "web-8"), expected);
        // The published test values of FNV-1a.
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash("foobar"), 0x8594_4171_f739_67e8);
    }
}
