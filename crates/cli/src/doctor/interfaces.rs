//! Network cards of this machine.

use super::Finding;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Folder in which the kernel lists interfaces.
const CLASS: &str = "/sys/class/net";

/// All network cards, by name, without virtual interfaces.
pub fn all() -> Vec<Finding> {
    let mut names: Vec<String> = fs::read_dir(CLASS)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().join("device").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names.iter().map(|name| of(name)).collect()
}

fn of(name: &str) -> Finding {
    let folder = Path::new(CLASS).join(name);
    let read = |file: &str| fs::read_to_string(folder.join(file)).map(|t| t.trim().to_owned()).unwrap_or_default();
    let driver = fs::read_link(folder.join("device/driver")).ok();
    let driver =
        driver.as_deref().and_then(Path::file_name).map_or("unknown".into(), |d| d.to_string_lossy().into_owned());
    let queues = |way: &str| {
        let all = fs::read_dir(folder.join("queues")).into_iter().flatten().flatten();
        all.filter(|queue| queue.file_name().to_string_lossy().starts_with(way)).count()
    };
    let speed: i64 = read("speed").parse().unwrap_or(-1);
    let speed = if speed > 0 { format!("{speed} Mbit/s") } else { "speed unknown".into() };
    let receive = queues("rx-");
    let found =
        format!("{driver}, {speed}, {receive} receive and {} transmit queues, MTU {}", queues("tx-"), read("mtu"));
    let mut finding = Finding::good(format!("interface {name}"), found);
    if read("carrier") != "1" {
        finding = finding.note(format!("no carrier: plug the cable in, and `ip link set {name} up`"));
    }
    let asked = |option: &str| {
        let output = Command::new("ethtool").args([option, name]).output().ok().filter(|o| o.status.success());
        output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned())
    };
    if receive > 1 {
        finding = finding.note(format!(
            "frames in one receive queue may overtake frames in another, so their order is unknown: `ethtool -L {name} combined 1`"
        ));
    }
    // Many cards have no pause frames, so `ethtool -a` fails.
    notes(name, asked("-k").as_deref(), asked("-a").as_deref()).into_iter().fold(finding, Finding::note)
}

/// Recommended changes, from the outputs of `ethtool -k` and `-a`, if they are available.
fn notes(name: &str, features: Option<&str>, pause: Option<&str>) -> Vec<String> {
    let known = features.map(offloads).unwrap_or_default();
    let unknown =
        known.is_empty().then(|| format!("offloads are unknown: install ethtool, and see `ethtool -k {name}`"));
    let settings = known.into_iter().chain(pause.map(pauses).unwrap_or_default());
    unknown.into_iter().chain(settings.filter(|(_, on)| *on).map(|(setting, _)| setting.remedy(name))).collect()
}

/// A setting of a card that distorts figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    LargeReceive,
    GenericReceive,
    PauseReceive,
    PauseTransmit,
}

impl Setting {
    fn remedy(self, name: &str) -> String {
        match self {
            Setting::LargeReceive => format!("the card merges frames that it receives: `ethtool -K {name} lro off`"),
            Setting::GenericReceive => format!("the kernel merges TCP segments: `ethtool -K {name} gro off`"),
            Setting::PauseReceive => {
                format!("a router may pause the tester, and loss stays hidden: `ethtool -A {name} rx off`")
            }
            Setting::PauseTransmit => format!("the card may pause the router: `ethtool -A {name} tx off`"),
        }
    }
}

/// Parses lines such as `large-receive-offload: off [fixed]` of `ethtool -k`.
fn offloads(text: &str) -> Vec<(Setting, bool)> {
    settings(
        text,
        &[("large-receive-offload", Setting::LargeReceive), ("generic-receive-offload", Setting::GenericReceive)],
    )
}

/// Parses lines such as `RX: on` of `ethtool -a`.
fn pauses(text: &str) -> Vec<(Setting, bool)> {
    settings(text, &[("RX", Setting::PauseReceive), ("TX", Setting::PauseTransmit)])
}

fn settings(text: &str, names: &[(&str, Setting)]) -> Vec<(Setting, bool)> {
    let of_line = |line: &str| {
        let (key, value) = line.split_once(':')?;
        let (_, setting) = names.iter().find(|(name, _)| *name == key.trim())?;
        Some((*setting, value.split_whitespace().next() == Some("on")))
    };
    text.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_ethtool_writes_them() {
        let text = "Features for eth1:\nrx-checksumming: on\n\ttx-tcp-segmentation: on\nlarge-receive-offload: on\n\
                    generic-receive-offload: off [fixed]\n";
        assert_eq!(offloads(text), [(Setting::LargeReceive, true), (Setting::GenericReceive, false)]);
        let text = "Pause parameters for eth1:\nAutonegotiate:\ton\nRX:\t\ton\nTX:\t\toff\n";
        assert_eq!(pauses(text), [(Setting::PauseReceive, true), (Setting::PauseTransmit, false)]);
        assert_eq!(offloads(""), []);
    }

    #[test]
    fn without_ethtool_offloads_are_not_known() {
        let unknown =
            |features| notes("eth1", features, None).join("; ").contains("offloads are unknown: install ethtool");
        assert!(unknown(None) && unknown(Some("")) && !unknown(Some("generic-receive-offload: off\n")));
        assert_eq!(notes("eth1", Some("large-receive-offload: off\n"), Some("RX: on\n")).len(), 1);
        assert_eq!(notes("eth1", Some("large-receive-offload: off\n"), None), Vec::<String>::new());
    }
}
