//! Keys of BGP sessions: in the suite (`bgp: {md5: KEY}`), in a file (`md5_file: PATH`) or in the environment
//! (`md5_env: NAME`). The caller reads keys from files and the environment, because this crate does no I/O. The key
//! itself replaces the entry that names it before the suite is read.
//!
//! # Secrets
//!
//! Here keys from files and the environment (`cli/src/key_file.rs` reads them) are inserted into the tree of a suite.
//! `suite::Mask` hides them in all other texts: in the stored suite, its errors, records (`cli/src/masked.rs`, which
//! keeps names and times) and logs of hooks (`kinds/external/logs.rs`). A kind renders its configuration twice: from
//! the role, for the daemon, and from `RouterRole::without_secrets`, for the record and the folder of the run. If the
//! two differ, the daemon reads its file from the lab's tmpfs (`configuration::store`).

use super::errors::{Problems, quote};
use super::include::Refusal;
use super::raw::{self, Entry, Node, Value};
use super::variables;
use drophammer_model::suite::{Mask, Secret};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The entry with a key, wherever it occurs: a map that contains it may be the value of a variable or of an anchor.
const MD5: &str = "md5";
/// The entry that names a file with the key.
pub(super) const FILE: &str = "md5_file";
/// The entry that names an environment variable with the key.
pub(super) const ENV: &str = "md5_env";

/// Where a key is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// A file; a relative path is already joined to the suite's folder.
    File(PathBuf),
    /// An environment variable, by name.
    Env(String),
}

/// Returns a key. The implementation reads only regular files, and at most a few kilobytes.
pub type OpenKey<'a> = &'a dyn Fn(&KeyPlace) -> Result<String, Refusal>;

/// Inserts the key into the section `bgp` of a suite in `folder`.
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
    // The reader of the section reports any other value.
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

/// All values of `md5` in a suite after variables have been replaced.
pub(super) fn values(root: &Node) -> Vec<String> {
    let mut found = Vec::new();
    collect(root, "", &mut found);
    found.into_iter().filter(|scalar| scalar.key == MD5).map(|scalar| scalar.text.to_owned()).collect()
}

/// Longest key of TCP MD5, as in Linux and in FRR, in bytes.
const LONGEST: usize = 80;

/// Returns why `key` does not work in the configuration of every router; `None` if it does.
pub fn wrong_key(key: &str) -> Option<&'static str> {
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"\"'\\{}".contains(&byte);
    if key.is_empty() || key.len() > LONGEST {
        Some("a key has 1 to 80 characters")
    } else if !key.bytes().all(fits) {
        Some("a key has only ASCII characters, without spaces, quotes, backslashes and braces")
    } else {
        None
    }
}

/// A scalar of the tree.
struct Scalar<'n> {
    /// The key of its entry; empty in a list.
    key: &'n str,
    text: &'n str,
    span: &'n Range<usize>,
}

/// Returns the texts of a suite with [`Secret::HIDDEN`] in place of keys, even if a variable or an anchor contains a
/// key, or if a key is part of another text. `others` are keys from outside of these texts.
pub(super) fn without_secrets(texts: &[&str], others: &[String]) -> Vec<String> {
    let places = Found::of(texts, others).places;
    texts.iter().zip(places).map(|(text, places)| replaced(text, &places, |_| Secret::HIDDEN.to_owned())).collect()
}

/// Returns the texts of a suite for messages: each byte of a key becomes a star, so that positions do not change. The
/// second list contains the keys. In a text that is not YAML, everything after the word `md5` is hidden, to the end of
/// its line.
pub(super) fn with_stars(texts: &[&str], others: &[String]) -> (Vec<String>, Vec<String>) {
    let found = Found::of(texts, others);
    let stars =
        |hidden: &str| hidden.chars().map(|c| if c == '\n' { "\n".into() } else { "*".repeat(c.len_utf8()) }).collect();
    let texts = texts.iter().zip(&found.places).map(|(text, places)| replaced(text, places, stars));
    (texts.collect(), found.secrets.into_iter().collect())
}

/// The keys of a suite.
struct Found {
    /// Positions of keys in each text, in order, without overlaps.
    places: Vec<Vec<Range<usize>>>,
    /// The keys, and the variables from which they are composed.
    secrets: BTreeSet<String>,
}

impl Found {
    fn of(texts: &[&str], others: &[String]) -> Found {
        let roots: Vec<Option<Node>> = texts.iter().map(|text| raw::parse(text, &mut Problems::default())).collect();
        let scalars: Vec<Vec<Scalar>> = roots
            .iter()
            .map(|root| {
                let mut scalars = Vec::new();
                root.iter().for_each(|root| collect(root, "", &mut scalars));
                scalars
            })
            .collect();
        let mut hidden: BTreeSet<&str> =
            scalars.iter().flatten().filter(|scalar| scalar.key == MD5).map(|scalar| scalar.text).collect();
        hidden.extend(others.iter().map(String::as_str).filter(|other| *other != Secret::HIDDEN));
        let named: BTreeSet<&str> = hidden.iter().copied().flat_map(variables::names).collect();
        for root in roots.iter().flatten() {
            let of_secret = section(root, variables::KEY).into_iter().filter(|(name, _)| named.contains(name));
            hidden.extend(of_secret.filter_map(|(_, node)| match &node.value {
                Value::Scalar { text, .. } => Some(text.as_str()),
                _ => None,
            }));
        }
        let places = |((text, root), scalars): ((&&str, &Option<Node>), &Vec<Scalar>)| {
            let whole = scalars.iter().filter(|scalar| hidden.contains(scalar.text)).map(|scalar| scalar.span.clone());
            let mut places: Vec<Range<usize>> = whole.collect();
            // A key may also be in the command of a hook, or in a comment. A shorter key would also match within
            // ordinary words.
            for secret in
                hidden.iter().filter(|secret| secret.len() >= Mask::LEAST && variables::names(secret).is_empty())
            {
                places.extend(text.match_indices(secret).map(|(at, found)| at..at + found.len()));
            }
            if root.is_none() {
                places.extend(after_the_word(text));
            }
            joined(places)
        };
        let places = texts.iter().zip(&roots).zip(&scalars).map(places).collect();
        Found { places, secrets: hidden.into_iter().map(str::to_owned).collect() }
    }
}

/// In a text that is not YAML: everything after the word `md5`, to the end of its line.
fn after_the_word(text: &str) -> Vec<Range<usize>> {
    let value = |(at, word): (usize, &str)| {
        let (start, rest) = (at + word.len(), &text[at + word.len()..]);
        let end = rest.find(['\n', '\r']).unwrap_or(rest.len());
        let skipped = rest[..end].len() - rest[..end].trim_start_matches(['"', '\'', ' ', '\t', ':']).len();
        start + skipped..start + end
    };
    // The name of a file or a variable that contains a key (`md5_file`) is not a secret.
    let keys = text.match_indices(MD5).filter(|(at, word)| !text[at + word.len()..].starts_with('_'));
    keys.map(value).collect()
}

/// Merges positions into an ordered list without overlaps.
fn joined(mut places: Vec<Range<usize>>) -> Vec<Range<usize>> {
    places.sort_unstable_by_key(|place| (place.start, place.end));
    let mut joined: Vec<Range<usize>> = Vec::new();
    for place in places {
        match joined.last_mut() {
            // An alias has the same position as its anchor.
            Some(last) if place.start < last.end => last.end = last.end.max(place.end),
            _ => joined.push(place),
        }
    }
    joined
}

/// Returns `text` with these parts replaced by the result of `by`.
fn replaced(text: &str, places: &[Range<usize>], by: impl Fn(&str) -> String) -> String {
    let (mut out, mut at) = (String::new(), 0);
    for place in places {
        let (Some(before), Some(hidden)) = (text.get(at..place.start), text.get(place.clone())) else { continue };
        out += before;
        out += &by(hidden);
        at = place.end;
    }
    out + text.get(at..).unwrap_or_default()
}

/// All scalars of a tree.
fn collect<'n>(node: &'n Node, key: &'n str, found: &mut Vec<Scalar<'n>>) {
    match &node.value {
        Value::Null => {}
        Value::Scalar { text, .. } => found.push(Scalar { key, text: text.as_str(), span: &node.span }),
        Value::List(items) => items.iter().for_each(|item| collect(item, "", found)),
        Value::Map(entries) => entries.iter().for_each(|entry| collect(&entry.value, &entry.key, found)),
    }
}

/// Keys and values of a section of a suite; empty if it is not a map.
fn section<'n>(root: &'n Node, key: &str) -> Vec<(&'n str, &'n Node)> {
    let Value::Map(entries) = &root.value else { return Vec::new() };
    let Some(section) = entries.iter().find(|entry| entry.key == key) else { return Vec::new() };
    let Value::Map(entries) = &section.value.value else { return Vec::new() };
    entries.iter().map(|entry| (entry.key.as_str(), &entry.value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hidden_wherever_they_stand() {
        for (text, kept) in [
            ("bgp: {md5: sesame, gtsm: true}\n", "bgp: {md5: <secret>, gtsm: true}\n"),
            ("bgp:\n  md5: \"sesame\"  # ours\nseed: 1\n", "bgp:\n  md5: <secret>  # ours\nseed: 1\n"),
            (
                "variables: {k: sesame, n: 1}\nbgp: {md5: \"${k}\"}\n",
                "variables: {k: <secret>, n: 1}\nbgp: {md5: <secret>}\n",
            ),
            (
                "variables: {k: sam, n: 1}\nbgp: {md5: \"se${k}e\"}\n",
                "variables: {k: <secret>, n: 1}\nbgp: {md5: <secret>}\n",
            ),
            ("variables: {all: {md5: sesame}}\nbgp: ${all}\n", "variables: {all: {md5: <secret>}}\nbgp: ${all}\n"),
            (
                "title: sesame\nabout: {ä: ö}\nbgp: {md5: sesame}\n",
                "title: <secret>\nabout: {ä: ö}\nbgp: {md5: <secret>}\n",
            ),
            ("suite: s\nbgp: {md5: ~}\n", "suite: s\nbgp: {md5: ~}\n"),
        ] {
            assert_eq!(without_secrets(&[text], &[]), [kept]);
        }
        for text in ["a: &k sesame\nbgp: {md5: *k}\nb: *k\n", "a: &b {md5: sesame}\nbgp: *b\n"] {
            let kept = without_secrets(&[text], &[]).remove(0);
            assert!(!kept.contains("sesame") && kept.contains("<secret>"), "{kept}");
        }
    }

    #[test]
    fn keys_are_hidden_within_other_texts() {
        let text = "variables: {k: sesame}\nbgp: {md5: \"${k}\"}\nduts: [{setup: ./set --key sesame}] # sesame\n";
        let kept = without_secrets(&[text], &[]).remove(0);
        assert!(!kept.contains("sesame") && kept.contains("setup: ./set --key <secret>}] # <secret>\n"), "{kept}");
        assert!(kept.contains("bgp: {md5: <secret>}"), "{kept}");
    }

    #[test]
    fn stars_leave_every_place_where_it_is() {
        let text = "bgp: {md5: sesame, bad: 1}\nabout: {x: \"a sesame b\"}\n";
        let (shown, secrets) = with_stars(&[text], &[]);
        assert_eq!(shown, ["bgp: {md5: ******, bad: 1}\nabout: {x: \"a ****** b\"}\n"]);
        assert_eq!(secrets, ["sesame"]);
        for broken in ["bgp: {md5: sesäme, bad: 1\nab: [\n", "bgp:\n\tmd5: \"sesäme\"\n"] {
            let (shown, _) = with_stars(&[broken], &[]);
            assert!(shown[0].len() == broken.len() && !shown[0].contains("ses"), "{shown:?}");
        }
    }

    #[test]
    fn a_key_of_one_file_is_hidden_in_the_others() {
        let kept = without_secrets(&["bgp: {md5: \"${k}\"}\n", "variables: {k: sesame}\n", "title: sesame\n"], &[]);
        assert_eq!(kept, ["bgp: {md5: <secret>}\n", "variables: {k: <secret>}\n", "title: <secret>\n"]);
    }

    #[test]
    fn a_key_of_elsewhere_is_hidden_in_all_texts() {
        let text = "bgp: {md5_file: key}\nduts: [{setup: ./set --key sesame}]\n";
        let others = ["sesame".to_owned()];
        let kept = "bgp: {md5_file: key}\nduts: [{setup: ./set --key <secret>}]\n";
        assert_eq!(without_secrets(&[text], &others), [kept]);
        assert_eq!(with_stars(&[text], &others).0, [kept.replace("<secret>", "******")]);
        let broken = "bgp: {md5_file: key, md5: sesame\n";
        assert_eq!(with_stars(&[broken], &[]).0, [broken.replace("sesame", "******")]);
    }
}
