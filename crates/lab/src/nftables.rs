//! The user's nftables rulesets: checked before the run, and loaded into a router.

use crate::{LabError, Netns, process};
use std::path::Path;
use std::process::Command;

/// The program, and the Debian package that has it.
pub(crate) const NEED: (&str, &str) = ("nft", "nftables");

/// Name of the copy of the ruleset.
pub(crate) const FILE: &str = "nftables.conf";

/// Asks nft(8) whether the kernel would accept the ruleset in `file`. This happens in an empty, temporary network
/// namespace, so ordinary users may ask too. Succeeds if nft is not installed: missing programs are reported elsewhere.
///
/// # Errors
/// [`LabError::Unusable`] with the message of nft.
pub(crate) fn check(name: &str, file: &Path) -> Result<(), LabError> {
    let (Ok(nft), Ok(unshare)) = (process::find(NEED.0, NEED.1), process::find("unshare", "util-linux")) else {
        return Ok(());
    };
    let mut command = Command::new(unshare);
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--"]).arg(nft).arg("--check").args(arguments(file, file));
    match process::output(command, None) {
        Ok(_) => Ok(()),
        Err(LabError::Command { output, .. }) => Err(LabError::Unusable {
            what: format!("`nftables` of `{name}`: nft does not take {}: {output}", file.display()),
            remedy: "mend the ruleset; `nft --check --file FILE` asks again".into(),
        }),
        Err(other) => Err(other),
    }
}

/// Loads the copy of the user's `file` into the namespace of a router.
///
/// # Errors
/// [`LabError::Command`] with the message of nft, [`LabError::MissingProgram`].
pub(crate) fn load(netns: &Netns, file: &Path, kept: &Path) -> Result<(), LabError> {
    let nft = process::find(NEED.0, NEED.1)?;
    netns.run(|| {
        let mut command = netns.command(&nft);
        command.args(arguments(file, kept));
        process::output(command, None).map(drop)
    })?
}

/// Arguments of nft for the ruleset in `text`; files that it includes are found beside the user's `file`.
fn arguments<'a>(file: &'a Path, text: &'a Path) -> [&'a std::ffi::OsStr; 4] {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    ["--includepath".as_ref(), folder.as_os_str(), "--file".as_ref(), text.as_os_str()]
}
