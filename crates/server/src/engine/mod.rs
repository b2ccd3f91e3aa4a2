//! The thread of the rig: it drives ports, devices and traffic, and carries out calls in between.
//!
//! A call waits for at most [`TURN`], unless the call before it waits for something: for a gateway or another host to answer, or for
//! frames in the DUT when traffic ends.

mod action;
mod answers;
mod bench;
mod bgp_action;
mod capabilities;
mod captures;
mod change;
mod control;
mod convergence;
mod counts;
mod elsewhere;
mod gateways;
mod lsas;
mod lsps;
mod orders;
mod prefixes;
mod rates;
mod routers;
mod row;
mod stream;
mod tagged;
#[cfg(test)]
mod tests;
mod traffic;
mod windows;
#[cfg(test)]
mod wire;

use crate::api::{Answer, Call, Failure, Request};
use crate::claims::Claims;
use crate::model::Config;
use crate::server::Options;
use bench::Bench;
use capabilities::{VERSIONS, capabilities};
use drophammer_model::quantity::show_duration;
use drophammer_port::{Backend, SystemClock, af_xdp};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Receiver;
use tokio::sync::mpsc::error::TryRecvError;

/// How long to drive the ports between two checks for calls.
const TURN: Duration = Duration::from_millis(10);
/// Like [`TURN`], while calls wait.
const SHORT_TURN: Duration = Duration::from_millis(1);

/// The configuration in force, and how it came to be.
pub struct Engine {
    options: Options,
    clock: SystemClock,
    seed: u64,
    /// The configuration as the client wrote it.
    document: Value,
    bench: Bench,
    claims: Claims,
    /// Time of the last call.
    called: Instant,
    /// Why the ports no longer work.
    failure: Option<String>,
    /// True if flows were stopped because no client called, and no client has been told.
    idle_stopped: bool,
}

/// Runs the engine of the server that others know as `owner`, until `stop` is set or no client can make calls any more.
///
/// # Errors
/// The bench without ports cannot be created.
pub fn run(
    options: Options,
    owner: &str,
    seed: u64,
    mut requests: Receiver<Request>,
    stop: &Arc<AtomicBool>,
) -> Result<(), String> {
    let clock = SystemClock::start();
    let nothing = Config::read(json!({})).and_then(|config| Bench::open(config, &options, clock, seed));
    let bench = nothing.map_err(|errors| errors.join("\n"))?;
    let document = json!({});
    let (claims, called) = (Claims::new(owner), Instant::now());
    let mut engine =
        Engine { options, clock, seed, document, bench, claims, called, failure: None, idle_stopped: false };
    while !stop.load(Ordering::Relaxed) {
        match requests.try_recv() {
            Ok(Request { call, body, answer }) => {
                // A client that no longer waits loses only its answer.
                let _ = answer.send(engine.call(call, body));
                engine.called = Instant::now();
            }
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {}
        }
        // However many calls wait, ports are driven after each.
        let time = if requests.is_empty() { TURN } else { SHORT_TURN };
        engine.turn(time, &|| !requests.is_empty() || stop.load(Ordering::Relaxed));
    }
    engine.bench.close();
    Ok(())
}

impl Engine {
    fn turn(&mut self, time: Duration, interrupted: &dyn Fn() -> bool) {
        if self.bench.config.ports.is_empty() || self.failure.is_some() {
            std::thread::park_timeout(time);
            return;
        }
        if let Some(why) = self.bench.flows.failure.clone().filter(|_| self.bench.rig.is_far()) {
            // A call has noticed it. What only some hosts counted is no result.
            self.failure = Some(why);
            return;
        }
        if let Err(why) = self.bench.turn(time, interrupted) {
            (self.options.warn)(&why);
            self.failure = Some(why);
        }
        let idle = self.options.idle_stop.is_some_and(|most| self.called.elapsed() > most);
        if idle && self.bench.flows.are_active() {
            (self.options.warn)("no client has called for a while: all flows are stopped");
            self.idle_stopped = true;
            let all: Vec<usize> = (0..self.bench.built.flows.len()).collect();
            if let Err(why) = self.bench.change_flows(traffic::Action::Stop, &all) {
                (self.options.warn)(&why);
            }
        }
    }

    fn call(&mut self, call: Call, body: Value) -> Result<Answer, Failure> {
        let changes = matches!(
            call,
            Call::SetControlState | Call::SetControlAction | Call::GetMetrics | Call::GetStates | Call::GetCapture
        );
        if let Some(why) = self.failure.as_ref().filter(|_| changes) {
            return Err(Failure::internal(format!("{why}; set the configuration again")));
        }
        match call {
            Call::SetConfig => self.set_config(body),
            Call::GetConfig => Ok(Answer::Json(self.document.clone())),
            Call::SetControlState => {
                let mut told = self.bench.control(body)?;
                told.extend(self.idle_warning());
                Ok(warnings(told))
            }
            Call::GetMetrics => self.bench.metrics(body).map(Answer::Json),
            Call::GetStates => self.bench.states(body).map(Answer::Json),
            Call::GetCapture => self.bench.capture(body).map(Answer::Bytes),
            Call::GetVersion => Ok(Answer::Json(json!({
                "api_spec_version": VERSIONS, "sdk_version": "", "app_version": env!("CARGO_PKG_VERSION"),
            }))),
            Call::GetCapabilities => Ok(Answer::Json(capabilities(&self.bench, self.options.backend))),
            Call::UpdateConfig | Call::AppendConfig | Call::DeleteConfig => self.change_config(call, body),
            Call::SetControlAction => self.bench.action(body).map(Answer::Json),
        }
    }

    /// The warning that flows were stopped because no client called. Given only once.
    fn idle_warning(&mut self) -> Option<String> {
        let most = self.options.idle_stop.filter(|_| std::mem::take(&mut self.idle_stopped))?;
        let most = show_duration(most);
        Some(format!("no client had called for {most}, so all flows were stopped; `serve --idle-stop` sets that time"))
    }

    /// Reads a configuration, and looks up the interfaces of its ports.
    fn read(&self, document: Value) -> Result<Config, Failure> {
        let mut config = Config::read(document).map_err(Failure::validation)?;
        config.locate(&self.options.interfaces).map_err(Failure::validation)?;
        Ok(config)
    }

    fn set_config(&mut self, document: Value) -> Result<Answer, Failure> {
        let document = if document.is_null() { json!({}) } else { document };
        let config = self.read(document.clone())?;
        let auto_start = config.auto_start;
        let elsewhere =
            elsewhere::check(&config, self.options.lender.is_some(), self.seed).map_err(Failure::validation)?;
        let names: Vec<String> = config.ports.iter().map(|port| port.interface.clone()).collect();
        // The ports of other hosts belong to their agents.
        let names: Vec<&str> = names.iter().filter(|_| !elsewhere).map(String::as_str).collect();
        let again =
            opens_once(self.options.backend) && self.bench.own_interfaces().any(|interface| names.contains(&interface));
        if again {
            // A wrong configuration changes nothing.
            elsewhere::unopened(&config, self.seed).map_err(Failure::validation)?;
        }
        self.claims.add(&names).map_err(|(port, why)| Failure {
            code: 409,
            ..Failure::validation(vec![format!("ports[{port}].location: {why}")])
        })?;
        let gives_back = again || elsewhere && self.bench.rig.is_far();
        if gives_back {
            // Nobody can lease or open such a port twice.
            self.forget().map_err(Failure::validation)?;
        }
        let bench = match Bench::open(config, &self.options, self.clock, self.seed) {
            Ok(bench) => bench,
            Err(mut errors) => {
                if gives_back {
                    errors.push("the earlier ports were given back: no configuration is in force".into());
                }
                let held: Vec<&str> = self.bench.own_interfaces().collect();
                self.claims.keep(&held);
                return Err(Failure::validation(errors));
            }
        };
        std::mem::replace(&mut self.bench, bench).close();
        self.claims.keep(&names);
        (self.document, self.failure, self.idle_stopped) = (document, None, false);
        if auto_start {
            self.bench.protocols(true).map_err(Failure::internal)?;
        }
        Ok(warnings(self.bench.built.warnings.clone()))
    }
}

/// True if an interface is a port of this backend only once at a time.
fn opens_once(backend: &Backend) -> bool {
    backend.spec.name == af_xdp::SPEC.name
}

impl Engine {
    /// Ends the configuration in force.
    fn forget(&mut self) -> Result<(), Vec<String>> {
        let nothing = Bench::open(Config::read(json!({}))?, &self.options, self.clock, self.seed)?;
        std::mem::replace(&mut self.bench, nothing).close();
        (self.document, self.failure) = (json!({}), None);
        Ok(())
    }

    fn change_config(&mut self, call: Call, body: Value) -> Result<Answer, Failure> {
        let document = change::changed(&self.document, call, body).map_err(Failure::validation)?;
        if self.bench.flows.are_active() {
            return Err(Failure::validation(vec!["flows send; stop all flows before you change them".into()]));
        }
        let config = self.read(document.clone())?;
        elsewhere::check(&config, self.options.lender.is_some(), self.seed).map_err(Failure::validation)?;
        let warned = self.bench.replace_flows(config, self.seed).map_err(Failure::validation)?;
        self.document = document;
        Ok(warnings(warned))
    }
}

/// The message `Warning` of the model.
fn warnings(list: Vec<String>) -> Answer {
    Answer::Json(json!({ "warnings": list }))
}
