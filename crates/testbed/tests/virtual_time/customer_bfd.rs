//! BFD of CE routers: what a test reports when sessions go down.

use crate::common::{read_suite, with_bed};
use drophammer_methods::Testbed;
use drophammer_methods::vpns::VpnSize;
use drophammer_model::routes::Change;
use drophammer_model::trial::Family;
use drophammer_reference::{BfdTruth, Faults, IgpFaults};
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(60);
const TWO_SITES: &str = "suite: bfd\nduts: [{name: box, kind: reference}]\nports:\n  \
                         - {name: c1, speed: 1 Gbit/s, customers: {count: 2, bfd: true}}\n  \
                         - {name: c2, speed: 1 Gbit/s, customers: {count: 1, bfd: true}, sites_of: c1}\n  \
                         - {name: n1, speed: 1 Gbit/s, mtu: 1600, core: [ospf, ldp]}\n  \
                         - {name: n2, speed: 1 Gbit/s, mtu: 1600, core: [ospf, ldp]}\ntests: [vpn_scale]\n";
const SUITE: &str = "suite: bfd\nduts: [{name: box, kind: reference}]\nports:\n  \
                     - {name: c, speed: 1 Gbit/s, ipv6: off, customers: {count: 3, bfd: true}}\n  \
                     - {name: n, speed: 1 Gbit/s, ipv6: off, mtu: 1600, core: [ospf, ldp]}\ntests: [vpn_scale]\n";

#[test]
fn a_lost_session_is_named_and_ends_bgp() {
    with_bed(
        &read_suite(SUITE),
        &[Family::Ipv4],
        |_| {},
        |bed, device| {
            let size = VpnSize { vrfs: 3, routes: 10, families: vec![Family::Ipv4] };
            let up = |bed: &mut dyn Testbed| bed.vpns().unwrap().bring_up(&size, WITHIN).unwrap();
            up(bed);
            assert_eq!(device.truth().vrf_bfd, BfdTruth { up: 3, downs: 0, missing: 0 });
            let silent =
                Faults { igp: IgpFaults { bfd_packet_missing: 1, ..IgpFaults::default() }, ..Faults::default() };
            device.set_faults(silent).unwrap();
            // More than the detection time, 900 ms, but less than the tester takes to connect again.
            Testbed::settle(bed, Duration::from_millis(1_000)).unwrap();
            let vpns = bed.vpns().unwrap();
            let seen = vpns.seen();
            let why = "packets of the DUT were missing for the detection time";
            assert_eq!(seen.bfd_lost_at, [1, 2, 3].map(|vrf| format!("v{vrf} ({why})")));
            assert_eq!((seen.bfd_lost, seen.sessions_lost), (3, 3));
            let texts = seen.lost_since(&Default::default());
            assert_eq!(texts[0], "BGP sessions ended 3 times");
            assert!(texts[1].starts_with("BFD sessions went down 3 times: v1 (packets"), "{texts:?}");
            // The other end goes down because the CE router signals it.
            let truth = device.truth().vrf_bfd;
            assert_eq!((truth.up, truth.downs), (0, 3));
            vpns.change_all(Change::Advertise).unwrap();
            let seen = bed.vpns().unwrap().await_routes(WITHIN).unwrap();
            assert!(seen.cause.starts_with("the session of the CE router of v1 ended"), "{}", seen.cause);
            // A device that answers again is ready again.
            device.set_faults(Faults::default()).unwrap();
            up(bed);
            let seen = bed.vpns().unwrap().seen();
            assert_eq!((seen.bfd_lost, seen.sessions_lost, device.truth().vrf_bfd.up), (0, 0, 3));
            bed.vpns().unwrap().take_down().unwrap();
            assert_eq!(device.truth().vrf_bfd.up, 0);
        },
    );
}

#[test]
fn packets_that_the_device_does_not_send_are_counted_by_session() {
    with_bed(
        &read_suite(SUITE),
        &[Family::Ipv4],
        |_| {},
        |bed, device| {
            let size = VpnSize { vrfs: 3, routes: 10, families: vec![Family::Ipv4] };
            bed.vpns().unwrap().bring_up(&size, WITHIN).unwrap();
            Testbed::settle(bed, Duration::from_secs(1)).unwrap();
            assert_eq!(bed.vpns().unwrap().seen().bfd_missing, 0);
            let sparing =
                Faults { igp: IgpFaults { bfd_packet_missing: 3, ..IgpFaults::default() }, ..Faults::default() };
            device.set_faults(sparing).unwrap();
            Testbed::settle(bed, Duration::from_secs(20)).unwrap();
            // The next packets of each session show which ones were missing.
            device.set_faults(Faults::default()).unwrap();
            Testbed::settle(bed, Duration::from_secs(2)).unwrap();
            let (seen, truth) = (bed.vpns().unwrap().seen(), device.truth().vrf_bfd);
            assert!(truth.missing >= 3 * 20, "{truth:?}");
            assert_eq!((seen.bfd_missing, seen.bfd_lost, truth.downs), (truth.missing, 0, 0));
            let of = |vrf: usize| seen.bfd_missing_at[vrf].split_once(": ").unwrap();
            assert_eq!([0, 1, 2].map(|vrf| of(vrf).0), ["v1", "v2", "v3"]);
            let counts = [0, 1, 2].map(|vrf| of(vrf).1.parse::<u64>().unwrap());
            assert_eq!(counts.iter().sum::<u64>(), truth.missing);
            let texts = seen.lost_since(&Default::default());
            let text = format!("BFD packets of the DUT were missing: {} (v1: {},", truth.missing, counts[0]);
            assert!(texts.len() == 1 && texts[0].starts_with(&text), "{texts:?}");
        },
    );
}

#[test]
fn sessions_that_end_while_the_tester_is_late_are_not_judged() {
    with_bed(
        &read_suite(SUITE),
        &[Family::Ipv4],
        |_| {},
        |bed, device| {
            let size = VpnSize { vrfs: 3, routes: 10, families: vec![Family::Ipv4] };
            bed.vpns().unwrap().bring_up(&size, WITHIN).unwrap();
            // For two seconds nobody serves the CE routers, and the device misses their packets.
            let ports = bed.rig().parts().0;
            let end = ports.clock().now() + Duration::from_secs(2);
            while ports.clock().now() < end {
                ports.clock_mut().wait(end);
            }
            Testbed::settle(bed, Duration::from_millis(100)).unwrap();
            assert_eq!(device.truth().vrf_bfd.downs, 3);
            let seen = bed.vpns().unwrap().seen();
            assert_eq!((seen.bfd_not_judged, seen.bfd_lost, seen.sessions_lost), (3, 0, 0));
            let texts = seen.lost_since(&Default::default());
            assert!(texts[0].starts_with("BFD sessions went down 3 times after the tester had sent"), "{texts:?}");
            assert_eq!(texts.len(), 1);
            bed.vpns().unwrap().change_all(Change::Advertise).unwrap();
            let routes = bed.vpns().unwrap().await_routes(WITHIN).unwrap();
            assert_eq!((routes.present, routes.bfd_not_judged), (60, 3));
        },
    );
}

#[test]
fn a_lost_session_of_a_site_ends_bgp_in_both_families() {
    let families = [Family::Ipv4, Family::Ipv6];
    with_bed(
        &read_suite(TWO_SITES),
        &families,
        |_| {},
        |bed, device| {
            let size = VpnSize { vrfs: 2, routes: 10, families: families.to_vec() };
            let up = bed.vpns().unwrap().bring_up(&size, WITHIN).unwrap();
            // Two families of three CE routers, and two PE routers.
            assert_eq!((up.sessions, device.truth().vrf_bfd.up), (8, 3));
            let silent =
                Faults { igp: IgpFaults { bfd_packet_missing: 1, ..IgpFaults::default() }, ..Faults::default() };
            device.set_faults(silent).unwrap();
            Testbed::settle(bed, Duration::from_millis(1_000)).unwrap();
            let seen = bed.vpns().unwrap().seen();
            let why = "packets of the DUT were missing for the detection time";
            assert_eq!(seen.bfd_lost_at, ["v1", "v2", "v1, site 2"].map(|site| format!("{site} ({why})")));
            assert_eq!((seen.bfd_lost, seen.sessions_lost), (3, 6));
        },
    );
}
