//! Makes the recordings of real daemons that tests read: `cargo run -p drophammer-testbed --example daemons` as root, with the packages
//! bird2, frr and openbgpd. Each is checked while it is made, and nothing is kept of what is not right.

mod daemon;
mod mrt;
#[path = "../../tests/common/mrt_plan.rs"]
mod plan;
mod speaker;

use drophammer_lab::{Lab, LabOptions};
use std::path::Path;
use std::process::ExitCode;

fn record() -> Result<(), String> {
    let lab = Lab::enter(&LabOptions::default()).map_err(|e| e.to_string())?;
    if !lab.is_root() {
        return Err("OpenBGPD becomes another user: run this as root".into());
    }
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    daemon::surroundings(folder.path())?;
    let netns = daemon::links(&lab)?;
    let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    mrt::record(&netns, &crates.join("testbed/tests/mrt_recorded"))
}

fn main() -> ExitCode {
    match record() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
