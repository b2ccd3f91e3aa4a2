//! `drophammer init`: a first suite for the user's own router.

mod prompt;

use crate::output::out;
use crate::suite_file::read_own;
use crate::{Ended, Exit, Failure};
use drophammer_model::quantity::Bandwidth;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

/// Speed of a port whose interface does not report one.
const ASSUMED: Bandwidth = Bandwidth(1_000_000_000);

/// The speed that an interface of this machine reports.
pub fn reported_speed(interface: &str) -> Option<Bandwidth> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/speed")).ok()?;
    let mbit: u64 = text.trim().parse().ok().filter(|mbit| *mbit > 0)?;
    Some(Bandwidth(mbit * 1_000_000))
}

/// `drophammer init`.
pub fn init(ports: &[String], out: &Path) -> Ended {
    let exists =
        || Failure::usage(format!("`{}` exists and is left as it is; name another file with --out", out.display()));
    // Check this first, before a question whose answer would be useless.
    if out.symlink_metadata().is_ok() {
        return Err(exists());
    }
    let ports = if ports.is_empty() { prompt::on_terminal().map_err(Failure::usage)? } else { ports.to_vec() };
    let is_name = |name: &String| {
        !name.is_empty() && name.len() < 16 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:@".contains(c))
    };
    if let Some(wrong) = ports.iter().find(|name| !is_name(name)) {
        return Err(Failure::usage(format!("`{wrong}` is not the name of an interface; `ip link` lists them")));
    }
    let text = suite(&ports);
    // Write only a suite that passes `check`.
    read_own(&text, &out.display().to_string()).map_err(|errors| {
        let why = errors.errors.first().map(|e| format!("{}\n  help: {}", e.message, e.help)).unwrap_or_default();
        Failure::usage(format!("no suite can be made with these ports: {why}"))
    })?;
    let file = OpenOptions::new().write(true).create_new(true).open(out);
    let name = out.display();
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => exists(),
        _ => Failure::store(format!("cannot write `{name}`: {e}; name another file with --out")),
    })?;
    out!(
        "wrote {name}\n\nNext:\n  drophammer plan {name}       how to configure the router\n  drophammer run {name}        as root"
    );
    Ok(Exit::Good)
}

/// The commented suite.
fn suite(ports: &[String]) -> String {
    let mut text = format!(
        "# A suite for your own router. Only in a laboratory: RFC 6815 forbids such tests on production networks.
# All keys: docs/suites.md. How to configure the router: `drophammer plan` with this file.
suite: my-router
duts:
  - name: router
    kind: external                # your own router, on interfaces of this machine
    interfaces: [{}]      # in the order of the ports
    # setup: ssh admin@192.0.2.9 'configure from /flash/rfc2544.conf'
ports:                            # traffic runs between the first and the second, the third and the fourth, ...
",
        ports.join(", ")
    );
    for (index, interface) in ports.iter().enumerate() {
        let reported = reported_speed(interface);
        let from =
            if reported.is_some() { "as reported by the interface" } else { "assumed: the interface reports none" };
        let speed = reported.unwrap_or(ASSUMED);
        let _ = writeln!(text, "  - {{name: p{}, speed: {speed}}}    # {interface}; {from}", index + 1);
    }
    text += "# bgp: {}                       # BGP with emulated routers behind the ports
rounds: 1                         # 4 or more, if runs are to be compared with each other
defaults:
  frame_sizes: [64, 512, 1518]
tests:                            # `drophammer list tests` has all of them
  - throughput
  - latency
  - frame_loss_rate
";
    text
}
