//! Tells the program from which commit it was built, for the record of every run.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).map(|commit| {
        // Untracked files do not change the program; changed tracked ones may.
        let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|s| !s.is_empty());
        format!(" (commit {commit}{})", if changed { ", changed" } else { "" })
    });
    println!("cargo:rustc-env=DROPHAMMER_VERSION={version}{}", commit.unwrap_or_default());
    // Without a checkout there is nothing to watch, and a missing file would rebuild every time.
    for file in ["HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}
