//! The hosts whose agents lent ports to a run, each with the worst of what its trials say about it.

use crate::format::{heading, number};
use crate::grid::Grid;
use crate::grouped;
use drophammer_judge::distinct;
use drophammer_model::record::TrialRecord;
use drophammer_model::trial::HostRecord;
use serde_json::{Value, json};

/// Heading of the table.
pub const TITLE: &str = "Hosts of the ports";
/// Explanation of the table.
pub const HOW: &str = "The worst of all trials. Clock: error of its comparison with the clock of the run. Start: the host began to send within \
this time of all others. Message: time from the run to the host; emulated devices answer later by as much.";

/// One host over all trials.
struct Host<'a> {
    name: &'a str,
    ports: Vec<&'a str>,
    versions: Vec<&'a str>,
    clock_uncertainty_ns: u64,
    start_skew_ns: u64,
    one_way_ns: u64,
    /// The largest bound of chrony, and the number of trials whose comparison of clocks contradicts it.
    chrony: Option<(u64, usize)>,
    trials: usize,
}

fn hosts(trials: &[TrialRecord]) -> Vec<Host<'_>> {
    let records = trials.iter().flat_map(|trial| &trial.result.health.between_hosts).flat_map(|between| &between.each);
    let by_name = grouped(records.map(|host| (host.name.as_str(), host)));
    by_name.into_iter().map(|(name, all)| host(name, &all)).collect()
}

fn host<'a>(name: &'a str, all: &[&'a HostRecord]) -> Host<'a> {
    let worst = |of: fn(&HostRecord) -> u64| all.iter().map(|host| of(host)).max().unwrap_or(0);
    let chrony: Vec<_> = all.iter().filter_map(|host| host.chrony).collect();
    Host {
        name,
        chrony: chrony
            .iter()
            .map(|c| c.bound_ns)
            .max()
            .map(|ns| (ns, chrony.iter().filter(|c| c.contradicted).count())),
        ports: distinct(all.iter().flat_map(|host| &host.ports).map(String::as_str)),
        versions: distinct(all.iter().map(|host| host.version.as_str())),
        clock_uncertainty_ns: worst(|host| host.clock_uncertainty_ns),
        start_skew_ns: worst(|host| host.start_skew_ns),
        one_way_ns: worst(|host| host.one_way_ns),
        trials: all.len(),
    }
}

/// The table; `None` if all ports were on the machine of the run.
pub fn grid(trials: &[TrialRecord]) -> Option<Grid> {
    let micros = |ns: u64| number(ns as f64 / 1e3, "µs");
    let row = |host: Host<'_>| {
        let texts = [host.name.to_owned(), host.ports.join(", "), host.versions.join(", ")];
        let times = [host.clock_uncertainty_ns, host.start_skew_ns, host.one_way_ns].map(micros);
        texts.into_iter().chain(times).chain([number(host.trials as f64, "")]).collect::<Vec<_>>()
    };
    let rows: Vec<_> = hosts(trials).into_iter().map(row).collect();
    let head = [
        ("Host", ""),
        ("Ports", ""),
        ("Agent", ""),
        ("Clock", "µs"),
        ("Start", "µs"),
        ("Message", "µs"),
        ("Trials", ""),
    ];
    let head: Vec<String> = head.map(|(title, unit)| heading(title, unit)).into();
    let right = (0..head.len()).map(|column| column > 2).collect();
    (!rows.is_empty()).then_some(Grid { head, right, rows })
}

/// The hosts for `report.json`.
pub fn json(trials: &[TrialRecord]) -> Vec<Value> {
    let host = |host: Host<'_>| {
        json!({
            "host": host.name, "ports": host.ports, "agents": host.versions, "clock_uncertainty_ns": host.clock_uncertainty_ns,
            "start_skew_ns": host.start_skew_ns, "one_way_ns": host.one_way_ns, "trials": host.trials,
            "chrony": host.chrony.map(|(ns, contradicted)| json!({"bound_ns": ns, "contradicted_trials": contradicted})),
        })
    };
    hosts(trials).into_iter().map(host).collect()
}

#[cfg(test)]
mod tests {
    use crate::synthetic::{report, run};
    use drophammer_model::trial::{BetweenHosts, ChronyRecord, HostRecord};

    #[test]
    fn each_host_has_a_row_with_its_worst_values() {
        let mut run = run(1);
        assert!(!report(&run)["report.md"].contains(super::TITLE), "all ports are on this machine");
        let host = |name: &str, port: &str, [clock_uncertainty_ns, start_skew_ns, one_way_ns]: [u64; 3]| HostRecord {
            name: name.into(),
            ports: vec![port.into()],
            version: "1.2.3".into(),
            clock_uncertainty_ns,
            start_skew_ns,
            one_way_ns,
            chrony: (name == "left")
                .then_some(ChronyRecord { bound_ns: one_way_ns / 100, contradicted: port == "eth2" }),
        };
        let trials = [
            vec![host("left", "eth1", [1_000, 30_000, 50_000]), host("right", "eth7", [9_000, 2, 3])],
            vec![host("left", "eth2", [4_500, 20_000, 60_000])],
        ];
        for (trial, each) in run.trials.iter_mut().zip(trials) {
            let hosts = each.len() as u32;
            trial.result.health.between_hosts = Some(BetweenHosts { hosts, each, ..BetweenHosts::default() });
        }
        let files = report(&run);
        let rows =
            "| left | eth1, eth2 | 1.2.3 | 4.5 | 30 | 60 | 2 |\n| right | eth7 | 1.2.3 | 9 | 0.002 | 0.003 | 1 |\n";
        assert!(files["report.md"].contains(rows), "{}", files["report.md"]);
        let text = &files["report.txt"];
        assert!(text.contains(super::TITLE) && text.contains("eth1, eth2"), "{text}");
        assert!(files["report.html"].contains("<td class=\"n\">4.5</td><td class=\"n\">30</td>"));
        let json: serde_json::Value = serde_json::from_str(&files["report.json"]).unwrap();
        assert_eq!(json["hosts"][0]["ports"], serde_json::json!(["eth1", "eth2"]));
        assert_eq!(json["hosts"][1]["clock_uncertainty_ns"], 9_000);
        let chrony = |host: usize| json["hosts"][host]["chrony"].clone();
        assert_eq!(chrony(0), serde_json::json!({"bound_ns": 600, "contradicted_trials": 1}));
        assert_eq!(chrony(1), serde_json::Value::Null);
    }
}
