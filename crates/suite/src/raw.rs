//! A suite as written: a tree of YAML nodes, each with its range of bytes. Only this file depends on the YAML library.
//! It uses the library's events instead of its deserializer, because only the events contain what good errors need:
//! every duplicate of a key, whether a scalar was quoted, and positions in bytes.

use super::errors::{Problems, quote};
use super::indent::{self, Misplaced};
use serde_saphyr::granit_parser::{self, ErrorKind, Event, Parser, ScalarStyle, ScanError};
use std::collections::HashMap;
use std::ops::Range;

/// Largest file, in bytes.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// Maximum nesting; a suite needs 6 levels.
const MAX_DEPTH: usize = 32;
/// Maximum size of a tree by [`Node::weight`], including the nodes repeated by aliases.
pub(super) const MAX_WEIGHT: usize = 100_000;

/// Number of errors after which reading stops.
const MANY_PROBLEMS: usize = 200;

/// A YAML node with its position.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Bytes of the source; for an absent value, the bytes of its key.
    pub span: Range<usize>,
    pub value: Value,
}

/// What a node is.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// Anything that is neither a list nor a map.
    Scalar {
        /// Text after unquoting.
        text: String,
        /// False if quoted or a block; `"64"` is then not a number.
        plain: bool,
    },
    List(Vec<Node>),
    /// Entries in the order of the file, with unique keys.
    Map(Vec<Entry>),
}

/// One entry of a map.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub key: String,
    /// Bytes of the key.
    pub key_span: Range<usize>,
    pub value: Node,
}

impl Node {
    /// The type of the node, for messages.
    pub fn what(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Scalar { text, plain: true } => quote(text),
            Value::Scalar { text, plain: false } => format!("the quoted text {}", quote(text)),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        }
    }

    /// Calls `change` for every position in this tree.
    pub(super) fn each_span(&mut self, change: &impl Fn(&mut Range<usize>)) {
        change(&mut self.span);
        match &mut self.value {
            Value::Null | Value::Scalar { .. } => {}
            Value::List(items) => items.iter_mut().for_each(|item| item.each_span(change)),
            Value::Map(entries) => entries.iter_mut().for_each(|entry| {
                change(&mut entry.key_span);
                entry.value.each_span(change);
            }),
        }
    }

    /// Size of this tree: one for each node and key, and one for every 64 bytes of text.
    pub(super) fn weight(&self) -> usize {
        1 + match &self.value {
            Value::Null => 0,
            Value::Scalar { text, .. } => text.len() / 64,
            Value::List(items) => items.iter().map(Node::weight).sum(),
            Value::Map(entries) => entries.iter().map(|e| 1 + e.key.len() / 64 + e.value.weight()).sum(),
        }
    }
}

/// A list or map whose end has not been read yet.
struct Open {
    span: Range<usize>,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    /// Entries, the key whose value comes next, and the position of each key's first entry, to detect duplicates.
    Map {
        entries: Vec<Entry>,
        key: Option<(String, Range<usize>)>,
        seen: HashMap<String, Range<usize>>,
    },
}

/// Reads a text from the command line. Errors in it are reported at `place`, and begin with `label`.
pub(super) fn parse_given(text: &str, label: &str, place: &Range<usize>, problems: &mut Problems) -> Option<Node> {
    let mut own = Problems::default();
    let node = parse(text, &mut own);
    match own.first() {
        Some(why) => {
            problems.refuse(place, format!("{label}: {why}"), "write the value as in a suite, quoted for the shell")
        }
        None => node,
    }
}

/// Reads one YAML document. `None` if it cannot be read to its end; the reason is then in `problems`.
pub(crate) fn parse(text: &str, problems: &mut Problems) -> Option<Node> {
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes", text.len());
        return problems.refuse(
            &(0..0),
            message,
            format!("a suite has at most {MAX_BYTES} bytes; is this the right file?"),
        );
    }
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let mut reader = Reader { text, open: Vec::new(), anchors: HashMap::new(), weight: 0, root: None, problems };
    for event in Parser::new_from_str_with_options(text, options) {
        match event {
            Ok((event, span)) => {
                let start = reader.byte(&span.start);
                let end = reader.byte(&span.end).max(start);
                reader.event(event, start..end)?;
            }
            Err(error) => {
                reader.syntax(&error);
                return None;
            }
        }
    }
    let root = reader.root.take();
    if root.is_none() {
        problems.add(&(0..0), "the file is empty", "begin with `suite:`, `duts:`, `ports:` and `tests:`");
    }
    root
}

struct Reader<'t, 'p> {
    text: &'t str,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    weight: usize,
    root: Option<Node>,
    problems: &'p mut Problems,
}

impl Reader<'_, '_> {
    fn byte(&self, marker: &granit_parser::Marker) -> usize {
        marker
            .byte_offset()
            .unwrap_or_else(|| self.text.char_indices().nth(marker.index()).map_or(self.text.len(), |(at, _)| at))
    }

    fn syntax(&mut self, error: &ScanError) {
        let at = self.byte(error.marker());
        if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
            return self.too_deep(at..at);
        }
        if let Some(Misplaced { span, message, help }) = indent::find(self.text, at) {
            return self.problems.add(&span, message, help);
        }
        let help = "look at the indentation here and above, and quote text that holds `: `, ` #` or begins with a sign";
        self.problems.add(&(at..at), format!("this is not YAML: {}", error.info()), help);
    }

    /// Refuses multi-line text with a line that looks like a list item: because of its wrong indentation it became part
    /// of the text.
    fn refuse_swallowed(&mut self, span: &Range<usize>) -> Option<()> {
        let Some(Misplaced { span, message, help }) = indent::swallowed_dash(self.text, span.clone()) else {
            return Some(());
        };
        self.problems.refuse(&span, message, help)
    }

    /// Processes one event; `None` stops the reading.
    fn event(&mut self, event: Event, span: Range<usize>) -> Option<()> {
        match event {
            Event::DocumentStart(..) if self.root.is_some() => {
                return self.problems.refuse(
                    &span,
                    "a second document begins here",
                    "write each suite into a separate file",
                );
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.tag(tag.is_some(), &span);
                self.weigh(1 + text.len() / 64, &span)?;
                let plain = style == ScalarStyle::Plain;
                if plain {
                    self.refuse_swallowed(&span)?;
                }
                let value = if plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL") {
                    Value::Null
                } else {
                    Value::Scalar { text: text.into_owned(), plain }
                };
                self.place(Node { span, value }, anchor)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.tag(tag.is_some(), &span);
                self.push(span, anchor, Content::List(Vec::new()))?;
            }
            Event::MappingStart(_, anchor, tag) => {
                self.tag(tag.is_some(), &span);
                self.push(span, anchor, Content::Map { entries: Vec::new(), key: None, seen: HashMap::new() })?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let open = self.open.pop()?;
                let value = match open.content {
                    Content::List(items) => Value::List(items),
                    Content::Map { entries, .. } => Value::Map(entries),
                };
                self.place(Node { span: open.span.start..span.end.max(open.span.end), value }, open.anchor)?;
            }
            Event::Alias(id) => match self.anchors.get(&id).map(Node::weight) {
                Some(weight) => {
                    self.weigh(weight, &span)?;
                    let value = self.anchors.get(&id).map_or(Value::Null, |node| node.value.clone());
                    self.place(Node { span, value }, 0);
                }
                None => {
                    return self.problems.refuse(&span, "this alias is within its own anchor", "write the value out");
                }
            },
            _ => {}
        }
        Some(())
    }

    fn too_deep(&mut self, span: Range<usize>) {
        let message = format!("lists and maps are nested more than {MAX_DEPTH} deep");
        self.problems.add(&span, message, "a suite needs six levels; look for brackets that are not closed");
    }

    fn tag(&mut self, tagged: bool, span: &Range<usize>) {
        if tagged {
            self.problems.add(span, "a YAML tag (`!…`) has no meaning in a suite", "leave the tag out");
        }
    }

    fn push(&mut self, span: Range<usize>, anchor: usize, content: Content) -> Option<()> {
        if self.open.len() >= MAX_DEPTH {
            self.too_deep(span);
            return None;
        }
        self.weigh(1, &span)?;
        self.open.push(Open { span, anchor, content });
        Some(())
    }

    /// Aliases repeat whole trees: without this limit ten lines could expand to a billion nodes.
    fn weigh(&mut self, weight: usize, span: &Range<usize>) -> Option<()> {
        self.weight += weight;
        if self.weight > MAX_WEIGHT {
            return self.problems.refuse(
                span,
                format!("the file has more than {MAX_WEIGHT} values, including those repeated by aliases"),
                "a suite needs a few hundred; look for aliases (`*name`) that repeat each other",
            );
        }
        Some(())
    }

    /// Adds a finished node to its parent.
    fn place(&mut self, mut node: Node, anchor: usize) -> Option<()> {
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|o| &mut o.content) {
            None => self.root = Some(node),
            Some(Content::List(items)) => items.push(node),
            Some(Content::Map { entries, key, seen }) => match key.take() {
                None => {
                    let text = match node.value {
                        Value::Scalar { text, .. } => text,
                        Value::Null => self.text.get(node.span.clone()).unwrap_or_default().to_owned(),
                        Value::List(_) | Value::Map(_) => {
                            return self.problems.refuse(
                                &node.span,
                                "a list or a map cannot be a key",
                                "a key is one word, then `: ` and its value; `{` and `[` begin a map or a list",
                            );
                        }
                    };
                    *key = Some((text, node.span));
                }
                Some((name, key_span)) => {
                    if matches!(node.value, Value::Null) && node.span.is_empty() {
                        node.span = key_span.clone();
                    }
                    match seen.get(&name) {
                        // Counting lines from the start is slow, and nobody reads more errors than this.
                        Some(_) if self.problems.len() > MANY_PROBLEMS => return None,
                        Some(first) => {
                            let line =
                                self.text[..self.text.floor_char_boundary(first.start)].matches('\n').count() + 1;
                            self.problems.add(
                                &key_span,
                                format!("the key {} is given twice", quote(&name)),
                                format!("it is already on line {line}; keep one of the two"),
                            );
                        }
                        None => {
                            seen.insert(name.clone(), key_span.clone());
                            entries.push(Entry { key: name, key_span, value: node });
                        }
                    }
                }
            },
        }
        Some(())
    }
}
