//! What benchmarks against the kernel's own TCP share.

use std::io::Write as _;
use std::net::{IpAddr, TcpStream};
use std::time::Instant;

pub type Outcome<T> = Result<T, String>;

pub fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// Sends `bytes` from the kernel of this side to port 179. Returns when it began.
pub fn send(to: IpAddr, bytes: usize) -> Outcome<Instant> {
    let mut stream = TcpStream::connect((to, 179)).map_err(text)?;
    stream.set_nodelay(true).map_err(text)?;
    let begun = Instant::now();
    let buffer = vec![0; 256 << 10];
    let mut left = bytes;
    while left > 0 {
        let n = left.min(buffer.len());
        stream.write_all(&buffer[..n]).map_err(text)?;
        left -= n;
    }
    Ok(begun)
}

pub fn median(seconds: &mut [f64]) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// Runs a benchmark, but not where cargo only lists or tests it.
pub fn main(bench: fn() -> Outcome<()>) {
    if std::env::args().any(|a| a == "--test" || a == "--list") {
        return;
    }
    if let Err(e) = bench() {
        eprintln!("{e}");
        std::process::exit(1);
    }
}
