//! Compressed files. This module reads gzip and bzip2 itself, and runs the programs xz and zstd for the others.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Formats read by a program of the same name, by the first bytes of a file.
const PROGRAMS: [(&[u8], &str, &str); 2] =
    [(&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz", "xz-utils"), (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", "zstd")];
/// Unsupported formats, by the first bytes of a file.
const OTHERS: [(&[u8], &str); 4] = [
    (b"PK\x03\x04", "is a zip archive; unpack it"),
    (&[0x04, 0x22, 0x4d, 0x18], "is compressed with lz4; run `lz4 -d FILE`, and use the resulting file"),
    (&[0xd4, 0xc3, 0xb2, 0xa1], "is a capture (pcap), not an MRT file; take a RIB in TABLE_DUMP_V2"),
    (&[0x0a, 0x0d, 0x0d, 0x0a], "is a capture (pcapng), not an MRT file; take a RIB in TABLE_DUMP_V2"),
];

/// Returns the contents of `file`, which must be at its start. Its first bytes, not its name, determine the format.
///
/// # Errors
/// A description of the error.
pub(super) fn open(path: &Path, mut file: BufReader<File>) -> Result<Box<dyn Read>, String> {
    let start = file.fill_buf().map_err(|e| format!("cannot be read: {e}"))?;
    if start.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(BufReader::with_capacity(1 << 18, flate2::bufread::MultiGzDecoder::new(file))));
    }
    if start.starts_with(b"BZh") {
        return Ok(Box::new(BufReader::with_capacity(1 << 18, bzip2::bufread::MultiBzDecoder::new(file))));
    }
    if let Some((_, program, package)) = PROGRAMS.iter().find(|(magic, ..)| start.starts_with(magic)) {
        let program = Program::start(program, path).map_err(|e| {
            format!(
                "is compressed with {program}, and the program `{program}` cannot be started ({e}); install the Debian package `{package}`, or \
                 unpack the file: {program} -d {}",
                path.display()
            )
        })?;
        return Ok(Box::new(BufReader::with_capacity(1 << 18, program)));
    }
    match OTHERS.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, what)) => Err((*what).to_owned()),
        None => Ok(Box::new(file)),
    }
}

/// A program that writes the contents of a file to its output. Dropping this value terminates it.
struct Program {
    name: &'static str,
    child: Child,
    output: ChildStdout,
}

impl Program {
    fn start(name: &'static str, path: &Path) -> io::Result<Program> {
        let mut command = Command::new(name);
        command.args(["--decompress", "--stdout", "--"]).arg(path);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or_else(|| io::Error::other("it has no output"))?;
        Ok(Program { name, child, output })
    }
}

impl Read for Program {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.output.read(buffer)?;
        // The end of the output is the end of the file only if the program exits successfully.
        if read == 0 && !buffer.is_empty() && !self.child.wait()?.success() {
            let what = format!("{} reports that the file is damaged or cut off", self.name);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        Ok(read)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
