//! Frames with the headers and sizes of captured frames.

use super::stack::{FlowHeaders, MAX_FLOWS, arriving, tags};
use drophammer_model::quantity::group_digits;
use drophammer_model::size::{FrameSize, PacketSize};
use drophammer_model::traffic::HeaderKind;
use drophammer_rig::{Tags, Template, Templates, templates};
use flate2::bufread::MultiGzDecoder;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Maximum size of a capture. For a larger capture, the user can cut out a part.
const MAX_BYTES: u64 = 256 << 20;
/// First bytes of a gzip file (RFC 1952 section 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Bytes of a label.
const LABEL: usize = 4;

/// The captured frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    name: String,
    templates: Templates,
    /// Notes about frames that do not fit the interfaces.
    too_large: Vec<String>,
}

impl Captured {
    /// Reads a capture; `ipv6` if the hosts have IPv6 addresses. Errors say why the capture cannot be used, and what to
    /// do.
    pub fn read(path: &Path, ipv6: bool) -> Result<Captured, String> {
        let name = path.display().to_string();
        let bad = |why: &dyn std::fmt::Display| format!("--pcap {name}: {why}");
        let mut bytes = Vec::new();
        let mut file = BufReader::new(std::fs::File::open(path).map_err(|e| bad(&e))?);
        let packed = file.fill_buf().map_err(|e| bad(&e))?.starts_with(&GZIP);
        let unpacked: Box<dyn Read> = if packed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
        unpacked.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| bad(&e))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(bad(&"it has more than 256 MiB (decompressed); cut it with `editcap -r FILE NEW 1-100000`"));
        }
        let templates = templates(&bytes, ipv6, MAX_FLOWS as usize).map_err(|e| bad(&e))?;
        if templates.list.is_empty() {
            let why: Vec<String> = left_out(&templates).collect();
            let other = if ipv6 { "IPv4" } else { "IPv6" };
            let why = if why.is_empty() { "it is empty".into() } else { why.join("; ") };
            let remedy = format!("for {other} frames give --address with {other} addresses");
            return Err(bad(&format!("no frame of it can be sent: {why}; {remedy}")));
        }
        Ok(Captured { name, templates, too_large: Vec::new() })
    }

    /// The flows of one direction, one for each kind of frame.
    pub fn flows(&self) -> Vec<FlowHeaders> {
        let flow = |template: &Template| FlowHeaders {
            headers: template.headers.clone(),
            arrives: arriving(&template.headers),
            size: Some(PacketSize::Fixed(template.size)),
            source: 0,
            weight: template.frames.into(),
        };
        self.templates.list.iter().map(flow).collect()
    }

    /// VLAN tags of the hosts' other frames: the tags of the captured frames.
    pub fn tags(&self) -> Tags {
        tags(&self.templates.list[0].headers)
    }

    /// Mean size of the frames in bytes, FCS included.
    pub fn mean_frame_bytes(&self) -> f64 {
        let frames = |template: &Template| f64::from(template.frames);
        let list = &self.templates.list;
        let sum: f64 = list.iter().map(|t| frames(t) * f64::from(t.size.frame_bytes(false))).sum();
        sum / list.iter().map(frames).sum::<f64>()
    }

    /// Leaves out frames that do not fit into `mtu` bytes: a host captures its segments, of up to 64 KiB, before its card splits them. Fails if no frame
    /// fits.
    pub fn fit(&mut self, mtu: u32) -> Result<(), String> {
        let largest = self.templates.list.iter().map(in_mtu).max().unwrap_or(0);
        let all = std::mem::take(&mut self.templates.list);
        let (fitting, larger): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|template| u32::from(in_mtu(template)) <= mtu);
        self.templates.list = fitting;
        let frames: u64 = larger.iter().map(|template| u64::from(template.frames)).sum();
        if self.templates.list.is_empty() {
            let (name, frames) = (&self.name, group_digits(frames));
            return Err(format!(
                "--pcap {name}: all {frames} frames are larger than the MTU of {mtu} bytes; they need {largest}"
            ));
        }
        if frames > 0 {
            self.too_large.push(format!(
                "{} left out: larger than the MTU of {mtu} bytes (the largest needs {largest}); captured before a network card split them",
                group_digits(frames)
            ));
        }
        Ok(())
    }

    /// Describes the capture in words.
    pub fn words(&self) -> String {
        let kinds = self.templates.list.len();
        let frames = group_digits(self.templates.list.iter().map(|t| u64::from(t.frames)).sum());
        let plural = if kinds == 1 { "" } else { "s" };
        format!("{} kind{plural} of frames as the {frames} of {}", group_digits(kinds as u64), self.name)
    }

    /// Notes about frames that are not sent, one for each reason.
    pub fn left_out(&self) -> Vec<String> {
        left_out(&self.templates).chain(self.too_large.iter().cloned()).collect()
    }
}

/// Bytes of a frame that count against the MTU: the packet with its labels.
fn in_mtu(template: &Template) -> u16 {
    let tags = template.headers.iter().filter(|h| h.kind() == HeaderKind::Vlan).count();
    let FrameSize::Frame(bytes) = template.size else { return 0 };
    bytes.saturating_sub(18 + (LABEL * tags) as u16)
}

fn left_out(templates: &Templates) -> impl Iterator<Item = String> {
    templates.left_out.iter().map(|(why, frames)| format!("{} left out: {why}", group_digits((*frames).into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A capture of one UDP frame to port 53 in VLAN 7, twice, and of one frame that is not IP.
    fn capture() -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, 7, 8, 0];
        let ip = [0x45, 0, 0, 100, 0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        let sum = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum::<u32>();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        let mut ip = ip.to_vec();
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(ip);
        frame.extend([0x30, 0x39, 0, 53, 0, 80, 0, 0]);
        frame.resize(118, 0);
        let other = vec![0xff; 60];
        let word = |value: u32| value.to_be_bytes();
        let mut bytes: Vec<u8> = [0xa1b2_c3d4, 0, 0, 0, 65_535, 1].into_iter().flat_map(word).collect();
        for frame in [&frame, &other, &frame] {
            bytes.extend([0, 0, frame.len() as u32, frame.len() as u32].into_iter().flat_map(word));
            bytes.extend_from_slice(frame);
        }
        bytes
    }

    #[test]
    fn a_capture_becomes_flows_with_its_headers_and_sizes() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&capture()).unwrap();
        let found = Captured::read(file.path(), false).unwrap();
        let flows = found.flows();
        assert_eq!(
            (flows.len(), flows[0].weight, found.mean_frame_bytes(), in_mtu(&found.templates.list[0])),
            (1, 2.0, 122.0, 100)
        );
        let kinds: Vec<HeaderKind> = flows[0].headers.iter().map(|header| header.kind()).collect();
        assert_eq!(kinds, [HeaderKind::Vlan, HeaderKind::Ipv4, HeaderKind::Udp]);
        assert_eq!(flows[0].arrives.as_ref().unwrap().vlans[0].vid.get(), 7);
        assert!(found.words().starts_with("1 kind of frames as the 2 of "), "{}", found.words());
        assert_eq!(found.left_out(), ["1 left out: no IP packet"]);
        let error = Captured::read(file.path(), true).unwrap_err();
        assert!(error.contains("2 left out: IPv4, not IPv6") && error.contains("--address"), "{error}");
        let mut packed = tempfile::NamedTempFile::new().unwrap();
        let mut encoder = flate2::write::GzEncoder::new(&mut packed, flate2::Compression::best());
        encoder.write_all(&capture()).unwrap();
        encoder.finish().unwrap();
        assert_eq!(Captured::read(packed.path(), false).unwrap().templates, found.templates);
        let error = Captured::read(Path::new("/nowhere.pcap"), false).unwrap_err();
        assert!(error.contains("/nowhere.pcap"), "{error}");
    }

    #[test]
    fn segments_larger_than_the_mtu_are_left_out_with_a_note() {
        let template = |size, frames| {
            let headers = vec![drophammer_model::traffic::Header::Ipv4(drophammer_model::traffic::Ipv4::default())];
            Template { headers, size: FrameSize::Frame(size), frames }
        };
        let list = vec![template(118, 10), template(20_018, 3)];
        let templates = Templates { list, left_out: vec![("no IP packet", 1)] };
        let mut found = Captured { name: "x".into(), templates, too_large: Vec::new() };
        found.fit(9_000).unwrap();
        assert_eq!(found.flows().len(), 1);
        let notes = found.left_out();
        assert_eq!(notes[0], "1 left out: no IP packet");
        assert!(
            notes[1].starts_with("3 left out: larger than the MTU of 9000 bytes (the largest needs 20000)"),
            "{notes:?}"
        );
        found.fit(1_500).unwrap();
        assert_eq!(found.left_out(), notes, "a second interface leaves out no more");
        assert!(
            found.fit(50).unwrap_err().contains("all 10 frames are larger than the MTU of 50 bytes; they need 100")
        );
    }
}
