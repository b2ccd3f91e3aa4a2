//! Conditions that differ between runs.

use super::{Line, letter};
use crate::view::{Section, View};
use drophammer_judge::criteria::number;
use drophammer_judge::distinct;
use drophammer_model::environment::{DutRecord, Environment, PortRecord};
use drophammer_model::medium::Medium;
use drophammer_model::outcome::{Cell, SAME_LOAD};
use drophammer_model::quantity::{Bandwidth, group_digits};

/// A condition that differs between runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Name of the condition.
    pub name: String,
    /// Its value in each run; absent if it is unknown or does not apply.
    pub values: Vec<Option<String>>,
}

/// Value of a condition in one run.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    /// Text.
    Text(String),
    /// Measured frames per second. Rates that differ by less than [`SAME_LOAD`] count as the same.
    Rate(f64),
}

impl Value {
    fn same(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Rate(a), Value::Rate(b)) => (a - b).abs() <= SAME_LOAD * a.max(*b),
            (Value::Text(a), Value::Text(b)) => a == b,
            _ => false,
        }
    }
}

/// Start of the name of a port's condition.
const PORT: &str = "port ";

/// The conditions of a run by name, in order.
type Facts = Vec<(String, Value)>;

/// All conditions that differ, in the order of the first run that has them.
pub fn different(views: &[View], lines: &[Line]) -> Vec<Condition> {
    // A DUT that is missing in some runs gets a single line.
    let has = |view: &View, dut: &str| view.duts.iter().chain(&view.tester).any(|known| known.name == dut);
    let everywhere = |dut: &str| views.iter().all(|view| has(view, dut));
    let facts: Vec<Facts> = views.iter().enumerate().map(|(run, view)| facts(view, run, lines, &everywhere)).collect();
    let names = distinct(facts.iter().flatten().map(|(name, _)| name.as_str()));
    let of = |facts: &Facts, name: &str| facts.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let mut out: Vec<Condition> = Vec::new();
    let is_port = |name: &str| name.split_once(": ").is_some_and(|(_, what)| what.starts_with(PORT));
    for name in names {
        let values: Vec<Option<Value>> = facts.iter().map(|facts| of(facts, name)).collect();
        // If the testbeds differ in size, one line with all ports is clearer than a separate line for each port that
        // others lack.
        let counted: Vec<&Option<Value>> = values.iter().filter(|value| value.is_some() || !is_port(name)).collect();
        let same = counted.iter().all(|value| match (value, counted[0]) {
            (Some(value), Some(first)) => value.same(first),
            (value, first) => *value == first,
        });
        if !same {
            out.push(Condition { name: name.to_owned(), values: shown(values) });
        }
    }
    out.extend(deviations(views));
    out
}

/// Formats values for people. For texts with several lines, shows only the first line that differs.
fn shown(values: Vec<Option<Value>>) -> Vec<Option<String>> {
    let text = |value: &Option<Value>| match value {
        Some(Value::Text(text)) => Some(text.clone()),
        Some(Value::Rate(pps)) => Some(format!("{} fps", group_digits(pps.round() as u64))),
        None => None,
    };
    let texts: Vec<Option<String>> = values.iter().map(text).collect();
    if !texts.iter().flatten().any(|text| text.contains('\n')) {
        return texts;
    }
    let line = |text: &str, number: usize| text.lines().nth(number).map(str::to_owned);
    let longest = texts.iter().flatten().map(|text| text.lines().count()).max().unwrap_or(0);
    let differs = (0..longest).find(|number| {
        let mut lines = texts.iter().flatten().map(|text| line(text, *number));
        let first = lines.next();
        lines.any(|line| Some(line) != first)
    });
    let Some(number) = differs else { return texts.into_iter().map(|text| text.map(|_| "there".into())).collect() };
    let at = |text: String| match line(&text, number) {
        Some(line) => format!("line {}: {}", number + 1, line.trim()),
        None => format!("ends before line {}", number + 1),
    };
    texts.into_iter().map(|text| text.map(at)).collect()
}

/// Deviations from the RFCs that only some runs have.
fn deviations(views: &[View]) -> Option<Condition> {
    let all: Vec<Vec<String>> = views.iter().map(View::deviation_lines).collect();
    let everywhere = |line: &String| all.iter().all(|lines| lines.contains(line));
    let own = |lines: &Vec<String>| {
        let own: Vec<&str> = lines.iter().filter(|line| !everywhere(line)).map(String::as_str).collect();
        (!own.is_empty()).then(|| own.join("; "))
    };
    let values: Vec<Option<String>> = all.iter().map(own).collect();
    let name = "Deviations from the RFCs".to_owned();
    values.iter().any(Option::is_some).then_some(Condition { name, values })
}

/// The conditions of a run, with details of the DUTs that are in all runs (`everywhere`).
fn facts(view: &View, run: usize, lines: &[Line], everywhere: &dyn Fn(&str) -> bool) -> Facts {
    let mut out = Vec::new();
    let mut add = |name: &str, value: String| out.push((name.to_owned(), Value::Text(value)));
    let started = &view.run.started;
    add("Suite", started.suite.clone());
    add("Title of the suite", started.title.clone());
    add("Profile", started.profile.clone());
    add("RFC-conformant", if view.conformant() { "yes" } else { "no" }.into());
    add("Rounds", started.rounds.to_string());
    add("Seed", started.seed.to_string());
    add("State", view.run.state().to_string());
    for (name, value) in of_machine(&started.environment) {
        add(&name, value);
    }
    for dut in &view.duts {
        out.push((format!("DUT {}", dut.name), Value::Text("there".into())));
    }
    for dut in view.duts.iter().filter(|dut| everywhere(dut.name)).chain(&view.tester) {
        if let Some(record) = dut.records.first() {
            let configurations =
                record.config.iter().map(|(file, text)| (format!("configuration {file}"), text.clone()));
            let names: Vec<&str> = record.ports.iter().map(|port| port.name.as_str()).collect();
            let ports = [("ports".to_owned(), format!("{}: {}", names.len(), names.join(", ")))];
            for (what, value) in ports.into_iter().chain(of_dut(record)).chain(configurations) {
                out.push((format!("{}: {what}", record.name), Value::Text(value)));
            }
        }
    }
    for section in &view.sections {
        parameters(&mut out, section);
        for result in section.results.iter().filter(|result| !result.standing.is_completed()) {
            let dut = view.dut(result.dut).name;
            if everywhere(dut) {
                out.push((format!("{} on {dut}", section.title), Value::Text(result.standing.text())));
            }
        }
    }
    for section in view.all_sections() {
        rates(&mut out, section, view, everywhere);
    }
    for line in lines.iter().filter(|line| everywhere(&line.dut)) {
        let Some(entry) = &line.entries[run] else { continue };
        let limit = match (entry.suite_limited(), entry.tester_limited()) {
            (true, _) => "the suite",
            (_, true) => "the tester",
            _ => "the DUT",
        };
        out.push((format!("Limit of {} of {}", line.title, line.dut), Value::Text(limit.into())));
        if let Some(load) = entry.figure.as_ref().and_then(|figure| figure.load_pps) {
            out.push((format!("Load of {} of {}", line.title, line.dut), Value::Rate(load)));
        }
    }
    out
}

/// Describes the machine and the program in words.
pub fn of_machine(e: &Environment) -> Vec<(String, String)> {
    let named = [
        ("Drophammer", &e.drophammer),
        ("Kernel", &e.kernel),
        ("Kernel command line", &e.kernel_command_line),
        ("Distribution", &e.distribution),
        ("Processor", &e.cpu_model),
        ("Processors", &e.cpus),
        ("Virtualization", &e.virtualization),
        ("Clock source", &e.clock_source),
        ("Privilege", &e.privilege),
    ];
    let counted = [
        ("Threads of the tester", e.tester_threads.to_string()),
        ("Memory", format!("{} MiB", group_digits(e.memory_bytes >> 20))),
    ];
    let named = named.map(|(name, value)| (name, value.clone()));
    let first = named.into_iter().chain(counted).map(|(name, value)| (name.to_owned(), value));
    first.chain(e.more.iter().map(|(name, value)| (name.clone(), value.clone()))).collect()
}

/// Describes a DUT in words, without its configuration.
pub fn of_dut(record: &DutRecord) -> Vec<(String, String)> {
    let mut out = vec![
        ("kind".to_owned(), record.kind.clone()),
        ("version".to_owned(), record.version.clone()),
        ("confinement".to_owned(), record.confinement.clone()),
        ("simulated".to_owned(), if record.simulated { "yes" } else { "no" }.to_owned()),
    ];
    out.extend(record.ports.iter().map(|port| (format!("{PORT}{}", port.name), of_port(port))));
    out
}

fn of_port(port: &PortRecord) -> String {
    let PortRecord { interface, backend, driver, queues, mtu, speed_bps, medium, addresses, .. } = port;
    let s = if *queues == 1 { "" } else { "s" };
    let addresses = addresses.join(", ");
    let speed = Bandwidth(*speed_bps);
    let medium = match medium {
        Medium::Ethernet => "Ethernet",
        Medium::PppOverSonet { fcs32: true } => "PPP over SONET, FCS of 32 bits",
        Medium::PppOverSonet { fcs32: false } => "PPP over SONET, FCS of 16 bits",
    };
    format!("{interface}, {backend}, {driver}, {queues} queue{s}, MTU {mtu}, {speed}, {medium}, {addresses}")
}

/// Parameters of a test, which all DUTs share.
fn parameters(out: &mut Facts, section: &Section) {
    let first = section.results.iter().find_map(|result| result.record);
    for (key, value) in first.and_then(|record| record.parameters.as_object()).into_iter().flatten() {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        out.push((format!("{}: {key}", section.title), Value::Text(text)));
    }
}

/// Limits of the tester: its ceiling, and the highest load that it can offer.
fn rates(out: &mut Facts, section: &Section, view: &View, everywhere: &dyn Fn(&str) -> bool) {
    for table in section.tables.iter().filter(|table| ["tester_ceiling", "offered_load"].contains(&table.key)) {
        let column = |key: &str| table.columns.iter().position(|column| column.key == key);
        let Some(rate) = column("ceiling_pps").or(column("offered_pps")) else { continue };
        for row in table.rows.iter().filter(|row| everywhere(view.dut(row.dut).name)) {
            let cell = |column: usize| row.cells.get(column).copied();
            let word = |key: &str| match column(key).and_then(cell) {
                Some(Cell::Text(text)) => text.clone(),
                Some(Cell::Count(count)) => count.to_string(),
                _ => String::new(),
            };
            let Some(pps) = cell(rate).and_then(number) else { continue };
            let (size, protocol, backend) = (word("frame_size"), word("protocol"), word("backend"));
            let name = format!("{} of {}, {size} bytes {protocol} {backend}", table.title, view.dut(row.dut).name);
            out.push((name.trim_end().to_owned(), Value::Rate(pps)));
        }
    }
}

impl Condition {
    /// Formats the values as `A 6.12 | B 6.18`, with a dash for an unknown value.
    pub fn text(&self) -> String {
        let value = |(run, value): (usize, &Option<String>)| {
            let shown = value.as_deref().filter(|value| !value.is_empty()).unwrap_or(crate::format::DASH);
            format!("{} {shown}", letter(run))
        };
        self.values.iter().enumerate().map(value).collect::<Vec<_>>().join(" | ")
    }
}
