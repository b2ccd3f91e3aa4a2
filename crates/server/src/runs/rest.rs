//! Paths of runs, and who may use them.

use super::follow::{Begin, Follower};
use super::refusal::Refusal;
use super::{Run, Runs, Shared, files};
use crate::api::Failure;
use crate::http::{json, status};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::File;
use std::io::BufReader;
use std::net::IpAddr;
use std::sync::Arc;

/// Where runs are.
const PATH: &str = "/x-drophammer/run";
/// Largest order in bytes: a suite of 1 MiB, with escapes.
const MOST_ORDER: usize = 8 << 20;
/// Most values of an option in an order.
const MOST_VALUES: usize = 1_000;

/// What a client wants to run: a suite, and options of `drophammer run` by their names.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    /// Text of the suite.
    suite: String,
    #[serde(default)]
    dut: Words,
    #[serde(default)]
    test: Words,
    #[serde(default)]
    set: Words,
    #[serde(default)]
    var: Words,
    profile: Option<String>,
    rounds: Option<u32>,
    time: Option<String>,
    seed: Option<u64>,
    #[serde(default)]
    busy_host: bool,
}

/// One word, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Words {
    One(String),
    Several(Vec<String>),
}

impl Default for Words {
    fn default() -> Words {
        Words::Several(Vec::new())
    }
}

impl Words {
    fn list(&self) -> &[String] {
        match self {
            Words::One(word) => std::slice::from_ref(word),
            Words::Several(words) => words,
        }
    }
}

impl Order {
    /// Reads an order: YAML is the suite itself.
    fn read(kind: &str, body: &[u8]) -> Result<Order, Failure> {
        let order = match kind {
            "application/yaml" | "application/x-yaml" => {
                let suite = str::from_utf8(body).map_err(|_| invalid("the suite is not text in UTF-8"))?;
                Order { suite: suite.to_owned(), ..Order::default() }
            }
            "application/json" => {
                serde_json::from_slice(body).map_err(|e| invalid(&format!("the order is wrong: {e}")))?
            }
            _ => {
                let text = "send the suite as application/yaml, or as `suite` of an object as application/json";
                return Err(Failure { code: 415, ..invalid(text) });
            }
        };
        let values = [&order.dut, &order.test, &order.set, &order.var].map(|words| words.list().len());
        if values.iter().any(|values| *values > MOST_VALUES) {
            return Err(invalid(&format!("an option has more than {MOST_VALUES} values")));
        }
        Ok(order)
    }

    /// The arguments of `drophammer run`, each in one word, so that no value can become another option.
    fn arguments(&self) -> Vec<String> {
        let lists = [("dut", &self.dut), ("test", &self.test), ("set", &self.set), ("var", &self.var)];
        let mut words: Vec<String> = lists
            .iter()
            .flat_map(|(name, words)| words.list().iter().map(move |word| format!("--{name}={word}")))
            .collect();
        let single = [
            ("profile", self.profile.clone()),
            ("rounds", self.rounds.map(|rounds| rounds.to_string())),
            ("time", self.time.clone()),
            ("seed", self.seed.map(|seed| seed.to_string())),
        ];
        words.extend(single.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value?))));
        words.extend(self.busy_host.then(|| "--busy-host".to_owned()));
        words
    }
}

fn refusal(why: impl Into<Refusal>) -> Response {
    let why = why.into();
    json(status(why.code), &why.to_json())
}

/// The answer to a request that is refused before it is read.
pub fn refuse(failure: &Failure) -> Response {
    refusal(failure.clone())
}

fn invalid(text: &str) -> Failure {
    Failure::validation(vec![text.to_owned()])
}

impl Runs {
    /// The paths of runs.
    pub fn routes(&self) -> Router {
        let shared = self.shared.clone();
        Router::new()
            .route(PATH, post(start).get(list))
            .route(&format!("{PATH}/{{id}}"), get(show).delete(stop))
            .route(&format!("{PATH}/{{id}}/events"), get(follow))
            .route(&format!("{PATH}/{{id}}/{{*file}}"), get(file))
            .layer(from_fn_with_state(shared.clone(), refuse_other_sites))
            .with_state(shared)
    }
}

/// Refuses requests that a page of another site made a browser send: by a link or a form (`Origin`), or through a name of its own
/// that leads here (DNS rebinding). On loopback, a suite may do more than elsewhere, so only addresses and `localhost` lead there.
async fn refuse_other_sites(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    match other_site(request.headers(), request.uri(), shared.on_loopback) {
        Some(why) => refusal(Failure { code: 403, ..invalid(&why) }),
        None => next.run(request).await,
    }
}

fn other_site(headers: &HeaderMap, uri: &Uri, on_loopback: bool) -> Option<String> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = uri.authority().map(|authority| authority.as_str()).or(text(header::HOST)).unwrap_or_default();
    if let Some(origin) = text(header::ORIGIN)
        && origin.split_once("://").is_none_or(|(_, site)| !site.eq_ignore_ascii_case(host))
    {
        return Some("this request comes from a page of another site".into());
    }
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|digit| digit.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    let is_plain = name.is_empty() || name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok();
    (on_loopback && !is_plain).then(|| format!("this server is not called `{name}`; use its address"))
}

/// Runs work that may block, and turns a failure into its answer.
async fn blocking<E: Into<Refusal> + Send + 'static>(
    work: impl FnOnce() -> Result<Response, E> + Send + 'static,
) -> Response {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_or_else(|e| refusal(Failure::internal(e)), |answer| answer.unwrap_or_else(refusal))
}

async fn start(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let order = async {
        let (body, _room) = shared.room.body(request, MOST_ORDER).await?;
        Order::read(&kind, &body)
    };
    let order = match order.await {
        Ok(order) => order,
        Err(failure) => return refusal(failure),
    };
    // The run begins even if the client does not wait for the answer.
    blocking(move || {
        let id = shared.start(&order.suite, &order.arguments())?;
        let place = format!("{PATH}/{id}");
        let value = json!({"id": id, "events": format!("{place}/events"), "report": format!("{place}/report.html")});
        Ok::<_, Refusal>(([(header::LOCATION, place)], json(StatusCode::ACCEPTED, &value)).into_response())
    })
    .await
}

async fn list(State(shared): State<Arc<Shared>>) -> Response {
    blocking(move || {
        let known: Vec<_> = shared.known().iter().cloned().collect();
        let runs: Vec<Value> = known.iter().map(|(id, run)| state(id, &**run)).collect();
        Ok::<_, Failure>(json(StatusCode::OK, &json!({"runs": runs})))
    })
    .await
}

/// What a client can always ask of a run.
fn state(id: &str, run: &dyn Run) -> Value {
    let end = run.ended();
    json!({
        "id": id,
        "state": if end.is_some() { "ended" } else { "running" },
        "exit": end.map(|end| json!({"code": end.code, "meaning": end.meaning})),
    })
}

/// What a client reads of the report: the rest is skipped without taking memory.
#[derive(Deserialize)]
struct Report {
    ranking: Ranking,
    problems: Value,
}

#[derive(Deserialize)]
struct Ranking {
    figures: Value,
}

async fn show(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Response {
    blocking(move || {
        let run = shared.find(&id)?;
        let mut value = state(&id, &*run);
        // The report is written last, so that before the end it may be incomplete.
        let report = value["exit"].is_object().then(|| File::open(run.folder().join("report.json")).ok()).flatten();
        if let Some(report) = report {
            let read = serde_json::from_reader(BufReader::new(report));
            let Report { ranking, problems } = read.map_err(|e| Failure::internal(format!("report.json: {e}")))?;
            (value["figures"], value["problems"]) = (ranking.figures, problems);
        }
        Ok::<_, Failure>(json(StatusCode::OK, &value))
    })
    .await
}

async fn stop(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Response {
    blocking(move || {
        let run = shared.find(&id)?;
        if run.ended().is_none() {
            run.stop().map_err(Failure::internal)?;
        }
        Ok::<_, Failure>(json(StatusCode::ACCEPTED, &state(&id, &*run)))
    })
    .await
}

pub(super) async fn follow(State(shared): State<Arc<Shared>>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    blocking(move || {
        let run = shared.find(&id)?;
        let after = match headers.get("last-event-id") {
            None => 0,
            Some(id) => {
                let number = id.to_str().ok().and_then(|id| id.trim().parse().ok());
                number.ok_or_else(|| invalid("Last-Event-ID is the `id` of an event"))?
            }
        };
        let place = shared.followers.clone().try_acquire_owned().map_err(|_| Failure {
            code: 503,
            ..Failure::internal("too many clients follow runs; close some of them")
        })?;
        Ok::<_, Failure>(match Follower::begin(run, after, place).map_err(Failure::internal)? {
            Begin::At(follower) => {
                let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
                (headers, Body::from_stream(follower.events())).into_response()
            }
            // Then a browser does not try again.
            Begin::Over => StatusCode::NO_CONTENT.into_response(),
            Begin::Unknown(events) => {
                return Err(invalid(&format!("Last-Event-ID: there is no event {after} yet, only {events}")));
            }
        })
    })
    .await
}

async fn file(State(shared): State<Arc<Shared>>, Path((id, path)): Path<(String, String)>) -> Response {
    blocking(move || {
        let run = shared.find(&id)?;
        Ok::<_, Failure>(files::send(files::open(run.folder(), &path)?, &path))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_a_suite_or_an_object_and_values_are_no_options() {
        let read = |kind: &str, body: &str| Order::read(kind, body.as_bytes()).map_err(|failure| failure.code);
        assert_eq!(read("application/yaml", "suite: x").unwrap().suite, "suite: x");
        let body = r#"{"suite": "s", "dut": "--detach", "set": ["a.b=1", "c.d=2"], "rounds": 3, "busy_host": true, "profile": "x y"}"#;
        let words = read("application/json", body).unwrap().arguments();
        let expected = ["--dut=--detach", "--set=a.b=1", "--set=c.d=2", "--profile=x y", "--rounds=3", "--busy-host"];
        assert_eq!(words, expected);
        let many = format!(r#"{{"suite": "s", "dut": [{}"x"]}}"#, "\"x\",".repeat(MOST_VALUES));
        for (kind, body, code) in [
            ("application/json", "", 400),
            ("application/json", "{}", 400),
            ("application/json", r#"{"suite": 7}"#, 400),
            ("application/json", r#"{"suite": "s", "out": "/etc"}"#, 400),
            ("application/json", &many, 400),
            ("text/plain", "suite: x", 415),
            ("application/x-www-form-urlencoded", "suite: x", 415),
            ("", "suite: x", 415),
        ] {
            assert_eq!(read(kind, body).err(), Some(code), "{kind}: {body:.50}");
        }
        assert_eq!(Order::read("application/yaml", b"\xff").err().map(|failure| failure.code), Some(400));
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let refused = |host: &str, origin: Option<&str>, on_loopback: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            other_site(&headers, &Uri::from_static("/x-drophammer/run"), on_loopback).is_some()
        };
        for host in ["127.0.0.1:8443", "localhost", "LOCALHOST:80", "[::1]:8443", "[::1]", "192.0.2.1:1"] {
            assert!(!refused(host, None, true) && !refused(host, Some(&format!("https://{host}")), true), "{host}");
        }
        for host in ["example.org", "example.org:8443", "localhost.example.org", "127.0.0.1.example.org:80"] {
            assert!(refused(host, None, true) && !refused(host, None, false), "{host}");
        }
        for origin in ["null", "http://example.org", "https://127.0.0.1:1", ""] {
            assert!(refused("127.0.0.1:8443", Some(origin), false), "{origin}");
        }
    }
}
