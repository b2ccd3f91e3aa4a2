//! Recorded sessions between two emulated routers and a real daemon between them (`cargo run -p drophammer-testbed --example daemons`
//! makes and checks the recordings): add-path, labelled and VPN routes, long messages, refresh, restart. In the replay, each of our
//! routers sends the same bytes, and router b receives the routes of router a from the daemon.

mod plan;

use drophammer_emulation::bgp::{AdjRibIn, AdjRibOut, ExpectationId, Session, TcpAction};
use drophammer_model::Instant;
use drophammer_model::routes::Change;
use drophammer_model::trial::Family;
use drophammer_wire::bgp::message::{MAX_LEN, MAX_LEN_EXTENDED, kind};
use drophammer_wire::bgp::update::{Context, FamilySet, Update};
use drophammer_wire::bgp::{AfiSafi, RouteRefresh, frame};
use plan::{RECORDINGS, Scene};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

struct Line {
    at: Instant,
    from: String,
    to: String,
    bytes: Vec<u8>,
}

impl Line {
    fn kind(&self) -> u8 {
        self.bytes[18]
    }
}

fn lines(name: &str) -> Vec<Line> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/bgp_daemons/{name}.txt"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let line = |line: &str| {
        let [at, ends, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let (from, to) = ends.split_once('>').unwrap();
        let bytes = hex.as_bytes().chunks(2).map(|b| u8::from_str_radix(std::str::from_utf8(b).unwrap(), 16).unwrap());
        let at = Instant((at.parse::<f64>().unwrap() * 1e9) as u64);
        Line { at, from: from.into(), to: to.into(), bytes: bytes.collect() }
    };
    text.lines().filter(|l| !l.starts_with('#')).map(line).collect()
}

/// One of our routers after the replay.
struct Replayed {
    session: Session,
    adj_rib_in: AdjRibIn,
    ids: Vec<ExpectationId>,
    /// Bodies of the daemon's UPDATEs.
    updates: Vec<Vec<u8>>,
    /// Subtypes of its ROUTE-REFRESHes.
    refreshes: Vec<u8>,
    /// Number of routes withdrawn before each session of router a began.
    withdrawn_before: Vec<u64>,
}

/// Replays router `which`: its OPENs, UPDATEs and ROUTE-REFRESHes must equal the recorded ones.
fn replay(name: &str, scene: Scene, which: usize) -> Replayed {
    let me = ["a", "b"][which];
    let (mut adj_rib_out, mut adj_rib_in, mut buffer) = (AdjRibOut::new(), AdjRibIn::new(), vec![0; MAX_LEN_EXTENDED]);
    let mut session = Session::new(plan::config(scene, which, false));
    let (mut sessions, mut advertised, mut written, mut wanted) = (0, 0, Vec::new(), Vec::new());
    let ids = if which == 1 { plan::expect(scene, &mut adj_rib_in, Instant(0)) } else { Vec::new() };
    let (mut updates, mut refreshes, mut withdrawn_before) = (Vec::new(), Vec::new(), Vec::new());
    for line in lines(name) {
        if line.from == "a" && line.kind() == kind::OPEN {
            withdrawn_before.push(adj_rib_in.totals().withdrawals);
        }
        if line.from == me {
            match line.kind() {
                kind::OPEN => {
                    session = Session::new(plan::config(scene, which, advertised > 0));
                    sessions += 1;
                    session.start(line.at);
                    assert_eq!(session.poll(line.at), TcpAction::Connect);
                    assert!(session.connected(line.at));
                }
                kind::UPDATE if advertised != sessions => {
                    plan::say(scene, &mut adj_rib_out, advertised > 0);
                    if scene == Scene::Vrfs {
                        plan::flap(&mut adj_rib_out, Change::Withdraw);
                        plan::flap(&mut adj_rib_out, Change::Advertise);
                    }
                    advertised = sessions;
                }
                kind::ROUTE_REFRESH => {
                    let asked = RouteRefresh::parse(&line.bytes[19..]).unwrap();
                    assert!(session.request_refresh(asked.family));
                }
                _ => {}
            }
            if line.kind() != kind::KEEPALIVE {
                wanted.push(line.bytes);
            }
        } else if line.to == me {
            let consumed = session
                .receive_all(line.at, &line.bytes, &mut |heard, agreed| adj_rib_in.receive(line.at, heard, agreed));
            assert_eq!(consumed, line.bytes.len(), "{name}: {me}: {:?}", session.ended());
            match line.kind() {
                kind::UPDATE => updates.push(line.bytes[19..].to_vec()),
                kind::ROUTE_REFRESH => refreshes.push(RouteRefresh::parse(&line.bytes[19..]).unwrap().subtype),
                _ => {}
            }
        }
        loop {
            let mut bytes = session.write(line.at, &mut buffer);
            if bytes == 0
                && let Some(agreed) = session.negotiated()
            {
                bytes = adj_rib_out.write(line.at, agreed, plan::next_hops(scene, which), &mut buffer);
            }
            if bytes == 0 {
                break;
            }
            let mut rest = &buffer[..bytes];
            while let Some(message) = frame(rest, MAX_LEN_EXTENDED).unwrap() {
                if message.kind != kind::KEEPALIVE {
                    written.push(rest[..message.message_len()].to_vec());
                }
                rest = &rest[message.message_len()..];
            }
        }
    }
    assert!(written == wanted, "{name}: router {me} says something else");
    assert_eq!((session.ended(), adj_rib_out.progress().skipped), (None, 0), "{name}: {me}");
    Replayed { session, adj_rib_in, ids, updates, refreshes, withdrawn_before }
}

fn all(scene: Scene) -> impl Iterator<Item = (&'static str, &'static str)> {
    let found: Vec<_> =
        RECORDINGS.into_iter().filter(|(.., of)| *of == scene).map(|(name, daemon, _)| (name, daemon)).collect();
    assert!(found.len() > 1);
    found.into_iter()
}

/// Checks that router b has received every route correctly.
fn all_right(name: &str, scene: Scene) -> Replayed {
    replay(name, scene, 0);
    let b = replay(name, scene, 1);
    for id in &b.ids {
        let report = b.adj_rib_in.report(*id);
        assert!(b.adj_rib_in.is_complete(*id) && report.is_right(), "{name}: {report:?}");
        assert!(report.withdrawn_in_error == 0 || scene == Scene::Vrfs, "{name}: {report:?}");
    }
    let totals = b.adj_rib_in.totals();
    assert_eq!((totals.unexpected, totals.treated_as_withdraw, totals.attributes_discarded), (0, 0, 0), "{name}");
    b
}

#[test]
fn labelled_and_vpn_routes_are_reflected_with_their_labels() {
    for scene in [Scene::Labelled, Scene::Vpn] {
        for (name, _) in all(scene) {
            let b = all_right(name, scene);
            let context = Context { four_octet_as: true, ibgp: true, ..Context::default() };
            let mut found = BTreeSet::new();
            for body in &b.updates {
                let update = Update::parse(body, &context).unwrap();
                for route in update.announced() {
                    let family = if route.address().is_ipv4() { Family::Ipv4 } else { Family::Ipv6 };
                    let prefix = format!("{}/{}", route.address(), route.length).parse().unwrap();
                    let index = plan::routes(scene, family, false).index_of(&prefix).unwrap();
                    assert_eq!(route.label(0), Some(plan::LABEL + index), "{name}: {prefix}");
                    assert_eq!(route.label(1), None, "{name}: one label");
                    found.insert(prefix);
                    if scene == Scene::Vpn {
                        assert_eq!(route.distinguisher, Some(plan::DISTINGUISHER));
                        assert_eq!(update.attributes.extended_communities, plan::TARGET, "{name}: {prefix}");
                    }
                }
            }
            assert_eq!(found.len(), 80, "{name}");
            assert_eq!(b.session.negotiated().unwrap().families, scene.families());
        }
    }
}

#[test]
fn routes_of_vrfs_are_reflected_with_labels_and_targets_and_flap() {
    let (vrfs, part) = plan::FLAPPING;
    let flapped = u64::from(vrfs.len() as u32 * part.len() as u32);
    for (name, _) in all(Scene::Vrfs) {
        let b = all_right(name, Scene::Vrfs);
        for (id, family) in b.ids.iter().zip([Family::Ipv4, Family::Ipv6]) {
            let routes = plan::vrfs(family);
            let report = b.adj_rib_in.report(*id);
            assert_eq!((report.present, report.wrong_target, report.wrong_vrf), (routes.len(), 0, 0), "{name}");
            assert_eq!((report.withdrawn, report.withdrawn_in_error), (flapped, flapped), "{name}");
            assert_eq!(report.received - report.repeated, u64::from(routes.len()) + flapped, "{name}");
            for (vrf, route) in (0..plan::VRFS).flat_map(|vrf| (0..routes.per_vrf()).map(move |route| (vrf, route))) {
                let label = b.adj_rib_in.label_of(*id, vrf, route);
                assert_eq!(label, Some(&[routes.label(vrf, route)][..]), "{name}: VRF {vrf}, route {route}");
            }
        }
        assert_eq!(b.adj_rib_in.learned_distinguishers(b.ids[0]).len(), plan::VRFS as usize, "{name}");
    }
}

#[test]
fn ipv6_with_labels_keeps_its_next_hop_in_the_ipv4_core() {
    for (name, _) in all(Scene::SixPe) {
        let b = all_right(name, Scene::SixPe);
        let labels: Vec<_> = (0..40).map(|route| b.adj_rib_in.label_of(b.ids[0], 0, route).unwrap().to_vec()).collect();
        assert_eq!(labels, (0..40).map(|route| vec![plan::LABEL + route]).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn both_paths_to_each_prefix_are_passed_on() {
    let path_ids = FamilySet::of([AfiSafi::IPV4_UNICAST]);
    let context = Context { four_octet_as: true, path_ids, ..Context::default() };
    for (name, _) in all(Scene::Paths) {
        let a = replay(name, Scene::Paths, 0);
        let b = replay(name, Scene::Paths, 1);
        assert!(a.session.negotiated().unwrap().add_path_send(AfiSafi::IPV4_UNICAST), "{name}");
        assert!(b.session.negotiated().unwrap().add_path_receive(AfiSafi::IPV4_UNICAST), "{name}");
        // Prefix and first AS after router a, by path identifier.
        let mut paths: BTreeMap<(String, u32), u32> = BTreeMap::new();
        for body in &b.updates {
            let update = Update::parse(body, &context).unwrap();
            for route in update.announced() {
                let ases: Vec<u32> = update.attributes.as_path.unwrap().ases().collect();
                assert_eq!(ases[..2], [65000, 65001], "{name}");
                paths.insert((format!("{}/{}", route.address(), route.length), route.path_id.unwrap()), ases[2]);
            }
        }
        let routes = plan::routes(Scene::Paths, Family::Ipv4, false);
        for i in 0..routes.len() {
            let prefix = routes.prefix(i).to_string();
            let told: BTreeSet<u32> = paths.iter().filter(|((of, _), _)| *of == prefix).map(|(_, asn)| *asn).collect();
            assert_eq!(told, BTreeSet::from([64_000, 64_001]), "{name}: {prefix}");
        }
        assert_eq!(paths.len(), 40, "{name}: two identifiers each");
        assert_eq!((b.adj_rib_in.present(b.ids[0]), b.adj_rib_in.totals().unexpected), (20, 0), "{name}");
    }
}

#[test]
fn thousands_of_routes_in_one_message() {
    for (name, _) in all(Scene::Long) {
        let b = all_right(name, Scene::Long);
        let longest = |from: &str| lines(name).iter().filter(|l| l.from == from).map(|l| l.bytes.len()).max().unwrap();
        assert!(longest("a") > 12_000, "{name}: router a says all in one");
        assert_eq!(b.session.negotiated().unwrap().max_send, 65_535);
        // The daemon also sends long messages.
        assert!(longest("daemon") > MAX_LEN, "{name}: {}", longest("daemon"));
    }
}

#[test]
fn all_routes_come_again_when_they_are_asked_for() {
    for (name, _) in all(Scene::Refresh) {
        let b = all_right(name, Scene::Refresh);
        let report = b.adj_rib_in.report(b.ids[0]);
        assert_eq!((report.received, report.repeated, report.withdrawn), (80, 40, 0), "{name}");
        // BoRR and EoRR (RFC 7313).
        assert_eq!(b.refreshes, [1, 2], "{name}");
    }
}

#[test]
fn routes_of_a_router_that_restarts_stay_until_it_has_said_what_is_left() {
    for (name, daemon) in all(Scene::Restart) {
        let a = replay(name, Scene::Restart, 0);
        let b = replay(name, Scene::Restart, 1);
        // FRR accepts the second session at the second attempt.
        assert!(
            b.withdrawn_before.len() > 1 && b.withdrawn_before.iter().all(|n| *n == 0),
            "{name}: nothing goes while router a is away"
        );
        let report = b.adj_rib_in.report(b.ids[0]);
        assert_eq!((report.present, report.withdrawn, report.wrong), (20, 20, 0), "{name}: {report:?}");
        let routes = plan::routes(Scene::Restart, Family::Ipv4, false);
        let gone: BTreeSet<_> = b.adj_rib_in.missing(b.ids[0], 40).into_iter().collect();
        assert_eq!(gone, (20..40).map(|i| routes.prefix(i)).collect(), "{name}");
        let restart = a.session.negotiated().unwrap().graceful_restart.clone().unwrap();
        assert_eq!(restart.seconds > 0, daemon != "openbgpd", "{name}: OpenBGPD only helps others");
    }
}
