//! `drophammer run --live`: a page on loopback that shows the run while it goes on, and metrics for Prometheus.
//!
//! It listens on 127.0.0.1 only. A request with another name in `Host` is refused, so that a page of another site
//! cannot read it through its own name (DNS rebinding). The stop button sends a token that only the terminal shows. It
//! is behind the `#` of the address, which browsers do not send.

mod events;
mod metrics;
mod request;

pub use events::{of_progress, of_record};

use metrics::Metrics;
use request::{Reply, Request, read};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Events that are kept for a page that is opened later.
const KEPT: usize = 5_000;
/// Events in one answer.
const AT_ONCE: usize = 500;
/// How long a page that was open recently may take to ask for the last events.
const FAREWELL: Duration = Duration::from_millis(2_500);
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// The page.
const PAGE: &str = include_str!("live/page.html");
const SCRIPT: &str = include_str!("live/page.js");
const STYLE: &str = include_str!("live/page.css");

/// A socket for the page, bound before the process leaves the host's network.
pub struct Waiting {
    listener: TcpListener,
    port: u16,
    token: String,
}

/// The page of a run.
pub struct Live {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Notified when a page has asked for events.
    asked: Condvar,
    port: u16,
    token: String,
    stop: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    /// Events with their numbers, from 1.
    events: VecDeque<(u64, Value)>,
    last: u64,
    /// Number of the last event that a page has, and when it asked.
    seen: u64,
    asked_at: Option<Instant>,
    metrics: Metrics,
}

impl Waiting {
    /// Listens on this port of loopback; 0 for any free one.
    ///
    /// # Errors
    /// Errors of the socket, and of the source of random numbers.
    pub fn on(port: u16) -> io::Result<Waiting> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let port = listener.local_addr()?.port();
        let mut random = [0; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
        let token = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Waiting { listener, port, token })
    }

    /// Address of the page. `secret`: with the token that its stop button needs.
    pub fn address(&self, secret: bool) -> String {
        let token = if secret { format!("#{}", self.token) } else { String::new() };
        format!("http://127.0.0.1:{}/{token}", self.port)
    }

    /// Serves the page from a separate thread. Its stop button sets `stop`.
    ///
    /// # Errors
    /// No further thread can be started.
    pub fn serve(self, stop: Arc<AtomicBool>) -> io::Result<Live> {
        let state = Mutex::new(State::default());
        let shared = Arc::new(Shared { state, asked: Condvar::new(), port: self.port, token: self.token, stop });
        let served = shared.clone();
        let listener = self.listener;
        std::thread::Builder::new().name("live".into()).spawn(move || {
            // One after the other: the page sends a request once a second, and each connection has a time limit.
            for connection in listener.incoming().flatten() {
                let _ = served.answer(&connection);
            }
        })?;
        Ok(Live { shared })
    }
}

impl Live {
    /// Adds an event for the page.
    pub fn tell(&self, event: Value) {
        let mut state = self.shared.lock();
        state.metrics.note(&event);
        state.last += 1;
        let number = state.last;
        state.events.push_back((number, event));
        if state.events.len() > KEPT {
            state.events.pop_front();
        }
    }

    /// Waits for a moment until an open page has the last event.
    pub fn finish(&self) {
        let state = self.shared.lock();
        let is_open = state.asked_at.is_some_and(|at| at.elapsed() < FAREWELL);
        if is_open {
            let waits = |state: &mut State| state.seen < state.last;
            drop(self.shared.asked.wait_timeout_while(state, FAREWELL, waits));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, connection: &TcpStream) -> io::Result<()> {
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        let deadline = Instant::now() + PATIENCE;
        let reply = match read(connection, deadline)? {
            Ok(request) => self.reply(&request),
            Err(reply) => reply,
        };
        (&*connection).write_all(&reply.bytes())
    }

    /// The reply to a request.
    fn reply(&self, request: &Request) -> Reply {
        let own = [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)];
        let host = request.header("host").unwrap_or_default();
        if !own.iter().any(|own| own == host) {
            return Reply::plain(403, "this page answers to its own address alone");
        }
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/") => Reply::new(200, "text/html; charset=utf-8", PAGE),
            ("GET", "/page.js") => Reply::new(200, "text/javascript; charset=utf-8", SCRIPT),
            ("GET", "/page.css") => Reply::new(200, "text/css; charset=utf-8", STYLE),
            ("GET", "/events") => self.events(request.number("after")),
            ("GET", "/metrics") => {
                let text = self.lock().metrics.text();
                Reply::new(200, "text/plain; version=0.0.4; charset=utf-8", &text)
            }
            ("POST", "/stop") => {
                let foreign = |origin: &str| !own.iter().any(|own| origin == format!("http://{own}"));
                if request.header("origin").is_some_and(foreign) {
                    return Reply::plain(403, "only its own page may stop the run");
                }
                let given = request.header("x-drophammer-token").unwrap_or_default();
                if !same(given.as_bytes(), self.token.as_bytes()) {
                    return Reply::plain(403, "the token is wrong; open the address that the terminal shows");
                }
                self.stop.store(true, Ordering::Relaxed);
                Reply::plain(200, "the run ends")
            }
            (_, "/" | "/page.js" | "/page.css" | "/events" | "/metrics" | "/stop") => {
                Reply::plain(405, "this method is not for this path")
            }
            _ => Reply::plain(404, "there is no such page"),
        }
    }

    /// Events after number `after`.
    fn events(&self, after: u64) -> Reply {
        let mut state = self.lock();
        let new = state.events.iter().filter(|(number, _)| *number > after).take(AT_ONCE);
        let (mut last, mut events) = (after, Vec::new());
        for (number, event) in new {
            last = *number;
            events.push(event.clone());
        }
        state.seen = last;
        state.asked_at = Some(Instant::now());
        drop(state);
        self.asked.notify_all();
        Reply::new(200, "application/json", &json!({ "last": last, "events": events }).to_string())
    }
}

/// Whether they are equal, in a time that depends only on the length.
fn same(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b));
    a.len() == b.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `text` to the page and returns the whole answer.
    fn ask(port: u16, text: &str) -> String {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        connection.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        // A refusal may close the connection before everything was read.
        let _ = connection.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn the_page_tells_what_happens_and_stops_for_its_token_alone() {
        let waiting = Waiting::on(0).unwrap();
        let (port, token) = (waiting.port, waiting.token.clone());
        assert!(waiting.address(true).ends_with(&format!("/#{token}")) && !waiting.address(false).contains(&token));
        let stop = Arc::new(AtomicBool::new(false));
        let live = waiting.serve(stop.clone()).unwrap();
        live.tell(json!({"event": "note", "text": "</script>"}));
        let get = |path: &str| ask(port, &format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"));
        assert!(get("/").starts_with("HTTP/1.1 200 ") && get("/page.js").contains("200"));
        let events = |after: u64| {
            let answer = get(&format!("/events?after={after}"));
            serde_json::from_str::<Value>(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
        };
        let note = json!({"event": "note", "text": "</script>"});
        assert_eq!(events(0), json!({"last": 1, "events": [note]}));
        assert_eq!(events(1), json!({"last": 1, "events": []}));
        assert!(get("/metrics").contains("drophammer_trials_total"));
        assert!(get("/etc/passwd").starts_with("HTTP/1.1 404 "));
        // The page has the last event, so there is nothing to wait for.
        live.finish();

        let post =
            |headers: &str| ask(port, &format!("POST /stop HTTP/1.1\r\nHost: localhost:{port}\r\n{headers}\r\n"));
        let refused = [
            String::new(),
            format!("X-Drophammer-Token: {}\r\n", "0".repeat(32)),
            format!("X-Drophammer-Token: {}\r\n", &token[1..]),
            format!("Origin: http://example.org\r\nX-Drophammer-Token: {token}\r\n"),
        ];
        for headers in refused {
            assert!(post(&headers).starts_with("HTTP/1.1 403 "), "{headers}");
        }
        let foreign = ask(port, &format!("GET /events HTTP/1.1\r\nHost: example.org:{port}\r\n\r\n"));
        assert!(foreign.starts_with("HTTP/1.1 403 "), "{foreign}");
        assert!(get("/stop").starts_with("HTTP/1.1 405 ") && !stop.load(Ordering::Relaxed));
        let own = format!("Origin: http://127.0.0.1:{port}\r\nX-Drophammer-Token: {token}\r\n");
        assert!(post(&own).starts_with("HTTP/1.1 200 ") && stop.load(Ordering::Relaxed));
    }

    #[test]
    fn what_is_no_request_is_refused_and_harms_nothing() {
        let waiting = Waiting::on(0).unwrap();
        let port = waiting.port;
        let _live = waiting.serve(Arc::default()).unwrap();
        let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100_000));
        for text in ["\r\n\r\n", "GET\r\n\r\n", "GET / SPDY\r\n\r\n", "GET / HTTP/1.1\r\nnonsense\r\n\r\n", &long] {
            let answer = ask(port, text);
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{text:.40}: {answer}");
        }
        let good = ask(port, &format!("GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"));
        assert!(good.starts_with("HTTP/1.1 200 "), "{good}");
    }

    #[test]
    fn tokens_are_compared_as_a_whole() {
        assert!(same(b"abc", b"abc") && !same(b"abc", b"abd") && !same(b"abc", b"ab") && !same(b"", b"a"));
    }
}
