//! What is around the packets of `blast`, and how many flows there are.

use crate::args::BlastArgs;
use drophammer_model::traffic::{Arriving, ArrivingLabel, ArrivingTag, Bits, Header, Ipv4, Ipv6, Mpls, Udp, Vlan};
use drophammer_rig::{Tag, Tags};

/// Ports that no service has (RFC 6335 section 6): each flow has one as source.
const FIRST_PORT: u16 = 49_152;
/// So many of them.
pub const MAX_FLOWS: u16 = u16::MAX - FIRST_PORT + 1;
/// Most VLAN tags.
const MAX_TAGS: usize = 2;
/// Most labels.
const MAX_LABELS: usize = 8;
/// EtherTypes of the outer one of two tags (IEEE 802.1ad) and of any other one (IEEE 802.1Q).
const OUTER: u16 = 0x88a8;
const INNER: u16 = 0x8100;

/// Headers around the payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// VLAN identifiers, the outer one first.
    vlans: Vec<u16>,
    /// MPLS labels, the outermost first.
    labels: Vec<u32>,
    /// Differentiated services codepoint.
    dscp: u8,
    /// Flows of each direction.
    flows: u16,
}

impl Stack {
    /// Reads the command line.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    pub fn read(args: &BlastArgs) -> Result<Stack, String> {
        if args.vlan.len() > MAX_TAGS {
            return Err(format!(
                "--vlan: {} tags; write one, or the outer and the inner one as in `10,20`",
                args.vlan.len()
            ));
        }
        if args.mpls.len() > MAX_LABELS {
            return Err(format!("--mpls: {} labels; write at most {MAX_LABELS}", args.mpls.len()));
        }
        let flows = args.flows.unwrap_or(1);
        Ok(Stack { vlans: args.vlan.clone(), labels: args.mpls.clone(), dscp: args.dscp.unwrap_or(0), flows })
    }

    /// Tags of the hosts' other frames: ARP, Neighbor Discovery.
    pub fn tags(&self) -> Tags {
        let last = self.vlans.len().saturating_sub(1);
        let tag = |(i, vid): (usize, &u16)| Tag { tpid: if i < last { OUTER } else { INNER }, vid: *vid };
        // The command line allows so many.
        Tags::new(&self.vlans.iter().enumerate().map(tag).collect::<Vec<_>>()).unwrap_or(Tags::NONE)
    }

    /// Headers of each flow; none where they are those of any flow.
    pub fn headers(&self, ipv6: bool) -> Vec<Vec<Header>> {
        if *self == (Stack { flows: 1, ..Stack::default() }) {
            return vec![Vec::new()];
        }
        let vlans =
            self.vlans.iter().map(|vid| Header::Vlan(Vlan { vid: Bits::new((*vid).into()).into(), ..Vlan::default() }));
        let labels =
            self.labels.iter().map(|label| Header::Mpls(Mpls { label: Bits::new(*label).into(), ..Mpls::default() }));
        let dscp = || Bits::new(self.dscp.into()).into();
        let ip = match ipv6 {
            false => Header::Ipv4(Ipv4 { dscp: dscp(), ..Ipv4::default() }),
            true => Header::Ipv6(Ipv6 { dscp: dscp(), ..Ipv6::default() }),
        };
        let around: Vec<Header> = vlans.chain(labels).chain([ip]).collect();
        let flow = |i: u16| {
            let udp = Udp { source_port: (FIRST_PORT + i).into(), ..Udp::default() };
            around.iter().cloned().chain([Header::Udp(udp)]).collect()
        };
        (0..self.flows).map(flow).collect()
    }

    /// What must arrive: tags, labels and codepoint as they were sent. `None` where there are none.
    pub fn arrives(&self) -> Option<Arriving> {
        if self.vlans.is_empty() && self.labels.is_empty() && self.dscp == 0 {
            return None;
        }
        let tag = |vid: &u16| ArrivingTag { vid: Bits::new((*vid).into()), pcp: None };
        let label = |label: &u32| ArrivingLabel { label: Bits::new(*label), tc: None, ttl: None };
        Some(Arriving {
            vlans: self.vlans.iter().map(tag).collect(),
            labels: self.labels.iter().map(label).collect(),
            dscp: (self.dscp != 0).then(|| Bits::new(self.dscp.into())),
            ..Arriving::default()
        })
    }

    /// Bytes beside Ethernet header and IP packet that count against the interface's MTU: labels. Tags have room beside it.
    pub fn bytes_in_mtu(&self) -> u16 {
        4 * self.labels.len() as u16
    }

    /// Bytes between Ethernet header and IP packet.
    pub fn bytes(&self) -> u16 {
        4 * self.vlans.len() as u16 + self.bytes_in_mtu()
    }

    /// What is special of it, for people: `, VLAN 10, 1,000 flows`.
    pub fn words(&self) -> String {
        let list = |numbers: &[String]| numbers.join(",");
        let text = |numbers: Vec<String>, what: &str| {
            if numbers.is_empty() { String::new() } else { format!(", {what} {}", list(&numbers)) }
        };
        let mut words = text(self.vlans.iter().map(u16::to_string).collect(), "VLAN");
        words += &text(self.labels.iter().map(u32::to_string).collect(), "MPLS");
        if self.dscp != 0 {
            words += &format!(", DSCP {}", self.dscp);
        }
        if self.flows > 1 {
            words += &format!(", {} flows", drophammer_model::quantity::group_digits(self.flows.into()));
        }
        words
    }
}
