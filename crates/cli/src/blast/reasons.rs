//! Why frames did not count: they arrived in another form, or an ICMP error came back instead.

use super::job::Job;
use drophammer_model::beside::{ErrorCount, OtherTraffic};
use drophammer_model::quantity::group_digits;
use drophammer_model::trial::{Family, GroupCounts};
use serde_json::{Value, json};

/// Protocols that are not reported, because the hosts themselves cause their frames.
const EXPECTED: [&str; 5] =
    ["ARP request", "ARP reply", "neighbor solicitation", "neighbor advertisement, solicited", "router solicitation"];

/// The lines of the summary about a direction.
pub fn of_direction(counts: &GroupCounts) -> Vec<String> {
    let mut lines: Vec<String> = counts
        .deviations
        .iter()
        .map(|(deviation, frames)| {
            format!("{}: {} of the lost frames arrived: {deviation}", counts.group, group_digits(*frames))
        })
        .collect();
    if counts.deviating_copies > 0 {
        let copies = group_digits(counts.deviating_copies);
        lines.push(format!("{}: {copies} more copies of frames arrived in another form", counts.group));
    }
    lines
}

/// The lines of the summary about received frames other than test frames: ICMP errors, and protocols.
pub fn of_others(job: &Job, others: &OtherTraffic) -> Vec<String> {
    let error = |count: &ErrorCount| {
        let name = if count.error.family == Family::Ipv4 { "ICMP" } else { "ICMPv6" };
        let mtu = count.mtu.map_or(String::new(), |mtu| format!(", MTU {mtu}"));
        let (port, frames) = (&job.ports[count.port], group_digits(count.frames));
        format!("{port}: {frames} x {name} {}{mtu} came back", count.error.words())
    };
    let is_news = |protocol: &str| !EXPECTED.contains(&protocol) && !is_error(protocol);
    let rest = others.protocols.iter().filter(|count| is_news(&count.protocol));
    let rest = rest
        .map(|count| format!("{}: {} x {} came in", job.ports[count.port], group_digits(count.frames), count.protocol));
    others.errors.iter().map(error).chain(rest).collect()
}

/// True if frames with this name include ICMP errors, which are counted by kind.
fn is_error(protocol: &str) -> bool {
    ["ICMP, other", "ICMPv6, other"].contains(&protocol)
}

/// The deviations of a direction by name.
pub fn deviations(counts: &GroupCounts) -> Value {
    counts.deviations.iter().map(|(deviation, frames)| (deviation.name().to_owned(), json!(frames))).collect()
}

/// The content of [`of_others`] for one port.
pub fn others(others: &OtherTraffic, port: usize) -> (Value, Value) {
    let errors = others.errors.iter().filter(|count| count.port == port).map(|count| {
        let family = if count.error.family == Family::Ipv4 { "ipv4" } else { "ipv6" };
        json!({
            "family": family, "type": count.error.kind, "code": count.error.code, "meaning": count.error.words(), "mtu": count.mtu,
            "frames": count.frames,
        })
    });
    let protocols = others.protocols.iter().filter(|count| count.port == port);
    (errors.collect(), protocols.map(|count| (count.protocol.clone(), json!(count.frames))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;
    use drophammer_model::beside::{IcmpError, ProtocolCount};
    use drophammer_model::traffic::Deviation;

    #[test]
    fn what_did_not_count_is_told_with_its_reason() {
        let job = Job::read(&parsed("va vb").unwrap()).unwrap();
        let deviations_of = [(Deviation::Dscp, 1_200), (Deviation::Fragmented, 3)].into();
        let counts = GroupCounts {
            group: "va to vb".into(),
            deviations: deviations_of,
            deviating_copies: 2,
            ..GroupCounts::default()
        };
        assert_eq!(
            of_direction(&counts),
            [
                "va to vb: 3 of the lost frames arrived: in fragments",
                "va to vb: 1,200 of the lost frames arrived: wrong DSCP",
                "va to vb: 2 more copies of frames arrived in another form",
            ]
        );
        assert_eq!(deviations(&counts), json!({"dscp": 1_200, "fragmented": 3}));
        let error = |port, family, kind, code, mtu, frames| ErrorCount {
            port,
            error: IcmpError { family, kind, code },
            mtu,
            frames,
        };
        let protocol = |protocol: &str, frames| ProtocolCount {
            port: 1,
            protocol: protocol.into(),
            frames,
            answers: 0,
            bytes: 0,
            most_per_second: 0,
        };
        let all = OtherTraffic {
            errors: vec![
                error(0, Family::Ipv4, 3, 4, Some(1_500), 200),
                error(0, Family::Ipv4, 11, 0, None, 7),
                error(1, Family::Ipv6, 1, 0, None, 1),
                error(1, Family::Ipv4, 12, 1, None, 1),
            ],
            protocols: vec![protocol("ARP reply", 1), protocol("ICMP, other", 207), protocol("LLDP", 4)],
            ..OtherTraffic::default()
        };
        assert_eq!(
            of_others(&job, &all),
            [
                "va: 200 x ICMP fragmentation needed (3/4), MTU 1500 came back",
                "va: 7 x ICMP TTL or hop limit exceeded in transit (11/0) came back",
                "vb: 1 x ICMPv6 no route to destination (1/0) came back",
                "vb: 1 x ICMP parameter problem (12/1) came back",
                "vb: 4 x LLDP came in",
            ]
        );
        let (errors, protocols) = others(&all, 0);
        assert_eq!(errors[0]["mtu"], 1_500);
        assert_eq!((errors.as_array().unwrap().len(), protocols), (2, json!({})));
    }
}
