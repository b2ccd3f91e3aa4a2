//! Messages of other hosts: whatever bytes arrive, they are refused or make sense, and reports that are accepted can be merged.

use drophammer_agent::message::{Announcement, Beat, Lease, Reply, Request, State, Stored, decode, unpack};
use drophammer_model::Instant;
use drophammer_model::trial::{AddressRange, FlowSpec, Load, TrialSpec};
use drophammer_port::{Arrival, Port, PortError, SystemClock, memory};
use drophammer_traffic::{Control, FarTraffic, Layout, Neighbour, Plan, SendFrame, Timing, Traffic, merge};
use drophammer_wire::MacAddr;
use drophammer_wire::signature::TrialKey;
use std::sync::OnceLock;

/// First byte of an input whose other bytes are a message. All other inputs are changes of whole reports: four bytes each, where and
/// what.
pub const WHOLE: u8 = 0;

/// No devices behind the ports.
struct Nobody;

impl Control for Nobody {
    fn receive(&mut self, _: usize, _: Arrival<'_>) -> Result<(), PortError> {
        Ok(())
    }

    fn poll(&mut self, now: Instant, _: &mut SendFrame<'_>) -> Result<Instant, PortError> {
        Ok(Instant(now.0 + 1_000_000))
    }

    fn stop(&self) -> bool {
        false
    }
}

fn spec() -> TrialSpec {
    let range = |count| AddressRange { first: "198.18.0.1".parse().expect("an address"), step: 1, count };
    let flow = |group: &str, from, to| FlowSpec::new(group, from, to, range(2), range(3));
    // The second flow does not arrive where it should.
    let flows = vec![
        FlowSpec { per_destination: true, ..flow("a", 0, 1) },
        flow("b", 0, 0),
        FlowSpec { ipdv: true, ..flow("a", 1, 0) },
    ];
    TrialSpec {
        purpose: String::new(),
        size: "64".parse().expect("a size"),
        flows,
        load: Load::Constant { rate_pps: 20_000.0 },
        duration_s: 0.01,
        bin_s: Some(0.005),
        drain_s: 0.005,
        events: vec![],
    }
}

fn plan(layout: Layout) -> Plan {
    let device = |port: u64| Some(MacAddr::local(1 - port));
    let link = |port| Neighbour {
        mac: MacAddr::local(port),
        device_ipv4: device(port),
        device_ipv6: device(port),
        ..Neighbour::default()
    };
    let timing =
        Timing { seed: 3, key: TrialKey::new(1, 1), earlier: vec![], max_backlog_ns: 1 << 40, late_ns: 1_000_000 };
    Plan::on_lanes(&spec(), &[link(0), link(1)], &timing, layout).expect("a plan")
}

/// Reports of a trial on two lanes, which are as good as two hosts.
fn whole() -> &'static str {
    static WHOLE: OnceLock<String> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let clock = SystemClock::start();
        let ends = memory::pair([0, 1].map(MacAddr::local), 1_500, clock);
        let mut ports: Vec<_> = ends.into_iter().map(|port| Box::new(port) as Box<dyn Port + Send>).collect();
        let mut traffic = Traffic::new(plan(Layout::round_robin(2, 2)));
        let end = Instant(u64::MAX);
        traffic.drive_lanes(&mut ports, clock, &[], &mut Nobody, &mut [Nobody], end).expect("a trial");
        let stored = Stored {
            lease: "l".into(),
            attempt: 1,
            host: 0,
            reports: traffic.reports(),
            counts: traffic.last_counts(Instant(1)),
        };
        String::from_utf8(drophammer_agent::message::encode(&stored)).expect("text")
    })
}

/// Decodes a message as anything, and merges reports.
fn take(bytes: &[u8]) {
    let _ = (decode::<Request>(bytes), decode::<Reply>(bytes), decode::<State>(bytes), unpack(bytes).count());
    let _ = (decode::<Announcement>(bytes), decode::<Lease>(bytes), decode::<Beat>(bytes));
    if let Ok(stored) = decode::<Stored>(bytes) {
        let mut traffic = FarTraffic::new(plan(Layout::one(0).on_host(&[], 2)), 2);
        traffic.begin(Instant(1));
        if traffic.end(stored.reports, stored.counts).is_ok() {
            let _ = traffic.snapshot();
            let result = merge(traffic.reports());
            assert!(result.received() <= result.offered());
        }
    }
}

pub fn run(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    if *kind == WHOLE {
        return take(rest);
    }
    let mut text = whole().as_bytes().to_vec();
    // Unchanged, it is accepted.
    if rest.is_empty() {
        let stored = decode::<Stored>(&text).expect("whole reports");
        let mut traffic = FarTraffic::new(plan(Layout::one(0).on_host(&[], 2)), 2);
        traffic.begin(Instant(1));
        traffic.end(stored.reports, stored.counts).expect("whole reports fit");
    }
    for change in rest.chunks_exact(4) {
        let at = usize::from(u16::from_be_bytes([change[0], change[1]])) % text.len();
        let digit = b'0' + change[3] % 10;
        match change[2] % 4 {
            0 => text[at] = change[3],
            // Numbers become larger or smaller.
            1 if text[at].is_ascii_digit() => text[at] = digit,
            2 if text[at].is_ascii_digit() => _ = text.splice(at..at, std::iter::repeat_n(digit, 12)),
            3 => _ = text.drain(at..(at + usize::from(change[3])).min(text.len())),
            _ => {}
        }
    }
    take(&text);
}
