//! Expected value of each counter, and the verdict on it.

use super::octets::{CONVENTIONS, Conventions, Octets};
use crate::kit::prelude::*;
use crate::trial::CountersSeen;
use drophammer_model::counters::{Counts, DutCounter, OtherFrames};
use drophammer_model::trial::{FlowSpec, GroupCounts};

const FAMILIES: [Family; 2] = [Family::Ipv4, Family::Ipv6];

/// Source of counters that are always current.
const KERNEL: &str = "kernel";
/// Note for a counter that excludes the frames that its source counts as discarded.
const APART: &str = "its discards counted apart";
/// Maximum number of packets for one SNMP reading.
const QUESTIONS: u64 = 16;

/// Frames by IP version.
type ByFamily = [u64; 2];

fn at(family: Family) -> usize {
    usize::from(family == Family::Ipv6)
}

/// Frames that passed between a port of the tester and the router.
#[derive(Clone, Copy, Debug, Default)]
struct PortFacts {
    /// Test frames that reached the router.
    into: ByFamily,
    /// Test frames that left the router, including copies and wrong frames.
    from: ByFamily,
    /// Other frames, to and from the router.
    others: [OtherFrames; 2],
}

/// Known frame counts of a trial.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    ports: Vec<PortFacts>,
    /// Length of a test frame with FCS.
    bytes: ByFamily,
    /// Test frames with a TTL of 1.
    expired: ByFamily,
    /// Test frames that arrived where they should.
    forwarded: ByFamily,
    /// Packets that the router sent to itself, through no port.
    loopback: u64,
}

/// Adds the received frames of a flow to the ports at which they arrived.
fn arrivals(ports: &mut [PortFacts], flow: &FlowSpec, group: &GroupCounts) {
    let family = at(flow.family);
    if group.arrived_at.is_empty() {
        ports[flow.to].from[family] += group.received + group.stray;
    } else {
        ports.iter_mut().zip(&group.arrived_at).for_each(|(port, frames)| port.from[family] += frames);
    }
    let deviating = group.deviations.values().sum::<u64>() + group.deviating_copies;
    ports[flow.to].from[family] += group.duplicated + group.corrupted + deviating;
}

impl Facts {
    /// The known counts of a trial in which each flow has its own group.
    pub(super) fn of(
        result: &TrialResult,
        counters: &CountersSeen,
        flows: &[FlowSpec],
        bytes: ByFamily,
        ports: usize,
    ) -> Facts {
        let none = ByFamily::default();
        let mut facts =
            Facts { ports: vec![PortFacts::default(); ports], bytes, expired: none, forwarded: none, loopback: 0 };
        facts.loopback = growth(counters).iter().filter(|(c, _)| c.counts == Counts::Loopback).map(|(_, n)| n).sum();
        for flow in flows {
            let Some(group) = result.groups.iter().find(|group| group.group == flow.group) else { continue };
            let (family, into) = (at(flow.family), group.offered - group.refused);
            facts.ports[flow.from].into[family] += into;
            facts.forwarded[family] += group.received;
            if !flow.headers.is_empty() {
                facts.expired[family] += into;
            }
            arrivals(&mut facts.ports, flow, group);
        }
        for ((port, sent), received) in facts.ports.iter_mut().zip(&counters.sent).zip(&counters.received) {
            port.others = [*sent, *received];
        }
        facts
    }

    fn sum(&self, of: impl Fn(&PortFacts) -> u64) -> u64 {
        self.ports.iter().map(of).sum()
    }

    /// Test frames that the router did not forward.
    fn lost(&self) -> u64 {
        self.sum(|port| port.into.iter().sum()).saturating_sub(self.forwarded.iter().sum())
    }

    /// Lost frames that the router should have forwarded.
    pub(super) fn lost_wrongly(&self) -> u64 {
        self.lost().saturating_sub(self.expired.iter().sum())
    }

    fn of_families(family: Option<Family>, of: impl Fn(Family) -> u64) -> u64 {
        FAMILIES.into_iter().filter(|f| family.is_none_or(|family| family == *f)).map(of).sum()
    }

    /// The smallest and largest correct value of a frame counter that counts all frames at its port; `None` for an
    /// octet counter.
    fn frames(&self, counts: Counts, port: Option<PortIndex>) -> Option<(u64, u64)> {
        let exactly = |n: u64| Some((n, n));
        let whole = |family, of: &dyn Fn(&PortFacts, Family) -> u64| {
            Facts::of_families(family, |f| self.sum(|port| of(port, f)))
        };
        match counts {
            Counts::IpReceived(family) => {
                let own = if family == Some(Family::Ipv4) { self.loopback } else { 0 };
                exactly(whole(family, &|port, f| port.into[at(f)] + port.others[0].ip(f)) + own)
            }
            Counts::IpForwarded(family) => {
                let least = Facts::of_families(family, |f| self.forwarded[at(f)]);
                let may = whole(family, &|port, f| port.into[at(f)]);
                Some((least, may - Facts::of_families(family, |f| self.expired[at(f)])))
            }
            Counts::IpOriginated(family) => {
                let own = if family == Some(Family::Ipv4) { self.loopback } else { 0 };
                exactly(whole(family, &|port, f| port.others[1].ip(f)) + own)
            }
            Counts::Loopback => exactly(self.loopback),
            Counts::IpHeaderErrors(family) => exactly(Facts::of_families(family, |f| self.expired[at(f)])),
            Counts::IpDiscards(_) => Some((0, self.lost_wrongly())),
            Counts::InDiscards | Counts::OutDiscards => Some((0, self.lost_wrongly())),
            Counts::InErrors | Counts::OutErrors => exactly(0),
            Counts::InOctets | Counts::OutOctets => None,
            _ => {
                let port = self.ports.get(port?)?;
                let incoming =
                    matches!(counts, Counts::InFrames | Counts::InUnicast | Counts::InMulticast | Counts::InBroadcast);
                let (test, others) = if incoming { (port.into, port.others[0]) } else { (port.from, port.others[1]) };
                let test = test.iter().sum::<u64>();
                exactly(match counts {
                    Counts::InUnicast | Counts::OutUnicast => {
                        test + others.frames - others.multicast - others.broadcast
                    }
                    Counts::InMulticast | Counts::OutMulticast => others.multicast,
                    Counts::InBroadcast | Counts::OutBroadcast => others.broadcast,
                    _ => test + others.frames,
                })
            }
        }
    }

    /// The frames whose octets a counter counts, some of which the interface discarded; `None` for a frame counter.
    pub(super) fn octets(&self, counts: Counts, port: Option<PortIndex>, discarded: u64) -> Option<Octets> {
        let port = self.ports.get(port?)?;
        let (test, others, discarded) = match counts {
            Counts::InOctets => (port.into, port.others[0], discarded),
            Counts::OutOctets => (port.from, port.others[1], 0),
            _ => return None,
        };
        let bytes: u64 = test.iter().zip(self.bytes).map(|(frames, bytes)| frames * bytes).sum();
        let lengths = || test.iter().zip(self.bytes).filter(|(frames, _)| **frames > 0).map(|(_, bytes)| bytes);
        Some(Octets {
            frames: test.iter().sum::<u64>() + others.frames,
            bytes: bytes + others.octets + 4 * others.frames,
            // Only lost frames can have been discarded. A counter that reports more discards is itself wrong.
            discarded: discarded.min(self.lost()),
            lengths: (lengths().min().unwrap_or_default(), lengths().max().unwrap_or_default()),
        })
    }
}

/// Verdict on one counter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    pub(super) source: String,
    pub(super) counter: String,
    pub(super) port: Option<PortIndex>,
    /// The smallest and largest expected value.
    pub(super) expected: Option<(u64, u64)>,
    pub(super) counted: Option<u64>,
    /// Distance of the counted value from that range.
    pub(super) difference: Option<i64>,
    pub(super) verdict: String,
    pub(super) off: bool,
}

impl Finding {
    /// Clears the fault if the frames that passed during the reading explain it.
    fn doubt(&mut self, counts: Counts, unsure: OtherFrames) {
        if self.off && self.difference.is_some_and(|by| by.unsigned_abs() <= may_be_off(counts, unsure)) {
            self.off = false;
            self.verdict = "explained by the frames that passed during the reading".into();
        }
    }

    /// Name in a verdict: `kernel rx_packets of p1`.
    pub(super) fn name(&self, ports: &[String]) -> String {
        let of = self.port.map_or(String::new(), |port| format!(" of {}", ports[port]));
        format!("{} {}{of}", self.source, self.counter)
    }
}

/// Frames that the interfaces of a source count as discarded. RFC 2863 counts a received frame either as discarded or
/// as delivered, so the interface's other counters and the IP counters behind it do not have to include discarded
/// frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Discards {
    /// Discards at the port of the counter.
    pub(super) at_port: u64,
    /// Discards at all ports.
    at_all: u64,
}

impl Discards {
    /// Discards that the source of `counter` reports.
    pub(super) fn of(counter: &DutCounter, grown: &[(&DutCounter, u64)]) -> Discards {
        let mut found = Discards::default();
        for (other, by) in grown {
            if other.counts == Counts::InDiscards && other.source == counter.source {
                found.at_all = found.at_all.saturating_add(*by);
                found.at_port += if other.port == counter.port { *by } else { 0 };
            }
        }
        found
    }
}

/// Maximum error of a counter due to the frames that passed while the counters were read.
pub(super) fn may_be_off(counts: Counts, unsure: OtherFrames) -> u64 {
    let octets = matches!(counts, Counts::InOctets | Counts::OutOctets);
    if octets { unsure.octets + 4 * unsure.frames } else { unsure.frames }
}

/// Distance of `counted` from the range.
pub(super) fn beyond((least, most): (u64, u64), counted: u64) -> i64 {
    match counted {
        n if n < least => -((least - n) as i64),
        n if n > most => (n - most) as i64,
        _ => 0,
    }
}

/// The counters after a trial, and the growth of each.
pub(super) fn growth(counters: &CountersSeen) -> Vec<(&DutCounter, u64)> {
    let before = |counter: &DutCounter| counters.before.iter().find(|b| b.is(counter)).map_or(0, |b| b.value);
    counters.after.iter().map(|counter| (counter, counter.grown(before(counter)))).collect()
}

/// The findings for all counters of a trial.
pub(super) fn findings(
    counters: &CountersSeen,
    facts: &Facts,
    families: &[Family],
    conventions: &Conventions,
) -> Vec<Finding> {
    let grown = growth(counters);
    let mut all = Vec::new();
    for (counter, counted) in &grown {
        if counter.counts == Counts::Loopback || counter.port.is_some_and(|port| port >= facts.ports.len()) {
            continue;
        }
        let discards = Discards::of(counter, &grown);
        let mut finding = judge(counter, *counted, discards, facts, conventions.get(counter));
        finding.doubt(counter.counts, counters.unsure);
        // A counter of an unused IP version that stayed at 0 is not a finding.
        let idle = finding.counted == Some(0) && finding.expected.is_some_and(|(least, _)| least == 0);
        let other = matches!(counter.counts,
            Counts::IpReceived(Some(f)) | Counts::IpForwarded(Some(f)) | Counts::IpOriginated(Some(f))
            | Counts::IpHeaderErrors(Some(f)) | Counts::IpDiscards(Some(f)) if !families.contains(&f));
        if !(idle && other) {
            all.push(finding);
        }
    }
    all.extend(sums(&grown, facts));
    all.extend(missing(&grown, facts.ports.len()));
    all
}

/// The finding for one counter; `convention` is the octet convention of its source.
fn judge(counter: &DutCounter, counted: u64, discards: Discards, facts: &Facts, convention: usize) -> Finding {
    let behind = matches!(counter.counts, Counts::IpReceived(_) | Counts::IpHeaderErrors(_));
    let discarded = if behind { discards.at_all.min(facts.lost()) } else { 0 };
    let finding = |expected: (u64, u64), convention: &str| {
        let difference = beyond(expected, counted);
        let with = if convention.is_empty() { String::new() } else { format!(", {convention}") };
        let verdict = match difference {
            0 if expected.0 == expected.1 => format!("exact{with}"),
            0 if counter.port.is_none() && facts.lost_wrongly() == 0 && discarded == 0 => {
                "explained by the tester's own queries".to_owned()
            }
            0 => "explained by the loss".to_owned(),
            by => format!("off by {by:+}{with}"),
        };
        Finding {
            source: counter.source.clone(),
            counter: counter.name.clone(),
            port: counter.port,
            expected: Some(expected),
            counted: Some(counted),
            difference: Some(difference),
            verdict,
            off: difference != 0,
        }
    };
    if let Some((least, most)) = facts.frames(counter.counts, counter.port) {
        // An agent that caches values may see some of the tester's own queries later or earlier than the kernel.
        let asked = if counter.counts == Counts::IpReceived(Some(Family::Ipv4)) { facts.loopback } else { 0 };
        let kept = counter.source != KERNEL && asked > 0;
        let (least, most) = if kept { (least - asked, most + asked + QUESTIONS) } else { (least, most) };
        let incoming = matches!(counter.counts, Counts::InFrames | Counts::InUnicast);
        if incoming && discards.at_port > 0 && least.checked_sub(discards.at_port) == Some(counted) {
            return finding((counted, counted), APART);
        }
        return finding((least.saturating_sub(discarded), most), "");
    }
    let octets = facts.octets(counter.counts, counter.port, discards.at_port).unwrap_or_default();
    if octets.frames == 0 {
        return finding((0, 0), "");
    }
    let by = |(without, name): (u64, &str)| {
        let all = octets.all(without);
        let passed = octets.passed(without);
        if octets.discarded > 0 && counted != all && beyond(passed, counted) == 0 {
            return finding(passed, &format!("{name}, {APART}"));
        }
        finding((all, all), name)
    };
    let found = by(CONVENTIONS[convention]);
    match CONVENTIONS.into_iter().find(|other| found.off && !by(*other).off) {
        Some((_, name)) => {
            let verdict = format!("{}: these are {name}, unlike in other readings", found.verdict);
            Finding { verdict, ..found }
        }
        None => found,
    }
}

/// Checks for each source whether its discard counters add up to the loss.
fn sums(grown: &[(&DutCounter, u64)], facts: &Facts) -> Vec<Finding> {
    let mut sources: Vec<&str> = grown.iter().map(|(c, _)| c.source.as_str()).collect();
    sources.dedup();
    let sum = |source: &str| {
        let mut of = grown.iter().filter(|(c, _)| c.source == source && c.counts.is_discard()).peekable();
        of.peek()?;
        let counted = of.map(|(_, n)| n).sum();
        let difference = beyond((facts.lost(), facts.lost()), counted);
        Some(Finding {
            source: source.to_owned(),
            counter: "all discards".into(),
            port: None,
            expected: Some((facts.lost(), facts.lost())),
            counted: Some(counted),
            difference: Some(difference),
            verdict: match difference {
                0 => "exact".into(),
                by if by < 0 => format!("{} lost frames are in no counter", by.unsigned_abs()),
                by => format!("off by {by:+}"),
            },
            off: difference != 0,
        })
    };
    sources.into_iter().filter_map(sum).collect()
}

/// Quantities of a port that no source counts.
fn missing(grown: &[(&DutCounter, u64)], ports: usize) -> Vec<Finding> {
    use Counts::*;
    let wanted: [(&str, &[Counts]); 8] = [
        ("frames in", &[InFrames, InUnicast]),
        ("octets in", &[InOctets]),
        ("discards in", &[InDiscards]),
        ("errors in", &[InErrors]),
        ("frames out", &[OutFrames, OutUnicast]),
        ("octets out", &[OutOctets]),
        ("discards out", &[OutDiscards]),
        ("errors out", &[OutErrors]),
    ];
    let of_port = |port: usize| {
        let there =
            move |kinds: &[Counts]| grown.iter().any(|(c, _)| c.port == Some(port) && kinds.contains(&c.counts));
        wanted.into_iter().filter(move |(_, kinds)| !there(kinds)).map(move |(name, _)| Finding {
            source: "any".into(),
            counter: name.into(),
            port: Some(port),
            expected: None,
            counted: None,
            difference: None,
            verdict: "not present".into(),
            off: false,
        })
    };
    (0..ports).flat_map(of_port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trial of 100 frames of 64 bytes from port 0 to port 1, after which the router reports these octets.
    fn trial(octets: [u64; 2]) -> (CountersSeen, Facts) {
        let after = [("ifHCInOctets", 0, octets[0]), ("ifHCOutOctets", 1, octets[1])];
        let after: Vec<DutCounter> =
            after.into_iter().filter_map(|(name, port, n)| DutCounter::of_port("snmp", name, port, n)).collect();
        let before = after.iter().map(|counter| DutCounter { value: 0, ..counter.clone() }).collect();
        let others = vec![OtherFrames::default(); 2];
        let unsure = OtherFrames::default();
        let mut ports = vec![PortFacts::default(); 2];
        ports[0].into[0] = 100;
        ports[1].from[0] = 100;
        let none = ByFamily::default();
        let facts = Facts { ports, bytes: [64, 0], expired: none, forwarded: [100, 0], loopback: 0 };
        (CountersSeen { before, after, sent: others.clone(), received: others, unsure }, facts)
    }

    /// The verdicts on the octets of each trial.
    fn verdicts(trials: &[[u64; 2]]) -> Vec<[String; 2]> {
        let trials: Vec<_> = trials.iter().map(|octets| trial(*octets)).collect();
        let conventions = Conventions::of(trials.iter().map(|(trial, facts)| (trial, facts)));
        let of_trial = |(trial, facts): &(CountersSeen, Facts)| {
            let found = findings(trial, facts, &[Family::Ipv4], &conventions);
            ["ifHCInOctets", "ifHCOutOctets"].map(|name| {
                let one = found.iter().find(|one| one.counter == name).unwrap();
                assert_eq!(one.off, !one.verdict.starts_with("exact"), "{one:?}");
                one.verdict.clone()
            })
        };
        trials.iter().map(of_trial).collect()
    }

    #[test]
    fn frames_that_an_interface_discards_may_be_in_no_other_counter() {
        // Port 0 discards 5 of 100 frames.
        let verdicts = |received: u64, discarded: u64, octets: u64| {
            let (mut trial, mut facts) = trial([octets, 5_700]);
            facts.ports[1].from[0] = 95;
            facts.forwarded[0] = 95;
            trial.after.extend(DutCounter::of_port("snmp", "ifInDiscards", 0, discarded));
            trial.after.extend(DutCounter::of_device("snmp", "ipSystemStatsInReceives.ipv4", received));
            let conventions = Conventions::of([(&trial, &facts)]);
            let found = findings(&trial, &facts, &[Family::Ipv4], &conventions);
            let of = |name: &str| found.iter().find(|one| one.counter == name).unwrap().verdict.clone();
            [of("ipSystemStatsInReceives.ipv4"), of("ifHCInOctets")]
        };
        let apart = "exact, octets without FCS, its discards counted apart";
        assert_eq!(verdicts(95, 5, 5_700), ["explained by the loss", apart]);
        assert_eq!(verdicts(100, 5, 6_000), ["explained by the loss", "exact, octets without FCS"]);
        assert_eq!(verdicts(94, 5, 5_640), ["off by -1", "off by -360, octets without FCS"]);
        // Without discards, every frame must be counted. More discards than lost frames explain nothing more.
        assert_eq!(verdicts(95, 0, 5_700), ["off by -5", "off by -300, octets without FCS"]);
        assert_eq!(verdicts(90, 10, 5_400), ["off by -5", "off by -600, octets without FCS"]);
    }

    #[test]
    fn a_source_has_one_octet_convention_for_each_direction() {
        let (without_fcs, without_header) =
            ("exact, octets without FCS", "exact, octets without Ethernet header and FCS");
        // Both directions may differ.
        assert_eq!(verdicts(&[[4_600, 6_000]; 2]), [[without_header, without_fcs]; 2]);
        // The reading that differs is wrong, whatever its position, although each count matches some convention.
        let changed = "off by +400, octets without FCS: these are octets with FCS, unlike in other readings";
        for odd in 0..3 {
            let mut trials = [[6_000, 6_000]; 3];
            trials[odd][0] = 6_400;
            let mut wanted = [[without_fcs; 2]; 3];
            wanted[odd][0] = changed;
            assert_eq!(verdicts(&trials), wanted);
        }
        // A count that matches no convention is reported with the nearest convention over all trials.
        assert_eq!(
            verdicts(&[[6_001, 6_000], [6_002, 6_000]]),
            [["off by +1, octets without FCS", without_fcs], ["off by +2, octets without FCS", without_fcs]]
        );
    }
}
