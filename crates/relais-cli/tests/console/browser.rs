//! A real browser, driven over the WebDriver protocol by the visible labels of elements.
//!
//! Invariant: every browser and its driver end with the test, also with one that fails.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between two checks.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// The name of a reference to an element, as the protocol has it.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Runs before any script of the page: whatever a message could run leaves a trace here.
const WATCH: &str = "
    window.ran = [];
    window.violations = [];
    for (const name of ['alert', 'confirm', 'prompt', 'print', 'open']) window[name] = () => window.ran.push(name);
    window.xss = (what) => window.ran.push(what ?? 'xss');
    addEventListener('securitypolicyviolation', (event) => window.violations.push(event.violatedDirective));
";

pub(crate) struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    site: String,
    /// The profile of the browser, removed with it.
    _folder: TempDir,
}

impl Browser {
    /// Opens the console at this address; nothing if no browser is to be had.
    pub(crate) fn open(console: SocketAddr) -> Option<Self> {
        Self::open_page(&format!("http://{console}/"))
    }

    /// Opens the console whose page has this address.
    pub(crate) fn open_page(page: &str) -> Option<Self> {
        let Ok(program) = std::env::var("RELAIS_TEST_CHROMEDRIVER") else {
            assert!(std::env::var_os("CI").is_none(), "CI must set RELAIS_TEST_CHROMEDRIVER");
            eprintln!("NOT TESTED: the console in a browser; set RELAIS_TEST_CHROMEDRIVER");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let mut driver = Command::new(program)
            .env("TMPDIR", folder.path())
            .args(["--port=0", "--allowed-ips=127.0.0.1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let port = port(&mut driver);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let session = String::new();
        let site = page.to_owned();
        let mut browser = Self { driver, address, session, site, _folder: folder };
        let made = browser.call("POST", "/session", &capabilities());
        browser.session = format!("/session/{}", made["sessionId"].as_str().unwrap());
        browser.cdp("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": WATCH }));
        browser.go("");
        Some(browser)
    }

    /// Goes to a place of the console, e.g. `#/inbox`.
    pub(crate) fn go(&self, place: &str) {
        let url = format!("{}{place}", self.site);
        self.ask("POST", "/url", &json!({ "url": url }));
    }

    pub(crate) fn reload(&self) {
        self.ask("POST", "/refresh", &json!({}));
    }

    /// Returns the result of a script.
    pub(crate) fn script(&self, script: &str, arguments: &[Value]) -> Value {
        self.ask("POST", "/execute/sync", &json!({ "script": script, "args": arguments }))
    }

    /// Returns the value that a script passes to its last argument, a function.
    pub(crate) fn script_later(&self, script: &str, arguments: &[Value]) -> Value {
        self.ask("POST", "/execute/async", &json!({ "script": script, "args": arguments }))
    }

    /// Returns the text of the page.
    pub(crate) fn text(&self) -> String {
        let text = self.script("return document.body.innerText", &[]);
        text.as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn address_bar(&self) -> String {
        self.script("return location.hash", &[]).as_str().unwrap().to_owned()
    }

    /// Waits until all of these words are on the page.
    pub(crate) fn sees(&self, words: &[&str]) {
        self.until(&format!("{words:?}"), || {
            let text = self.text();
            words.iter().all(|word| text.contains(word)).then_some(())
        });
    }

    /// Presses the button, or follows the link, with exactly these words; waits for it.
    pub(crate) fn press(&self, words: &str) {
        const FIND: &str = "
            const open = document.querySelector('dialog[open]') ?? document;
            return [...open.querySelectorAll('button, a, summary')].find((thing) =>
                thing.innerText.trim() === arguments[0] && !thing.disabled && thing.offsetParent) ?? null";
        self.until(&format!("{words:?} to press"), || {
            let found = self.script(FIND, &[json!(words)]);
            let id = found[ELEMENT].as_str()?;
            // The element may be redrawn or covered at this moment; then it is tried again.
            self.try_ask("POST", &format!("/element/{id}/click"), &json!({})).ok()
        });
    }

    /// Returns true if a button has exactly this label.
    pub(crate) fn offers(&self, words: &str) -> bool {
        let all =
            "return [...document.querySelectorAll('button')].map((one) => one.innerText.trim())";
        self.script(all, &[]).as_array().unwrap().contains(&json!(words))
    }

    /// Writes into the field with this label, in place of what it says.
    pub(crate) fn fill(&self, label: &str, text: &str) {
        const FIND: &str = "
            const open = document.querySelector('dialog[open]') ?? document;
            const label = [...open.querySelectorAll('label')].find((one) => one.textContent.trim() === arguments[0]);
            return label ? document.getElementById(label.htmlFor) : null";
        let id = self.until(&format!("a field {label:?}"), || {
            let found = self.script(FIND, &[json!(label)]);
            found[ELEMENT].as_str().map(str::to_owned)
        });
        self.ask("POST", &format!("/element/{id}/clear"), &json!({}));
        self.ask("POST", &format!("/element/{id}/value"), &json!({ "text": text }));
    }

    /// Chooses from the list with this label.
    pub(crate) fn choose(&self, label: &str, value: &str) {
        const CHOOSE: &str = "
            const label = [...document.querySelectorAll('label')].find((one) => one.textContent.trim() === arguments[0]);
            const list = label && document.getElementById(label.htmlFor);
            if (!list) return false;
            list.value = arguments[1];
            list.dispatchEvent(new Event('change', { bubbles: true }));
            return true";
        self.until(&format!("a list {label:?}"), || {
            (self.script(CHOOSE, &[json!(label), json!(value)]) == true).then_some(())
        });
    }

    /// Types keys at whatever has the focus.
    pub(crate) fn keys(&self, keys: &str) {
        let press = |key: char| {
            let key = key.to_string();
            [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
        };
        let strokes: Vec<Value> = keys.chars().flat_map(press).collect();
        let actions = json!([{ "type": "key", "id": "keyboard", "actions": strokes }]);
        self.ask("POST", "/actions", &json!({ "actions": actions }));
    }

    /// Answers the dialog of a decision: the reason, then the button with these words.
    pub(crate) fn decide(&self, button: &str) {
        self.fill("Reason", "a test in a browser");
        self.press(button);
        self.until("the dialog to close", || {
            (self.script("return document.querySelector('dialog[open]') === null", &[]) == true)
                .then_some(())
        });
    }

    /// Takes the session away, as time does.
    pub(crate) fn forget_session(&self) {
        self.ask("DELETE", "/cookie", &Value::Null);
    }

    /// The handle of this tab.
    pub(crate) fn tab(&self) -> Value {
        self.ask("GET", "/window", &Value::Null)
    }

    pub(crate) fn new_tab(&self) -> Value {
        let made = self.ask("POST", "/window/new", &json!({ "type": "tab" }))["handle"].clone();
        self.switch(&made);
        self.cdp("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": WATCH }));
        made
    }

    pub(crate) fn switch(&self, tab: &Value) {
        self.ask("POST", "/window", &json!({ "handle": tab }));
    }

    /// Returns a screenshot as PNG in Base64.
    pub(crate) fn picture(&self) -> String {
        self.ask("GET", "/screenshot", &Value::Null).as_str().unwrap().to_owned()
    }

    pub(crate) fn resize(&self, width: u32, height: u32) {
        let phone = width < 500;
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone});
        self.cdp("Emulation.setDeviceMetricsOverride", &size);
    }

    fn cdp(&self, command: &str, parameters: &Value) {
        let body = json!({ "cmd": command, "params": parameters });
        self.ask("POST", "/goog/cdp/execute", &body);
    }

    /// Waits for it; says what the page showed if it does not come.
    pub(crate) fn until<T>(&self, what: &str, check: impl Fn() -> Option<T>) -> T {
        let started = Instant::now();
        loop {
            if let Some(found) = check() {
                return found;
            }
            if started.elapsed() > PATIENCE {
                let state = self.script("return [location.hash, window.violations]", &[]);
                panic!("no {what} in time; at {state}:\n{}", self.text());
            }
            std::thread::sleep(CHECK_EVERY);
        }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_ask(method, path, body).unwrap_or_else(|why| panic!("{method} {path}: {why}"))
    }

    fn try_ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let answer = self.call(method, &format!("{}{path}", self.session), body);
        match answer["error"].as_str() {
            Some(error) => Err(format!("{error}: {}", answer["message"])),
            None => Ok(answer),
        }
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        self.exchange(method, path, body).unwrap()
    }

    fn exchange(&self, method: &str, path: &str, body: &Value) -> io::Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all((head + &body).as_bytes())?;
        let mut answer: Value = serde_json::from_slice(&content(stream)?)?;
        Ok(answer["value"].take())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // This ends the browser; nothing may panic here.
        let _ = self.exchange("DELETE", &self.session, &Value::Null);
        let pid = self.driver.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.driver.wait();
    }
}

/// The driver chooses a port and says which.
fn port(driver: &mut Child) -> u16 {
    let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let said = lines.map_while(Result::ok).find_map(|line| {
        let (_, port) = line.split_once("started successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    });
    said.expect("the driver says its port")
}

fn capabilities() -> Value {
    // As root the browser's own sandbox cannot be had; it shows nothing but our own pages here.
    let arguments = [
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--hide-scrollbars",
        "--window-size=1280,900",
    ];
    json!({ "capabilities": { "alwaysMatch": {
        "goog:chromeOptions": { "args": arguments },
        "unhandledPromptBehavior": "ignore",
    } } })
}

/// The body of an answer: the driver may keep the connection open after it.
fn content(stream: TcpStream) -> io::Result<Vec<u8>> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}
