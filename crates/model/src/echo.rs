//! ICMP echo requests that a test sends during a trial, and their replies.

use crate::size::{ETHERNET_OVERHEAD, MIN_FRAME};
use crate::trial::{Family, PortIndex};
use std::time::Duration;

/// Destination of an echo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchoTarget {
    /// The router, at its address on the port's link.
    Router,
    /// The tester's own device behind this port, through the router.
    Port(PortIndex),
}

/// An echo request of the first emulated device of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoRequest {
    /// Time after the start of the trial.
    pub at: Duration,
    /// Port that sends it.
    pub from: PortIndex,
    /// Its destination.
    pub to: EchoTarget,
    /// IP version.
    pub family: Family,
    /// Frame size of request and reply, with FCS and without tags; [`smallest`] or more.
    pub frame_bytes: u16,
}

/// ICMP header of an echo request, in bytes.
const ICMP: u16 = 8;

/// IP header without options, in bytes.
const fn header(family: Family) -> u16 {
    match family {
        Family::Ipv4 => 20,
        Family::Ipv6 => 40,
    }
}

/// The smallest frame of an echo request, with FCS: 64 bytes, or 66 for IPv6.
pub fn smallest(family: Family) -> u16 {
    (header(family) + ICMP + ETHERNET_OVERHEAD).max(MIN_FRAME)
}

impl EchoRequest {
    /// Bytes of data.
    pub fn data(&self) -> u16 {
        self.frame_bytes.max(smallest(self.family)) - ETHERNET_OVERHEAD - header(self.family) - ICMP
    }
}

/// Times of an answered request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoTimes {
    /// From the departure of the request to the arrival of the reply.
    pub round_trip: Duration,
    /// The part of the round trip that the tester's own device took to reply; zero if the router answers.
    pub own: Duration,
}

impl EchoTimes {
    /// The round trip without the time that the tester's own device took.
    pub fn beside_own(&self) -> Duration {
        self.round_trip.saturating_sub(self.own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_fills_its_frame() {
        let of = |family, frame_bytes| EchoRequest {
            at: Duration::ZERO,
            from: 0,
            to: EchoTarget::Router,
            family,
            frame_bytes,
        };
        // Ethernet 14, IPv4 20, ICMP 8, FCS 4.
        assert_eq!((of(Family::Ipv4, 64).data(), of(Family::Ipv4, 1518).data()), (18, 1472));
        assert_eq!((of(Family::Ipv6, 66).data(), of(Family::Ipv6, 1518).data()), (0, 1452));
        assert_eq!((smallest(Family::Ipv4), smallest(Family::Ipv6), of(Family::Ipv6, 64).data()), (64, 66, 0));
    }

    #[test]
    fn own_time_is_no_time_of_the_router() {
        let us = Duration::from_micros;
        assert_eq!(EchoTimes { round_trip: us(50), own: us(8) }.beside_own(), us(42));
        assert_eq!(EchoTimes { round_trip: us(5), own: us(8) }.beside_own(), us(0));
    }
}
