//! Counters of a kernel that receives only the packets that another forwarder in its namespace leaves to it.

use std::collections::BTreeMap;

/// Counters that would count all packets of a router whose kernel forwards.
const OF_ALL_PACKETS: [&str; 4] = ["ip.InReceives", "ip.ForwDatagrams", "ip6.InReceives", "ip6.OutForwDatagrams"];

/// Renames the kernel's counters of received and forwarded packets to what they count: the slow path. Errors and
/// discards keep their names, since the kernel is always the one that detects them.
pub(crate) fn rename(counters: &mut BTreeMap<String, u64>) {
    for name in OF_ALL_PACKETS {
        if let Some(value) = counters.remove(name) {
            counters.insert(format!("slow_path.{name}"), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::counters::DutCounter;

    #[test]
    fn what_the_kernel_alone_sees_keeps_its_meaning() {
        let names = ["ip.ForwDatagrams", "ip6.InReceives", "ip.InHdrErrors", "d0.rx_packets"];
        let mut counters: BTreeMap<String, u64> = names.iter().map(|name| ((*name).to_owned(), 3)).collect();
        rename(&mut counters);
        assert_eq!(counters.get("slow_path.ip.ForwDatagrams"), Some(&3));
        let known: Vec<_> = DutCounter::all_of("kernel", &counters).into_iter().map(|c| c.name).collect();
        assert_eq!(known, ["rx_packets", "ip.InHdrErrors"]);
    }
}
