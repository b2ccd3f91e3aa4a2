//! Makes the recordings of real daemons that tests read: `cargo run -p drophammer-testbed --example daemons` as root,
//! with the packages bird2, frr, openbgpd and gobgpd, and freeRtr (see `freertr.rs`); `-- mrt`, `-- paths`, `-- frr` and the like make a part of them. Each is
//! checked while it is made, and faulty ones are not kept.

mod daemon;
mod freertr;
mod mrt;
#[path = "../../tests/common/mrt_plan.rs"]
mod plan;
#[path = "../../../emulation/tests/bgp_daemons/plan.rs"]
mod scenes;
mod sessions;
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
    let filter = std::env::args().nth(1).unwrap_or_default();
    if "mrt".contains(&filter) {
        mrt::record(&netns, &crates.join("testbed/tests/mrt_recorded"))?;
    }
    sessions::record(&netns, &crates.join("emulation/tests/bgp_daemons"), &filter)
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
