//! The report page as PDF: a browser on this machine prints it, without a window and without network access.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Browsers that can print without a window, in order of preference.
#[rustfmt::skip]
const BROWSERS: [&str; 8] = [
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "chrome-headless-shell", "microsoft-edge", "brave-browser",
];

/// Time limit for printing: a page with thousands of trials takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two checks of the browser.
const LOOK: Duration = Duration::from_millis(50);

/// Prints the page `html` into a file next to it, with the extension `pdf`, and returns its path. Errors contain a
/// remedy.
pub fn print(html: &Path) -> Result<PathBuf, String> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let browser = find(&paths).ok_or_else(|| {
        format!(
            "there is no browser to print a PDF with: install Chromium or Google Chrome (looked for {} in PATH), or open {} in any \
             browser and print it",
            BROWSERS.join(", "),
            html.display()
        )
    })?;
    print_with(&browser, html, PATIENCE)
}

/// The first browser in the folders of `paths`.
fn find(paths: &OsString) -> Option<PathBuf> {
    let folders: Vec<PathBuf> = std::env::split_paths(paths).collect();
    BROWSERS.iter().flat_map(|name| folders.iter().map(move |f| f.join(name))).find(|path| path.is_file())
}

fn print_with(browser: &Path, html: &Path, patience: Duration) -> Result<PathBuf, String> {
    let failed = |why: String| {
        let (browser, html) = (browser.display(), html.display());
        format!("{browser} did not print {html}: {why}; open the page in a browser and print it there")
    };
    let html = fs::canonicalize(html).map_err(|e| failed(e.to_string()))?;
    let pdf = html.with_extension("pdf");
    // The file is renamed when it is complete, so that an old file stays intact. It is in the folder of the page,
    // because packaged browsers do not see hidden folders.
    let part = html.with_extension("part.pdf");
    // If this were a link, the browser would follow it.
    let _ = fs::remove_file(&part);
    let profile = html.with_extension(format!("browser-{}", std::process::id()));
    let result = start(browser, &html, &part, &profile)
        .map_err(|e| failed(e.to_string()))
        .and_then(|child| wait(child, patience).map_err(&failed))
        .and_then(|()| whole(&part).map_err(&failed))
        .and_then(|()| fs::rename(&part, &pdf).map_err(|e| failed(e.to_string())));
    let _ = fs::remove_dir_all(&profile);
    if result.is_err() {
        let _ = fs::remove_file(&part);
    }
    result.map(|()| pdf)
}

fn start(browser: &Path, html: &Path, pdf: &Path, profile: &Path) -> std::io::Result<Child> {
    let with = |option: &str, path: &Path| {
        let mut text = OsString::from(option);
        text.push(path);
        text
    };
    let mut command = Command::new(browser);
    command
        .args(["--headless", "--disable-gpu", "--no-first-run", "--no-pdf-header-footer"])
        // The page makes no requests, and the browser must not make any either.
        .args([
            "--disable-background-networking",
            "--disable-sync",
            "--disable-extensions",
            "--disable-component-update",
        ])
        .arg("--host-resolver-rules=MAP * ~NOTFOUND")
        .arg(with("--user-data-dir=", profile))
        .arg(with("--print-to-pdf=", pdf));
    // Chromium refuses to run as root with its sandbox. The page is the report's own, and its policy blocks everything else.
    if is_root() {
        command.arg("--no-sandbox");
    }
    command.arg(address(html)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Waits for the browser to end; kills it after `patience`.
fn wait(mut child: Child, patience: Duration) -> Result<(), String> {
    // Read its messages while it runs, so that a full pipe does not block it.
    let stderr = child.stderr.take();
    let said = thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut stderr) = stderr {
            let _ = stderr.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    let deadline = Instant::now() + patience;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => thread::sleep(LOOK),
            result => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(match result {
                    Err(e) => e.to_string(),
                    Ok(_) => format!("it took more than {} s", patience.as_secs()),
                });
            }
        }
    };
    if status.success() {
        return Ok(());
    }
    let said = said.join().unwrap_or_default();
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
    Err(format!("{status}: {last}"))
}

/// Checks that this is a complete PDF file.
fn whole(pdf: &Path) -> Result<(), String> {
    let bytes = fs::read(pdf).map_err(|_| "it wrote no file".to_owned())?;
    let end = &bytes[bytes.len().saturating_sub(32)..];
    let is_whole = bytes.starts_with(b"%PDF-") && end.windows(5).any(|w| w == b"%%EOF");
    is_whole.then_some(()).ok_or_else(|| "it wrote an incomplete PDF".to_owned())
}

/// `file:` address of an absolute path.
fn address(path: &Path) -> String {
    use std::fmt::Write;
    use std::os::unix::ffi::OsStrExt;
    let mut out = String::from("file://");
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(byte) {
            out.push(char::from(*byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A folder with a page, and a program that takes the place of the browser.
    fn made(script: &str) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (browser, html) = (folder.path().join("chromium"), folder.path().join("my report.html"));
        fs::write(&browser, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&html, "<p>page</p>").unwrap();
        (folder, browser, html)
    }

    /// Shell line that sets the file that the browser should write.
    const FILE: &str =
        "for a; do case $a in --print-to-pdf=*) f=${a#*=};; --user-data-dir=*) mkdir \"${a#*=}\";; esac; done";

    #[test]
    fn the_file_is_beside_the_page_and_nothing_else_is_left() {
        let (folder, browser, html) = made(&format!("{FILE}\nprintf '%%PDF-1.4 %s %%%%EOF\\n' \"$*\" > \"$f\""));
        let pdf = print_with(&browser, &html, PATIENCE).unwrap();
        assert_eq!(pdf.file_name().unwrap(), "my report.pdf");
        let arguments = fs::read_to_string(&pdf).unwrap();
        assert!(arguments.contains("/my%20report.html") && arguments.contains("MAP * ~NOTFOUND"), "{arguments}");
        assert_eq!(arguments.contains("--no-sandbox"), is_root());
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["chromium", "my report.html", "my report.pdf"]);
    }

    #[test]
    fn a_browser_that_fails_is_told_and_an_old_file_stays() {
        for (script, why) in [
            ("echo cannot open display >&2; exit 3".to_owned(), "exit status: 3: cannot open display"),
            ("exit 0".to_owned(), "it wrote no file"),
            (format!("{FILE}\nprintf '%%PDF-1.4 half' > \"$f\""), "an incomplete PDF"),
            ("exec sleep 1000".to_owned(), "it took more than 0 s"),
        ] {
            let (folder, browser, html) = made(&script);
            let old = html.with_extension("pdf");
            fs::write(&old, "old").unwrap();
            let patience = if script.contains("sleep") { Duration::ZERO } else { PATIENCE };
            let error = print_with(&browser, &html, patience).unwrap_err();
            assert!(error.contains(why) && error.contains("print it there"), "{error}");
            assert_eq!(fs::read_to_string(&old).unwrap(), "old");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "{script}");
        }
    }

    #[test]
    fn browsers_are_looked_for_in_the_folders_of_the_path() {
        let (folder, browser, _) = made("");
        let empty = tempfile::tempdir().unwrap();
        let paths = |folders: &[&Path]| std::env::join_paths(folders).unwrap();
        assert_eq!(find(&paths(&[empty.path(), folder.path()])), Some(browser));
        assert_eq!(find(&paths(&[empty.path()])), None);
    }
}
