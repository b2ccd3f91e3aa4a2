//! Decodes frames with tshark.

use crate::check;
use std::process::Command;

const FIELDS: [&str; 6] = [
    "_ws.malformed",
    "_ws.expert.severity",
    "ip.checksum.status",
    "udp.checksum.status",
    "udp.dstport",
    "frame.protocols",
];

/// The fields of each frame; `None` without tshark.
pub fn decode(frames: &[Vec<u8>]) -> Result<Option<Vec<Vec<String>>>, String> {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 2 | 4 << 16, 0, 0, 65_535, 1] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for frame in frames {
        for word in [0, 0, frame.len() as u32, frame.len() as u32] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(frame);
    }
    let path = std::env::temp_dir().join(format!("drophammer-live-frames-{}.pcap", std::process::id()));
    std::fs::write(&path, file).map_err(|e| e.to_string())?;
    let output = Command::new("tshark")
        .args(["-n", "-T", "fields", "-E", "separator=|"])
        .args(FIELDS.iter().flat_map(|f| ["-e", f]))
        .args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-r"])
        .arg(&path)
        .output();
    std::fs::remove_file(&path).map_err(|e| e.to_string())?;
    let output = match output {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|e| e.to_string())?,
    };
    check(output.status.success(), || String::from_utf8_lossy(&output.stderr).into_owned())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<_> = text.lines().map(|line| line.split('|').map(str::to_owned).collect::<Vec<_>>()).collect();
    check(lines.len() == frames.len(), || format!("{} lines for {} frames", lines.len(), frames.len()))?;
    Ok(Some(lines))
}

/// True with correct checksums ("1"), no malformation, and no error of tshark's expert information.
pub fn is_whole(line: &[String]) -> bool {
    const ERROR: u32 = 0x0080_0000;
    let severe = line[1].split(',').filter_map(|s| s.parse::<u32>().ok()).any(|s| s >= ERROR);
    let ip_good = if line[5].contains(":ipv6") { line[2].is_empty() } else { line[2] == "1" };
    line[0].is_empty() && !severe && ip_good && line[3] == "1" && line[4] == "9"
}
