//! The baseline of a suite: an earlier run, read before any measurement.

use crate::Exit;
use crate::output::err;
use crate::run::fail;
use drophammer_model::record::Baseline;
use drophammer_model::suite::Suite;
use drophammer_model::visible::{one_line, visible};
use drophammer_report::baseline::resolve;
use drophammer_store::RunReader;
use std::path::Path;

/// Reads the figures to which bounds of the suite refer. A folder given on the command line takes precedence over the
/// suite's.
///
/// # Errors
/// The error has been printed.
pub fn read(suite: &mut Suite, named: Option<&Path>) -> Result<(), Exit> {
    if let Some(dir) = named {
        suite.baseline = Some(Baseline { folder: dir.display().to_string(), ..Baseline::default() });
    }
    if !suite.needs_baseline() {
        if let Some(dir) = named {
            let dir = one_line(&dir.display().to_string());
            err!(
                "warning: --baseline {dir}: no criterion is a share of a baseline, as `\">= 95 % of baseline\"` is; nothing is compared"
            );
        }
        return Ok(());
    }
    let Some(folder) = suite.baseline.as_ref().map(|baseline| baseline.folder.clone()) else {
        let text = "criteria are shares of a baseline, but no run is named; say --baseline FOLDER, or write `baseline: FOLDER` into the suite";
        return Err(fail(Exit::Usage, text));
    };
    let run = RunReader::open(Path::new(&folder)).map_err(|e| fail(Exit::Usage, format!("baseline: {e}")))?;
    if run.running {
        let text = format!("baseline: the run in `{folder}` still goes on; wait for its end, or name another run");
        return Err(fail(Exit::Usage, text));
    }
    for warning in &run.warnings {
        err!("warning: {}: {}", one_line(&folder), one_line(warning));
    }
    resolve(suite, &run).map_err(|wrong| {
        wrong.iter().for_each(|why| err!("error: {}", visible(why, &[])));
        err!("  help: the baseline is the run in `{}`", one_line(&folder));
        Exit::Usage
    })
}
