//! Reads files from folders that somebody else may have made. Such a folder may contain links to devices that never
//! end, pipes that block on opening, and files larger than the memory.
//!
//! # Files from elsewhere
//!
//! `store/src/regular.rs` reads run folders. `lab/src/configuration.rs` and `testbed/src/mrt.rs` read the files named
//! in a suite. All of them read only regular files, up to a size limit. Reports are written as new files, which does
//! not follow links.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Opens a regular file for reading, possibly through a link. A regular file has an end, and opening it does not
/// block.
///
/// # Errors
/// Errors of the operating system; [`io::ErrorKind::InvalidInput`] for anything but a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let refuse = |is_file| match is_file {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    };
    // Checks before opening, because opening may block, and again afterwards, because the file may have been replaced.
    refuse(fs::metadata(path)?.is_file())?;
    let file = File::open(path)?;
    refuse(file.metadata()?.is_file())?;
    Ok(file)
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// Errors of [`open_regular`]; [`io::ErrorKind::FileTooLarge`] for a larger file.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let too_large = || {
        let most = if most >= 1 << 20 { format!("{} MiB", most >> 20) } else { format!("{} KiB", most >> 10) };
        io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {most}"))
    };
    if file.metadata()?.len() > most {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // The file may grow in the meantime.
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_large()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_ordinary_files_of_this_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link, zero) = (folder.path().join("file"), folder.path().join("link"), folder.path().join("zero"));
        fs::write(&file, "12345").unwrap();
        symlink(&file, &link).unwrap();
        symlink("/dev/zero", &zero).unwrap();
        assert_eq!(
            (read_regular(&file, 5).unwrap(), read_regular(&link, 9).unwrap()),
            (b"12345".into(), b"12345".into())
        );
        let fails = |path: &Path, most| read_regular(path, most).unwrap_err();
        assert_eq!(fails(&file, 4).kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(fails(&zero, 5).to_string(), "it is not a regular file");
        assert_eq!(fails(folder.path(), 5).kind(), io::ErrorKind::InvalidInput);
        assert_eq!(fails(&folder.path().join("none"), 5).kind(), io::ErrorKind::NotFound);
        File::create(&file).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(fails(&file, 16 << 20).to_string(), "it is larger than 16 MiB");
    }
}
