//! Frames as an engineer describes them: a stack of headers. Each field is a value, a list, an increment or random, as
//! in the models of the Open Traffic Generator API.
//!
//! ```yaml
//! - ethernet: {source: 02:00:00:00:00:01, destination: 02:00:00:00:00:02}
//! - vlan: {vid: {start: 100, count: 50}, pcp: 5}
//! - ipv4: {source: 192.0.2.1, destination: 198.51.100.1, dscp: {values: [10, 46]}}
//! - udp: {source_port: {random: {min: 1024, max: 65535}}, destination_port: 9}
//! ```

mod arriving;
mod field;
mod header;
mod value;

pub use arriving::{Arriving, ArrivingLabel, ArrivingTag, ArrivingTunnel, Deviation};
pub use field::{AnyField, Field, FieldError};
pub use header::{
    DISCARD, Ethernet, Extension, FieldName, Gre, HOP_LIMIT, Header, HeaderKind, IcmpEcho, Ipv4, Ipv6, Mpls, Raw, Tcp,
    Udp, Vlan, Vxlan,
};
pub use value::{Bits, FieldValue, Octets, parse_dscp};
