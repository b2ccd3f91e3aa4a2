//! The test equipment: ports with their clock, the threads that drive them (lanes), the hosts and routers emulated behind
//! them, and flows.
//!
//! A [`Rig`] knows nothing about DUTs or tests. It takes a [`Config`], runs traffic, and returns its counts.

mod act;
mod bell;
mod config;
mod extra;
mod far;
mod filters;
mod frame_kinds;
mod hosts;
mod keys;
mod lent;
mod metrics;
mod other;
mod ports;
mod processors;
mod rig;
mod serving;
mod shared_routes;
mod tap;
mod tasks;
mod templates;
mod until;
mod watch;

pub use act::{Act, Acts};
pub use config::{Config, DeviceConfig, PortConfig, host_mac};
pub use drophammer_emulation::banner::AskBanner;
pub use drophammer_emulation::device::{Address, Tag, Tags};
pub use drophammer_emulation::ping::Echo;
pub use drophammer_emulation::protocol::{Command, ProtocolConfig, Refused, State};
pub use drophammer_emulation::{bfd, ldp, ospf, rsvp};
pub use drophammer_traffic::{
    Agreed, Arrivals, CONTINUOUS, CONTINUOUS_BINS, FlowCounts, FlowSelect, GroupCounts, LaneCounts, LaneReport, Live,
    PlaceCounts, PlanError, Received, Refusals, Snapshot, Standing, TestTraffic, Timing, Totals, Transmit,
    TransmitAction, TransmitError, Wish,
};
pub use far::{Arriving, CaptureOrder, Captured, Far, FarPorts, FarResult, Job, Lender, News, Relayed};
pub use filters::{CaptureSettings, Filter, FilterField, FilterHeader, Filters, MOST_FILTERS};
pub use hosts::{HostControl, Hosts, LaneHosts, ProtocolPlace, RouterPlace, SessionIndex, Unresolved};
pub use keys::TrialKeys;
pub use lent::{Lent, LentError, Relay, Up};
pub use metrics::{Metrics, SessionMetrics, SessionWatch};
pub use other::{Extra, MARK, identification, mark};
pub use ports::{Ports, open};
pub use processors::{Times, own_times};
pub use rig::{Action, Event, Rig, RigError, Select};
pub use tap::{Capture, ROOM, Tap};
pub use templates::{Template, Templates, templates};
pub use until::Until;
pub use watch::{Stalls, Watch, Watched};
