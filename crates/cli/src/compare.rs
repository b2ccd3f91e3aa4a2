//! `drophammer compare`: compares runs.

use crate::Exit;
use crate::output::{err, out};
use crate::run::fail;
use drophammer_model::visible::one_line;
use drophammer_report::compare::compare_runs;
use drophammer_store::{Run, RunReader};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;

/// `drophammer compare`.
pub fn run(folders: &[PathBuf], json: bool) -> Exit {
    let mut runs: Vec<Run> = Vec::new();
    let mut seen: BTreeMap<PathBuf, &PathBuf> = BTreeMap::new();
    for folder in folders {
        match RunReader::open(folder) {
            Ok(run) => runs.push(run),
            Err(e) => return fail(Exit::Usage, e),
        }
        // A link such as `latest` may lead to a folder that is also named.
        let real = folder.canonicalize().unwrap_or_else(|_| folder.clone());
        if let Some(before) = seen.insert(real, folder) {
            let (before, again) = (before.display(), folder.display());
            return fail(Exit::Usage, format!("`{before}` and `{again}` are one run; name another one"));
        }
    }
    for run in &runs {
        for warning in &run.warnings {
            err!("warning: {}: {}", one_line(&run.dir.display().to_string()), one_line(warning));
        }
    }
    let compared = compare_runs(&runs);
    if compared.lines.is_empty() {
        return fail(Exit::Usage, "none of these runs has a figure to compare; name runs whose tests give figures");
    }
    if json {
        out!("{}", compared.json().trim_end());
    } else {
        let color = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        out!("{}", compared.text(color).trim_end());
    }
    match (compared.is_worse(), compared.is_open()) {
        (true, _) => Exit::Failed,
        (_, true) => Exit::Undecided,
        _ => Exit::Good,
    }
}
