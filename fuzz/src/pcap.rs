//! Captures: any bytes are read or refused, and each frame becomes a template or is left out.

use drophammer_rig::templates;
use drophammer_wire::pcap::frames;

/// A file of any bytes.
pub fn run(data: &[u8]) {
    let Some((first, file)) = data.split_first() else { return };
    let (ipv6, most) = (first & 1 != 0, usize::from(first >> 1));
    let captured = frames(file);
    let made = templates(file, ipv6, most);
    let (Ok(captured), Ok(made)) = (captured, made) else { return };
    assert!(captured.iter().map(|frame| frame.bytes.len()).sum::<usize>() <= file.len());
    let left_out: u32 = made.left_out.iter().map(|(_, frames)| frames).sum();
    let used: u32 = made.list.iter().map(|template| template.frames).sum();
    assert_eq!((left_out + used) as usize, captured.len());
    assert!(made.list.len() <= most);
}
