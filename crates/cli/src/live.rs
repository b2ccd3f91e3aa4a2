//! `drophammer run --live`: a page on loopback that shows the run while it runs, and metrics for Prometheus.
//!
//! It listens on 127.0.0.1 only. It refuses a request whose `Host` does not name loopback, so that a page of another
//! site cannot read it through its own name (DNS rebinding). The stop button sends a token. Only the terminal shows it,
//! after the `#` of the address, which browsers do not send to a server.

mod events;
mod metrics;
mod rates;
mod request;

pub use events::{of_progress, of_record};
pub use rates::{Rates, Trial};

use metrics::Metrics;
use request::{Reply, Request, read, write};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of events that are kept for a page that is opened later.
const KEPT: usize = 5_000;
/// Maximum number of rates that are kept: one per second, for the last five minutes.
const KEPT_RATES: usize = 300;
/// Maximum number of events in one answer.
const AT_ONCE: usize = 500;
/// Time limit for an open page to ask for the last events.
const FAREWELL: Duration = Duration::from_millis(2_500);
/// Time limit for a connection to send its request, and then to receive the reply.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum number of connections that are answered at the same time. A page has one.
const AT_A_TIME: usize = 32;

/// Names of loopback in `Host`.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];
/// The answer to a request for any other name.
const FOREIGN: &str = "this page answers only to 127.0.0.1, localhost and [::1]; open http://127.0.0.1 with the port \
                       that the terminal shows, or with the local port of the SSH forward";

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
#[derive(Clone)]
pub struct Live {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Notified when a page has asked for events.
    asked: Condvar,
    token: String,
    stop: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    /// Events with their numbers, from 1.
    events: VecDeque<(u64, Value)>,
    /// Rates of trials with their numbers.
    rates: VecDeque<(u64, Value)>,
    last: u64,
    /// Number of the last event that a page received, and the time when it asked.
    seen: u64,
    asked_at: Option<Instant>,
    metrics: Metrics,
}

impl Waiting {
    /// Listens on this port of loopback; 0 for any free port.
    pub fn on(port: u16) -> io::Result<Waiting> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let port = listener.local_addr()?.port();
        let mut random = [0; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
        let token = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Waiting { listener, port, token })
    }

    /// Address of the page; `secret` adds the token that its stop button needs.
    pub fn address(&self, secret: bool) -> String {
        let token = if secret { format!("#{}", self.token) } else { String::new() };
        format!("http://127.0.0.1:{}/{token}", self.port)
    }

    /// Serves the page, with one thread per connection, so that no connection waits for another. Its stop button sets
    /// `stop`.
    pub fn serve(self, stop: Arc<AtomicBool>) -> io::Result<Live> {
        let state = Mutex::new(State::default());
        let shared = Arc::new(Shared { state, asked: Condvar::new(), token: self.token, stop });
        let served = shared.clone();
        let listener = self.listener;
        std::thread::Builder::new().name("live".into()).spawn(move || {
            let places = Places::new(AT_A_TIME);
            for connection in listener.incoming().flatten() {
                let (place, served) = (places.take(), served.clone());
                let answer = move || {
                    let _place = place;
                    let _ = served.answer(&connection);
                };
                // If no thread can be started, the connection is closed, and the page asks again.
                let _ = std::thread::Builder::new().name("live page".into()).spawn(answer);
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
        let is_rates = event["event"] == "rates";
        let (kept, most) = if is_rates { (&mut state.rates, KEPT_RATES) } else { (&mut state.events, KEPT) };
        kept.push_back((number, event));
        if kept.len() > most {
            kept.pop_front();
        }
    }

    /// Gives an open page some time to get the last event.
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
        let deadline = Instant::now() + PATIENCE;
        let reply = match read(connection, deadline)? {
            Ok(request) => self.reply(&request),
            Err(reply) => reply,
        };
        write(connection, &reply.bytes(), Instant::now() + PATIENCE)
    }

    fn reply(&self, request: &Request) -> Reply {
        let host = request.header("host").unwrap_or_default();
        if !is_loopback(host) {
            return Reply::plain(403, FOREIGN);
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
                let own = format!("http://{host}");
                if request.header("origin").is_some_and(|origin| origin != own) {
                    let text = format!("only the run's own page can stop it; open {own}/ and use its button");
                    return Reply::plain(403, &text);
                }
                let given = request.header("x-drophammer-token").unwrap_or_default();
                if !same(given.as_bytes(), self.token.as_bytes()) {
                    return Reply::plain(403, "the token is wrong; open the address that the terminal shows");
                }
                self.stop.store(true, Ordering::Relaxed);
                Reply::plain(200, "the run is ending")
            }
            (_, "/" | "/page.js" | "/page.css" | "/events" | "/metrics" | "/stop") => {
                Reply::plain(405, "this path does not support this method")
            }
            _ => Reply::plain(404, "there is no such page"),
        }
    }

    /// Events after number `after`.
    fn events(&self, after: u64) -> Reply {
        let mut state = self.lock();
        let newer = |(number, _): &&(u64, Value)| *number > after;
        let mut new: Vec<_> = state.events.iter().filter(newer).take(AT_ONCE).collect();
        new.extend(state.rates.iter().filter(newer));
        new.sort_by_key(|(number, _)| *number);
        new.truncate(AT_ONCE);
        let last = new.last().map_or(after, |(number, _)| *number);
        let events: Vec<Value> = new.into_iter().map(|(_, event)| event.clone()).collect();
        state.seen = last;
        state.asked_at = Some(Instant::now());
        drop(state);
        self.asked.notify_all();
        Reply::new(200, "application/json", &json!({ "last": last, "events": events }).to_string())
    }
}

/// True if the value of `Host` names loopback, with any port: browsers omit port 80, and an SSH forward may have
/// another port than the run.
fn is_loopback(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    let is_port = |text: &str| text.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    LOOPBACK.iter().filter_map(|name| host.strip_prefix(*name)).any(|rest| rest.is_empty() || is_port(rest))
}

/// Compares in a time that depends only on the length of the values.
fn same(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b));
    a.len() == b.len() && std::hint::black_box(differences) == 0
}

/// Limits the number of connections that are answered at the same time.
struct Places {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A taken place. Dropping it frees the place.
struct Place(Arc<Places>);

impl Places {
    fn new(places: usize) -> Arc<Places> {
        Arc::new(Places { free: Mutex::new(places), freed: Condvar::new() })
    }

    /// Waits until a place is free, and takes it.
    fn take(self: &Arc<Places>) -> Place {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Place(self.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Sends `text` to the page and returns the whole answer.
    fn ask(port: u16, text: &str) -> String {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        connection.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        // A refusal may close the connection before everything was read.
        let _ = connection.read_to_string(&mut answer);
        answer
    }

    /// A page, and its port.
    fn served() -> (u16, Live) {
        let waiting = Waiting::on(0).unwrap();
        (waiting.port, waiting.serve(Arc::default()).unwrap())
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
        // Returns immediately, because the page has the last event.
        live.finish();

        let post =
            |headers: &str| ask(port, &format!("POST /stop HTTP/1.1\r\nHost: localhost:{port}\r\n{headers}\r\n"));
        let refused = [
            String::new(),
            format!("X-Drophammer-Token: {}\r\n", "0".repeat(32)),
            format!("X-Drophammer-Token: {}\r\n", &token[1..]),
            format!("Origin: http://example.org\r\nX-Drophammer-Token: {token}\r\n"),
            // A page of another server on this machine makes these requests.
            format!("Origin: http://localhost:1\r\nX-Drophammer-Token: {token}\r\n"),
        ];
        for headers in refused {
            assert!(post(&headers).starts_with("HTTP/1.1 403 "), "{headers}");
        }
        let foreign = ask(port, &format!("GET /events HTTP/1.1\r\nHost: example.org:{port}\r\n\r\n"));
        assert!(foreign.starts_with("HTTP/1.1 403 "), "{foreign}");
        assert!(get("/stop").starts_with("HTTP/1.1 405 ") && !stop.load(Ordering::Relaxed));
        let own = format!("Origin: http://localhost:{port}\r\nX-Drophammer-Token: {token}\r\n");
        assert!(post(&own).starts_with("HTTP/1.1 200 ") && stop.load(Ordering::Relaxed));
    }

    #[test]
    fn the_page_has_its_address_without_a_port_and_behind_a_forward_too() {
        // Browsers omit port 80; `ssh -L 9090:127.0.0.1:8080` gives the page another port.
        for host in ["127.0.0.1", "localhost", "127.0.0.1:9090", "localhost:9090", "[::1]:9090"] {
            let waiting = Waiting::on(0).unwrap();
            let (port, token) = (waiting.port, waiting.token.clone());
            let stop = Arc::new(AtomicBool::new(false));
            let _live = waiting.serve(stop.clone()).unwrap();
            let page = ask(port, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert!(page.starts_with("HTTP/1.1 200 "), "{host}: {page:.200}");
            let post = |origin: &str| {
                let head = format!("POST /stop HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{origin}\r\n");
                ask(port, &format!("{head}X-Drophammer-Token: {token}\r\n\r\n"))
            };
            let foreign = post("127.0.0.1:7");
            assert!(foreign.starts_with("HTTP/1.1 403 ") && !stop.load(Ordering::Relaxed), "{host}: {foreign}");
            assert!(foreign.contains(&format!("open http://{host}/ ")), "{host}: {foreign}");
            assert!(post(host).starts_with("HTTP/1.1 200 ") && stop.load(Ordering::Relaxed), "{host}");
        }
    }

    #[test]
    fn a_name_that_does_not_mean_loopback_is_refused_with_the_remedy() {
        for host in ["127.0.0.1", "127.0.0.1:80", "LOCALHOST:8080", "localhost:", "[::1]", "[::1]:1"] {
            assert!(is_loopback(host), "{host}");
        }
        let foreign = [
            "",
            ":80",
            "example.org",
            "127.0.0.1.example.org",
            "localhost.example.org:80",
            "127.0.0.1:80.example.org",
            "localhost:80:80",
            "[::1].example.org",
            "127.0.0.10",
            "a@localhost",
        ];
        for host in foreign {
            assert!(!is_loopback(host), "{host}");
        }
        let (port, _live) = served();
        let answer = ask(port, &format!("GET / HTTP/1.1\r\nHost: tester.example.org:{port}\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert!(answer.contains("open http://127.0.0.1 with the port"), "{answer}");
    }

    #[test]
    fn what_is_no_request_is_refused_and_harms_nothing() {
        let (port, _live) = served();
        let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100_000));
        for text in ["\r\n\r\n", "GET\r\n\r\n", "GET / SPDY\r\n\r\n", "GET / HTTP/1.1\r\nnonsense\r\n\r\n", &long] {
            let answer = ask(port, text);
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{text:.40}: {answer}");
        }
        let good = ask(port, &format!("GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"));
        assert!(good.starts_with("HTTP/1.1 200 "), "{good}");
    }

    #[test]
    fn a_page_that_is_stuck_keeps_nobody_waiting() {
        let (port, live) = served();
        // This is more than the kernel buffers for a connection.
        (0..AT_ONCE).for_each(|_| live.tell(json!({"event": "note", "text": "x".repeat(50_000)})));
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        // One connection sends nothing, the other asks and does not read.
        let (mut silent, mut stuck) = (connect(), connect());
        write!(stuck, "GET /events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n").unwrap();
        let answer = ask(port, &format!("GET /events?after=499 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("}]}"), "{answer:.200}");
        // The silent connection is still open: it was not closed to make room.
        silent.set_nonblocking(true).unwrap();
        assert_eq!(silent.read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // Finally, both are closed. The other one received only what the kernel had buffered for it.
        silent.set_nonblocking(false).unwrap();
        assert_eq!(silent.read(&mut [0; 1]).unwrap_or(0), 0);
        while Arc::strong_count(&live.shared) > 2 {
            std::thread::yield_now();
        }
        let mut held = Vec::new();
        let _ = stuck.read_to_end(&mut held);
        assert!(held.starts_with(b"HTTP/1.1 200 ") && held.len() < AT_ONCE * 50_000, "{}", held.len());
        assert!(ask(port, &format!("GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n")).contains("200 OK"));
    }

    #[test]
    fn rates_do_not_displace_other_events() {
        let live = Waiting::on(0).unwrap().serve(Arc::default()).unwrap();
        live.tell(json!({"event": "started"}));
        (0..KEPT).for_each(|n| live.tell(json!({"event": "rates", "elapsed_s": n})));
        live.tell(json!({"event": "trial"}));
        let state = live.shared.lock();
        let of = |kept: &VecDeque<(u64, Value)>| (kept.len(), kept[0].0, kept[kept.len() - 1].0);
        let last = KEPT as u64 + 2;
        assert_eq!(
            (of(&state.events), of(&state.rates)),
            ((2, 1, last), (KEPT_RATES, last - KEPT_RATES as u64, last - 1))
        );
        drop(state);
        // Events are in the order of their numbers.
        let body = String::from_utf8(live.shared.events(0).bytes()).unwrap();
        let body: Value = serde_json::from_str(body.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        let events = body["events"].as_array().unwrap();
        assert_eq!((events.len(), &body["last"]), (2 + KEPT_RATES, &json!(last)));
        assert_eq!((&events[0]["event"], &events[1 + KEPT_RATES]["event"]), (&json!("started"), &json!("trial")));
    }

    #[test]
    fn tokens_are_compared_as_a_whole() {
        assert!(same(b"abc", b"abc") && !same(b"abc", b"abd") && !same(b"abc", b"ab") && !same(b"", b"a"));
    }

    #[test]
    fn a_place_is_given_again_when_it_is_free() {
        let places = Places::new(1);
        let first = places.take();
        let (took, taken) = std::sync::mpsc::channel();
        let thread = std::thread::spawn({
            let places = places.clone();
            move || {
                let second = places.take();
                took.send(()).unwrap();
                second
            }
        });
        assert!(taken.try_recv().is_err(), "it waits");
        drop(first);
        taken.recv().unwrap();
        drop(thread.join().unwrap());
        assert_eq!(*places.free.lock().unwrap(), 1);
    }
}
