//! Real daemons as route reflectors between two emulated PEs: labels, route distinguishers and route targets arrive unchanged, and
//! routes that are withdrawn come back. The example `daemons` records the same exchanges as test data.

use crate::anew::{Case, Checked};
use crate::daemon;
use crate::scenes::{RECORDINGS, Scene};
use crate::sessions;
use drophammer_lab::{Lab, LabOptions};
use std::path::Path;

pub fn cases() -> Vec<Case> {
    let labelled =
        RECORDINGS.into_iter().filter(|(.., scene)| scene.families().iter().all(|family| family.is_labelled()));
    labelled.map(|(name, kind, scene)| case(name, kind, scene)).collect()
}

fn case(name: &'static str, kind: &'static str, scene: Scene) -> Case {
    let program = match kind {
        "frr" => "/usr/lib/frr/bgpd",
        "bird" => "/usr/sbin/bird",
        "gobgp" => "/usr/bin/gobgpd",
        "freertr" => "/usr/bin/java",
        _ => "/usr/sbin/bgpd",
    };
    let missing = if !Path::new(program).exists() {
        Some(format!("{program} is not installed"))
    } else {
        let classes = kind == "freertr" && std::env::var_os("FREERTR").is_none();
        classes.then(|| "FREERTR does not name the classes of freeRtr".to_owned())
    };
    Case::alone(format!("bgp_daemons_{}", name.replace('-', "_")), move || reflects(kind, scene))
        .long()
        .again()
        .unless(missing)
}

fn reflects(kind: &str, scene: Scene) -> Checked {
    let lab = Lab::enter(&LabOptions::default()).map_err(|e| e.to_string())?;
    if kind == "openbgpd" && !lab.is_root() {
        return Err("OpenBGPD becomes another user: run this as root".into());
    }
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    daemon::surroundings(folder.path())?;
    sessions::one(&daemon::links(&lab)?, kind, scene).map(|_| ())
}
