//! Mounts that are visible only in the lab.

use crate::LabError;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Makes all mounts private, so that new mounts are not visible outside.
pub(crate) fn make_private() -> Result<(), LabError> {
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(LabError::io("cannot make the mounts private"))
}

/// Mounts the calling thread's view of /sys, with the interfaces of its network namespace, at `target`.
pub(crate) fn sysfs(target: &Path) -> Result<(), LabError> {
    let none: Option<&str> = None;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("sysfs"), target, Some("sysfs"), flags, none).map_err(|source| {
        LabError::forbidden(
            format!("cannot mount sysfs at {}: {source}", target.display()),
            "run as root; a container must see all of /sys (docker: --privileged)",
        )
    })
}

/// Mounts an empty folder over `target` if that exists; only the lab sees it.
pub(crate) fn empty_over(target: &Path) -> Result<(), LabError> {
    if !target.is_dir() {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), target, Some("tmpfs"), flags, Some("mode=0755"))
        .map_err(LabError::file("mount a tmpfs on", target))
}

/// Makes `source` visible at `target`, an existing path of the same type.
pub(crate) fn show_at(source: &Path, target: &Path) -> Result<(), LabError> {
    let none: Option<&str> = None;
    mount(Some(source), target, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)
        .map_err(LabError::file("bind a mount at", target))
}

/// Undoes the topmost mount at `target`.
pub(crate) fn undo(target: &Path) -> Result<(), LabError> {
    umount2(target, MntFlags::MNT_DETACH).map_err(LabError::file("unmount", target))
}

/// Mounts empty folders over all of `hidden`. The existing folders `keep`, as absolute paths, stay visible.
pub(crate) fn hide(hidden: &[&str], keep: &[PathBuf]) -> Result<(), LabError> {
    // An O_PATH handle reaches the folder even when it is covered.
    let open = |path: &PathBuf| File::options().read(true).custom_flags(nix::libc::O_PATH).open(path);
    let mut kept = Vec::new();
    for path in keep.iter().filter(|p| hidden.iter().any(|h| p.starts_with(h))) {
        kept.push((path, open(path).map_err(LabError::file("open", path))?));
    }
    for folder in hidden {
        empty_over(Path::new(folder))?;
    }
    for (path, handle) in kept {
        fs::create_dir_all(path).map_err(LabError::file("create", path))?;
        show_at(Path::new(&format!("/proc/self/fd/{}", handle.as_raw_fd())), path)?;
    }
    Ok(())
}
