//! Groups and users of this machine, by name and number.

use std::ffi::CString;
use std::fmt;
use std::path::Path;

use leasehold_store::StoreError;
use nix::unistd::{self, Gid, Uid};
use rustix::process::{getegid, geteuid, getgroups};

use crate::errors::{command, refused};

/// A group of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) gid: u32,
    /// Unknown where the machine has no entry for it, as in a container.
    name: Option<String>,
}

impl Group {
    /// The group of that name, or of that number.
    pub(crate) fn find(text: &str) -> Result<Self, StoreError> {
        if let Some(gid) = Self::number(text) {
            return Ok(Self::of(gid));
        }
        match unistd::Group::from_name(text) {
            Ok(Some(found)) => Ok(Self {
                gid: found.gid.as_raw(),
                name: Some(found.name),
            }),
            Ok(None) => Err(refused(
                format!("this machine has no group {text:?}"),
                format!(
                    "make it with {}, or name another with ?group=",
                    command("groupadd --", &[text])
                ),
            )),
            Err(errno) => Err(refused(
                format!("cannot look up the group {text:?}"),
                "name it by its number, as in ?group=994",
            )
            .with_source(std::io::Error::from(errno))),
        }
    }

    /// A number that a group can have: the highest means that there is none.
    pub(crate) fn number(text: &str) -> Option<u32> {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = is_number.then(|| text.parse().ok()).flatten();
        number.filter(|number| *number != u32::MAX)
    }

    /// The group with that number.
    pub(crate) fn of(gid: u32) -> Self {
        let found = unistd::Group::from_gid(Gid::from_raw(gid)).ok().flatten();
        Self {
            gid,
            name: found.map(|found| found.name),
        }
    }

    /// Its name where it has one, else its number.
    pub(crate) fn text(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.gid.to_string())
    }

    /// Whether this process has its rights.
    pub(crate) fn has_us(&self) -> bool {
        let mut others = getgroups().unwrap_or_default().into_iter();
        geteuid().is_root()
            || getegid().as_raw() == self.gid
            || others.any(|other| other.as_raw() == self.gid)
    }

    /// Whether that user is a member; `None` where the machine does not know the user or the group.
    pub(crate) fn has(&self, uid: u32) -> Option<bool> {
        self.name.as_ref()?;
        let user = unistd::User::from_uid(Uid::from_raw(uid)).ok()??;
        let name = CString::new(user.name).ok()?;
        let groups = unistd::getgrouplist(&name, user.gid).ok()?;
        Some(groups.contains(&Gid::from_raw(self.gid)))
    }

    /// Why this process may not use its directory, and what to do.
    pub(crate) fn not_ours(&self, directory: &Path) -> StoreError {
        let me = geteuid().as_raw();
        let user = unistd::User::from_uid(Uid::from_raw(me)).ok().flatten();
        let members = unistd::Group::from_gid(Gid::from_raw(self.gid));
        let members = members.ok().flatten().map(|group| group.mem);
        let (shown, hint) = match &user {
            Some(user) if members.unwrap_or_default().contains(&user.name) => (
                format!("{} ({me}) is not yet a member in this session", user.name),
                format!("log in again: {} was added since", user.name),
            ),
            Some(user) => (
                format!("{} ({me}) is not a member", user.name),
                format!(
                    "have it added with {}, and log in again",
                    command("usermod -aG", &[&self.text(), &user.name])
                ),
            ),
            None => (
                format!("{me} is not a member"),
                format!(
                    "give the process that group; a container gets it with --group-add {}",
                    self.gid
                ),
            ),
        };
        let directory = directory.display();
        let message = format!("the directory {directory} is for the group {self}: user {shown}");
        refused(message, hint)
    }
}

/// As messages name it.
impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} ({})", self.gid),
            None => write!(f, "{}", self.gid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_a_number_and_may_have_a_name() {
        let root = Group::find("0").unwrap();
        assert_eq!(Group::find(&root.text()).unwrap(), root);
        assert_eq!(root.to_string(), format!("{} (0)", root.text()));
        let nameless = Group::find("4000000123").unwrap();
        assert_eq!(
            (nameless.gid, &*nameless.text()),
            (4_000_000_123, "4000000123")
        );
        assert_eq!(nameless.to_string(), "4000000123");
    }

    #[test]
    fn who_is_a_member_is_known_where_the_machine_has_names_for_both() {
        let root = Group::find("0").unwrap();
        assert_eq!(root.has(0), Some(true));
        assert_eq!(root.has(65_534), Some(false), "nobody");
        assert_eq!(root.has(4_000_000_123), None);
        assert_eq!(Group::of(4_000_000_123).has(0), None);
    }

    #[test]
    fn a_group_that_is_missing_is_said() {
        let error = Group::find("no such group").unwrap_err();
        assert!(
            error.to_string().contains("no group \"no such group\""),
            "{error}"
        );
        assert!(error.hint().unwrap().contains("groupadd"));
    }
}
