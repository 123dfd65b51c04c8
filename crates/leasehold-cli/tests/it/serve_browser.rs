//! The page of `leasehold serve`, in a browser.

use leasehold::ClaimContext;

use crate::common::browser::Browser;
use crate::common::*;
use crate::serve::{Serving, TOKEN, serve, token_file};

/// A name of somebody who means harm: a tag, quotes, an emoji and a right-to-left mark.
const HOSTILE: &str = "<img src=x onerror=\"window.ran=1\">'\"&amp;🔒\u{200f}\u{5d0}";

async fn open(serving: &Serving, view: &str) -> Browser {
    let browser = Browser::start().await;
    browser.open(&serving.page(view)).await;
    browser
}

/// The path of a key's details.
fn of(key: &str) -> String {
    use std::fmt::Write;
    let mut path = "#/lock/".to_owned();
    for byte in key.bytes() {
        let _ = write!(path, "%{byte:02X}");
    }
    path
}

/// A JavaScript expression: that this is the text of this cell in the row of the key.
fn cell(key: &str, at: usize, text: &str) -> String {
    let (key, text) = (json!(key), json!(text));
    format!(
        "((row) => row && row.children[{at}].textContent === {text}) \
         ([...document.querySelectorAll('#rows tr')].find((row) => row.dataset.key === {key})) === true"
    )
}

/// Nothing has run that was a name, nothing was asked of others, nothing was refused or failed.
async fn nothing_foreign(browser: &Browser) {
    let complaints = browser.complaints().await;
    assert!(complaints.is_empty(), "{complaints:#?}");
    let ran = browser.value("window.ran === undefined && !document.querySelector('img')");
    assert_eq!(ran.await, json!(true), "a name was taken for markup");
    let foreign = "performance.getEntriesByType('resource').map((entry) => entry.name)\
                   .filter((name) => new URL(name).origin !== location.origin && !name.startsWith('data:'))";
    assert_eq!(browser.value(foreign).await, json!([]));
}

/// For everybody: in light and dark.
async fn accessible(browser: &Browser, view: &str) {
    for scheme in ["light", "dark"] {
        browser.prefer(scheme).await;
        browser.picture(&format!("{view}-{scheme}")).await;
        let found = browser.axe().await;
        assert!(found.is_empty(), "{scheme}: {found:#?}");
    }
    browser.prefer("light").await;
    browser.resize(360, 740).await;
    browser.picture(&format!("{view}-narrow")).await;
    let wide = "document.documentElement.scrollWidth > innerWidth";
    assert_eq!(browser.value(wide).await, json!(false), "wider than 360 px");
    // No cell is out of sight, and a picture fills its card.
    let sees_all = "[...document.querySelectorAll('main tbody tr > *')].every((cell) => \
                    cell.getBoundingClientRect().right <= innerWidth)";
    assert_eq!(browser.value(sees_all).await, json!(true), "{view}");
    let scrolls = "document.body.style.minHeight = '200vh';";
    browser.script(scrolls).await;
    let filled = "[...document.querySelectorAll('main svg')].every((svg) => \
                  Math.abs(svg.getBoundingClientRect().width - svg.parentNode.clientWidth) < 2)";
    browser.until(filled).await;
    browser.resize(1200, 900).await;
    browser.until(filled).await;
    browser.script("document.body.style.minHeight = '';").await;
}

/// Two claims that wait for each other, for as long as the tasks run.
async fn deadlock(store: &Store) -> Vec<tokio::task::JoinHandle<()>> {
    let client = leasehold::connect(&store.url).await.expect("the store");
    let contexts = [client.context(), client.context()];
    let mut held = Vec::new();
    for (key, context) in ["east", "west"].into_iter().zip(&contexts) {
        let lock = client.mutex(key).expect("a key").with_context(context);
        held.push(lock.lock().await.expect("it is free"));
    }
    let wait = |key: &'static str, context: ClaimContext| {
        let lock = client.mutex(key).expect("a key").with_context(&context);
        tokio::spawn(async move { lock.lock().await.map(drop).unwrap_or_default() })
    };
    let [first, second] = contexts;
    let mut tasks = vec![wait("west", first), wait("east", second)];
    tasks.push(tokio::spawn(async move {
        std::future::pending::<()>().await;
        drop(held);
    }));
    tasks
}

#[tokio::test]
async fn a_link_that_was_typed_by_hand_opens_its_key() {
    let store = Store::memory();
    let serving = serve(&store, "").await;
    let browser = open(&serving, "#/lock/100%").await;
    browser.shows("#lock-title", "100%").await;
    browser.shows("#lock-state", "free").await;
}

#[tokio::test]
async fn the_table_follows_the_locks() {
    let store = Store::local();
    let serving = serve(&store, "").await;
    let browser = open(&serving, "").await;
    browser.shows("#none", "No locks.").await;
    browser.shows("#state", "live").await;

    let (first, _) = store.holder(&["orders/42", "--label", "first"]).await;
    browser.until(&cell("orders/42", 1, "first")).await;
    let second = store.spawn("hold orders/42 --label second");
    browser.until(&cell("orders/42", 3, "1")).await;
    browser.shows("#totals", "1 lock, 1 waiting").await;

    // The row stays the same element, so that the focus stays where it is.
    let focus = "document.querySelector('#rows a').focus();";
    browser.script(focus).await;
    first.signal(Signal::TERM);
    browser.until(&cell("orders/42", 1, "second")).await;
    browser.until(&cell("orders/42", 3, "0")).await;
    let focused = "document.activeElement.textContent";
    assert_eq!(browser.value(focused).await, json!("orders/42"));

    let permit = ["pool", "--limit", "3", "--take", "2", "--label", "two"];
    let (two, _) = store.holder(&permit).await;
    browser.until(&cell("pool", 1, "2/3 two")).await;
    two.signal(Signal::TERM);
    let (other, _) = store.holder(&[HOSTILE, "--label", HOSTILE]).await;
    browser.until(&cell(HOSTILE, 0, HOSTILE)).await;
    browser.until(&cell(HOSTILE, 1, HOSTILE)).await;
    accessible(&browser, "locks").await;

    browser.types("#pattern", "rders\u{E007}").await;
    let one = "document.querySelectorAll('#rows tr').length === 1";
    browser.until(one).await;
    second.signal(Signal::TERM);
    browser.shows("#none", "No lock matches *rders*.").await;
    drop(other);
    nothing_foreign(&browser).await;
}

#[tokio::test]
async fn a_key_has_its_queue_its_timeline_and_can_be_broken() {
    let mut store = Store::local();
    store.url += "?audit=1000";
    let token = token_file(&store);
    let serving = serve(&store, ("--allow-break --token-file", &token)).await;
    let run = ["run", "--label", HOSTILE, HOSTILE, "--", "true"];
    ends(&store, run, 0).await;
    let (holder, _) = store.holder(&[HOSTILE, "--label", "deploy"]).await;
    let waiter = store.spawn(["hold", HOSTILE, "--label", "nightly"]);

    let browser = open(&serving, &of(HOSTILE)).await;
    browser.shows("#login", "This server takes a token").await;
    accessible(&browser, "token").await;
    let wrong = "not-the-token-of-this-server\u{E007}";
    browser.types("#token", wrong).await;
    let refused = "document.querySelector('#login-error').textContent !== ''";
    browser.until(refused).await;
    browser.types("#token", &format!("{TOKEN}\u{E007}")).await;

    browser.shows("#queue tr:nth-child(1)", "deploy").await;
    browser.shows("#queue tr:nth-child(2)", "nightly").await;
    browser.shows("#queue tr:nth-child(2) th", "waits, 1").await;
    browser.shows("#history", "released by").await;
    browser.shows("#history", HOSTILE).await;
    let bars = "document.querySelectorAll('#timeline rect.hold').length === 2 \
                && document.querySelectorAll('#timeline rect.wait').length === 1";
    browser.until(bars).await;
    let title = format!(
        "document.querySelector('#lock-title').textContent === {}",
        json!(HOSTILE)
    );
    browser.until(&title).await;
    accessible(&browser, "key").await;

    browser.click("#break").await;
    browser.shows("#confirm", "deploy").await;
    accessible(&browser, "confirm").await;
    browser.click("#confirm button[value=no]").await;
    let closed = "!document.querySelector('#confirm').open";
    browser.until(closed).await;
    browser.click("#break").await;
    browser.shows("#confirm", HOSTILE).await;
    browser.click("#confirm button[value=yes]").await;
    browser.shows("#history", "taken from").await;
    browser.shows("#queue tr:nth-child(1)", "nightly").await;
    browser.shows("#break-result", "broke ").await;
    assert_eq!(holder.wait().await.code(), Some(79));

    // The answer to an earlier question is none to this one: by the standard, and unlike here,
    // Escape closes a dialogue as this does, and leaves the former value.
    let record = "window.asked = []; const ask = window.fetch;\
                  window.fetch = (path, ...rest) => { asked.push(path); return ask(path, ...rest); };\
                  document.querySelector('#confirm').addEventListener('close',\
                    () => setTimeout(() => { window.answered = true; }));";
    browser.script(record).await;
    browser.click("#break").await;
    browser.shows("#confirm", "nightly").await;
    let close = "document.querySelector('#confirm').close();";
    browser.script(close).await;
    browser.until("window.answered === true").await;
    assert_eq!(browser.value("asked").await, json!([]));
    drop(waiter);

    // The console tells of the answers that had no token or a wrong one, and of nothing else.
    let complaints = browser.complaints().await;
    let others = complaints.iter().filter(|said| !said.contains("401"));
    assert_eq!(others.count(), 0, "{complaints:#?}");
    assert!(!complaints.is_empty(), "the console has a log");
    nothing_foreign(&browser).await;
}

#[tokio::test]
async fn a_deadlock_and_the_servers_are_shown() {
    let store = Store::local();
    let serving = serve(&store, "").await;
    let tasks = deadlock(&store).await;
    let browser = open(&serving, "#/waits").await;
    let deadlock = "holds east and waits for west";
    browser.shows("#deadlocks[role=alert]", deadlock).await;
    browser.shows("#waits-list", "east (deadlock)").await;
    // Two claims and two keys, each with a sign that is no colour.
    for (sign, count) in [(".node.stuck", 4), (".edge.waits", 2)] {
        let shown = format!("document.querySelectorAll('#graph {sign}').length === {count}");
        browser.until(&shown).await;
    }
    browser.shows("#graph text", "⟳ east").await;
    accessible(&browser, "waits").await;
    // It is read again and again, and the focus stays where it is.
    let focus = "document.querySelector('#waits-list a').focus();";
    browser.script(focus).await;
    let reads = "performance.getEntriesByType('resource')\
                 .filter((entry) => entry.name.endsWith('/waits')).length";
    let before = browser.value(reads).await;
    browser.until(&format!("{reads} > {before} + 1")).await;
    let focused = "document.activeElement.textContent";
    assert_eq!(browser.value(focused).await, json!("east"));

    browser.click("nav a[data-view=servers]").await;
    browser.shows("#findings", "fine: reach").await;
    browser.shows("#promise", "Promised here: Exclusion").await;
    accessible(&browser, "servers").await;
    browser.click("nav a[data-view=locks]").await;
    browser.shows("#deadlock-note", "Deadlock: ").await;
    browser.shows("#deadlock-note", deadlock).await;
    browser.script("history.back();").await;
    browser.shows("#findings", "fine: reach").await;
    nothing_foreign(&browser).await;
    for task in tasks {
        task.abort();
    }
}

#[tokio::test]
async fn the_page_goes_on_when_the_server_is_there_again() {
    let store = Store::local();
    let serving = serve(&store, "").await;
    let (_before, _) = store.holder(&["before"]).await;
    let browser = open(&serving, "").await;
    browser.until(&cell("before", 3, "0")).await;

    let Serving { process, address } = serving;
    process.signal(Signal::TERM);
    assert_eq!(process.wait().await.code(), Some(0), "with a page open");
    browser.shows("#state.bad", "not connected since").await;
    // What was there last stays.
    browser.until(&cell("before", 3, "0")).await;

    let (_after, _) = store.holder(&["after"]).await;
    let again: Process = store.spawn(("serve --listen", &address));
    again.prints("serving").await;
    browser.until(&cell("after", 3, "0")).await;
    browser.shows("#state", "live").await;
    let failed = browser.complaints().await;
    let others = failed.iter().filter(|said| !said.contains("net::ERR_"));
    assert_eq!(others.count(), 0, "{failed:#?}");
    nothing_foreign(&browser).await;
}

/// As after a laptop has slept: nobody tells the browser that the connection is gone.
#[tokio::test]
async fn a_page_that_hears_nothing_says_so_and_asks_again() {
    let store = Store::local();
    let serving = serve(&store, "").await;
    let browser = open(&serving, "").await;
    browser.shows("#state", "live").await;
    let sooner = "const timer = setTimeout; \
                  window.setTimeout = (what, ms) => timer(what, Math.min(ms, 4000));";
    browser.script(sooner).await;
    serving.process.stop();
    browser.shows("#state.bad", "no answer; trying again").await;
    serving.process.signal(Signal::CONT);
    browser.shows("#state", "live").await;
}

/// Else an operator could take the holders of one key for those of another.
#[tokio::test]
async fn a_key_never_shows_the_claims_of_another() {
    let store = Store::local();
    let serving = serve(&store, "").await;
    let (_holder, _) = store.holder(&["one"]).await;
    let browser = open(&serving, &of("one")).await;
    browser.shows("#queue th", "holds").await;
    serving.process.ends_by(Signal::TERM).await;
    browser.script("location.hash = '#/lock/other';").await;
    browser.shows("#lock-title", "other").await;
    let claims = "document.querySelectorAll('#queue th, #timeline rect').length";
    assert_eq!(browser.value(claims).await, json!(0));
}

/// `cargo test -p leasehold-cli --test it picture_of -- --ignored` makes the picture of the pages in
/// `docs` anew.
#[tokio::test]
#[ignore = "it writes docs/serve.png"]
async fn a_picture_of_the_documentation() {
    let mut store = Store::local();
    // By default it is in the directory for state, which is the test's.
    store.url = "local:?audit=1000".to_owned();
    let holds = [
        ("config", "deploy"),
        ("orders/42", "billing"),
        ("reports/nightly", "reports"),
    ];
    let mut held = Vec::new();
    for (key, label) in holds {
        held.push(store.holder(&[key, "--label", label]).await);
    }
    let mut waiting = Vec::new();
    for label in ["refunds", "invoices", "export"] {
        waiting.push(saying(&store, ("hold orders/42 --label", label), "waiting").await);
    }
    let serving = serve(&store, "").await;
    let browser = open(&serving, "").await;
    // In place of the directory of this test.
    let name = "document.querySelector('#store').textContent = 'local:?audit=1000';";
    browser.script(name).await;
    browser.resize(960, 360).await;
    browser.until(&cell("orders/42", 3, "3")).await;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/serve.png");
    browser.save_picture(file.as_ref()).await;
}
