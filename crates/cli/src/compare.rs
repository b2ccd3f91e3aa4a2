//! `drophammer compare` and `drophammer history`: compare runs with each other, and with earlier runs.

use crate::args::HistoryArgs;
use crate::output::{err, is_colored, out};
use crate::run::RUNS;
use crate::{Ended, Exit, Failure};
use drophammer_model::visible::one_line;
use drophammer_report::compare::compare_runs;
use drophammer_report::compare::history::{self, History, json_of};
use drophammer_store::{Run, RunReader};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// `drophammer compare`.
pub fn compare(folders: &[PathBuf], json: bool) -> Ended {
    let mut runs: Vec<Run> = Vec::new();
    let mut seen: BTreeMap<PathBuf, &PathBuf> = BTreeMap::new();
    for folder in folders {
        runs.push(RunReader::open(folder).map_err(Failure::usage)?);
        // A link such as `latest` may point to a folder that the user also gives.
        let real = folder.canonicalize().unwrap_or_else(|_| folder.clone());
        if let Some(before) = seen.insert(real, folder) {
            let (before, again) = (before.display(), folder.display());
            return Err(Failure::usage(format!("`{before}` and `{again}` are the same run; name another run")));
        }
    }
    for run in &runs {
        for warning in &run.warnings {
            err!("warning: {}: {}", one_line(&run.dir.display().to_string()), one_line(warning));
        }
    }
    let compared = compare_runs(&runs);
    if compared.lines.is_empty() {
        let text = "none of these runs has a figure to compare; name runs whose tests produce figures";
        return Err(Failure::new(Exit::Undecided, text));
    }
    let text = if json { compared.json() } else { compared.text(is_colored(&io::stdout())) };
    out!("{}", text.trim_end());
    Ok(Exit::compared(compared.is_worse(), compared.is_open()))
}

/// `drophammer history`.
pub fn history(args: &HistoryArgs) -> Ended {
    let folders = if args.folders.is_empty() { vec![PathBuf::from(RUNS)] } else { args.folders.clone() };
    let mut suites: BTreeMap<String, Vec<Run>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for folder in &folders {
        let runs =
            below(folder).map_err(|e| Failure::usage(format!("cannot read folder `{}`: {e}", folder.display())))?;
        // A link such as `latest` points to a folder that is also listed.
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
        let mut past = history::history(runs);
        past.keep(args.figure.as_deref(), args.dut.as_deref());
        histories.push(past);
    }
    if histories.is_empty() {
        let names: Vec<String> = folders.iter().map(|folder| format!("`{}`", folder.display())).collect();
        let suite = args.suite.as_ref().map_or(String::new(), |suite| format!(" of the suite `{suite}`"));
        let text = format!("there are no runs{suite} in {}; name the folder that contains them", names.join(", "));
        return Err(Failure::usage(text));
    }
    let filtered = args.figure.is_some() || args.dut.is_some();
    if filtered && histories.iter().all(|past| past.series.is_empty()) {
        return Err(Failure::usage("no run has such a figure; `drophammer history --json` lists all figures"));
    }
    show(&histories, args.json, filtered);
    Ok(Exit::compared(histories.iter().any(History::is_worse), histories.iter().any(History::is_open)))
}

fn show(histories: &[History], json: bool, filtered: bool) {
    if json {
        return out!("{}", json_of(histories).trim_end());
    }
    let color = is_colored(&io::stdout());
    for past in histories.iter().filter(|past| !filtered || !past.series.is_empty()) {
        out!("{}", past.index(color).trim_end());
        if filtered {
            out!("{}", past.text(color).trim_end());
        }
        out!("");
    }
    out!("{}", History::how());
    if !filtered {
        out!("`--figure throughput` shows figures over time.");
    }
}

/// The folder itself if it contains a run, otherwise all folders in it that contain one.
fn below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let is_run = |dir: &Path| dir.join("run.jsonl").is_file();
    if is_run(folder) {
        return Ok(vec![folder.to_owned()]);
    }
    let mut runs: Vec<PathBuf> =
        fs::read_dir(folder)?.flatten().map(|entry| entry.path()).filter(|dir| is_run(dir)).collect();
    runs.sort();
    Ok(runs)
}
