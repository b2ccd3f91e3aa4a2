//! A test setup with the reference device, in virtual time.

mod capabilities;
mod resettable;
mod system;
mod together;

pub use system::{ReferenceSystem, SystemDut, SystemParts, bring_up, build as build_system, network};
pub use together::{BroughtUpTogether, bring_up_together};

use crate::kinds::REFERENCE;
use crate::routing;
use drophammer_lab::{Classes, Dut, Filters, LabError, Management, Resets, Usage};
use drophammer_model::classes::{EgressClasses, counter_name};
use drophammer_model::counters::{Counts, DutCounter};
use drophammer_model::environment::DutRecord;
use drophammer_model::filter::FilterList;
use drophammer_model::quantity::{Instant, show_duration};
use drophammer_model::role::{self, RouterRole};
use drophammer_model::suite::{DutConfig, Params, PortConfig, VlanTag};
use drophammer_model::traffic::Deviation;
use drophammer_model::trial::Family;
use drophammer_port::simulated::{self, Arrivals, Deliveries, SimulatedClock, SimulatedPort};
use drophammer_reference::{
    Ageing, ClassFaults, Config, Corrupt, DropAtLowLoad, DropGrowth, Encapsulation, Faults, Hold, LabelRoute,
    ManagementFault, Misroute, NOBODY, OwnFrames, Reorder, Route, Router, Sag, SubInterface, Truth, Vrf, WrongFrame,
    WrongNextHop,
};
use drophammer_rig::host_mac;
use drophammer_wire::MacAddr;
use drophammer_wire::ethernet::ethertype;
use resettable::{Boot, Resettable};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

/// The reference device as the simulated ports see it. A second handle provides access to the truth.
#[derive(Clone)]
pub struct Reference(Rc<RefCell<Resettable>>);

impl Reference {
    /// Returns the true counts of the device.
    pub fn truth(&self) -> Truth {
        *self.0.borrow().truth()
    }

    /// Replaces the device's filter by `lists` from now on. An empty list restores the filter of its configuration.
    ///
    /// # Errors
    /// The device refuses the lists.
    pub fn set_filter(&self, lists: &[FilterList]) -> Result<(), String> {
        self.0.borrow_mut().set_filter(lists.to_vec()).map_err(|e| e.to_string())
    }

    /// Replaces the device's classes of service by `lists` from now on.
    ///
    /// # Errors
    /// The device refuses the classes.
    pub fn set_classes(&self, lists: &[EgressClasses]) -> Result<(), String> {
        self.0.borrow_mut().set_classes(lists).map_err(|e| e.to_string())
    }

    /// Returns the number of frames that each rule of the device's filter decided on, list after list.
    pub fn filter_matches(&self) -> Vec<u64> {
        self.0.borrow().filter_matches().to_vec()
    }

    /// Changes the device's faults from now on.
    ///
    /// # Errors
    /// The device refuses the faults.
    pub fn set_faults(&self, faults: Faults) -> Result<(), String> {
        self.0.borrow_mut().set_faults(faults).map_err(|e| e.to_string())
    }
}

impl Reference {
    /// Returns the device's counters as it reports them, right or wrong.
    fn known_counters(&self) -> Vec<DutCounter> {
        Reference::counters_of(&self.0.borrow())
    }

    fn counters_of(router: &Router) -> Vec<DutCounter> {
        let mut all = Vec::new();
        for (port, said) in (0..).map_while(|port| Some((port, router.counters(port)?))) {
            let of_port = [
                ("ifHCInOctets", said.in_octets),
                ("ifHCInUcastPkts", said.in_unicast),
                ("ifInDiscards", said.in_discards),
                ("ifInErrors", said.in_errors),
                ("ifHCOutOctets", said.out_octets),
                ("ifHCOutUcastPkts", said.out_unicast),
                ("ifOutDiscards", said.out_discards),
            ];
            all.extend(of_port.iter().filter_map(|(name, value)| DutCounter::of_port("device", name, port, *value)));
        }
        // The device does not count by IP version, so these counters cover both versions.
        let truth = router.truth();
        let of_all = [
            ("packets forwarded", Counts::IpForwarded(None), truth.forwarded),
            (
                "header errors",
                Counts::IpHeaderErrors(None),
                truth.dropped.ttl + truth.dropped.malformed + truth.dropped.checksum,
            ),
            ("packets without a route", Counts::IpDiscards(None), truth.dropped.no_route),
        ];
        all.extend(of_all.map(|(name, counts, value)| DutCounter {
            source: "device".into(),
            name: name.into(),
            port: None,
            counts,
            bits: 64,
            value,
        }));
        all
    }

    /// Like [`Reference::set_faults`], but the instants of the faults count from now.
    ///
    /// # Errors
    /// The device refuses the faults.
    pub fn begin(&self, faults: Faults) -> Result<(), String> {
        let now = self.0.borrow().now();
        self.set_faults(faults.from_instant(now))
    }

    /// Switches the link of a port on or off at `now`, on both sides.
    pub fn set_link(&self, now: Instant, port: usize, up: bool) {
        self.0.borrow_mut().set_link(now, port, up);
    }
}

impl simulated::Device for Reference {
    fn receive(&mut self, now: Instant, port: usize, frame: &[u8]) {
        self.0.borrow_mut().receive(now, port, frame);
    }

    fn poll(&mut self, now: Instant, deliver: &mut dyn FnMut(Instant, usize, &[u8])) {
        self.0.borrow_mut().poll(now, deliver);
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.0.borrow().next_deadline()
    }

    fn next_notice(&self) -> Option<Instant> {
        self.0.borrow().next_notice()
    }

    fn take(&mut self, arrivals: &mut Arrivals<'_>) {
        self.0.borrow_mut().take(arrivals);
    }

    fn give(&mut self, now: Instant, deliveries: &mut Deliveries<'_>) {
        self.0.borrow_mut().give(now, deliveries);
    }

    fn link(&mut self, now: Instant, port: usize, up: bool) {
        self.0.borrow_mut().link(now, port, up);
    }
}

/// A loop without a DUT.
pub struct NoDut;

impl Dut for NoDut {
    fn record(&self) -> DutRecord {
        DutRecord::default()
    }

    fn check(&mut self) -> Result<(), LabError> {
        Ok(())
    }
}

/// Returns the configuration of the reference device for a DUT of a suite.
///
/// # Errors
/// A capacity that the device does not support.
pub fn config(dut: &DutConfig, ports: &[PortConfig], seed: u64) -> Config {
    let p = &dut.params;
    let mut config = Config {
        capacity_pps: p.rate("capacity").map(|r| r.pps() as u64),
        buffer: p.count("buffer").unwrap_or(1024) as usize,
        delay: p.duration("delay").unwrap_or_default(),
        jitter: p.duration("jitter").unwrap_or_default(),
        seed,
        icmp_errors_per_second: icmp_errors(p),
        fib_limit: p.count("fib_limit").map(|n| n as usize),
        fib_limit_ipv4: p.count("fib_limit_ipv4").map(|n| n as usize),
        fib_limit_ipv6: p.count("fib_limit_ipv6").map(|n| n as usize),
        bgp: routing::config(p, ports),
        ssh: p.flag("ssh") == Some(true),
        pipe: drophammer_lab::is_pipe(p),
        faults: faults(p),
        filter_time_per_rule: p.duration("filter_time_per_rule").unwrap_or_default(),
        extension_time: p.duration("extension_time").unwrap_or_default(),
        ..Config::default()
    };
    for (index, port) in ports.iter().enumerate() {
        let mut at = drophammer_reference::PortConfig::new(MacAddr::local(0xd0_0000_0000 | index as u64));
        (at.mtu, at.speed) = (port.mtu, p.speed("line_speed"));
        at.egress_buffer = p.count("line_buffer").map_or(at.egress_buffer, |frames| frames as usize);
        for a in [&port.ipv4, &port.ipv6].into_iter().flatten() {
            match a.dut {
                IpAddr::V4(dut) => at.ipv4 = Some((dut, a.prefix_len)),
                IpAddr::V6(dut) => at.ipv6 = Some((dut, a.prefix_len)),
            }
            config.routes.push(Route { prefix: a.behind.0, prefix_len: a.behind.1, port: index, next_hop: a.host });
        }
        config.ports.push(at);
        for vlan in &port.vlans {
            let interface = ports.len() + config.sub_interfaces.len();
            let mut at = SubInterface { port: index, tags: vlan.tags.clone(), ipv4: None, ipv6: None };
            for a in [&vlan.ipv4, &vlan.ipv6].into_iter().flatten() {
                match a.dut {
                    IpAddr::V4(dut) => at.ipv4 = Some((dut, a.prefix_len)),
                    IpAddr::V6(dut) => at.ipv6 = Some((dut, a.prefix_len)),
                }
                let (prefix, prefix_len) = a.behind;
                config.routes.push(Route { prefix, prefix_len, port: interface, next_hop: a.host });
            }
            config.sub_interfaces.push(at);
        }
    }
    let role = RouterRole::of(ports);
    config.core = routing::core(p, &role);
    config.loopback = role.core.as_ref().map(|core| core.loopback);
    let mut vrf_interfaces = Vec::new();
    for vrf in &role.vrfs {
        let interface = ports.len() + config.sub_interfaces.len();
        let bfd = vrf.bfd.then_some((interface, vrf.ce));
        match config.vrfs.get_mut(vrf.number as usize) {
            Some(known) => {
                known.interfaces.push(interface);
                known.bfd.extend(bfd);
            }
            None => {
                let (distinguisher, target, bfd) = (vrf.distinguisher, vrf.target, bfd.into_iter().collect());
                config.vrfs.push(Vrf { interfaces: vec![interface], distinguisher, target, bfd });
            }
        }
        vrf_interfaces.push(interface);
        let tags = vec![VlanTag { tpid: ethertype::VLAN, vid: vrf.vid }];
        let ipv4 = Some((vrf.local, vrf.prefix_len));
        let ipv6 = vrf.ipv6.map(|link| (link.local, link.prefix_len));
        config.sub_interfaces.push(SubInterface { port: vrf.port, tags, ipv4, ipv6 });
    }
    config.bgp = routing::with_vpn(config.bgp, p, &role, &vrf_interfaces);
    let label = |l: role::LabelRoute| LabelRoute { label: l.label, out: l.out, port: l.at.port, next_hop: l.via };
    config.labels = role.labels.into_iter().map(label).collect();
    config.pushed = role.pushed;
    config.rsvp = role.core.as_ref().and_then(|core| crate::lsps::config(p, core));
    config
}

/// Returns the error for a device named `dut` whose configuration is refused.
pub(crate) fn unusable(dut: &str, why: impl std::fmt::Display) -> LabError {
    let remedy = "change the parameters of the device in the suite".into();
    LabError::Unusable { what: format!("{dut}: {why}"), remedy }
}

/// The reference device as a DUT. Its faults start once it has been found to forward.
pub struct ReferenceDut {
    reference: Reference,
    faults: Faults,
    ssh: bool,
    record: DutRecord,
}

impl Dut for ReferenceDut {
    fn record(&self) -> DutRecord {
        self.record.clone()
    }

    fn check(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    fn forwards(&mut self) -> Result<(), LabError> {
        self.reference.begin(self.faults.clone()).map_err(|e| unusable(&self.record.name, e))
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        let mut counters = BTreeMap::new();
        let truth = serde_json::to_value(self.reference.truth()).unwrap_or_default();
        drophammer_lab::flatten("truth", &truth, &mut counters);
        let matches = self.reference.filter_matches();
        if matches.len() <= drophammer_lab::MOST_FILTER_COUNTERS {
            let named = |(rule, frames)| (drophammer_lab::filter_counter(rule), frames);
            counters.extend(matches.into_iter().enumerate().map(named));
        }
        counters.extend(class_counters(&self.reference.0.borrow()));
        Ok(counters)
    }

    fn usage(&mut self) -> Option<&mut dyn Usage> {
        Some(self)
    }

    fn filters(&mut self) -> Option<&mut dyn Filters> {
        Some(self)
    }

    fn classes(&mut self) -> Option<&mut dyn Classes> {
        Some(self)
    }

    fn management(&mut self) -> Option<&mut dyn Management> {
        Some(self)
    }

    fn resets(&mut self) -> Option<&mut dyn Resets> {
        Some(self)
    }

    fn known_counters(&mut self) -> Result<Vec<DutCounter>, LabError> {
        Ok(self.reference.known_counters())
    }

    fn fib_routes(&mut self, family: Family) -> Result<Option<u64>, LabError> {
        let fib = self.reference.truth().fib;
        Ok(Some(match family {
            Family::Ipv4 => fib.ipv4,
            Family::Ipv6 => fib.ipv6,
        }))
    }
}

/// Returns the counters of the classes of the device's lines: `d1.gold.served`, `d1.gold.dropped`.
pub(crate) fn class_counters(router: &Router) -> BTreeMap<String, u64> {
    let of = |(port, class, counters): (usize, &str, drophammer_reference::ClassCounters)| {
        let name = counter_name(port, class);
        [(format!("{name}.served"), counters.served), (format!("{name}.dropped"), counters.dropped)]
    };
    router.line_classes().flat_map(of).collect()
}

/// Interval over which the load is compared with `low_load`.
const LOAD_INTERVAL: Duration = Duration::from_millis(10);

/// Returns the faults that a suite configures. Their instants count from the time when the device is found to forward.
fn faults(p: &Params) -> Faults {
    let every = |key| p.count(key);
    let time = |key| p.duration(key).unwrap_or_default();
    let rate = |key| p.rate(key).map_or(0.0, |r| r.pps());
    let low = (rate("low_load") * LOAD_INTERVAL.as_secs_f64()).ceil() as u64;
    Faults {
        by_port: p.flag("faults_by_port") == Some(true),
        drop_every: every("drop_every").unwrap_or(0),
        drop_share: p.number("drop_share").unwrap_or(0.0) / 100.0,
        drop_window: p.duration("drop_after").map(|d| (Instant(0) + d, Instant(0) + d + time("drop_for"))),
        drop_at_low_load: every("low_load_drop_every").map(|every| DropAtLowLoad {
            every,
            interval: LOAD_INTERVAL,
            below_frames: low,
        }),
        drop_growth: p
            .number("drop_growth")
            .map(|percent| DropGrowth { from: Instant(0), millionths_per_second: (percent * 10_000.0).round() as u64 }),
        corrupt: every("corrupt_every").map(|every| Corrupt {
            every,
            offset: None,
            fix_checksum: p.flag("corrupt_hidden").unwrap_or(false),
        }),
        misroute: every("misroute_every").map(|every| Misroute { every, to_port: 0 }),
        wrong_next_hop: every("wrong_next_hop_every").map(|every| WrongNextHop { every, mac: NOBODY }),
        ttl_kept_every: every("ttl_kept_every").unwrap_or(0),
        encapsulation: every("encapsulation_every").map(|every| Encapsulation { every, change: change(p) }),
        priority_tags: p.flag("priority_tags").unwrap_or(false),
        duplicate_every: every("duplicate_every").unwrap_or(0),
        hold: every("hold_every").map(|every| Hold { every, time: time("hold_time") }),
        reorder: every("reorder_every").map(|every| Reorder { every, positions: p.count("reorder_by").unwrap_or(1) }),
        sag: p.duration("sag_after").map(|d| Sag { from: Instant(0) + d, capacity_pps: rate("sag_to") as u64 }),
        ageing: ageing(p),
        broadcast_services: every("broadcast_services").unwrap_or(0),
        broadcast_flooded: p.flag("broadcast_flooded").unwrap_or(false),
        input_queue: every("input_queue").unwrap_or(0) as usize,
        own_frames: p.duration("own_frames").map(|interval| OwnFrames { interval, port: 0 }),
        filter_leak_every: every("filter_leak_every").unwrap_or(0),
        filter_deny_every: every("filter_deny_every").unwrap_or(0),
        extension_drop_every: every("extension_drop_every").unwrap_or(0),
        classes: ClassFaults {
            ignored: p.flag("classes_ignored").unwrap_or(false),
            last_weight: every("class_last_weight").and_then(|weight| u32::try_from(weight).ok()).unwrap_or(0),
            drop_every: every("class_drop_every").unwrap_or(0),
        },
        forwards: wrong_frame(p),
        icmp_twice_every: every("icmp_twice_every").unwrap_or(0),
        management: every("management_waiting").map(|waiting| ManagementFault {
            waiting: waiting as usize,
            drop_every: every("management_drop_every").unwrap_or(0),
            delay: time("management_delay"),
            dies: p.flag("management_dies").unwrap_or(false),
        }),
        tunnel_drop_every: every("tunnel_drop_every").unwrap_or(0),
        tunnel_sticks_after: every("tunnel_sticks_after").unwrap_or(0),
        tunnel_keeps_ttl: p.flag("tunnel_keeps_ttl").unwrap_or(false),
        policy_ignored: p.flag("policy_ignored").unwrap_or(false),
        swap_vpn_labels: p.flag("swap_vpn_labels").unwrap_or(false),
        label_pop_every: every("label_pop_every").unwrap_or(0),
        forget_lsp_on_refresh: every("forget_lsp_on_refresh").unwrap_or(0),
        counter_error: every("counter_error").and_then(|n| i64::try_from(n).ok()).unwrap_or(0),
        counter_error_after: every("counter_error_after").unwrap_or(0),
        bgp: routing::faults(p),
        igp: routing::core_faults(p),
    }
}

/// Returns the configured ageing.
fn ageing(p: &Params) -> Option<Ageing> {
    let (delay, bytes) = (p.duration("ageing_delay"), p.count("ageing_memory"));
    (delay.is_some() || bytes.is_some()).then(|| Ageing {
        from: Instant(0),
        delay_per_second: delay.unwrap_or_default(),
        bytes_per_second: bytes.unwrap_or(0),
    })
}

/// Returns the configured effect of a reset.
fn boot(p: &Params) -> Boot {
    let flag = |key| p.flag(key).unwrap_or(false);
    let time = p.duration("boot_time").unwrap_or_default();
    Boot { time, unaffected: flag("reset_unaffected"), never: flag("reset_never_back") }
}

/// Returns the number of ICMP errors that the device sends per second.
fn icmp_errors(p: &Params) -> u32 {
    match p.count("icmp_errors") {
        _ if p.flag("no_icmp") == Some(true) => 0,
        Some(n) => u32::try_from(n).unwrap_or(u32::MAX),
        None => Config::default().icmp_errors_per_second,
    }
}

/// Returns the kind of invalid frames that the device is configured to forward.
fn wrong_frame(p: &Params) -> Option<WrongFrame> {
    let named = p.text("forwards_wrong")?;
    let at = WrongFrame::NAMES.iter().position(|name| *name == named)?;
    WrongFrame::ALL.get(at).copied()
}

/// Returns the change of encapsulation that a suite configures.
fn change(p: &Params) -> Deviation {
    let named = p.text("encapsulation_change").unwrap_or_default();
    Deviation::ALL.iter().copied().find(|change| change.name() == named).unwrap_or(Deviation::Dscp)
}

/// The parts of a simulated test setup.
pub struct Parts {
    /// Virtual time.
    pub clock: SimulatedClock,
    /// Ports.
    pub ports: Vec<SimulatedPort>,
    /// The device.
    pub reference: Reference,
    /// The device as a DUT.
    pub device: ReferenceDut,
}

/// Creates the reference device and the ports that face it, with `queues` queues each.
///
/// # Errors
/// The device refuses its configuration.
pub fn build(dut: &DutConfig, configs: &[PortConfig], queues: u32, seed: u64) -> Result<Parts, String> {
    build_queues(config(dut, configs, seed), dut, configs, queues, seed)
}

/// Like [`build`], but with a configuration that can express more than the parameters of a DUT.
///
/// # Errors
/// The device refuses its configuration.
pub fn build_with(config: Config, dut: &DutConfig, configs: &[PortConfig], seed: u64) -> Result<Parts, String> {
    build_queues(config, dut, configs, 1, seed)
}

/// Like [`build_with`], but with `queues` queues for each of the tester's ports.
///
/// # Errors
/// The device refuses its configuration.
pub fn build_queues(
    config: Config,
    dut: &DutConfig,
    configs: &[PortConfig],
    queues: u32,
    seed: u64,
) -> Result<Parts, String> {
    let text = describe(&config);
    let (faults, ssh) = (config.faults.clone(), config.ssh);
    let router = Resettable::new(config, boot(&dut.params)).map_err(|e| e.to_string())?;
    let reference = Reference(Rc::new(RefCell::new(router)));
    let (clock, ports) = world(reference.clone(), configs, queues, seed);
    let record = record(dut, "virtual time".into(), [("reference.txt".to_owned(), text)].into());
    let device = ReferenceDut { reference: reference.clone(), faults, ssh, record };
    Ok(Parts { clock, ports, reference, device })
}

/// Virtual time, and the tester's ports at a device, each with this number of queues.
fn world(
    device: impl simulated::Device + 'static,
    configs: &[PortConfig],
    queues: u32,
    seed: u64,
) -> (SimulatedClock, Vec<SimulatedPort>) {
    let macs: Vec<_> = (0..configs.len()).map(|i| host_mac(seed, i)).collect();
    let mtu = configs.iter().map(|p| p.mtu).max().unwrap_or(1500);
    simulated::world_of_queues(Box::new(device), &macs, mtu, queues)
}

fn record(dut: &DutConfig, confinement: String, config: BTreeMap<String, String>) -> DutRecord {
    DutRecord {
        name: dut.name.clone(),
        kind: REFERENCE.into(),
        version: concat!("Drophammer ", env!("CARGO_PKG_VERSION")).into(),
        confinement,
        config,
        simulated: true,
        ..DutRecord::default()
    }
}

fn describe(config: &Config) -> String {
    let bgp = config.bgp.as_ref().map_or(String::new(), |bgp| format!("bgp {bgp:?}\n"));
    let core = config.core.as_ref().map_or(String::new(), |core| format!("core {core:?}\n"));
    format!(
        "capacity {}\nbuffer {} frames\ndelay {}\njitter {}\n{bgp}{core}faults {:?}\n",
        config.capacity_pps.map_or("unlimited".into(), |c| format!("{c} fps")),
        config.buffer,
        show_duration(config.delay),
        show_duration(config.jitter),
        config.faults
    )
}
