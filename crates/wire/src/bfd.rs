//! Control packets of BFD (RFC 5880 section 4.1).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-----+---------+---+-+-+-+-+-+-+---------------+---------------+
//! |Vers |  Diag   |Sta|P|F|C|A|D|M|  Detect Mult  |    Length     |
//! +-----+---------+---+-+-+-+-+-+-+---------------+---------------+
//! |                       My Discriminator                        |
//! |                      Your Discriminator                       |
//! |                    Desired Min TX Interval                    |
//! |                   Required Min RX Interval                    |
//! |                 Required Min Echo RX Interval                 |
//! +---------------------------------------------------------------+
//! |        Authentication section, if A is set (type, length)     |
//! ```

use crate::Malformed;

/// Length of a packet without authentication section.
pub const LEN: usize = 24;
/// UDP port of single-hop sessions (RFC 5881 section 4).
pub const PORT: u16 = 3784;
/// Source ports that a sender may use (RFC 5881 section 4).
pub const SOURCE_PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;
/// TTL or hop limit of single-hop packets (RFC 5881 section 5).
pub const HOP_LIMIT: u8 = 255;
/// Version of the protocol.
const VERSION: u8 = 1;

pub use crate::numbers::bfd_diagnostic as diagnostic;

/// State of a session, as its sender sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Held down by the operator.
    AdminDown,
    /// Down.
    #[default]
    Down,
    /// The sender has heard the receiver, but does not know yet that the receiver has heard it.
    Init,
    /// Each system receives the other's packets.
    Up,
}

/// A Control packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control<'a> {
    /// Why the sender's session last left Up; see [`diagnostic`]. 5 bits.
    pub diagnostic: u8,
    /// State of the sender.
    pub state: State,
    /// P: the sender wants a packet with [`Control::is_final`] as the answer.
    pub poll: bool,
    /// F: the packet answers a packet with [`Control::poll`].
    pub is_final: bool,
    /// C: the sender's BFD survives the loss of its control plane.
    pub control_plane_independent: bool,
    /// D: the sender wants the receiver to stop periodic packets while both are Up.
    pub demand: bool,
    /// The receiver declares the session down after this many missing packets; not 0.
    pub detect_mult: u8,
    /// Number of the session at the sender; not 0.
    pub my_discriminator: u32,
    /// Number of the session at the receiver; 0 if the sender does not know it.
    pub your_discriminator: u32,
    /// Smallest interval between packets at which the sender wants to send, in µs.
    pub desired_min_tx: u32,
    /// Smallest interval between packets that the sender can receive, in µs; 0 if it wants none.
    pub required_min_rx: u32,
    /// Smallest interval between echo packets that the sender can return, in µs; 0 if it returns none.
    pub required_min_echo_rx: u32,
    /// Authentication section: type, length, data; `None` without A.
    pub authentication: Option<&'a [u8]>,
}

impl<'a> Control<'a> {
    /// Parses a UDP payload, and applies the rules of RFC 5880 section 6.8.6 that need no session.
    ///
    /// # Errors
    /// The rule that the packet breaks.
    pub fn parse(payload: &'a [u8]) -> Result<Control<'a>, Malformed> {
        let bad = |reason| Err(Malformed::new("bfd", reason));
        let Some((head, _)) = payload.split_first_chunk::<LEN>() else { return bad("fewer than 24 bytes") };
        let [first, flags, detect_mult, length, ..] = *head;
        if first >> 5 != VERSION {
            return bad("version is not 1");
        }
        let (authenticated, multipoint) = (flags & 0x04 != 0, flags & 0x01 != 0);
        let length = usize::from(length);
        if length < LEN + if authenticated { 2 } else { 0 } {
            return bad("length is below the minimum");
        }
        let Some(packet) = payload.get(..length) else { return bad("length exceeds the payload") };
        if detect_mult == 0 {
            return bad("Detect Mult is 0");
        }
        if multipoint {
            return bad("Multipoint is set");
        }
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let state = match flags >> 6 {
            0 => State::AdminDown,
            1 => State::Down,
            2 => State::Init,
            _ => State::Up,
        };
        if word(4) == 0 {
            return bad("My Discriminator is 0");
        }
        if word(8) == 0 && matches!(state, State::Init | State::Up) {
            return bad("Your Discriminator is 0");
        }
        let authentication = authenticated.then_some(&packet[LEN..]);
        if authentication.is_some_and(|section| usize::from(section[1]) != section.len()) {
            return bad("length of the authentication section");
        }
        Ok(Control {
            diagnostic: first & 0x1f,
            state,
            poll: flags & 0x20 != 0,
            is_final: flags & 0x10 != 0,
            control_plane_independent: flags & 0x08 != 0,
            demand: flags & 0x02 != 0,
            detect_mult,
            my_discriminator: word(4),
            your_discriminator: word(8),
            desired_min_tx: word(12),
            required_min_rx: word(16),
            required_min_echo_rx: word(20),
            authentication,
        })
    }

    /// Length of the packet in bytes.
    pub fn packet_len(&self) -> usize {
        LEN + self.authentication.map_or(0, <[u8]>::len)
    }

    /// Writes the packet to the front of `buffer`, at least [`Control::packet_len`] bytes.
    pub fn emit(&self, buffer: &mut [u8]) {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let state = match self.state {
            State::AdminDown => 0,
            State::Down => 1,
            State::Init => 2,
            State::Up => 3,
        };
        buffer[0] = VERSION << 5 | self.diagnostic & 0x1f;
        buffer[1] = state << 6
            | bit(self.poll, 0x20)
            | bit(self.is_final, 0x10)
            | bit(self.control_plane_independent, 0x08)
            | bit(self.authentication.is_some(), 0x04)
            | bit(self.demand, 0x02);
        buffer[2] = self.detect_mult;
        buffer[3] = self.packet_len() as u8;
        let words = [
            self.my_discriminator,
            self.your_discriminator,
            self.desired_min_tx,
            self.required_min_rx,
            self.required_min_echo_rx,
        ];
        for (at, word) in buffer[4..LEN].chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_be_bytes());
        }
        if let Some(section) = self.authentication {
            buffer[LEN..LEN + section.len()].copy_from_slice(section);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The first packet of BIRD 2.0.12 to a peer from which it has received none.
    const DOWN: [u8; 24] = [
        0x20, 0x40, 0x03, 0x18, 0x67, 0x81, 0x9b, 0xa3, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0f, 0x42, 0x40, 0x00, 0x01,
        0x86, 0xa0, 0x00, 0x00, 0x00, 0x00,
    ];

    #[test]
    fn a_first_packet_has_the_slow_interval() {
        let control = Control::parse(&DOWN).unwrap();
        let expected = Control {
            state: State::Down,
            detect_mult: 3,
            my_discriminator: 0x6781_9ba3,
            desired_min_tx: 1_000_000,
            required_min_rx: 100_000,
            ..Control::default()
        };
        assert_eq!(control, expected);
        let mut again = [0xff; LEN];
        control.emit(&mut again);
        assert_eq!(again, DOWN);
    }

    #[test]
    fn every_rule_of_section_6_8_6_discards() {
        let with = |at: usize, byte: u8| {
            let mut bytes = DOWN;
            bytes[at] = byte;
            Control::parse(&bytes).map_err(|e| e.reason).map(|_| ())
        };
        assert_eq!(with(0, 0x40), Err("version is not 1"));
        assert_eq!(with(3, 23), Err("length is below the minimum"));
        assert_eq!(with(3, 25), Err("length exceeds the payload"));
        assert_eq!(with(2, 0), Err("Detect Mult is 0"));
        assert_eq!(with(1, 0x41), Err("Multipoint is set"));
        assert_eq!(with(1, 0x44), Err("length is below the minimum"), "A needs an authentication section");
        assert_eq!(with(1, 0x80), Err("Your Discriminator is 0"));
        assert_eq!(with(1, 0xc0), Err("Your Discriminator is 0"));
        assert_eq!(with(1, 0x00), Ok(()), "AdminDown does not need it");
        let mut nobody = DOWN;
        nobody[4..8].fill(0);
        assert_eq!(Control::parse(&nobody).unwrap_err().reason, "My Discriminator is 0");
        assert_eq!(Control::parse(&DOWN[..23]).unwrap_err().reason, "fewer than 24 bytes");
        let section = |bytes: &[u8]| {
            let mut packet = [&DOWN[..], bytes].concat();
            (packet[1], packet[3]) = (0x44, packet.len() as u8);
            Control::parse(&packet).map(|c| c.authentication.unwrap().to_vec()).map_err(|e| e.reason)
        };
        assert_eq!(section(&[1, 4, 7, 65]), Ok(vec![1, 4, 7, 65]));
        assert_eq!(section(&[1, 3, 7, 65]), Err("length of the authentication section"));
    }

    proptest! {
        #[test]
        fn parse_undoes_emit(
            flags: [bool; 4], diagnostic in 0u8..32, state in 0usize..4, detect_mult in 1u8.., mine in 1u32.., yours in 1u32..,
            intervals: [u32; 3], data in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..30)),
        ) {
            let section = data.map(|data| [&[1, data.len() as u8 + 2], &data[..]].concat());
            let control = Control {
                diagnostic,
                state: [State::AdminDown, State::Down, State::Init, State::Up][state],
                poll: flags[0],
                is_final: flags[1],
                control_plane_independent: flags[2],
                demand: flags[3],
                detect_mult,
                my_discriminator: mine,
                your_discriminator: yours,
                desired_min_tx: intervals[0],
                required_min_rx: intervals[1],
                required_min_echo_rx: intervals[2],
                authentication: section.as_deref(),
            };
            let mut bytes = vec![0xff; control.packet_len()];
            control.emit(&mut bytes);
            prop_assert_eq!(Control::parse(&bytes), Ok(control));
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..60), fix: bool) {
            if fix && bytes.len() >= LEN {
                bytes[0] = bytes[0] & 0x1f | 0x20;
                bytes[3] = bytes.len() as u8;
            }
            if let Ok(control) = Control::parse(&bytes) {
                let mut again = vec![0; control.packet_len()];
                control.emit(&mut again);
                prop_assert_eq!(Control::parse(&again), Ok(control));
            }
        }
    }
}
