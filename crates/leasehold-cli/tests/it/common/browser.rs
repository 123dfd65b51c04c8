//! A headless Chromium, driven over WebDriver (<https://www.w3.org/TR/webdriver2/>).

use std::path::PathBuf;
use std::time::Duration;

use leasehold_testkit::process::Process;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::http::Request;

/// How long a page may take to show something before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// How WebDriver names an element in JSON.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A page in a browser that ends with the test.
pub(crate) struct Browser {
    _driver: Process,
    _profile: TempDir,
    address: String,
    session: String,
}

/// A program that `scripts/test --install` gets.
fn program(variable: &str, usual: &str) -> String {
    let named = std::env::var(variable)
        .ok()
        .filter(|named| !named.is_empty());
    let program = PathBuf::from(named.unwrap_or_else(|| usual.to_owned()));
    assert!(
        program.is_file(),
        "{} is missing: scripts/test --install gets it, or name one in {variable}",
        program.display()
    );
    program.to_str().expect("a path of letters").to_owned()
}

impl Browser {
    pub(crate) async fn start() -> Self {
        let chromium = program("LEASEHOLD_CHROMIUM", "/usr/bin/chromium");
        let driver = program("LEASEHOLD_CHROMEDRIVER", "/usr/bin/chromedriver");
        let profile = tempfile::tempdir().expect("a temporary directory can be made");
        let mut command = std::process::Command::new(driver);
        command.arg("--port=0").env("HOME", profile.path());
        let driver = Process::spawn(command);
        let line = driver
            .stdout()
            .wait_for("was started successfully on port")
            .await;
        let port = line
            .trim_end_matches('.')
            .rsplit(' ')
            .next()
            .expect("a port");
        let address = format!("127.0.0.1:{port}");
        let arguments = [
            "--headless",
            // Root has no sandbox, and containers have no large shared memory.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            &format!(
                "--user-data-dir={}",
                profile.path().join("profile").display()
            ),
        ];
        let options = json!({ "binary": chromium, "args": arguments });
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL" },
        }}});
        let (status, session) = Request::post(&address, "/session", &wanted).json().await;
        assert_eq!(status, 200, "{session}");
        let session = session["value"]["sessionId"].as_str().expect("a session");
        let browser = Self {
            session: format!("/session/{session}"),
            _driver: driver,
            _profile: profile,
            address,
        };
        browser.resize(1280, 900).await;
        browser
    }

    async fn command(&self, path: &str, body: Value) -> Value {
        let path = format!("{}{path}", self.session);
        let (status, answer) = Request::post(&self.address, &path, &body).json().await;
        assert_eq!(status, 200, "{path} {body}: {answer}");
        answer["value"].clone()
    }

    pub(crate) async fn resize(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height });
        self.command("/window/rect", size).await;
    }

    pub(crate) async fn open(&self, url: &str) {
        self.command("/url", json!({ "url": url })).await;
    }

    /// What a function of JavaScript with this body answers.
    pub(crate) async fn run(&self, script: &str) -> Value {
        let body = json!({ "script": script, "args": [] });
        self.command("/execute/sync", body).await
    }

    /// The same, of a function that answers by calling `arguments[0]`.
    pub(crate) async fn run_async(&self, script: &str) -> Value {
        let body = json!({ "script": script, "args": [] });
        self.command("/execute/async", body).await
    }

    /// Waits until this expression of JavaScript is true.
    pub(crate) async fn until(&self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        while self.run(&format!("return Boolean({expression})")).await != true {
            if Instant::now() > end {
                let shown = self.run("return document.body.innerText").await;
                panic!(
                    "never so: {expression}\n{}",
                    shown.as_str().unwrap_or_default()
                );
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the page shows this text.
    pub(crate) async fn shows(&self, text: &str) {
        let text = json!(text);
        self.until(&format!("document.body.innerText.includes({text})"))
            .await;
    }

    async fn element(&self, selector: &str) -> String {
        let by = json!({ "using": "css selector", "value": selector });
        let found = self.command("/element", by).await;
        found[ELEMENT].as_str().expect("an element").to_owned()
    }

    pub(crate) async fn click(&self, selector: &str) {
        let element = self.element(selector).await;
        self.command(&format!("/element/{element}/click"), json!({}))
            .await;
    }

    /// Types into what has the focus or takes it.
    pub(crate) async fn types(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        let keys = json!({ "text": text });
        self.command(&format!("/element/{element}/value"), keys)
            .await;
    }

    /// Light or dark, as the reader's system says.
    pub(crate) async fn prefer(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let command =
            json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": features } });
        self.command("/goog/cdp/execute", command).await;
    }

    /// What the console has said since the last call.
    pub(crate) async fn console(&self) -> Vec<String> {
        let said = self.command("/se/log", json!({ "type": "browser" })).await;
        let said = said.as_array().expect("a list");
        said.iter()
            .map(|line| line["message"].to_string())
            .collect()
    }

    /// A picture of the page, as PNG in base 64.
    pub(crate) async fn picture(&self) -> String {
        let path = format!("{}/screenshot", self.session);
        let (_, answer) = Request::get(&self.address, &path).json().await;
        answer["value"].as_str().expect("a picture").to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends Chromium when its session is deleted, and the group is killed with it.
        let _ = std::net::TcpStream::connect(&self.address).and_then(|mut stream| {
            use std::io::{Read, Write};
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            let Self {
                session, address, ..
            } = self;
            write!(
                stream,
                "DELETE {session} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
            )?;
            stream.read(&mut [0; 64])
        });
    }
}
