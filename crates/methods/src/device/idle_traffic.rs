//! Idle traffic (Bradner 1989, "idle state"): frames that a router sends on its own while it receives no test frames.

use crate::kit::prelude::*;
use drophammer_model::beside::{OtherTraffic, ProtocolCount};

/// The test.
pub struct IdleTraffic;

const FAMILIES: Param<Vec<Family>> = Param::fixed(
    "families",
    "[ipv4, ipv6]",
    "IP versions of the tester's emulated devices, which answer ARP and Neighbor Discovery as usual",
);
const DURATION: Param<Duration> = Param::new(
    "duration",
    "5 s",
    "300 s",
    "how long the tester listens to the router (Bradner 1989: a minute), 1 s or more",
);

const UNASKED: FigureSpec = FigureSpec::lower_by_difference(
    "idle_frames_per_minute",
    "frames/min",
    "unsolicited frames per minute, over all ports",
);

static SPEC: TestSpec = TestSpec {
    name: "idle_traffic",
    title: "Idle traffic",
    summary: "frames that the router sends on its own on each port, by protocol, while no test frame is sent",
    source: "Bradner 1989, idle state",
    params: params![&[FAMILIES.spec(), DURATION.spec()]],
    figures: &[UNASKED.shape()],
    tables: &[TABLE.shape()],
    needs: &[],
};

columns! {
    /// One protocol at one port.
    struct IdleRow {
        port: String,
        protocol: String,
        frames: u64 ["frames"],
        answers: u64 = "Answers to the tester" ["frames"],
        bytes: u64 ["bytes"],
        per_minute: f64 = "Unsolicited, per minute" ["frames"],
        most_per_second: u64 = "Most in one second" ["frames"],
        line_percent: f64 = "Share of the line" ["%"],
        kernel_frames: Option<u64> = "All frames at this port, kernel count" ["frames"],
    }
}

const TABLE: TableSpec<IdleRow> = TableSpec::new("idle_traffic", "Idle traffic");

/// Name of the row of a port without frames.
const SILENCE: &str = "none";
/// The shortest time that gives a meaningful rate per minute.
const SHORTEST: Duration = Duration::from_secs(1);
/// Duration that the source of the test requires, in seconds.
const SOURCE_S: f64 = 60.0;

/// `by_kernel`: all frames that the kernel received at the port, if known.
fn row(port: &PortView, count: &ProtocolCount, time: Duration, by_kernel: Option<u64>) -> IdleRow {
    let (frames, seconds) = (count.frames as f64, time.as_secs_f64());
    let mean = if count.frames > 0 { count.bytes as f64 / frames } else { 0.0 };
    // An IP packet is 18 bytes shorter than its frame.
    let bytes = port.medium.line_bytes(mean - 18.0, mean) * frames;
    IdleRow {
        port: port.name.clone(),
        protocol: count.protocol.clone(),
        frames: count.frames,
        answers: count.answers,
        bytes: count.bytes,
        per_minute: (count.frames - count.answers) as f64 * 60.0 / seconds,
        most_per_second: count.most_per_second,
        line_percent: bytes * 8.0 / (port.medium.payload_rate(port.speed) * seconds) * 100.0,
        kernel_frames: by_kernel,
    }
}

/// The rows of all ports, by port and then by number of frames, the largest first; one row of zeros for a port without
/// frames.
fn rows(ports: &[PortView], seen: &OtherTraffic) -> Vec<IdleRow> {
    let of_port = |(index, port): (usize, &PortView)| {
        let mut counts: Vec<_> = seen.protocols.iter().filter(|count| count.port == index).collect();
        counts.sort_by(|a, b| b.frames.cmp(&a.frames).then_with(|| a.protocol.cmp(&b.protocol)));
        let by_kernel = seen.received_by_kernel.as_ref().and_then(|ports| ports.get(index)).copied();
        let mut rows: Vec<_> = counts.into_iter().map(|count| row(port, count, seen.time, by_kernel)).collect();
        if rows.is_empty() {
            let nothing = ProtocolCount {
                port: index,
                protocol: SILENCE.into(),
                frames: 0,
                answers: 0,
                bytes: 0,
                most_per_second: 0,
            };
            rows.push(row(port, &nothing, seen.time, by_kernel));
        }
        rows
    };
    ports.iter().enumerate().flat_map(of_port).collect()
}

impl Method for IdleTraffic {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        Plan::times(params, 1).taking(DURATION.get(params).max(SHORTEST).as_secs_f64()).deviating(shorter(
            params,
            &DURATION,
            "listening",
            SOURCE_S,
            "Bradner 1989, idle state",
        ))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        let time = DURATION.get(params).max(SHORTEST);
        bed.progress("idle traffic");
        let ports = bed.ports().to_vec();
        let seen = bed.observe(time)?;
        let rows = rows(&ports, &seen);
        let unasked: u64 = seen.protocols.iter().map(|count| count.frames - count.answers).sum();
        note(outcome, format!("The tester listened to the router for {}.", show_duration(seen.time)));
        note(
            outcome,
            "Answers are ARP replies, solicited neighbor advertisements and echo replies to one station: the tester's devices requested \
             them, as hosts do. Frames that the router sends because of its BGP sessions with the tester count as unsolicited.",
        );
        note(
            outcome,
            "Bytes include the FCS and padding to 64 bytes; the share of the line also includes preamble and gap.",
        );
        if seen.received_by_kernel.is_some() {
            note(
                outcome,
                "The last column is an independent count: all frames, of all protocols, that the kernel received at the interface of the \
                 port during the same time.",
            );
        }
        for row in rows {
            TABLE.add(outcome, row, [], []);
        }
        let per_minute = 60.0 / seen.time.as_secs_f64();
        // A difference of one frame does not matter.
        let figure = UNASKED.by(per_minute);
        outcome.ranks.push(figure.of(&[], "Unsolicited frames", Some(unasked as f64 * per_minute)));
        Ok(())
    }
}
