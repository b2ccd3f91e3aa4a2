//! A headless Chromium, controlled over a pair of pipes (DevTools protocol). Messages are JSON, each followed by a zero byte.

use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Names of the program.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Time for an answer, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A page in a browser of its own.
pub struct Page {
    browser: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    last: u64,
    session: Option<String>,
    /// Texts of the questions that the page has asked; each was answered yes.
    pub asked: Vec<String>,
}

impl Page {
    /// Opens `address`; `folder` is for the browser's files. `None` if no Chromium is installed.
    pub fn open(address: &str, folder: &Path) -> Option<Page> {
        let installed = |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
        let name = NAMES.iter().find(installed)?;
        // The browser reads from descriptor 3 and writes to 4.
        let mut browser = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null", name])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", folder.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(folder.join("browser.log")).unwrap())
            .spawn()
            .unwrap();
        let (to, mut out) = (browser.stdin.take().unwrap(), BufReader::new(browser.stdout.take().unwrap()));
        let (message, from) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            while out.read_until(0, &mut bytes).is_ok_and(|read| read > 0) {
                let text = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
                if message.send(serde_json::from_slice(text).unwrap()).is_err() {
                    return;
                }
                bytes.clear();
            }
        });
        let mut page = Page { browser, to, from, last: 0, session: None, asked: Vec::new() };
        let target = page.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = page.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        page.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        page.call("Page.enable", json!({}));
        page.call("Page.navigate", json!({"url": address}));
        Some(page)
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = session.clone().into();
        }
        write!(self.to, "{message}\0").unwrap();
        self.last
    }

    /// The result of a method. Questions of the page are answered yes in the meantime.
    fn call(&mut self, method: &str, params: Value) -> Value {
        let number = self.send(method, params);
        loop {
            let message = self.from.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("no answer to {method}: {e}"));
            if message["method"] == "Page.javascriptDialogOpening" {
                self.asked.push(message["params"]["message"].as_str().unwrap().to_owned());
                self.send("Page.handleJavaScriptDialog", json!({"accept": true}));
            }
            if message["id"] == number {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    /// The value of an expression; for a promise, the value to which it resolves.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until the element with this `id` has a text for which `condition` (JavaScript over `text`) is true; returns the text.
    pub fn await_text(&mut self, id: &str, condition: &str) -> String {
        let look = format!(
            "new Promise((done) => {{ const look = () => {{ const it = document.getElementById('{id}'); \
             const text = it ? it.textContent : ''; if ({condition}) done(text); else setTimeout(look, 20); }}; look(); }})"
        );
        self.evaluate(&look).as_str().unwrap().to_owned()
    }

    /// Presses the mouse on the middle of the element with this `id`.
    pub fn click(&mut self, id: &str) {
        let place = self.evaluate(&format!(
            "(() => {{ const at = document.getElementById('{id}').getBoundingClientRect(); \
             return [at.x + at.width / 2, at.y + at.height / 2, at.width]; }})()"
        ));
        assert!(place[2].as_f64().unwrap() > 0.0, "{id} is shown: {place}");
        for kind in ["mousePressed", "mouseReleased"] {
            let params = json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", params);
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // The browser ends when its pipe closes. Kill it in case it does not, and always wait for it.
        self.send_close();
        let _ = self.browser.wait();
    }
}

impl Page {
    fn send_close(&mut self) {
        self.session = None;
        self.last += 1;
        let message = json!({"id": self.last, "method": "Browser.close"});
        if write!(self.to, "{message}\0").is_err() || self.from.iter().all(|answer| answer["id"] != self.last) {
            let _ = self.browser.kill();
        }
    }
}
