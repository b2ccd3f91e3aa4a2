//! tshark as an independent decoder, for the tests of several crates.

use std::process::Command;

/// A capture file (libpcap, nanoseconds, Ethernet) of `(time in ns, frame)`.
fn pcap(frames: &[(u64, &[u8])]) -> Vec<u8> {
    const SECOND: u64 = 1_000_000_000;
    let mut file = Vec::new();
    for word in [0xa1b2_3c4du32, 2 | 4 << 16, 0, 0, 65_535, 1] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for (at, frame) in frames {
        for word in [(at / SECOND) as u32, (at % SECOND) as u32, frame.len() as u32, frame.len() as u32] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(frame);
    }
    file
}

/// What tshark prints about these frames, with the checksums of IP, UDP and TCP verified. Prints a message and returns `None` if
/// tshark is not installed. `name` distinguishes the captures of a module.
fn run(name: &str, frames: &[(u64, &[u8])], arguments: &[&str]) -> Option<String> {
    let module = module_path!().replace("::", "-");
    let path = std::env::temp_dir().join(format!("drophammer-{module}-{name}-{}.pcap", std::process::id()));
    std::fs::write(&path, pcap(frames)).unwrap();
    let checks = ["ip", "udp", "tcp"].map(|protocol| format!("{protocol}.check_checksum:TRUE"));
    let output = Command::new("tshark")
        .arg("-n")
        .args(arguments)
        .args(checks.iter().flat_map(|check| ["-o", check]))
        .arg("-r")
        .arg(&path)
        .output();
    std::fs::remove_file(&path).unwrap();
    let output = match output {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: tshark is not installed");
            return None;
        }
        other => other.unwrap(),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The whole dissection of the frames as text.
#[allow(dead_code)]
pub fn text(name: &str, frames: &[(u64, &[u8])]) -> Option<String> {
    run(name, frames, &["-V"])
}

/// The named fields of each frame.
pub fn decode(name: &str, frames: &[(u64, &[u8])], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    // No field contains a tab.
    let mut arguments = vec!["-T", "fields", "-E", "separator=/t"];
    arguments.extend(fields.iter().flat_map(|field| ["-e", field]));
    let text = run(name, frames, &arguments)?;
    let lines: Vec<_> = text.lines().map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>()).collect();
    assert_eq!(lines.len(), frames.len());
    assert!(lines.iter().all(|line| line.len() == fields.len()), "a field for each that was asked for");
    Some(lines)
}
