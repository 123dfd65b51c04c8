//! The page of `leasehold serve` in a real browser.

use leasehold_testkit::process::Signal;
use serde_json::{Value, json};

use crate::common::Store;
use crate::common::browser::Browser;
use crate::serve::{Serving, serve, token_file};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn audited() -> Store {
    let mut store = Store::local();
    store.url += "?audit=1000";
    store
}

fn url(serving: &Serving, view: &str) -> String {
    format!("http://{}/#/{view}", serving.address)
}

/// The text of the row of that key.
fn cells(key: &str) -> String {
    let key = json!(key);
    format!(
        "[...document.querySelectorAll('#rows tr')].find((row) => row.dataset.key === {key})?.innerText"
    )
}

#[tokio::test]
async fn a_lock_appears_moves_on_and_goes() {
    let store = audited();
    let serving = serve(&store, &[]).await;
    let browser = Browser::start().await;
    browser.open(&url(&serving, "")).await;
    browser.shows("No locks.").await;
    let row = cells("orders/42");
    let (first, _) = store.holder(&["orders/42", "--label", "first"]).await;
    browser.until(&format!("{row}?.includes('first')")).await;
    let second = store.spawn(&["hold", "orders/42", "--label", "second"]);
    browser.shows("1 locks, 1 waiting").await;
    first.signal(Signal::TERM);
    browser.until(&format!("{row}?.includes('second')")).await;

    browser.click("#rows a").await;
    browser.shows("granted to").await;
    // Of each a bar for the hold, and of the second one for its wait.
    browser
        .until("document.querySelectorAll('#timeline .hold').length === 2")
        .await;
    browser
        .until("document.querySelectorAll('#timeline .wait').length === 1")
        .await;
    browser
        .until("document.querySelector('#queue').innerText.includes('second')")
        .await;
    second.signal(Signal::TERM);
    browser
        .until("document.querySelector('#lock-state').textContent === 'free'")
        .await;
    browser.run("history.back()").await;
    browser.shows("No locks.").await;

    // It finds the server again.
    let address = serving.address.clone();
    serving.process.signal(Signal::TERM);
    serving.process.wait().await;
    browser.shows("not connected since").await;
    let again = store.spawn(&["serve", "--listen", &address]);
    again.stdout().wait_for("serving").await;
    browser
        .until("document.querySelector('#state').textContent === 'live'")
        .await;
    let told = browser.console().await;
    let refused = |line: &&String| !line.contains("net::ERR_");
    let told: Vec<_> = told.iter().filter(refused).collect();
    assert_eq!(told, Vec::<&String>::new());
    assert_only_own(&browser).await;
}

/// Nothing was asked of others.
async fn assert_only_own(browser: &Browser) {
    let script = "return performance.getEntriesByType('resource').map((one) => one.name)
        .filter((name) => !name.startsWith(location.origin) && !name.startsWith('data:'))";
    assert_eq!(browser.run(script).await, json!([]));
}

#[tokio::test]
async fn text_of_others_is_text() {
    let store = audited();
    let serving = serve(&store, &[]).await;
    let browser = Browser::start().await;
    let evil = "<img src=x onerror=\"window.evil=1\">' \u{202e}🔒 %41/#?&";
    let (_holder, _) = store.holder(&["--label", evil, evil]).await;
    let _waiter = store.spawn(&["hold", "--label", "<b>w</b>", evil]);
    browser.open(&url(&serving, "")).await;
    browser.until("document.querySelector('#rows a')").await;
    let key = browser
        .run("return document.querySelector('#rows a').textContent")
        .await;
    assert_eq!(key, evil);
    for view in ["lock", "waits"] {
        match view {
            "lock" => browser.click("#rows a").await,
            view => browser.open(&url(&serving, view)).await,
        }
        browser.shows("<b>w</b>").await;
        let strange = browser
            .run("return [window.evil, document.querySelectorAll('main img, main b').length]");
        assert_eq!(strange.await, json!([null, 0]), "{view}");
    }
    assert_eq!(browser.console().await, Vec::<String>::new());
}

#[tokio::test]
async fn with_a_token_a_lock_is_broken_after_a_question() {
    let store = audited();
    let serving = serve(
        &store,
        &["--allow-break", "--token-file", &token_file(&store)],
    )
    .await;
    let (holder, _) = store.holder(&["k", "--label", "deploy"]).await;
    let browser = Browser::start().await;
    browser.open(&url(&serving, "lock/k")).await;
    browser
        .until("!document.querySelector('#login').hidden")
        .await;
    browser.types("#token", "0123456789abcdef").await;
    browser.click("#login button").await;
    browser.shows("this is not the token").await;
    browser.types("#token", TOKEN).await;
    browser.click("#login button").await;
    browser
        .until("!document.querySelector('#break').hidden")
        .await;
    browser.click("#break").await;
    browser.shows("k is held by deploy").await;
    browser.click("#confirm button[value=no]").await;
    browser
        .until("!document.querySelector('#confirm').open")
        .await;
    assert_eq!(holder.status(), None);
    browser.click("#break").await;
    browser.click("#confirm button[value=yes]").await;
    browser.shows("broke k").await;
    assert_eq!(holder.wait().await.code(), Some(79));
    browser.shows("taken from").await;
}

/// What axe (<https://github.com/dequelabs/axe-core>) finds wrong on the page.
async fn accessibility(browser: &Browser, axe: &str) -> Value {
    browser.run(axe).await;
    browser
        .run_async(
            "const done = arguments[0]; axe.run().then((found) => done(found.violations.map((one) =>
                [one.id, one.help, one.nodes.map((node) => [node.target, node.failureSummary])])))",
        )
        .await
}

#[tokio::test]
async fn every_view_is_accessible_light_and_dark_wide_and_narrow() {
    let store = audited();
    let serving = serve(
        &store,
        &["--allow-break", "--token-file", &token_file(&store)],
    )
    .await;
    let axe = leasehold_testkit::server::installed_file("axe.min.js", "LEASEHOLD_AXE");
    let axe = std::fs::read_to_string(axe).unwrap();
    let inner = format!("{} run k -- true", env!("CARGO_BIN_EXE_leasehold"));
    let nested = store.spawn(&["run", "--label", "deploy", "k", "--", "sh", "-c", &inner]);
    nested.stderr().wait_for("deadlock").await;
    let (_other, _) = store.holder(&["orders/42", "--label", "import"]).await;
    let browser = Browser::start().await;
    browser.open(&url(&serving, "")).await;
    browser
        .until("!document.querySelector('#login').hidden")
        .await;
    assert_eq!(accessibility(&browser, &axe).await, json!([]), "login");
    browser.types("#token", TOKEN).await;
    browser.click("#login button").await;
    let shots = std::env::var_os("LEASEHOLD_PICTURES");
    for (view, says) in [
        ("", "There are deadlocks."),
        ("lock/k", "granted to"),
        ("waits", "Deadlock: "),
        ("servers", "Promised here"),
    ] {
        browser.open(&url(&serving, view)).await;
        browser.shows(says).await;
        for (scheme, width) in [("light", 1280), ("dark", 1280), ("light", 400)] {
            browser.prefer(scheme).await;
            browser.resize(width, 900).await;
            let found = accessibility(&browser, &axe).await;
            assert_eq!(found, json!([]), "{view} {scheme} {width}");
            let wide = browser
                .run("return document.documentElement.scrollWidth - innerWidth")
                .await;
            assert!(
                wide.as_i64() <= Some(0),
                "{view} at {width}: {wide} too wide"
            );
            if let Some(directory) = &shots {
                let name = format!("{}-{scheme}-{width}.b64", view.replace('/', "-"));
                let file = std::path::Path::new(directory).join(name);
                std::fs::write(file, browser.picture().await).unwrap();
            }
        }
    }
}
