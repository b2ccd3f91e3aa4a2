//! The texts of a suite as kept by a run: without keys of BGP sessions.

use super::errors::Problems;
use super::protection::Secret;
use super::raw::{self, Node, Value};
use super::variables;
use std::collections::BTreeSet;
use std::ops::Range;

/// The key with a secret value, wherever it occurs: a map with it may be the value of a variable or of an anchor.
const SECRET: &str = "md5";

/// A scalar.
struct Scalar<'n> {
    /// Its key; empty in a list.
    key: &'n str,
    text: &'n str,
    span: &'n Range<usize>,
}

/// The texts with [`Secret::HIDDEN`] in place of keys, also where a variable or an anchor holds a key. The texts are
/// parts of one suite.
pub(super) fn without_secrets(texts: &[&str]) -> Vec<String> {
    let roots: Vec<Node> = texts
        .iter()
        .map(|text| raw::parse(text, &mut Problems::default()).unwrap_or(Node { span: 0..0, value: Value::Null }))
        .collect();
    let found: Vec<Vec<Scalar>> = roots
        .iter()
        .map(|root| {
            let mut scalars = Vec::new();
            collect(root, "", &mut scalars);
            scalars
        })
        .collect();
    let mut hidden: BTreeSet<&str> =
        found.iter().flatten().filter(|scalar| scalar.key == SECRET).map(|scalar| scalar.text).collect();
    let named: BTreeSet<&str> = hidden.iter().copied().flat_map(variables::names).collect();
    for root in &roots {
        let of_secret = section(root, variables::KEY).into_iter().filter(|(name, _)| named.contains(name));
        hidden.extend(of_secret.filter_map(|(_, node)| match &node.value {
            Value::Scalar { text, .. } => Some(text.as_str()),
            _ => None,
        }));
    }
    let hide = |(text, scalars): (&&str, Vec<Scalar>)| {
        let spans = scalars.into_iter().filter(|scalar| hidden.contains(scalar.text)).map(|scalar| scalar.span);
        replaced(text, spans.collect())
    };
    texts.iter().zip(found).map(hide).collect()
}

/// `text` with [`Secret::HIDDEN`] at these places.
fn replaced(text: &str, mut places: Vec<&Range<usize>>) -> String {
    places.sort_unstable_by_key(|place| (place.start, place.end));
    let (mut out, mut at) = (String::new(), 0);
    for place in places {
        // An alias has the place of its anchor, which is then already replaced.
        let Some(before) = text.get(at..place.start) else { continue };
        out += before;
        out += Secret::HIDDEN;
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
            assert_eq!(without_secrets(&[text]), [kept]);
        }
        for text in ["a: &k sesame\nbgp: {md5: *k}\nb: *k\n", "a: &b {md5: sesame}\nbgp: *b\n"] {
            let kept = without_secrets(&[text]).remove(0);
            assert!(!kept.contains("sesame") && kept.contains("<secret>"), "{kept}");
        }
    }

    #[test]
    fn a_key_of_one_file_is_hidden_in_the_others() {
        let kept = without_secrets(&["bgp: {md5: \"${k}\"}\n", "variables: {k: sesame}\n", "title: sesame\n"]);
        assert_eq!(kept, ["bgp: {md5: <secret>}\n", "variables: {k: <secret>}\n", "title: <secret>\n"]);
    }
}
