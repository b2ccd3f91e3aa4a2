//! `drophammer doctor`: what this machine can do as a tester, and what to change.

mod interfaces;

use crate::output::out;
use crate::{Ended, Exit};
use drophammer_lab::kinds::uml;
use drophammer_lab::{KINDS, Lab, LabOptions};
use drophammer_model::capabilities::Placement;
use drophammer_model::environment::Environment;
use drophammer_model::suite::{DutConfig, Params};
use drophammer_port::INTERFACE_BACKENDS;
use drophammer_port::softirq_time::SoftirqTime;
use nix::unistd::geteuid;
use serde_json::json;

/// Judgement of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As it should be.
    Good,
    /// It works, but may distort figures.
    Note,
    /// Anything that needs it does not work.
    Missing,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Good => "good",
            State::Note => "note",
            State::Missing => "missing",
        }
    }
}

/// A checked property of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the property, such as `clock`.
    pub subject: String,
    pub state: State,
    pub found: String,
    /// What to change.
    pub remedies: Vec<String>,
}

impl Finding {
    /// Makes a finding that is as it should be.
    pub fn good(subject: impl Into<String>, found: impl Into<String>) -> Finding {
        Finding { subject: subject.into(), state: State::Good, found: found.into(), remedies: Vec::new() }
    }

    /// Adds a remedy that improves figures.
    pub fn note(self, remedy: impl Into<String>) -> Finding {
        self.judged(State::Note, remedy)
    }

    fn missing(self, remedy: impl Into<String>) -> Finding {
        self.judged(State::Missing, remedy)
    }

    fn judged(mut self, state: State, remedy: impl Into<String>) -> Finding {
        self.state = if self.state == State::Missing { self.state } else { state };
        self.remedies.push(remedy.into());
        self
    }
}

/// `drophammer doctor`.
pub fn run(json: bool) -> Ended {
    // This runs on the host, because the lab does not see the host's interfaces.
    let mut findings: Vec<Finding> =
        INTERFACE_BACKENDS.iter().map(|backend| of_backend(backend.spec.name, (backend.usable)())).collect();
    findings.extend(kinds());
    findings.extend(interfaces::all());
    let lab = Lab::enter(&LabOptions::default());
    let exit = if lab.is_ok() { Exit::Good } else { Exit::Environment };
    let first = match &lab {
        Ok(lab) => of_machine(&lab.environment(1), lab.cpus().separate()),
        Err(e) => vec![refused("namespaces", "routers in namespaces cannot be brought up", &e.to_string())],
    };
    findings.splice(0..0, first);
    show(&findings, json);
    Ok(exit)
}

/// Splits an error into its cause and its remedy, which is the last line.
fn parts(error: &str) -> (&str, &str) {
    let (why, remedy) = error.split_once("remedy: ").unwrap_or((error, ""));
    (why.trim(), remedy.trim())
}

fn refused(subject: &str, what: &str, error: &str) -> Finding {
    let (why, remedy) = parts(error);
    let remedy = if remedy.is_empty() { "see docs/getting-it.md for what Drophammer needs" } else { remedy };
    Finding::good(subject, format!("{what}: {why}")).missing(remedy)
}

fn of_backend(name: &str, usable: Result<(), String>) -> Finding {
    match usable {
        Ok(()) => Finding::good(format!("backend {name}"), "usable"),
        Err(why) => {
            let root = if geteuid().is_root() { "" } else { "run as root, or " };
            Finding::good(format!("backend {name}"), why).missing(format!("{root}leave the choice to --backend auto"))
        }
    }
}

/// Checks whether each kind of router can be brought up here.
fn kinds() -> Vec<Finding> {
    let here = KINDS.iter().map(|kind| kind.spec()).filter(|spec| spec.capabilities.placement == Placement::Lab);
    here.map(|spec| {
        let dut =
            DutConfig { name: spec.name.into(), kind: spec.name.into(), params: Params::default(), topology: None };
        let subject = format!("router {}", spec.name);
        let mut finding = Finding::good(subject, spec.summary);
        let missing: Vec<String> = drophammer_lab::missing(&dut, &[]).iter().map(ToString::to_string).collect();
        let (why, remedies): (Vec<&str>, Vec<&str>) = missing.iter().map(|error| parts(error)).unzip();
        if !why.is_empty() {
            finding.state = State::Missing;
            finding.found = why.join("; ");
            for remedy in remedies {
                // Several missing programs may be in the same package.
                if !remedy.is_empty() && !finding.remedies.iter().any(|known| known == remedy) {
                    finding.remedies.push(remedy.to_owned());
                }
            }
        }
        if spec.name == "uml"
            && finding.state == State::Good
            && let Some(why) = uml::unfit_processor()
        {
            finding = refused(&finding.subject, "not on this processor", &why);
        }
        finding
    })
    .collect()
}

/// With less memory, a million routes in FRR and in the tester may not fit: FRR needs about 300 MiB for 100,000
/// (docs/routes.md).
const MEMORY: u64 = 4 << 30;

/// Properties of the machine.
fn of_machine(here: &Environment, separate: bool) -> Vec<Finding> {
    let more = |key: &str| here.more.get(key).map_or("", String::as_str);
    let noted = |finding: Finding, is_good: bool, remedy: &str| if is_good { finding } else { finding.note(remedy) };
    let mut findings = vec![noted(
        Finding::good("namespaces", here.privilege.clone()),
        here.privilege == "root",
        "as root, routers have priority over other work, and all backends can be used",
    )];
    let mut processors = Finding::good("processors", format!("{}; {}", here.cpu_model, here.cpus));
    if !separate {
        processors = processors
            .note("use a machine with at least two processors: rates of tester and router depend on each other");
    }
    if !here.virtualization.is_empty() {
        processors.found = format!("{}; {}", processors.found, here.virtualization);
        processors = processors.note("a hypervisor may take processors away; such trials are invalid and repeated");
    }
    if more("isolated processors").is_empty() {
        processors = processors
            .note("boot with `isolcpus=` for the processors of tester and router, so that nothing else runs there");
    }
    let governor = more("governor");
    if !governor.is_empty() && governor != "performance" {
        processors = processors
            .note(format!("the frequency governor is {governor}: `cpupower frequency-set --governor performance`"));
    }
    findings.push(processors);
    let load = Finding::good("load", format!("{:.2} in the last minute", here.load_average));
    let remedy = "stop other programs: trials that they disturb are invalid and repeated";
    findings.push(noted(load, here.load_average < 0.5, remedy));
    let memory = Finding::good("memory", format!("{:.1} GiB", here.memory_bytes as f64 / f64::from(1 << 30)));
    let remedy = "a million routes in a router and in the tester may need more; see docs/routes.md";
    findings.push(noted(memory, here.memory_bytes >= MEMORY, remedy));
    let clock = here.clock_source.as_str();
    let remedy = "reading this clock is slow; boot with `clocksource=tsc` if the processor's is constant";
    findings.push(noted(
        Finding::good("clock", clock),
        matches!(clock, "tsc" | "kvm-clock" | "arch_sys_counter"),
        remedy,
    ));
    findings.push(match drophammer_lab::input_queue_here() {
        Ok(frames) => Finding::good("input queue", format!("{frames} frames in front of routers in namespaces")),
        Err(ring) => Finding::good("input queue", format!("{ring} frames, the ring of a virtual link"))
            .note("Linux 6.16 or newer lets more frames wait in front of a router, as network cards do"),
    });
    let part = "the tester's part of the processor time of a router in a namespace is";
    findings.push(match SoftirqTime::on(0) {
        Ok(_) => Finding::good("processor time", format!("{part} measured")),
        Err(e) => Finding::good("processor time", format!("{part} not known: {e}"))
            .note("run as root, with CAP_BPF and CAP_PERFMON, to compare frames per second of processor time"),
    });
    findings
}

/// Prints the findings.
fn show(findings: &[Finding], json: bool) {
    if json {
        let list: Vec<_> = findings
            .iter()
            .map(|f| json!({"subject": f.subject, "state": f.state.word(), "found": f.found, "remedies": f.remedies}))
            .collect();
        return out!("{}", json!({ "findings": list }));
    }
    let widest = findings.iter().map(|f| f.subject.len()).max().unwrap_or(0);
    for f in findings {
        out!("{:<8} {:<widest$}  {}", f.state.word(), f.subject, f.found);
        for remedy in &f.remedies {
            out!("{:<8} {:<widest$}  -> {remedy}", "", "");
        }
    }
    let count = |state: State| findings.iter().filter(|f| f.state == state).count();
    out!(
        "\n{} good, {} to note, {} missing. `drophammer selftest` measures what the tester can do here.",
        count(State::Good),
        count(State::Note),
        count(State::Missing)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_judged_by_what_spoils_figures() {
        let good = Environment {
            privilege: "root".into(),
            clock_source: "tsc".into(),
            memory_bytes: 8 << 30,
            more: [("isolated processors".to_owned(), "1".to_owned())].into(),
            ..Environment::default()
        };
        let of = |here: &Environment, subject: &str| {
            of_machine(here, true).into_iter().find(|f| f.subject == subject).expect(subject).state
        };
        for subject in ["namespaces", "processors", "load", "memory", "clock"] {
            assert_eq!(of(&good, subject), State::Good, "{subject}");
        }
        let worse = Environment {
            privilege: "ordinary user".into(),
            clock_source: "hpet".into(),
            load_average: 3.0,
            virtualization: "KVM".into(),
            ..Environment::default()
        };
        for subject in ["namespaces", "processors", "load", "memory", "clock"] {
            assert_eq!(of(&worse, subject), State::Note, "{subject}");
        }
    }

    #[test]
    fn a_refusal_keeps_its_remedy() {
        let finding = refused("namespaces", "no", "the system forbids it\n  remedy: sysctl x=1");
        assert_eq!(
            (finding.found.as_str(), finding.remedies),
            ("no: the system forbids it", vec!["sysctl x=1".to_owned()])
        );
        assert_eq!(finding.state, State::Missing);
    }
}
