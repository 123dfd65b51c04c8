//! A Chromium without a window, driven over WebDriver.

use std::env;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_testkit::process::{PATIENCE, Process};
use leasehold_testkit::server::in_servers;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::http::Request;

/// How often a page is asked whether something is so: it cannot tell by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How long the processes of a Chromium that was killed may take to end.
const LONGEST_END: Duration = Duration::from_secs(10);

/// Without a sandbox, which root does not have; with nothing that asks the internet.
const ARGUMENTS: &str = "--headless --no-sandbox --disable-gpu --disable-quic \
    --disable-dev-shm-usage --no-first-run --disable-background-networking \
    --disable-component-update --disable-sync --window-size=1200,900";

/// A browser with one page, and a profile of its own. It ends with the value: the driver is killed,
/// and with it Chromium, which is in its process group.
pub(crate) struct Browser {
    address: String,
    session: String,
    driver: Option<Process>,
    profile: TempDir,
}

impl Drop for Browser {
    #[allow(
        clippy::disallowed_methods,
        reason = "no event tells of the end of a process that is not ours"
    )]
    fn drop(&mut self) {
        drop(self.driver.take());
        // Processes of Chromium may write there until they have ended, and nobody can wait for them.
        let begun = Instant::now();
        while let Err(error) = std::fs::remove_dir_all(self.profile.path())
            && error.kind() != ErrorKind::NotFound
            && begun.elapsed() < LONGEST_END
        {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Browser {
    pub(crate) async fn start() -> Self {
        let profile = tempfile::tempdir().expect("a temporary directory can be made");
        let mut command = Command::new(program("LEASEHOLD_CHROMEDRIVER", "chromedriver"));
        // Told to choose, it takes one that is free for IPv6 only, and ends.
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let port = free.expect("a free port").port();
        command.arg(format!("--port={port}"));
        command.env("TMPDIR", profile.path());
        let driver = Process::spawn(command);
        let line = driver.prints("started successfully").await;
        let port = line.trim_end_matches('.').rsplit(' ').next();
        let address = format!("127.0.0.1:{}", port.expect("a port"));

        let directory = format!("--user-data-dir={}", profile.path().join("user").display());
        let arguments: Vec<_> = ARGUMENTS.split(' ').chain([&*directory]).collect();
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": {
                "binary": program("LEASEHOLD_CHROMIUM", "chromium"),
                "args": arguments,
            },
            "goog:loggingPrefs": { "browser": "ALL" },
        }}});
        let asked = Request::post(&address, "/session", &wanted);
        let made = asked.answers(200).await;
        let session = made["value"]["sessionId"].as_str().expect("a session");
        Self {
            session: session.to_owned(),
            address,
            driver: Some(driver),
            profile,
        }
    }

    /// A command of WebDriver; answers its value.
    async fn command(&self, name: &str, body: Value) -> Value {
        let path = format!("/session/{}/{name}", self.session);
        let asked = Request::post(&self.address, &path, &body);
        asked.answers(200).await["value"].clone()
    }

    pub(crate) async fn open(&self, url: &str) {
        self.command("url", json!({ "url": url })).await;
    }

    /// Runs a script in the page; answers what it returns.
    pub(crate) async fn script(&self, script: &str) -> Value {
        let body = json!({ "script": script, "args": [] });
        self.command("execute/sync", body).await
    }

    /// The value of an expression.
    pub(crate) async fn value(&self, expression: &str) -> Value {
        let script = format!("return ({expression});");
        self.script(&script).await
    }

    /// Waits until the expression is true in the page.
    pub(crate) async fn until(&self, expression: &str) {
        let begun = Instant::now();
        while self.value(expression).await != json!(true) {
            if begun.elapsed() > PATIENCE {
                let shown = self.value("document.body.innerText").await;
                panic!("never true: {expression}\nThe page:\n{shown}");
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits until an element that is visible has that text in it.
    pub(crate) async fn shows(&self, selector: &str, text: &str) {
        let (selector, text) = (json!(selector), json!(text));
        self.until(&format!(
            "[...document.querySelectorAll({selector})]\
             .some((node) => node.checkVisibility() && (node.innerText ?? node.textContent).includes({text}))"
        ))
        .await;
    }

    /// Clicks it as a user does, who needs to see it.
    pub(crate) async fn click(&self, selector: &str) {
        let element = self.element(selector).await;
        let click = format!("element/{element}/click");
        self.command(&click, json!({})).await;
    }

    /// Types; `\u{E007}` is Enter, `\u{E004}` Tab.
    pub(crate) async fn types(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        let keys = format!("element/{element}/value");
        self.command(&keys, json!({ "text": text })).await;
    }

    async fn element(&self, selector: &str) -> String {
        let wanted = json!({ "using": "css selector", "value": selector });
        let found = self.command("element", wanted).await;
        let id = found.as_object().and_then(|found| found.values().next());
        id.and_then(Value::as_str).expect("an id").to_owned()
    }

    /// A command of the protocol of Chromium's developer tools.
    pub(crate) async fn devtools(&self, name: &str, parameters: Value) -> Value {
        let body = json!({ "cmd": name, "params": parameters });
        self.command("goog/cdp/execute", body).await
    }

    /// What the user prefers: `light` or `dark`.
    pub(crate) async fn prefer(&self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        let features = json!({ "features": [feature] });
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    /// As wide as a telephone, or as a desk.
    pub(crate) async fn resize(&self, width: u32, height: u32) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", size)
            .await;
    }

    /// Writes a picture of the page into the directory that `LEASEHOLD_SCREENSHOTS` names, if it
    /// does.
    pub(crate) async fn picture(&self, name: &str) {
        if let Some(directory) = env::var_os("LEASEHOLD_SCREENSHOTS") {
            let file = PathBuf::from(directory).join(name).with_extension("png");
            self.save_picture(&file).await;
        }
    }

    pub(crate) async fn save_picture(&self, file: &Path) {
        let taken = self.devtools("Page.captureScreenshot", json!({})).await;
        let taken = taken["data"].as_str().expect("a picture");
        let mut command = Command::new("base64");
        command.arg("--decode");
        command.stdout(File::create(file).expect("a file"));
        let mut decoding = command.stdin(Stdio::piped()).spawn().expect("coreutils");
        let mut input = decoding.stdin.take().expect("it is piped");
        input.write_all(taken.as_bytes()).expect("it is read");
        drop(input);
        assert!(decoding.wait().expect("an end").success());
    }

    /// What the console has said since it was asked last: errors of scripts, of loading, and what the
    /// content security policy refused.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let log = self.command("se/log", json!({ "type": "browser" })).await;
        let entries = log.as_array().expect("a log").iter();
        let complaints =
            entries.filter(|entry| entry["level"] != "DEBUG" && entry["level"] != "INFO");
        let said = |entry: &Value| entry["message"].as_str().unwrap_or_default().to_owned();
        complaints.map(said).collect()
    }

    /// What axe finds wrong with what is shown; empty if nothing.
    pub(crate) async fn axe(&self) -> Vec<String> {
        let axe = std::fs::read_to_string(axe()).expect("axe-core can be read");
        if self.value("window.axe === undefined").await == json!(true) {
            self.script(&axe).await;
        }
        let script = "const done = arguments[0]; \
            axe.run(document, { resultTypes: ['violations'] }).then( \
              (found) => done(found.violations.flatMap((one) => one.nodes.map((node) => \
                `${one.id}: ${one.help}: ${node.html}: ${node.failureSummary}`))), \
              (error) => done([`axe failed: ${error}`]));";
        let body = json!({ "script": script, "args": [] });
        let found = self.command("execute/async", body).await;
        let found = found.as_array().expect("a list").iter();
        let text = |one: &Value| one.as_str().unwrap_or_default().to_owned();
        found.map(text).collect()
    }
}

/// The program that the variable names, or the one of that name in the `PATH`.
fn program(variable: &str, name: &str) -> PathBuf {
    if let Some(named) = env::var_os(variable) {
        return named.into();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut paths = env::split_paths(&path).map(|it| it.join(name));
    let found = paths.find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("there is no {name}: scripts/test --install gets it, or name one in {variable}")
    })
}

/// `servers/axe-core.js` of the target directory, in which the running test is as well.
fn axe() -> PathBuf {
    let named = env::var_os("LEASEHOLD_AXE_CORE").map(PathBuf::from);
    let found = named.or_else(|| in_servers("axe-core.js"));
    found.expect(
        "axe-core.js is in no `servers` directory above this test: scripts/test --install gets it",
    )
}
