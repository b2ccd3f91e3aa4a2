//! `drophammer history`: the runs in a folder, and their figures over time.

use crate::Exit;
use crate::args::HistoryArgs;
use crate::output::{err, out};
use crate::run::{RUNS, fail};
use drophammer_model::visible::one_line;
use drophammer_report::compare::history::{History, history, json_of};
use drophammer_store::{Run, RunReader};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// `drophammer history`.
pub fn run(args: &HistoryArgs) -> Exit {
    let folders = if args.folders.is_empty() { vec![PathBuf::from(RUNS)] } else { args.folders.clone() };
    let mut suites: BTreeMap<String, Vec<Run>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for folder in &folders {
        let runs = match below(folder) {
            Ok(runs) => runs,
            Err(e) => return fail(Exit::Usage, format!("cannot read folder `{}`: {e}", folder.display())),
        };
        // A link such as `latest` leads to a folder that is also listed.
        for dir in runs.into_iter().filter(|dir| dir.canonicalize().is_ok_and(|real| seen.insert(real))) {
            match RunReader::open(&dir) {
                Ok(run) if args.suite.as_ref().is_none_or(|suite| *suite == run.started.suite) => {
                    suites.entry(run.started.suite.clone()).or_default().push(run);
                }
                Ok(_) => {}
                Err(e) => err!("warning: {}", one_line(&e.to_string())),
            }
        }
    }
    let mut histories: Vec<History> = Vec::new();
    for runs in suites.values_mut() {
        runs.sort_by(|a, b| a.started.time.cmp(&b.started.time));
        let mut past = history(runs);
        past.keep(args.figure.as_deref(), args.dut.as_deref());
        histories.push(past);
    }
    if histories.is_empty() {
        let names: Vec<String> = folders.iter().map(|folder| format!("`{}`", folder.display())).collect();
        let suite = args.suite.as_ref().map_or(String::new(), |suite| format!(" of the suite `{suite}`"));
        return fail(
            Exit::Usage,
            format!("there are no runs{suite} in {}; name the folder that holds them", names.join(", ")),
        );
    }
    let nothing = histories.iter().all(|past| past.series.is_empty());
    if nothing && (args.figure.is_some() || args.dut.is_some()) {
        return fail(Exit::Usage, "no run has such a figure; `drophammer history --json` names all of them");
    }
    show(&histories, args);
    match (histories.iter().any(History::is_worse), histories.iter().any(History::is_open)) {
        (true, _) => Exit::Failed,
        (_, true) => Exit::Undecided,
        _ => Exit::Good,
    }
}

fn show(histories: &[History], args: &HistoryArgs) {
    if args.json {
        return out!("{}", json_of(histories).trim_end());
    }
    let color = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let all = args.figure.is_some() || args.dut.is_some();
    for past in histories.iter().filter(|past| !all || !past.series.is_empty()) {
        out!("{}", past.index(color).trim_end());
        if all {
            out!("{}", past.text(color).trim_end());
        }
        out!("");
    }
    out!("{}", History::how());
    if !all {
        out!("`--figure throughput` shows figures over time.");
    }
}

/// The folder itself if it is that of a run, otherwise the folders in it.
fn below(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let is_run = |dir: &Path| dir.join("run.jsonl").is_file();
    if is_run(folder) {
        return Ok(vec![folder.to_owned()]);
    }
    let mut runs: Vec<PathBuf> =
        fs::read_dir(folder)?.flatten().map(|entry| entry.path()).filter(|dir| is_run(dir)).collect();
    runs.sort();
    Ok(runs)
}
