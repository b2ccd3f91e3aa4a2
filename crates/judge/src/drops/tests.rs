//! Tests that the right counters count drops, and that each drop is counted once.

use super::*;
use drophammer_model::trial::GroupCounts;

/// The drops of a trial with this many refused frames in each group, and these counters.
fn of(refused: &[u64], counters: &[(&str, u64)]) -> Vec<(String, u64)> {
    let group = |refused: &u64| GroupCounts { refused: *refused, ..GroupCounts::default() };
    let groups = refused.iter().map(group).collect();
    let dut_counters = named(counters).into_iter().collect();
    drops(&TrialResult { groups, dut_counters, ..TrialResult::default() }).into_iter().collect()
}

fn named(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    all.iter().map(|(name, frames)| ((*name).to_owned(), *frames)).collect()
}

#[test]
fn drop_counters_are_added_without_their_numbers() {
    let counters = [
        ("d0.rx_packets", 900),
        ("d0.rx_dropped", 5),
        ("d1.rx_dropped", 7),
        ("d1.tx_errors", 2),
        ("d1.100.rx_dropped", 1),
        ("ip.InHdrErrors", 11),
        ("ip.InNoRoutes", 3),
        ("ip.InReceives", 800),
        ("ip6.InTooBigErrors", 4),
        ("filter.denied", 20),
        ("filter7.matches", 900),
        ("r2.d3.delay_dropped", 6),
        ("r2.gre1.tx_errors", 8),
        ("xdp.d0.passed_ttl", 11),
        ("lo.rx_dropped", 9),
    ];
    let expected = [
        ("dN.rx_dropped", 12),
        ("dN.tx_errors", 2),
        ("dN.vlan.rx_dropped", 1),
        ("filter.denied", 20),
        ("ip.InHdrErrors", 11),
        ("ip.InNoRoutes", 3),
        ("ip6.InTooBigErrors", 4),
        ("rN.dN.delay_dropped", 6),
        ("rN.greN.tx_errors", 8),
        ("refused", 35),
    ];
    assert_eq!(of(&[30, 5], &counters), named(&expected));
}

#[test]
fn sockets_of_user_space_are_apart_from_the_kernel() {
    let guest = [("outside.d0.socket_dropped", 40), ("outside.d1.socket_dropped", 2), ("d0.rx_dropped", 3)];
    assert_eq!(of(&[], &guest), named(&[("dN.rx_dropped", 3), ("outside.dN.socket_dropped", 42)]));
    let switch = [("ovs.d0.socket_dropped", 40), ("ovs.lookups_lost", 2), ("ovs.lookups_missed", 9)];
    assert_eq!(of(&[1], &switch), named(&[("ovs.dN.socket_dropped", 40), ("ovs.lookups_lost", 2), ("refused", 1)]));
}

#[test]
fn a_queue_and_its_classes_count_a_drop_once() {
    let classes = [("r1.d1.gold.dropped", 70), ("r1.d1.bronze.dropped", 20), ("r1.d1.gold.served", 500)];
    let of_classes = [("rN.dN.bronze.dropped", 20), ("rN.dN.gold.dropped", 70)];
    assert_eq!(of(&[], &classes), named(&of_classes));
    // The discipline counts the drops of its classes, and 4 drops of packets without a class. The VLAN interface counts
    // all of them.
    let with = |more: &[(&'static str, u64)]| of(&[], &[&classes[..], more].concat());
    let queue = ("r1.d1.queue_dropped", 94);
    let all = [of_classes[0], of_classes[1], ("rN.dN.queue_dropped", 4)];
    assert_eq!(with(&[queue]), named(&all));
    assert_eq!(with(&[queue, ("r1.d1.100.tx_dropped", 94)]), named(&all));
    // The interface drops other packets. Counters of other interfaces and other routers do not overlap with it.
    let apart = [queue, ("r1.d1.tx_dropped", 6), ("r1.d1.100.tx_dropped", 101)];
    let expected = [all[0], all[1], all[2], ("rN.dN.tx_dropped", 6), ("rN.dN.vlan.tx_dropped", 1)];
    assert_eq!(with(&apart), named(&expected));
    let elsewhere = [("r1.d2.queue_dropped", 94), ("r2.d1.queue_dropped", 94)];
    assert_eq!(with(&elsewhere), named(&[all[0], all[1], ("rN.dN.queue_dropped", 188)]));
}

#[test]
fn a_switch_and_the_agent_of_a_mib_repeat_the_kernel() {
    let switch = [("d0.tx_dropped", 5), ("ovs.1.tx_drop", 8), ("ovs.2.tx_drop", 4), ("ovs.1.tx_errs", 1)];
    assert_eq!(of(&[], &switch), named(&[("dN.tx_dropped", 5), ("ovs.N.tx_drop", 7), ("ovs.N.tx_errs", 1)]));
    let agent = [
        ("d0.rx_dropped", 5),
        ("d0.ifInDiscards", 5),
        ("d1.ifInDiscards", 3),
        ("d1.ifInErrors", 2),
        ("ip.InHdrErrors", 9),
        ("ip.InNoRoutes", 6),
        ("ipSystemStatsInHdrErrors.ipv4", 9),
        ("ipSystemStatsInNoRoutes.ipv4", 6),
        ("ipSystemStatsInHdrErrors.ipv6", 1),
    ];
    let expected = [
        ("dN.ifInDiscards", 3),
        ("dN.ifInErrors", 2),
        ("dN.rx_dropped", 5),
        ("ip.InHdrErrors", 9),
        ("ip.InNoRoutes", 6),
        ("ipSystemStatsInHdrErrors.ipv6", 1),
    ];
    assert_eq!(of(&[], &agent), named(&expected));
}

#[test]
fn a_refusal_that_both_ends_of_a_veth_pair_count_is_one_drop() {
    assert_eq!(of(&[300], &[("t0.tx_dropped", 200), ("t1.tx_dropped", 100)]), named(&[("refused", 300)]));
    // The sender did not notice 50 of them. The other end also counts 20 of these 50.
    let ends = [("t0.tx_dropped", 350), ("d0.rx_dropped", 20)];
    assert_eq!(of(&[300], &ends), named(&[("dN.rx_dropped", 20), ("refused", 300), ("tN.tx_dropped", 30)]));
}

#[test]
fn a_drop_in_the_backlog_of_a_processor_counts_at_the_sending_end() {
    let backlog = ("softnet.cpu1.dropped", 300);
    let end = ("t0.tx_dropped", 300);
    // The other end also counts 10 drops that have another reason.
    let ends = [end, ("d0.rx_dropped", 310), backlog];
    assert_eq!(of(&[300], &ends), named(&[("dN.rx_dropped", 10), ("refused", 300)]));
    assert_eq!(of(&[], &[end, ("d0.rx_dropped", 300), backlog]), named(&[("tN.tx_dropped", 300)]));
    // The same between two routers.
    let core = [("r1.d2.tx_dropped", 300), ("r2.d0.rx_dropped", 300), backlog];
    assert_eq!(of(&[], &core), named(&[("rN.dN.tx_dropped", 300)]));
    // The links of a guest end outside the guest.
    let guest = [end, ("outside.d0.rx_dropped", 300), ("d0.rx_dropped", 3), backlog];
    assert_eq!(of(&[], &guest), named(&[("dN.rx_dropped", 3), ("tN.tx_dropped", 300)]));
}

#[test]
fn drops_of_a_simulated_router_count_once() {
    let counters = [
        ("truth.dropped.egress", 30),
        ("truth.dropped.no_route", 4),
        ("truth.ignored", 2),
        ("truth.giants", 2),
        ("truth.receive_overflow", 1),
        ("truth.forwarded", 500),
        ("r1.truth.dropped.egress", 30),
        ("r1.d2.gold.dropped", 30),
        ("r1.d2.out_discards", 30),
        ("r3.d0.delay_dropped", 5),
        ("d0.rx_dropped", 7),
    ];
    let expected = [
        ("rN.dN.delay_dropped", 5),
        ("truth.dropped.egress", 30),
        ("truth.dropped.no_route", 4),
        ("truth.ignored", 2),
        ("truth.receive_overflow", 1),
    ];
    assert_eq!(of(&[], &counters), named(&expected));
}

#[test]
fn counts_of_any_size_are_added() {
    let most = u64::MAX;
    let counters = [("d0.rx_dropped", most), ("d1.rx_dropped", most), ("t0.tx_dropped", most)];
    assert_eq!(of(&[most, 1], &counters), named(&[("dN.rx_dropped", most), ("refused", most)]));
}

#[test]
fn frame_counters_do_not_show_that_drops_are_counted() {
    let shown = |names: &[&str]| are_counted(&names.iter().map(|name| ((*name).to_owned(), 1)).collect());
    for counted in [
        &["d0.rx_packets", "t0.tx_bytes"][..],
        &["truth.received"],
        &["d0.ifOutDiscards"],
        &["r1.d0.gold.dropped"],
        &["ip.InHdrErrors"],
    ] {
        assert!(shown(counted), "{counted:?}");
    }
    for unknown in [&[] as &[&str], &["t0.tx_packets", "t1.rx_packets"], &["d0.ifHCInUcastPkts", "ip.InReceives", "d0"]]
    {
        assert!(!shown(unknown), "{unknown:?}");
    }
}
