//! `include:`, other files whose keys become part of a suite. The caller reads them, because this crate does no I/O.
//!
//! Included files are merged below the file that includes them before the suite is read, so variables, `--set` and all
//! readers see one tree. Only the positions in it show from which file a value comes.

use super::errors::{Problems, Source, Sources, quote};
use super::fields::{items, text};
use super::raw::{self, Entry, MAX_WEIGHT, Node, Value};
use super::variables;
use drophammer_model::visible::{is_hidden, visible};
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

pub(super) const KEY: &str = "include";
/// Maximum number of files that a suite includes, counting nested ones. A file that is included twice counts twice.
pub(crate) const MOST: usize = 16;
/// Maximum nesting of includes.
const DEEPEST: usize = 8;
/// Largest file, in bytes.
pub const MAX_BYTES: usize = raw::MAX_BYTES;
/// Sections that are merged entry by entry.
const SECTIONS: [&str; 2] = ["defaults", variables::KEY];
/// Section whose entries in all files are read, those of included files first.
const ADDED: &str = "published";
const EXAMPLE: &str = "include: common.yaml";

/// Why a file cannot be included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong.
    pub message: String,
    /// How to correct it.
    pub help: String,
}

impl Refusal {
    /// Creates a refusal with these texts.
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> Refusal {
        Refusal { message: message.into(), help: help.into() }
    }
}

/// Returns the text of an included file. The path is relative to the folder of the suite and has no `..`. The
/// implementation refuses links that lead out of that folder, and stops at [`MAX_BYTES`].
pub type Open<'a> = &'a dyn Fn(&Path) -> Result<String, Refusal>;

/// Merges included files into the suite.
pub(super) struct Includer<'a> {
    /// Folder of the suite, for messages.
    folder: &'a Path,
    open: Open<'a>,
    sources: &'a mut Sources,
    problems: &'a mut Problems,
    /// Number of files that may still be included.
    room: usize,
    /// The suite, and the files that are being read, each included by the one before it.
    chain: Vec<PathBuf>,
    /// Files that were read, with their keys; `None` for files with errors.
    done: HashMap<PathBuf, Option<Vec<Entry>>>,
}

impl<'a> Includer<'a> {
    pub fn new(file_name: &'a Path, open: Open<'a>, sources: &'a mut Sources, problems: &'a mut Problems) -> Self {
        Includer {
            folder: file_name.parent().unwrap_or(Path::new("")),
            open,
            sources,
            problems,
            room: MOST,
            chain: vec![file_name.file_name().map(PathBuf::from).unwrap_or_default()],
            done: HashMap::new(),
        }
    }

    /// Returns `root` with the keys of the files that it includes, without `include`. `None` if one of these files
    /// cannot be read, because errors about the missing keys would hide the cause.
    pub fn expand(&mut self, root: Node) -> Option<Node> {
        let Node { span, value } = root;
        let mut own = match value {
            Value::Map(entries) => entries,
            // Another reader reports the error.
            value => return Some(Node { span, value }),
        };
        let Some(at) = own.iter().position(|entry| entry.key == KEY) else {
            return Some(Node { span, value: Value::Map(own) });
        };
        let include = own.remove(at);
        let nodes = match &include.value.value {
            Value::List(_) => items(&include.value, "`include`", EXAMPLE, self.problems)?,
            _ => std::slice::from_ref(&include.value),
        };
        let (mut below, mut whole) = (Vec::new(), true);
        for node in nodes {
            match text(node, "an included file", EXAMPLE, self.problems).and_then(|path| self.file(path, &node.span)) {
                Some(entries) => overlay(&mut below, entries, &SECTIONS),
                None => whole = false,
            }
        }
        overlay(&mut below, own, &SECTIONS);
        let root = Node { span, value: Value::Map(below) };
        if root.weight() > MAX_WEIGHT {
            let message = format!("with the files that it includes, this file has more than {MAX_WEIGHT} values");
            return self.problems.refuse(&include.key_span, message, "a suite needs a few hundred; include less");
        }
        whole.then_some(root)
    }

    /// The keys of an included file, including those of the files that it includes.
    fn file(&mut self, path: &str, place: &Range<usize>) -> Option<Vec<Entry>> {
        match self.read(path.trim(), place) {
            Ok(entries) => entries,
            Err(Refusal { message, help }) => self.problems.refuse(place, message, help),
        }
    }

    /// Like [`Includer::file`]; `Ok(None)` if errors within the file were added.
    fn read(&mut self, path: &str, place: &Range<usize>) -> Result<Option<Vec<Entry>>, Refusal> {
        let file = self.locate(path)?;
        if self.chain.contains(&file) {
            let chain = self.chain_to(&file);
            return Err(Refusal::new(
                format!("{} includes itself: {chain}", quote(&file.display().to_string())),
                "move the common part into a separate file, and include that",
            ));
        }
        // The chain begins with the suite.
        if self.chain.len() > DEEPEST {
            let message = format!("files include each other more than {DEEPEST} deep: {}", self.chain_to(&file));
            return Err(Refusal::new(message, "include the last of them from the suite itself"));
        }
        let Some(room) = self.room.checked_sub(1) else {
            let message = format!("the suite includes more than {MOST} files");
            return Err(Refusal::new(message, "combine related files"));
        };
        self.room = room;
        if let Some(entries) = self.done.get(&file) {
            return Ok(entries.clone());
        }
        let text = (self.open)(&file)?;
        let entries = self.parse(&file, text, place);
        self.done.insert(file, entries.clone());
        Ok(entries)
    }

    /// The keys in `text`, the content of `file`.
    fn parse(&mut self, file: &Path, text: String, place: &Range<usize>) -> Option<Vec<Entry>> {
        if text.trim().is_empty() {
            let message = format!("the file {} is empty", quote(&file.display().to_string()));
            return self.problems.refuse(place, message, "write keys of a suite into it, or do not include it");
        }
        let mut own = Problems::default();
        let root = raw::parse(&text, &mut own);
        let source = Source { file: self.folder.join(file).display().to_string(), text };
        let start = self.sources.add(file.display().to_string(), source);
        self.problems.add_all(own, start);
        let mut root = root?;
        // Positions count through all texts.
        root.each_span(&|span| *span = span.start + start..span.end + start);
        self.chain.push(file.to_path_buf());
        let root = self.expand(root);
        self.chain.pop();
        let Node { span, value } = root?;
        match value {
            Value::Map(entries) => Some(entries),
            value => {
                let found = Node { span, value };
                let message = format!("an included file is a map of keys and values, not {}", found.what());
                self.problems.refuse(&found.span, message, "write keys of a suite into it, for instance `rounds: 10`")
            }
        }
    }

    /// Resolves `path`, given in the current file, relative to the folder of the suite.
    fn locate(&self, path: &str) -> Result<PathBuf, Refusal> {
        if path.contains(is_hidden) {
            let message = format!("{} has invisible characters", quote(&visible(path, &[])));
            return Err(Refusal::new(message, "give the file a plain name"));
        }
        let mut file = self.chain.last().and_then(|file| file.parent()).unwrap_or(Path::new("")).to_path_buf();
        for part in Path::new(path).components() {
            let is_below = match part {
                Component::Normal(name) => {
                    file.push(name);
                    true
                }
                Component::CurDir => true,
                Component::ParentDir => file.pop(),
                Component::RootDir | Component::Prefix(_) => {
                    let message = format!("{} is an absolute path", quote(path));
                    return Err(Refusal::new(message, "name a file in the folder of the suite or below it"));
                }
            };
            if !is_below {
                let message = format!("{} is outside of the folder of the suite", quote(path));
                return Err(Refusal::new(message, "name a file in that folder or below it"));
            }
        }
        Ok(file)
    }

    /// Returns `suite.yaml → a.yaml → b.yaml`.
    fn chain_to(&self, file: &Path) -> String {
        let names = self.chain.iter().map(PathBuf::as_path).chain([file]);
        names.map(|name| quote(&name.display().to_string())).collect::<Vec<_>>().join(" \u{2192} ")
    }
}

/// Merges `upper` over `lower`. The value of a common key comes from `upper`, except that the maps `sections` are merged key by key, and the lists
/// [`ADDED`] are joined.
fn overlay(lower: &mut Vec<Entry>, upper: Vec<Entry>, sections: &[&str]) {
    let mut places: HashMap<String, usize> =
        lower.iter().enumerate().map(|(at, entry)| (entry.key.clone(), at)).collect();
    for entry in upper {
        let Some(at) = places.get(&entry.key).copied() else {
            places.insert(entry.key.clone(), lower.len());
            lower.push(entry);
            continue;
        };
        let below = std::mem::replace(&mut lower[at], entry);
        let entry = &mut lower[at];
        let is_section = sections.contains(&entry.key.as_str());
        let is_added = !sections.is_empty() && entry.key == ADDED;
        match (below.value.value, &mut entry.value.value) {
            (Value::Map(mut merged), Value::Map(above)) if is_section => {
                overlay(&mut merged, std::mem::take(above), &[]);
                *above = merged;
            }
            (Value::List(mut joined), Value::List(above)) if is_added => {
                joined.append(above);
                *above = joined;
            }
            // A section without entries changes nothing.
            (below, above) if (is_section || is_added) && matches!(above, Value::Null) => *above = below,
            _ => {}
        }
    }
}
