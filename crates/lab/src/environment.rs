//! Reads the conditions of a run.

use crate::cpu::CpuPlan;
use drophammer_model::environment::Environment;
use std::collections::BTreeMap;
use std::fs;

fn read_file(path: &str) -> String {
    fs::read_to_string(path).map(|t| t.trim_matches(['\n', '\0', ' ']).to_owned()).unwrap_or_default()
}

/// The value of the first `key : value` line.
fn field(text: &str, key: &str, separator: char) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(separator)?;
        (name.trim() == key).then(|| value.trim().trim_matches('"').to_owned())
    })
}

/// Release of the running kernel: `6.1.0-18-amd64`.
pub(crate) fn kernel_release() -> String {
    read_file("/proc/sys/kernel/osrelease")
}

pub(crate) fn read(root: bool, cpus: &CpuPlan, threads: usize) -> Environment {
    let cpuinfo = read_file("/proc/cpuinfo");
    let online = read_file("/sys/devices/system/cpu/online");
    let memory = field(&read_file("/proc/meminfo"), "MemTotal", ':');
    let kilobytes = memory.and_then(|m| m.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    let load = read_file("/proc/loadavg").split_whitespace().next().and_then(|w| w.parse().ok()).unwrap_or(0.0);
    let share = if cpus.separate() { "" } else { " (the same: tester and DUT share it)" };
    let testers: Vec<String> = cpus.testers.iter().take(threads.max(1)).map(usize::to_string).collect();
    Environment {
        drophammer: env!("CARGO_PKG_VERSION").into(),
        kernel: format!("{} {}", kernel_release(), read_file("/proc/sys/kernel/version")),
        kernel_command_line: read_file("/proc/cmdline"),
        distribution: field(&read_file("/etc/os-release"), "PRETTY_NAME", '=').unwrap_or_default(),
        cpu_model: field(&cpuinfo, "model name", ':').unwrap_or_default(),
        cpus: format!("online {online}; tester on {}, DUT on {}{share}", testers.join(" "), cpus.dut),
        tester_threads: testers.len() as u32,
        memory_bytes: kilobytes * 1024,
        virtualization: virtualization(&cpuinfo),
        clock_source: read_file("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        privilege: if root { "root".into() } else { "ordinary user in a user namespace".into() },
        load_average: load,
        more: more(cpus),
    }
}

fn virtualization(cpuinfo: &str) -> String {
    let flags = field(cpuinfo, "flags", ':').unwrap_or_default();
    if !flags.split_whitespace().any(|f| f == "hypervisor") {
        return String::new();
    }
    let names = ["/sys/hypervisor/type", "/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name"];
    let known: Vec<_> = names.iter().map(|n| read_file(n)).filter(|n| !n.is_empty()).collect();
    if known.is_empty() { "virtual machine of unknown make".into() } else { known.join(" ") }
}

fn more(cpus: &CpuPlan) -> BTreeMap<String, String> {
    let cpu = "/sys/devices/system/cpu";
    let mut more = BTreeMap::new();
    let mut note = |key: &str, value: String| {
        if !value.is_empty() {
            more.insert(key.to_owned(), value);
        }
    };
    note("governor", read_file(&format!("{cpu}/cpu{}/cpufreq/scaling_governor", cpus.dut)));
    note("turbo off", read_file(&format!("{cpu}/intel_pstate/no_turbo")));
    note("SMT", read_file(&format!("{cpu}/smt/control")));
    note("isolated processors", read_file(&format!("{cpu}/isolated")));
    note("transparent huge pages", read_file("/sys/kernel/mm/transparent_hugepage/enabled"));
    let mut vulnerabilities: Vec<String> = fs::read_dir(format!("{cpu}/vulnerabilities"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| (e.file_name().to_string_lossy().into_owned(), read_file(&e.path().to_string_lossy())))
        .filter(|(_, state)| state != "Not affected")
        .map(|(name, state)| format!("{name}: {state}"))
        .collect();
    vulnerabilities.sort();
    note("mitigations", vulnerabilities.join("; "));
    more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let here = read(true, &CpuPlan { tester: 0, testers: vec![0], dut: 0, spare: None }, 1);
        assert!(here.memory_bytes > 1 << 20 && !here.kernel.is_empty());
        assert!(here.cpus.contains("share") && here.tester_threads == 1, "{}", here.cpus);
        let plan = CpuPlan { tester: 0, testers: vec![0, 2, 4], dut: 5, spare: Some(2) };
        let here = read(true, &plan, 2);
        assert!(here.cpus.contains("tester on 0 2, DUT on 5") && here.tester_threads == 2, "{}", here.cpus);
    }

    #[test]
    fn fields() {
        assert_eq!(field("A=1\nPRETTY_NAME=\"Debian 12\"\n", "PRETTY_NAME", '='), Some("Debian 12".into()));
        assert_eq!(field("model name\t: X (R)\n", "model name", ':'), Some("X (R)".into()));
    }
}
