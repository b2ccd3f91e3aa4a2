//! A DUT that is a program of the caller. It handles the frames of its links itself, in a process on the DUT's
//! processor, and answers questions on a socket. The lab starts it, queries it and ends it.

use crate::dut::{Classes, Filters, Management, TesterInterface, Usage, capabilities};
use crate::links::{Ends, Links, tap_lines};
use crate::namespace_dut::READY;
use crate::probe::ThreadTimes;
use crate::process::Daemon;
use crate::router::dut_interface;
use crate::{Dut, Lab, LabError, configuration, probe, wait};
use drophammer_model::classes::EgressClasses;
use drophammer_model::environment::DutRecord;
use drophammer_model::filter::FilterList;
use drophammer_model::registry::KindSpec;
use drophammer_model::role::RouterRole;
use drophammer_model::suite::DutConfig;
use drophammer_model::trial::Family;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A program that the lab starts as `executable arguments... CONFIGURATION SOCKET INTERFACE...`.
///
/// It opens the interfaces, then listens on the socket. There it reads one line per connection and answers with one
/// line of JSON: to `counters` with an object of its counters (names of nested objects are joined by dots), to any
/// other line with an object, which contains a text `error` if the program refuses.
pub struct Program {
    /// Its kind.
    pub kind: &'static KindSpec,
    /// Its version.
    pub version: String,
    /// Its links.
    pub links: Links,
    /// The executable.
    pub executable: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<String>,
    /// Name of its configuration file.
    pub file: String,
    /// Text of that file.
    pub configuration: String,
    /// The configuration without secrets, for the record.
    pub shown: String,
    /// The line to send for [`Dut::forwards`].
    pub when_forwarding: Option<String>,
}

/// Time limit for an answer.
const ANSWER: Duration = Duration::from_secs(5);

/// A running program.
pub struct ProgramDut {
    // Declared before the links, so that the process ends first.
    daemon: Daemon,
    ends: Ends,
    socket: PathBuf,
    record: DutRecord,
    when_forwarding: Option<String>,
    ssh: bool,
}

impl ProgramDut {
    /// Makes the links, starts the program on the DUT's processor, and returns when it listens and the links are up.
    /// Its configuration and log go to the existing folder `work_dir`. Errors as in [`crate::DutKind::bring_up`].
    pub fn bring_up(
        lab: &Lab,
        dut: &DutConfig,
        role: &RouterRole,
        work_dir: &Path,
        program: Program,
        stop: &dyn Fn() -> bool,
    ) -> Result<ProgramDut, LabError> {
        let shared = lab.shared();
        let state = shared.fresh_state(&dut.name)?;
        let config = vec![(program.file.clone(), program.shown)];
        let whole = [(program.file.clone(), program.configuration)];
        let configuration = configuration::store(work_dir, &state, &config, &whole)?.join(&program.file);
        let socket = state.join("control");
        let cpu = shared.cpus.dut;
        let ends = Ends::make(lab, &dut.name, role, program.links)?;
        let names: Vec<String> = match &ends {
            Ends::Veth(_) => (0..role.interfaces.len()).map(dut_interface).collect(),
            Ends::Tap { interfaces, .. } => interfaces.iter().map(|interface| interface.name.clone()).collect(),
        };
        let mut command = ends.netns().command(&program.executable);
        command.args(&program.arguments).arg(&configuration).arg(&socket).args(names);
        let daemon = Daemon::start_in(ends.netns(), cpu, program.kind.name, command, work_dir)?;
        let record = DutRecord {
            name: dut.name.clone(),
            kind: program.kind.name.into(),
            version: program.version,
            confinement: format!("a process on processor {cpu}; {}", confinement(&ends)),
            config: config.into_iter().collect(),
            simulated: program.kind.capabilities.simulated,
            ..DutRecord::default()
        };
        let when_forwarding = program.when_forwarding;
        let ssh = dut.params.flag("ssh") == Some(true);
        let mut up = ProgramDut { daemon, ends, socket, record, when_forwarding, ssh };
        up.wait(stop, |up| match UnixStream::connect(&up.socket) {
            Ok(_) => Ok(None),
            Err(e) => Ok(Some(format!("{} does not listen: {e}", up.record.kind))),
        })?;
        if let Ends::Tap { tester, interfaces, .. } = &up.ends {
            tester.ip(&tap_lines(interfaces, role))?;
        }
        up.wait(stop, |up| Ok(up.ends.link_not_up().map(|link| format!("{link} has no carrier"))))?;
        Ok(up)
    }

    fn wait(
        &mut self,
        stop: &dyn Fn() -> bool,
        mut look: impl FnMut(&ProgramDut) -> Result<Option<String>, LabError>,
    ) -> Result<(), LabError> {
        let result = wait::while_missing(READY, stop, || {
            self.daemon.check()?;
            look(self)
        });
        result.map_err(|e| e.with_log(&self.daemon.log_tail()))
    }

    /// Sends a line to the program and returns its answer.
    ///
    /// # Errors
    /// [`LabError::Io`] if it does not answer, [`LabError::Unusable`] if it refuses.
    pub fn ask(&mut self, line: &str) -> Result<Value, LabError> {
        let failed = LabError::io(format!("{} does not answer", self.record.kind));
        let answer = question(&self.socket, line).map_err(failed)?;
        match answer.get("error").and_then(Value::as_str) {
            Some(why) => {
                Err(LabError::unusable(format!("{} refuses: {why}", self.record.kind), "see its page in the manual"))
            }
            None => Ok(answer),
        }
    }
}

fn confinement(ends: &Ends) -> &str {
    match ends {
        Ends::Veth(links) => links.confinement(),
        Ends::Tap { .. } => "it reads the far ends of taps, whose near ends are the tester's interfaces",
    }
}

/// Sends a line to the program that listens on `socket` and returns its answer, a line of JSON.
pub(crate) fn question(socket: &Path, line: &str) -> std::io::Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

/// Adds the numbers in `value` under `name`; names of nested values are joined by dots.
pub fn flatten(name: &str, value: &Value, to: &mut BTreeMap<String, u64>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            flatten(&name, value, to);
        }),
        value => to.extend(value.as_u64().map(|n| (name.to_owned(), n))),
    }
}

impl Dut for ProgramDut {
    capabilities!(usage: Usage, filters: Filters, classes: Classes, management: Management);

    fn interfaces(&self) -> &[TesterInterface] {
        self.ends.interfaces()
    }

    fn record(&self) -> DutRecord {
        self.record.clone()
    }

    fn check(&mut self) -> Result<(), LabError> {
        self.daemon.check()?;
        self.ends.link_not_up().map_or(Ok(()), |link| Err(LabError::lost_carrier(&link)))
    }

    fn forwards(&mut self) -> Result<(), LabError> {
        match self.when_forwarding.take() {
            Some(line) => self.ask(&line).map(drop),
            None => Ok(()),
        }
    }

    /// The program's answer to `fib`.
    fn fib_routes(&mut self, family: Family) -> Result<Option<u64>, LabError> {
        let told = self.ask("fib")?;
        Ok(told.get(if family == Family::Ipv4 { "ipv4" } else { "ipv6" }).and_then(Value::as_u64))
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        let mut counters = self.ends.counters()?;
        let told = self.ask("counters")?;
        flatten("", &told, &mut counters);
        Ok(counters)
    }

    fn lost_by_tester(&mut self) -> Result<Option<Vec<u64>>, LabError> {
        self.ends.lost_by_tester()
    }

    fn drops_at_tester_tx_are_dut(&self) -> bool {
        true
    }

    fn take_down(self: Box<Self>) -> Result<(), LabError> {
        let ProgramDut { daemon, ends, .. } = *self;
        daemon.stop();
        match ends {
            Ends::Veth(links) => links.take_down(),
            // The taps ended with the program.
            Ends::Tap { .. } => Ok(()),
        }
    }
}

impl Management for ProgramDut {
    fn has_ssh(&self) -> bool {
        self.ssh
    }
}

impl Filters for ProgramDut {
    /// Sends `filter` and the lists as JSON.
    fn set_filter(&mut self, lists: &[FilterList]) -> Result<(), LabError> {
        let lists = serde_json::to_string(lists).map_err(LabError::io("cannot write the filter"))?;
        self.ask(&format!("filter {lists}")).map(drop)
    }
}

impl Classes for ProgramDut {
    /// Sends `classes` and the lists as JSON.
    fn set_classes(&mut self, lists: &[EgressClasses]) -> Result<(), LabError> {
        let lists = serde_json::to_string(lists).map_err(LabError::io("cannot write the classes"))?;
        self.ask(&format!("classes {lists}")).map(drop)
    }
}

impl Usage for ProgramDut {
    fn cpu_time(&mut self) -> Option<Duration> {
        Some(self.ends.cpu_time()? + probe::process_time(self.daemon.pid())?)
    }

    fn threads(&mut self) -> Option<Vec<ThreadTimes>> {
        let mut threads = probe::process_threads(self.daemon.pid())?;
        threads.extend(self.ends.threads()?);
        Some(threads)
    }

    fn memory(&mut self) -> Vec<(String, u64)> {
        probe::resident(self.daemon.pid()).map(|bytes| (self.record.kind.clone(), bytes)).into_iter().collect()
    }

    fn processor(&mut self) -> Option<usize> {
        self.ends.processor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_numbers_by_their_path() {
        let told =
            serde_json::json!({"d0": {"in_unicast": 7}, "truth": {"dropped": {"ttl": 1}, "note": "x", "queued": 0}});
        let mut flat = BTreeMap::new();
        flatten("", &told, &mut flat);
        let expected = [("d0.in_unicast", 7), ("truth.dropped.ttl", 1), ("truth.queued", 0)];
        assert_eq!(flat, expected.map(|(name, n)| (name.to_owned(), n)).into());
    }
}
