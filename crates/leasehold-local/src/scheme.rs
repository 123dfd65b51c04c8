//! `local:`, `local:/directory` and `local:/directory?group=NAME`.

use std::env;
use std::fs::canonicalize;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::{Invalid, Marked};
use leasehold_store::access::Access;
use leasehold_store::report::Severity::{Fine, Note};
use leasehold_store::report::{Finding, Report};
use leasehold_store::scheme::{Description, Initialised, Made, Opened, Scheme, StoreOptions};
use leasehold_store::trial::{self, Trial};
use leasehold_store::{ErrorKind, StoreError};
use nix::unistd::{User, geteuid};

use super::record_file::RecordFile;
use super::{LocalOptions, LocalStore};

/// What opens `local:`, `local:/directory` and `local:/directory?group=NAME`.
#[derive(Debug)]
pub struct Local;

/// Uses a lock, and removes what that leaves.
async fn try_lock(store: &LocalStore) -> Trial {
    let Some(key) = trial::key() else {
        return Trial::default();
    };
    let trial = trial::take(store, &key, trial::TTL).await;
    if let Ok(locked) = RecordFile::of_key(&store.inner, &key).lock().await {
        locked.remove();
    }
    trial
}

#[async_trait]
impl Scheme for Local {
    fn names(&self) -> &'static [&'static str] {
        &["local"]
    }

    fn examples(&self) -> &'static [&'static str] {
        &["local:"]
    }

    fn describe(&self, url: &str) -> Result<Description, Invalid> {
        LocalOptions::from_url(url).map(|_| Description::without_servers(url))
    }

    /// The environment leads to another directory than that of other processes of this user.
    fn warning(&self, url: &str) -> Option<Invalid> {
        let (here, named_by) = LocalOptions::from_url(url).ok()?.place().ok()?;
        let named_by = named_by?;
        let user = User::from_uid(geteuid()).ok()??;
        // Whose home does not exist has all its processes elsewhere.
        let home = canonicalize(user.dir).ok()?;
        let usual = home.join(".local/state/leasehold");
        // The directories may not have been made yet, and links may lead to the same one.
        let resolved = |path: &Path| canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let is_home = || env::home_dir().is_some_and(|it| resolved(&it) == home);
        if resolved(&here) == resolved(&usual) || (named_by == "HOME" && is_home()) {
            return None;
        }
        let (here, usual) = (here.display(), usual.display());
        let why = format!(
            "local: is {here} here, because of {named_by}; this user's other processes use {usual}"
        );
        let hint = "they do not see these locks; name one directory for all: local:/some/dir";
        Some(Invalid::new(why, hint))
    }

    async fn open(&self, url: &str, access: &Access) -> Result<Opened, StoreError> {
        LocalOptions::from_url(url)?.open(access).await
    }

    /// Opens it, and uses a lock.
    async fn examine(&self, url: &str, _access: &Access) -> Result<Report, StoreError> {
        let options = LocalOptions::from_url(url)?;
        let named_by = options.place()?.1.unwrap_or("its URL");
        let store = match LocalStore::open(options).await {
            Ok(store) => store,
            Err(error) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported) => {
                return Err(error);
            }
            Err(error) => {
                let promise = "Nothing: the store cannot be used.";
                let findings = vec![Finding::of_error("reach", None, &error)];
                return Ok(Report::new(url, promise, findings));
            }
        };
        let trial = try_lock(&store).await;
        if trial.failed.is_some() {
            let promise = "Nothing: locks cannot be used here.";
            return Ok(Report::new(store.url(), promise, trial.findings()));
        }
        let found = format!(
            "the directory {} (named by {named_by}) can be written to, and is on a disk of this \
             machine",
            store.directory().display()
        );
        let mut findings = vec![Finding::new(Fine, "reach", found)];
        findings.push(match store.inner.directory.group() {
            Some(group) => {
                let found = format!("the directory is for the members of the group {group}");
                let meaning =
                    "each of them can take, keep and break the locks of all, and remove them";
                Finding::new(Note, "users", found).meaning(meaning)
            }
            None => Finding::new(Fine, "users", "only this user can use the directory"),
        });
        findings.extend(trial.findings());
        let promise = "Exclusion and fencing among the processes of this machine that use this \
                       directory. Holds end with the machine; tokens rise over its restarts.";
        Ok(Report::new(store.url(), promise, findings))
    }

    /// There is no server to be marked: makes the directory.
    async fn initialise(
        &self,
        url: &str,
        _access: &Access,
    ) -> Result<Vec<Initialised>, StoreError> {
        let options = LocalOptions::from_url(url)?;
        let users = match &options.group {
            Some(group) => format!("for the members of the group {group}"),
            None => "for this user alone; ?group=NAME makes one that several users share".into(),
        };
        let (path, made) = LocalStore::make(options).await?;
        let outcome = if made { Marked::New } else { Marked::Already };
        let what = format!("the directory {}", path.display());
        let initialised = Initialised::new(path.display().to_string(), Ok(outcome));
        Ok(vec![initialised.with_made(Made::new(what, users))])
    }
}

#[async_trait]
impl StoreOptions for LocalOptions {
    /// Nobody logs in to a directory.
    async fn open(&self, _access: &Access) -> Result<Opened, StoreError> {
        let store = LocalStore::open(self.clone()).await?;
        let url = store.url();
        Ok(Opened::new(Arc::new(store), url))
    }
}
