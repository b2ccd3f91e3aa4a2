//! The reference device in a separate process, on real links: another instance of this program, started by the lab.
//!
//! The router is the same as in virtual time, but a port of crate `port` moves its frames, and its clock is a real clock. This
//! checks the tester's generator, analyzer, sockets and timestamps against a device that records what it did.

mod process;

pub use process::run;

use crate::simulated;
use drophammer_lab::{Lab, LabError, Links, Program, ProgramDut};
use drophammer_model::role::RouterRole;
use drophammer_model::suite::{BgpProtection, DutConfig, PortConfig, Secret};
use drophammer_port::tap;
use drophammer_reference::{Config, Router};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// First argument that makes this program run as the device; [`Program`] provides the other arguments.
pub const SUBCOMMAND: &str = "reference-device";

/// The configuration file of the process.
#[derive(Serialize, Deserialize)]
pub(crate) struct Job {
    links: JobLinks,
    /// TCP MD5 key of the device's sessions; [`Secret::HIDDEN`] in the stored file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    md5: Option<String>,
    /// True if the device's sessions use GTSM.
    #[serde(default)]
    gtsm: bool,
    /// The device. Its faults start with the command `begin`.
    device: Config,
}

impl Job {
    fn new(links: Links, device: &Config, protection: &BgpProtection) -> Job {
        Job {
            links: if links == Links::Tap { JobLinks::Tap } else { JobLinks::Veth },
            md5: protection.md5.as_ref().map(|key| key.expose().to_owned()),
            gtsm: protection.gtsm,
            device: device.clone(),
        }
    }

    /// Returns the device, with the protection of its sessions.
    fn into_device(self) -> Config {
        let mut device = self.device;
        if let Some(bgp) = &mut device.bgp {
            bgp.protection = BgpProtection { md5: self.md5.map(Secret::new), gtsm: self.gtsm };
        }
        device
    }

    fn text(&self) -> Result<String, LabError> {
        let text = serde_json::to_string_pretty(self).map_err(|e| LabError::Io {
            what: "cannot write the configuration of the device".into(),
            source: e.into(),
        })?;
        Ok(text + "\n")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum JobLinks {
    Veth,
    Tap,
}

/// Returns the links that the suite configures for a DUT of kind `reference`; `None` for virtual time.
pub fn links(dut: &DutConfig) -> Option<Links> {
    match dut.params.text("links").as_deref() {
        Some("veth") => Some(Links::Veth),
        Some("tap") => Some(Links::Tap),
        _ => None,
    }
}

/// Brings up a device of a suite on veth or tap. Its configuration, with times in seconds and nanoseconds, is stored as
/// `reference.json`. The device is this program started with [`SUBCOMMAND`], for which its `main` must call [`run`].
///
/// # Errors
/// A configuration that the device refuses, missing rights to create taps, and the errors of [`ProgramDut::bring_up`].
pub fn bring_up(
    lab: &Lab,
    dut: &DutConfig,
    ports: &[PortConfig],
    seed: u64,
    work_dir: &Path,
    stop: &dyn Fn() -> bool,
) -> Result<ProgramDut, LabError> {
    let config = simulated::config(dut, ports, seed);
    let links = links(dut).unwrap_or(Links::Veth);
    bring_up_with(lab, dut, ports, work_dir, links, config, stop)
}

/// Like [`bring_up`], but with a configuration that can express more than the parameters of a DUT.
///
/// # Errors
/// The errors of [`bring_up`].
pub fn bring_up_with(
    lab: &Lab,
    dut: &DutConfig,
    ports: &[PortConfig],
    work_dir: &Path,
    links: Links,
    config: Config,
    stop: &dyn Fn() -> bool,
) -> Result<ProgramDut, LabError> {
    Router::new(config.clone()).map_err(|e| crate::simulated::unusable(&dut.name, e))?;
    if links == Links::Tap {
        tap::usable().map_err(|why| LabError::Forbidden {
            what: format!("{} cannot have taps: {why}", dut.name),
            remedy: "`links: veth` needs no taps".into(),
        })?;
    }
    let protection = config.bgp.as_ref().map(|bgp| bgp.protection.clone()).unwrap_or_default();
    let program = Program {
        kind: &crate::kinds::REFERENCE_SPEC,
        version: concat!("Drophammer ", env!("CARGO_PKG_VERSION")).into(),
        links,
        // Through `/proc` rather than by path: the file at that path may have been replaced.
        executable: PathBuf::from(format!("/proc/{}/exe", std::process::id())),
        arguments: vec![SUBCOMMAND.into()],
        file: "reference.json".into(),
        configuration: Job::new(links, &config, &protection).text()?,
        shown: Job::new(links, &config, &protection.without_secrets()).text()?,
        when_forwarding: Some("begin".into()),
    };
    ProgramDut::bring_up(lab, dut, &RouterRole::of(ports), work_dir, program, stop)
}
