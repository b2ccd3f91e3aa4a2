//! Messages between controller and agents, and their limits.
//!
//! Commands, replies and reports are JSON; frames are packed. A message that is too large, malformed or of an unknown kind is
//! refused before anything is allocated for more than its own size.

use crate::chrony::Wall;
use crate::clock::Domain;
use drophammer_model::MacAddr;
use drophammer_model::trial::PortIndex;
use drophammer_port::{PortInfo, Queue, backends};
use drophammer_rig::{CaptureOrder, Job, LaneCounts, LaneReport, Refusals, Standing, Wish};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of these messages. Both sides must have the same version.
pub const PROTOCOL: u32 = 8;
/// Largest message in bytes. The server must accept as much (`max_payload`).
pub const LARGEST: usize = 8 << 20;
/// Largest set of reports of one host in bytes.
pub const LARGEST_REPORTS: usize = 256 << 20;
/// Bytes of reports in one message.
pub const PART: usize = 512 << 10;
/// Largest number of ports of a rig.
pub const MOST_PORTS: usize = 1024;
/// Longest name of a host or an interface.
const LONGEST_NAME: usize = 63;

/// Why a message was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The message is larger than allowed.
    #[error("a message of {0} bytes is larger than {1} bytes")]
    Large(usize, usize),
    /// The message cannot be decoded.
    #[error("a message that cannot be read: {0}")]
    Unreadable(String),
}

/// Decodes a message.
///
/// # Errors
/// [`Malformed`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Malformed> {
    decode_up_to(bytes, LARGEST)
}

/// Decodes a message or a joined record of at most `most` bytes.
///
/// # Errors
/// [`Malformed`].
pub fn decode_up_to<T: DeserializeOwned>(bytes: &[u8], most: usize) -> Result<T, Malformed> {
    if bytes.len() > most {
        return Err(Malformed::Large(bytes.len(), most));
    }
    serde_json::from_slice(bytes).map_err(|e| Malformed::Unreadable(e.to_string()))
}

/// Encodes a message.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    // This cannot fail: map keys in these types are numbers and strings.
    serde_json::to_vec(message).unwrap_or_default()
}

/// A port that an agent lends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortFacts {
    /// Name of the interface.
    pub interface: String,
    /// Backend that drives the interface.
    pub backend: String,
    /// Driver of the interface.
    pub driver: String,
    /// MAC address of the interface.
    pub mac: MacAddr,
    /// MTU in bytes.
    pub mtu: u32,
    /// See [`PortInfo::largest_frame`].
    pub largest_frame: usize,
    /// Number of queues.
    pub queues: u32,
    /// Speed in Mbit/s, if the driver reports it.
    #[serde(default)]
    pub speed_mbps: Option<u64>,
}

impl PortFacts {
    /// Describes an open port.
    pub fn of(info: &PortInfo) -> PortFacts {
        PortFacts {
            interface: info.interface.clone(),
            backend: info.backend.into(),
            driver: info.driver.clone(),
            mac: info.mac,
            mtu: info.mtu,
            largest_frame: info.largest_frame,
            queues: info.queue.count,
            speed_mbps: speed_mbps(&info.interface),
        }
    }

    /// Describes the port `host/interface` of a rig.
    ///
    /// # Errors
    /// This version does not know the backend, or no port has such a size.
    pub fn info(&self, name: &str) -> Result<PortInfo, String> {
        let backend = backends().find(|spec| spec.name == self.backend);
        let backend =
            backend.ok_or_else(|| format!("{name} has the backend `{}`, which is unknown here", self.backend))?;
        if !(64..=1 << 16).contains(&self.largest_frame) || self.queues > 1024 {
            return Err(format!("{name} has frames of {} bytes and {} queues", self.largest_frame, self.queues));
        }
        Ok(PortInfo {
            queue: Queue { index: 0, count: self.queues },
            largest_frame: self.largest_frame,
            ..PortInfo::new(name, backend, &self.driver, self.mac, self.mtu)
        })
    }
}

/// Returns the speed of an interface in Mbit/s, if its driver reports one.
pub fn speed_mbps(interface: &str) -> Option<u64> {
    std::fs::read_to_string(format!("/sys/class/net/{interface}/speed")).ok()?.trim().parse().ok()
}

/// What an agent announces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Announcement {
    /// Version of the program.
    pub version: String,
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Its steady clock.
    pub clock: Domain,
    /// Number of threads that drive its ports.
    pub threads: usize,
    /// Interfaces, with the speed in Mbit/s if it is known.
    pub ports: Vec<(String, Option<u64>)>,
    /// Backend that drives the interfaces.
    pub backend: String,
}

/// Who holds a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// A random secret: whoever knows it may use the port.
    pub id: String,
    /// The holder, for messages: user, host, process.
    pub holder: String,
}

/// What an agent is asked to lend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loan {
    /// Version of the controller.
    pub version: String,
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Number of the request within the lease. It grows, so that a late request is recognized.
    pub number: u64,
    /// Index of the agent among the hosts of the lease.
    pub host: usize,
    /// Interfaces, each with its position in the rig, in ascending order.
    pub ports: Vec<(String, PortIndex)>,
    /// Number of ports of the rig.
    pub all: usize,
    /// The agent's steady clock at instant 0 of the rig.
    pub origin_ns: i64,
    /// Traffic stops if the controller is silent for this long.
    pub silence_ms: u64,
    /// True if frames of the ports may be captured.
    #[serde(default)]
    pub captures: bool,
}

/// A request to an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The lease that permits the request; empty to compare clocks.
    pub lease: String,
    /// What to do.
    pub what: What,
}

/// What an agent is asked to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum What {
    /// Tell the time.
    Time,
    /// Tell what chrony says about the clock.
    Wall,
    /// Open ports.
    Lend(Loan),
    /// Plan a trial.
    Plan {
        /// Number of the attempt within the lease. It grows, so that a late request for an earlier one is recognized.
        attempt: u64,
        /// The trial.
        job: Box<Job>,
    },
    /// Start the planned trial.
    Start {
        /// Number of the attempt.
        attempt: u64,
        /// When to start, on the clock of the rig, in ns.
        at_ns: u64,
        /// By how much the clock of another host may be ahead, in ns. The lanes must be ready this much earlier.
        early_ns: u64,
    },
    /// Requests of the user to the traffic, in this order.
    Wishes {
        /// Number of the attempt.
        attempt: u64,
        /// The requests.
        wishes: Vec<Wish>,
    },
    /// Report the trial that has ended on all hosts.
    Report {
        /// Number of the attempt.
        attempt: u64,
        /// Frames that the rings of all hosts refused.
        refusals: Refusals,
    },
    /// Forget the trial.
    Abandon {
        /// Number of the attempt.
        attempt: u64,
    },
    /// Take the link of a port down or up.
    Link {
        /// Number of the request within the lease, as for a loan.
        number: u64,
        /// The port.
        port: PortIndex,
        /// True for up.
        up: bool,
    },
    /// Start or end the capture of a port.
    Capture {
        /// Number of the request within the lease, as for a loan.
        number: u64,
        /// The port.
        port: PortIndex,
        /// Which of both.
        order: CaptureOrder,
    },
    /// End the capture of a port, and store its file.
    Captured {
        /// Number of the request within the lease.
        number: u64,
        /// Number of the request that started the capture.
        started: u64,
        /// The port.
        port: PortIndex,
    },
    /// Tell whether the link of a port has carrier.
    Carrier(PortIndex),
    /// Close the ports; the lease is over.
    Return,
}

/// The reply of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// The agent's steady clock, in ns.
    Time(i64),
    /// What chrony says about the clock; `None` if it does not synchronize it.
    Wall(Option<Wall>),
    /// The ports are open.
    Lent(Vec<PortFacts>),
    /// The counts of its lanes.
    Counts(Vec<LaneCounts>),
    /// The reports are stored in the stream.
    Stored {
        /// Sequence numbers in the stream.
        parts: Vec<u64>,
        /// Total length of the reports in bytes.
        bytes: usize,
    },
    /// Whether the link has carrier.
    Carrier(bool),
    /// The file of a capture is stored as this object, with this length in bytes.
    Captured(String, usize),
    /// The ports are not, or no longer, lent under this lease.
    NotLent,
    /// The trial cannot be planned.
    Impossible(String),
    /// The request cannot be carried out.
    Refused(String),
}

/// A sign of life of the controller, for all hosts of a lease. It also carries what lanes need of other hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beat {
    /// When it was sent, on the clock of the rig, in ns.
    pub sent_ns: u64,
    /// The attempt that runs, and what all hosts together have sent and received in it.
    #[serde(default)]
    pub running: Option<(u64, Standing)>,
}

/// The state of an agent, for the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Index of the host.
    pub host: usize,
    /// Number of the attempt; 0 if there is none.
    pub attempt: u64,
    /// What its lanes have sent and received.
    pub standing: Standing,
    /// How the trial ended, if it has.
    #[serde(default)]
    pub over: Option<Over>,
}

/// How a trial ended on a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Over {
    /// With reports.
    Good {
        /// Frames that the host's rings refused.
        refusals: Refusals,
        /// How long its thread was ready to run while other programs had its processor, in ns, if the kernel counts it.
        waited_ns: Option<u64>,
        /// Largest time in ns that a hypervisor took from the processor of a port thread; `None` if unknown, as without `--processors`.
        stolen_ns: Option<u64>,
        /// Frames to and from devices that the agent could not pass on during the trial.
        #[serde(default)]
        lost: u64,
    },
    /// Without.
    Failed(String),
}

/// The stored form of a host's reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    /// Lease of the run.
    pub lease: String,
    /// Number of the attempt.
    pub attempt: u64,
    /// Index of the host.
    pub host: usize,
    /// Its lanes.
    pub reports: Vec<LaneReport>,
    /// Their last counts, if the trial asks for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<LaneCounts>,
}

/// Packs a frame: port, instant, length, bytes.
pub fn pack(out: &mut Vec<u8>, port: PortIndex, at_ns: u64, frame: &[u8]) {
    let Ok(len) = u16::try_from(frame.len()) else { return };
    out.extend_from_slice(&(port as u16).to_be_bytes());
    out.extend_from_slice(&at_ns.to_be_bytes());
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(frame);
}

/// Iterates over packed frames, up to the first truncated one.
pub fn unpack(mut bytes: &[u8]) -> impl Iterator<Item = (PortIndex, u64, &[u8])> {
    std::iter::from_fn(move || {
        let (port, rest) = bytes.split_first_chunk::<2>()?;
        let (at, rest) = rest.split_first_chunk::<8>()?;
        let (len, rest) = rest.split_first_chunk::<2>()?;
        let (frame, rest) = rest.split_at_checked(u16::from_be_bytes(*len).into())?;
        bytes = rest;
        Some((u16::from_be_bytes(*port).into(), u64::from_be_bytes(*at), frame))
    })
}

/// True if the text is a valid host name: letters, digits and `-`.
pub fn is_host_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(fits)
}

/// Splits the name of a port, `host/interface`; `None` for an interface of this host.
pub fn split(name: &str) -> Option<(&str, &str)> {
    name.split_once('/').filter(|(host, interface)| is_host_name(host) && !interface.is_empty())
}

/// Returns the key of a port in the bucket of leases.
pub fn lease_key(host: &str, interface: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let mut key = format!("{host}.");
    for c in interface.chars() {
        match plain(c) {
            true => key.push(c),
            false => key += &format!("={:x}=", u32::from(c)),
        }
    }
    key
}

/// Checks that an agent has the version `own` of the controller.
///
/// # Errors
/// A message that names both versions, and the remedy.
pub fn fits(own: &str, host: &str, version: &str, protocol: u32) -> Result<(), String> {
    if version == own && protocol == PROTOCOL {
        return Ok(());
    }
    Err(format!(
        "the agent on {host} is version {version} (protocol {protocol}), but the controller is version {own} (protocol \
         {PROTOCOL}); install the same version on both"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_are_packed_and_unpacked(
            frames in proptest::collection::vec((0usize..1_000, any::<u64>(), proptest::collection::vec(any::<u8>(), 0..200)), 0..20),
            cut in 0usize..100
        ) {
            let mut bytes = Vec::new();
            frames.iter().for_each(|(port, at, frame)| pack(&mut bytes, *port, *at, frame));
            let found: Vec<_> = unpack(&bytes).map(|(port, at, frame)| (port, at, frame.to_vec())).collect();
            prop_assert_eq!(&found, &frames);
            let short = &bytes[..bytes.len().saturating_sub(cut)];
            prop_assert!(unpack(short).zip(&frames).all(|(found, sent)| found.2 == sent.2));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = unpack(&bytes).count();
            let _ = (decode::<Request>(&bytes), decode::<Reply>(&bytes), decode::<State>(&bytes), decode::<Stored>(&bytes));
            let _ = decode::<Beat>(&bytes);
        }
    }

    #[test]
    fn names_and_keys() {
        assert_eq!(split("host1/eth1.7"), Some(("host1", "eth1.7")));
        assert_eq!([split("eth1"), split("/eth1"), split("a b/c"), split("a/")], [None; 4]);
        assert_eq!(lease_key("h", "eth1.7@x"), "h.eth1=2e=7=40=x");
        assert!(fits("1.2", "h", "1.2", PROTOCOL).is_ok());
        for (version, protocol) in [("0.0.9", PROTOCOL), ("1.2", PROTOCOL + 1)] {
            let wrong = fits("1.2", "h1", version, protocol).unwrap_err();
            assert!(wrong.contains(&format!("h1 is version {version} (protocol {protocol})")), "{wrong}");
            assert!(wrong.contains(&format!("the controller is version 1.2 (protocol {PROTOCOL})")), "{wrong}");
        }
    }

    #[test]
    fn a_large_message_is_refused_before_it_is_read() {
        let large = vec![b' '; LARGEST + 1];
        assert_eq!(decode::<Reply>(&large), Err(Malformed::Large(LARGEST + 1, LARGEST)));
        assert!(decode::<Request>(br#"{"lease": "", "what": "Reboot"}"#).is_err());
        let request = Request { lease: String::new(), what: What::Time };
        assert_eq!(decode::<Request>(&encode(&request)), Ok(request));
    }
}
