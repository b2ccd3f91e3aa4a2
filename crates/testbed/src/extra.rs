//! Builds the bytes of extra frames (`drophammer_model::beside`).

use drophammer_model::FrameSize;
use drophammer_model::beside::ExtraFrame;
use drophammer_model::quantity::Instant;
use drophammer_model::traffic::{Bits, Header};
use drophammer_rig::{Extra, identification, mark};
use drophammer_traffic::Neighbour;
use drophammer_wire::ethernet;
use drophammer_wire::stack::{Payload, compile};
use std::time::Duration;

/// Length of an FCS in bytes.
pub(crate) const FCS: usize = 4;

/// A frame that is ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    port: usize,
    after: Duration,
    bytes: Vec<u8>,
}

impl Compiled {
    /// Returns the port that sends the frame.
    pub(crate) fn port(&self) -> usize {
        self.port
    }

    /// Returns the frame for a trial that starts at `start`; `hops` is the number of routers on its way to each port.
    pub(crate) fn at(&self, start: Instant, hops: Vec<u8>) -> Extra {
        Extra { port: self.port, at: start + self.after, bytes: self.bytes.clone(), hops }
    }
}

/// Returns the key of the marks of a run.
pub(crate) fn key(seed: u64) -> u64 {
    // Any odd constant makes keys of different seeds differ in the upper half too.
    seed.wrapping_add(0x6265_7369_6465_2121).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Builds all extra frames. `largest` is the size of the largest frame of each port, FCS included.
///
/// # Errors
/// Names the first frame that cannot be built, and the reason.
pub(crate) fn compile_all(
    frames: &[ExtraFrame],
    neighbours: &[Neighbour],
    largest: &[usize],
    key: u64,
) -> Result<Vec<Compiled>, String> {
    let one = |(number, frame): (usize, &ExtraFrame)| {
        let neighbour = neighbours.get(frame.port).ok_or_else(|| format!("there is no port {}", frame.port))?;
        let bytes = compile_one(frame, number as u32, neighbour, key)?;
        let (length, most) = (bytes.len() + FCS, largest[frame.port]);
        if length > most {
            return Err(format!("a frame of {length} bytes is too long for this port, which sends at most {most}"));
        }
        Ok(Compiled { port: frame.port, after: frame.at, bytes })
    };
    frames.iter().enumerate().map(one).collect()
}

fn compile_one(frame: &ExtraFrame, number: u32, neighbour: &Neighbour, key: u64) -> Result<Vec<u8>, String> {
    let mut headers = frame.headers.clone();
    let v6 = headers.iter().any(|header| matches!(header, Header::Ipv6(_)));
    let device = if v6 { neighbour.device_ipv6 } else { neighbour.device_ipv4 };
    for header in &mut headers {
        match header {
            Header::Ethernet(ethernet) => {
                ethernet.source.get_or_insert(neighbour.mac.into());
                let device = || device.map(Into::into).ok_or("the DUT has not announced its MAC address");
                if ethernet.destination.is_none() {
                    ethernet.destination = Some(device()?);
                }
            }
            Header::Ipv4(ipv4) => ipv4.identification = identification(number).into(),
            Header::Ipv6(ipv6) => ipv6.flow_label = Bits::new(number).into(),
            _ => {}
        }
    }
    let fill = |payload: &mut [u8]| mark(payload, key, number);
    let mut bytes = compile(&headers, frame.size, Payload::Plain(&fill)).map_err(|e| e.to_string())?.bytes;
    for at in &frame.inverted {
        *bytes.get_mut(*at).ok_or("a bit to be inverted is beyond the end of the frame")? ^= 1;
    }
    if frame.unpadded {
        let end = match frame.size {
            FrameSize::Frame(n) => usize::from(n).saturating_sub(FCS),
            FrameSize::Ip(n) => usize::from(n) + ethernet::LEN,
        };
        bytes.truncate(end.max(ethernet::LEN));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::traffic::{Ethernet, Ipv4, Udp};
    use drophammer_wire::MacAddr;

    fn frame(bytes: u16) -> ExtraFrame {
        let own = |i| Some(std::net::Ipv4Addr::new(192, 0, 2, i).into());
        let ip = Ipv4 { source: own(1), destination: own(2), ..Ipv4::default() };
        ExtraFrame {
            port: 0,
            at: Duration::ZERO,
            headers: vec![Header::Ethernet(Ethernet::default()), Header::Ipv4(ip), Header::Udp(Udp::default())],
            size: FrameSize::Frame(bytes),
            inverted: Vec::new(),
            unpadded: false,
        }
    }

    #[test]
    fn frames_are_as_long_and_as_wrong_as_asked_for() {
        let known = [Neighbour { device_ipv4: Some(MacAddr::local(1)), ..Neighbour::default() }];
        let bytes = |frame: &ExtraFrame| {
            compile_all(std::slice::from_ref(frame), &known, &[1518], 7).map(|f| f[0].bytes.clone())
        };
        let right = bytes(&frame(128)).unwrap();
        assert_eq!((right.len(), &right[18..20]), (124, &[0, 1][..]));
        let wrong = bytes(&ExtraFrame { inverted: vec![24], ..frame(128) }).unwrap();
        let differ: Vec<usize> = (0..124).filter(|i| right[*i] != wrong[*i]).collect();
        assert_eq!(differ, [24]);
        assert_eq!(bytes(&ExtraFrame { unpadded: true, ..frame(58) }).unwrap().len(), 54);
        assert_eq!(bytes(&frame(58)).unwrap().len(), 60);
        assert!(
            bytes(&frame(1_519))
                .unwrap_err()
                .contains("1519 bytes is too long for this port, which sends at most 1518")
        );
        assert!(bytes(&ExtraFrame { inverted: vec![500], ..frame(128) }).is_err());
        let unknown = compile_all(&[frame(128)], &[Neighbour::default()], &[1518], 7);
        assert!(unknown.unwrap_err().contains("has not announced"));
        assert!(compile_all(&[ExtraFrame { port: 3, ..frame(128) }], &known, &[1518], 7).is_err());
    }
}
