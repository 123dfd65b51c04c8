//! Answers that say that something was lost: they are told, and cannot be dropped by mistake.

use std::fs;
use std::hint;

use leasehold::store::Answer;

use crate::sources::{at, files_in};
use crate::steps::*;

async fn client() -> Client {
    // The shortest that there is.
    let settings = Settings::default().with_ttl(Duration::from_millis(50));
    client_with("memory:answers", settings).await
}

/// Work that blocks the only thread of its runtime until its lease has ended: nobody renews, and
/// nobody notices before it is done.
async fn block(is_valid: impl Fn() -> bool) -> &'static str {
    while is_valid() {
        hint::spin_loop();
    }
    "done"
}

#[tokio::test(flavor = "current_thread")]
async fn work_that_has_outlived_its_lease_is_lost() {
    let client = client().await;
    let lease = client.mutex("one").unwrap().lock().await.unwrap();
    let done = lease.run(block(|| lease.is_valid())).await;
    assert_eq!(done.unwrap_err().kind(), ErrorKind::Lost);

    let lease = client.multi(["a", "b"]).unwrap().lock().await.unwrap();
    let done = lease.run(block(|| lease.is_valid())).await;
    assert_eq!(done.unwrap_err().kind(), ErrorKind::Lost);

    let leadership = client.election("e").unwrap().campaign("").await.unwrap();
    let done = leadership.run(block(|| leadership.is_leader())).await;
    assert_eq!(done.unwrap_err().kind(), ErrorKind::Lost);

    let mutex = client.mutex("two").unwrap();
    let done = mutex
        .with_lock(async |lease| block(|| lease.is_valid()).await)
        .await;
    assert_eq!(done.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(flavor = "current_thread")]
async fn the_error_of_several_keys_names_the_one_that_was_lost() {
    let client = leasehold::connect("memory:").await.unwrap();
    let lease = client.multi(["a", "b"]).unwrap().lock().await.unwrap();
    client.break_key("b").await.unwrap();
    let error = lease.run(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(error.key().map(|key| key.as_str()), Some("b"), "{error}");
    yield_now().await;
}

/// It would pass for a claim that has expired, and another would be made for ever.
#[tokio::test]
async fn a_reply_to_another_command_is_an_error() {
    let store = MemoryStore::new();
    let other = client_of(Arc::new(store.client())).await;
    let store = Altered {
        store,
        step: |answer| {
            Ok(Answer {
                reply: Reply::Done,
                ..answer
            })
        },
        inspect: Ok,
    };
    let client = client_of(Arc::new(store)).await;
    let mutex = client.mutex("k").unwrap();
    let locked = soon("an answer", mutex.lock()).await;
    fails(locked, ErrorKind::Corrupt, &["Done to a claim"]);
    // Also to several at once, whether the store has granted them or not.
    let _held = other.mutex("held").unwrap().lock().await.unwrap();
    for keys in [["a", "b"], ["c", "held"]] {
        // A call that waits claims them one by one then, where the same is seen.
        let both = client.multi(keys).unwrap();
        let locked = soon("an answer", both.try_lock()).await;
        fails(locked, ErrorKind::Corrupt, &["Done to a claim"]);
    }
}

/// For a call that does not wait the key was busy, as long as the store was slow.
#[tokio::test(start_paused = true)]
async fn a_store_that_runs_out_of_time_is_no_busy_key() {
    let store = Altered {
        store: MemoryStore::new(),
        step: |_| Err(StoreError::new(ErrorKind::Timeout, "too slow")),
        inspect: Ok,
    };
    let client = client_of(Arc::new(store)).await;
    let tried = client.mutex("k").unwrap().try_lock().await;
    fails(tried, ErrorKind::Unavailable, &["too slow"]);
    let tried = client.multi(["a", "b"]).unwrap().try_lock().await;
    fails(tried, ErrorKind::Unavailable, &["too slow"]);
}

// ---- what a public method answers ----

/// What may be ignored, and why nothing is overlooked then.
const IGNORED: &[(&str, &str)] = &[
    (
        "it only says what was seen",
        "AuditRecord u8 Deadlock Description HolderInfo Inspection Invalid Leader Listed Report \
         Stored String bool u32",
    ),
    (
        "a handle: nothing is held by it",
        "AuditLog BareServer Client Self",
    ),
    ("it was waited for: the lease is lost", "Loss"),
    (
        "the key was taken from whoever had it, if anybody had it",
        "Broken",
    ),
    ("the caller's own", "R T"),
    (
        "of a list the compiler does not see that it is ignored",
        "Initialised",
    ),
    ("an id that nobody uses", "ClaimId"),
];

/// The name of what a method answers, without what is around it; `None` for nothing.
fn answer(signature: &str) -> Option<String> {
    let mut answer = signature.rsplit_once("-> ")?.1.trim();
    while let Some(inner) = ["Result<", "Option<", "Vec<", "Box<dyn ", "crate::"]
        .iter()
        .find_map(|around| answer.strip_prefix(around))
    {
        answer = inner;
    }
    let is_name = |c: char| c.is_alphanumeric() || c == '$';
    let name: String = answer.chars().take_while(|c| is_name(*c)).collect();
    (!name.is_empty() && name != "impl").then_some(name)
}

/// Adds the types that must not be ignored, and the methods by what they answer.
fn read(text: &str, must_be_used: &mut BTreeSet<String>, methods: &mut BTreeMap<String, String>) {
    let (mut marked, mut signature) = (false, String::new());
    for line in text.lines().map(str::trim) {
        let begins = ["pub fn ", "pub async fn ", "wait fn "];
        if begins.iter().any(|begin| line.starts_with(begin)) || !signature.is_empty() {
            signature += line;
            signature.push(' ');
            if line.ends_with(['{', ';']) {
                let answers =
                    answer(&signature).filter(|_| !marked || signature.contains("Result<"));
                if let Some(answers) = answers {
                    methods.insert(answers, std::mem::take(&mut signature));
                }
                (marked, signature) = (false, String::new());
            }
        } else if line.starts_with("#[must_use") {
            marked = true;
        } else if let Some(name) = ["pub struct ", "pub enum ", "struct "]
            .iter()
            .find_map(|begin| line.strip_prefix(begin))
        {
            if std::mem::take(&mut marked) {
                let mut words = name.split(|c: char| !c.is_alphanumeric());
                must_be_used.extend(words.next().map(str::to_owned));
            }
        } else if line.is_empty() || line == "}" {
            marked = false;
        }
    }
}

/// What says that something was lost, left or taken cannot be dropped without a warning.
#[test]
fn no_answer_is_ignored_by_mistake() {
    let (mut must_be_used, mut methods) = (BTreeSet::new(), BTreeMap::new());
    for file in files_in(&at("crates/leasehold/src"), "rs") {
        let text = fs::read_to_string(file).unwrap();
        read(&text, &mut must_be_used, &mut methods);
    }
    for known in "Released Shutdown Lease MultiLease Leadership LeaseParts".split(' ') {
        let marked = must_be_used.contains(known);
        assert!(marked, "{known} is #[must_use]: {must_be_used:?}");
        assert!(methods.contains_key(known), "some method answers {known}");
    }
    let ignored = IGNORED.iter().flat_map(|(_, names)| names.split(' '));
    let ignored: BTreeSet<_> = ignored.collect();
    let unknown: Vec<_> = methods
        .iter()
        .filter(|(name, _)| !must_be_used.contains(*name) && !ignored.contains(name.as_str()))
        .filter(|(name, _)| !name.starts_with('$'))
        .collect();
    assert!(
        unknown.is_empty(),
        "make these types #[must_use], or say why they may be ignored: {unknown:#?}"
    );
}

// ---- the examples of pages and of the documentation ----

/// The arguments of each `run` and `with_lock` in a text, whose work is asynchronous.
fn works(text: &str) -> Vec<String> {
    let starts = [".run(async", ".with_lock(async", ".with_permit(async"];
    let starts = starts
        .iter()
        .flat_map(|start| text.match_indices(start).map(|(at, call)| at + call.len()));
    starts
        .map(|at| {
            let mut depth = 1;
            let end = text[at..].find(|c| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                depth == 0
            });
            text[at..][..end.unwrap_or_default()].to_owned()
        })
        .collect()
}

/// Whether it calls something and awaits nothing: that may block the runtime that renews the lease.
fn may_block(work: &str) -> bool {
    let bytes = work.as_bytes();
    let mut calls = work.match_indices('(').filter(|(at, _)| {
        let before = at.checked_sub(1).map_or(b' ', |at| bytes[at]);
        before.is_ascii_lowercase() || before == b'_'
    });
    // Of the lease itself.
    let own = |at: usize| {
        ["lease.token", "lease.is_valid"]
            .iter()
            .any(|own| work[..at].ends_with(own))
    };
    !work.contains(".await") && calls.any(|(at, _)| !own(at))
}

#[test]
fn no_example_blocks_the_runtime_that_renews_its_lease() {
    let mut files = vec![at("README.md")];
    files.extend(files_in(&at("docs"), "md"));
    files.extend(files_in(&at("crates/leasehold/src"), "rs"));
    let mut seen = 0;
    for file in files {
        for work in works(&fs::read_to_string(&file).unwrap()) {
            seen += 1;
            let file = file.display();
            let blocks = may_block(&work);
            assert!(!blocks, "{file}: put this into spawn_blocking: {work}");
        }
    }
    assert!(seen > 5, "{seen}");
    let had = " { migrate(database, token) }";
    assert!(may_block(had), "what a page has had");
}
