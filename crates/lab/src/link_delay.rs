//! Delay and loss of a link between two routers, implemented by the kernel of the receiving router.
//!
//! [`netem`](https://man7.org/linux/man-pages/man8/tc-netem.8.html) delays packets after they arrive, on an
//! intermediate device. They have already passed the link's queue and speed limit, as on a link without delay. If netem
//! were the sender's queueing discipline, packets in flight would share its queue with packets that wait for
//! transmission.

use crate::LabError;
use crate::router::dut_interface;
use crate::traffic_classes::{Tc, listed};
use drophammer_model::quantity::Bandwidth;
use drophammer_model::role::RouterRole;
use drophammer_model::topology::{CoreLink, LinkLoss};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Kernel modules that this needs.
pub(crate) const MODULES: [&str; 5] = ["ifb", "sch_ingress", "cls_matchall", "act_mirred", "sch_netem"];
/// Minimum number of packets that can be in flight.
const LEAST_PACKETS: u128 = 10_000;
/// Assumed speed of a link without one, to compute the number of packets on it: more than a router on one processor can
/// forward.
const UNLIMITED: Bandwidth = Bandwidth(200_000_000);
/// Bits of the shortest frame with preamble and gap.
const SHORTEST: u128 = 8 * 84;

/// The delay and the loss of packets that arrive at one interface of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinkDelay {
    /// The interface, by its index in the role.
    pub(crate) interface: usize,
    /// The delay.
    time: Duration,
    /// Maximum number of packets in flight; more packets are dropped and counted.
    packets: u128,
    /// Share of packets that are lost at random, after the tester has verified that the system forwards.
    loss: LinkLoss,
}

impl LinkDelay {
    /// The delay of a link at interface `interface` of the router at one end; `None` for a link with neither delay nor
    /// loss.
    pub(crate) fn of(link: &CoreLink, interface: usize) -> Option<LinkDelay> {
        let speed = link.speed.unwrap_or(UNLIMITED);
        // Twice what the line carries in this time, because a token bucket lets bursts through.
        let packets = (2 * u128::from(speed.0) * link.delay.as_micros()).div_ceil(1_000_000 * SHORTEST);
        let delay = LinkDelay { interface, time: link.delay, packets: packets.max(LEAST_PACKETS), loss: link.loss };
        (!link.delay.is_zero() || !link.loss.is_none()).then_some(delay)
    }

    /// Name of the intermediate device.
    fn device(&self) -> String {
        format!("w{}", self.interface)
    }

    /// Lines of ip(8) that make the intermediate device.
    pub(crate) fn ip_lines(&self) -> [String; 2] {
        let device = self.device();
        [format!("link add name {device} type ifb"), format!("link set {device} up")]
    }

    /// The arguments of netem.
    fn netem(&self) -> String {
        format!("netem delay {}us limit {}", self.time.as_micros(), self.packets)
    }

    /// Line of tc(8) that starts the loss, if there is any.
    pub(crate) fn loss_line(&self) -> Option<String> {
        let line = format!("qdisc change dev {} root {} loss {}%", self.device(), self.netem(), self.loss.percent());
        (!self.loss.is_none()).then_some(line)
    }

    /// Lines of tc(8) that redirect arriving packets through it.
    pub(crate) fn tc_lines(&self) -> [String; 3] {
        let (device, interface) = (self.device(), dut_interface(self.interface));
        [
            format!("qdisc add dev {device} root {}", self.netem()),
            format!("qdisc add dev {interface} ingress"),
            format!(
                "filter add dev {interface} parent ffff: protocol all matchall action mirred egress redirect dev {device}"
            ),
        ]
    }

    /// Name of the counter of packets that were lost at random or because too many were in flight: netem counts both in
    /// one value.
    fn counter(&self) -> String {
        format!("{}.delay_dropped", dut_interface(self.interface))
    }
}

/// Name of the counter of packets that an interface dropped because its queue was full.
fn queue_counter(interface: usize) -> String {
    format!("{}.queue_dropped", dut_interface(interface))
}

/// Drops, from `tc -j -s qdisc show`, in the queues of a router with this number of interfaces and these delays.
fn dropped(listed: &Value, interfaces: usize, delays: &[LinkDelay]) -> BTreeMap<String, u64> {
    let of_root = |device: &str| {
        let root = |q: &&Value| q["dev"] == device && q["root"] == true;
        listed.as_array().into_iter().flatten().find(root)?["drops"].as_u64()
    };
    let queues = (0..interfaces).map(|i| (queue_counter(i), of_root(&dut_interface(i))));
    let delays = delays.iter().map(|delay| (delay.counter(), of_root(&delay.device())));
    queues.chain(delays).filter_map(|(name, dropped)| Some((name, dropped?))).collect()
}

/// Adds the drops in the queues of a router that is one of several: these queues belong to the DUT. A single router has
/// only the tester's queues in front of it.
pub(crate) fn count_drops(
    tc: Tc<'_>,
    role: &RouterRole,
    delays: &[LinkDelay],
    counters: &mut BTreeMap<String, u64>,
) -> Result<(), LabError> {
    if role.member.is_some() {
        counters.extend(dropped(&listed(tc, &[])?, role.interfaces.len(), delays));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::topology::{CoreEnd, CoreLinkName};
    use serde_json::json;

    fn link(speed: Option<u64>, delay: Duration) -> CoreLink {
        let ends = [CoreEnd { router: 1, interface: 2 }, CoreEnd { router: 2, interface: 0 }];
        CoreLink { name: CoreLinkName(2, 3), ends, speed: speed.map(Bandwidth), delay, loss: LinkLoss::default() }
    }

    #[test]
    fn arriving_packets_wait_on_a_separate_device() {
        let delay = LinkDelay::of(&link(Some(44_210_000), Duration::from_millis(277)), 2).unwrap();
        assert_eq!(delay.ip_lines(), ["link add name w2 type ifb", "link set w2 up"]);
        assert_eq!(
            delay.tc_lines(),
            [
                "qdisc add dev w2 root netem delay 277000us limit 36447",
                "qdisc add dev d2 ingress",
                "filter add dev d2 parent ffff: protocol all matchall action mirred egress redirect dev w2",
            ]
        );
    }

    #[test]
    fn loss_begins_later_with_or_without_a_delay() {
        let of =
            |ms, loss| LinkDelay::of(&CoreLink { loss: LinkLoss(loss), ..link(None, Duration::from_millis(ms)) }, 0);
        let line = |ms, loss| of(ms, loss).unwrap().loss_line();
        assert_eq!(line(60, 0), None);
        assert_eq!(
            line(60, 1_000).as_deref(),
            Some("qdisc change dev w0 root netem delay 60000us limit 35715 loss 0.1%")
        );
        assert_eq!(line(0, 1).as_deref(), Some("qdisc change dev w0 root netem delay 0us limit 10000 loss 0.0001%"));
        assert!(of(60, 1_000).unwrap().tc_lines().iter().all(|line| !line.contains("loss")));
        assert_eq!(of(0, 0), None);
    }

    #[test]
    fn there_is_room_for_the_packets_in_flight() {
        assert_eq!(LinkDelay::of(&link(None, Duration::ZERO), 0), None);
        let packets = |speed, ms| LinkDelay::of(&link(speed, Duration::from_millis(ms)), 0).unwrap().packets;
        assert_eq!(packets(Some(1_000_000), 1), LEAST_PACKETS);
        assert_eq!(packets(None, 277), 164_881);
        assert!(packets(Some(1_000_000_000), 10_000) > 2 * 10 * 1_000_000_000 / SHORTEST);
    }

    #[test]
    fn drops_of_queues_and_delays_have_names() {
        let delay = LinkDelay::of(&link(None, Duration::from_millis(1)), 2).unwrap();
        let listed = json!([
            {"dev": "lo", "kind": "noqueue", "root": true, "drops": 9},
            {"dev": "d0", "kind": "noqueue", "root": true, "drops": 0},
            {"dev": "d2", "kind": "pfifo_fast", "root": true, "drops": 3},
            {"dev": "d2", "kind": "ingress", "drops": 8},
            {"dev": "w2", "kind": "netem", "root": true, "drops": 5},
        ]);
        let expected = [("d0.queue_dropped", 0), ("d2.delay_dropped", 5), ("d2.queue_dropped", 3)];
        assert_eq!(dropped(&listed, 3, &[delay]), expected.map(|(name, n)| (name.to_owned(), n)).into());
    }
}
