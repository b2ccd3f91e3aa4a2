//! Keys of BGP sessions that are not in the suite: `bgp: {md5_file: PATH}` and `bgp: {md5_env: NAME}`. They come from the
//! caller, because this crate does no I/O.
//!
//! A key takes the place of the entry that names it, as `md5`, before the suite is read.
//!
//! # Secrets
//!
//! This module puts keys from files and the environment, which `cli/src/key_file.rs` reads, into the tree
//! of a suite. `suite::Mask` hides them as parts of other texts: in the kept suite, its errors, records
//! (`cli/src/masked.rs`, which leaves names and times) and logs of hooks (`kinds/external_logs.rs`). A kind renders its
//! configuration twice: from the role, for the daemon, and from `RouterRole::without_secrets`, for the record and the
//! folder of the run. If the two differ, the daemon reads its file from the lab's tmpfs (`configuration::store`).

use super::errors::{Problems, quote};
use super::include::Refusal;
use super::raw::{Entry, Node, Value};
use std::path::{Path, PathBuf};

/// The key itself.
pub(super) const MD5: &str = "md5";
/// A file with it.
pub(super) const FILE: &str = "md5_file";
/// An environment variable with it.
pub(super) const ENV: &str = "md5_env";

/// Where a key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// A file; a relative path of the suite is joined to its folder.
    File(PathBuf),
    /// A variable of the environment, by name.
    Env(String),
}

/// Returns a key. The implementation reads no more than a few kilobytes, of ordinary files only.
pub type OpenKey<'a> = &'a dyn Fn(&KeyPlace) -> Result<String, Refusal>;

/// Puts the key into the section `bgp` of a suite in this folder.
pub(super) fn apply(root: &mut Node, folder: &Path, open: OpenKey<'_>, problems: &mut Problems) {
    let Value::Map(entries) = &mut root.value else { return };
    let Some(section) = entries.iter_mut().find(|entry| entry.key == "bgp") else { return };
    let Value::Map(entries) = &mut section.value.value else { return };
    let mut given = entries.iter().enumerate().filter(|(_, entry)| [MD5, FILE, ENV].contains(&entry.key.as_str()));
    let (Some((at, first)), second) = (given.next(), given.next()) else { return };
    if let Some((_, second)) = second {
        let message = format!("`bgp` has both `{}` and `{}`", first.key, second.key);
        problems.add(&second.key_span, message, "keep one of them");
        return;
    }
    // The reader of the section says what is wrong with another value.
    let Value::Scalar { text, .. } = &first.value.value else { return };
    let (key, text) = (first.key.clone(), text.trim().to_owned());
    if key == MD5 || text.is_empty() {
        return;
    }
    let Entry { value: node, .. } = &mut entries[at];
    match read(&key, &text, folder, open) {
        Ok(key) => {
            node.value = Value::Scalar { text: key, plain: false };
            MD5.clone_into(&mut entries[at].key);
        }
        Err(Refusal { message, help }) => {
            problems.add(&node.span, message, help);
            entries.remove(at);
        }
    }
}

fn read(key: &str, text: &str, folder: &Path, open: OpenKey<'_>) -> Result<String, Refusal> {
    let place = match key {
        FILE => KeyPlace::File(folder.join(text)),
        _ if is_variable(text) => KeyPlace::Env(text.to_owned()),
        _ => {
            let message = format!("`{ENV}` is the name of an environment variable, not {}", quote(text));
            return Err(Refusal::new(message, "write letters, digits and `_`, for instance `md5_env: BGP_KEY`"));
        }
    };
    let found = open(&place)?;
    let found = found.trim_end_matches(['\r', '\n']);
    match wrong_key(found) {
        None => Ok(found.to_owned()),
        Some(why) => {
            let message = match place {
                KeyPlace::File(path) => format!("the text of `{}` cannot be a key of TCP MD5: {why}", path.display()),
                KeyPlace::Env(name) => format!("the variable `{name}` cannot be a key of TCP MD5: {why}"),
            };
            Err(Refusal::new(message, "put the key there, alone and on one line"))
        }
    }
}

/// Letters, digits and `_`, no digit first (POSIX).
fn is_variable(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.starts_with(|c: char| c.is_ascii_digit()) && text.len() <= 255 && text.chars().all(allowed)
}

/// All values of `md5` in a suite whose variables have been replaced.
pub(super) fn values(root: &Node) -> Vec<String> {
    let mut found = Vec::new();
    collect(root, "", &mut found);
    found
}

fn collect(node: &Node, key: &str, found: &mut Vec<String>) {
    match &node.value {
        Value::Scalar { text, .. } if key == MD5 => found.push(text.clone()),
        Value::Null | Value::Scalar { .. } => {}
        Value::List(items) => items.iter().for_each(|item| collect(item, "", found)),
        Value::Map(entries) => entries.iter().for_each(|entry| collect(&entry.value, &entry.key, found)),
    }
}

/// Longest key of TCP MD5, as in Linux and in FRR, in bytes.
const LONGEST: usize = 80;

/// Why `key` cannot be a key in the configuration of every router; `None` if it can.
pub fn wrong_key(key: &str) -> Option<&'static str> {
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"\"'\\{}".contains(&byte);
    if key.is_empty() || key.len() > LONGEST {
        Some("a key has 1 to 80 characters")
    } else if !key.bytes().all(fits) {
        Some("a key has no spaces, quotes, backslashes and braces, and characters of ASCII alone")
    } else {
        None
    }
}
