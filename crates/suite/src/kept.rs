//! The texts of a suite as kept by a run: without keys of BGP sessions.

use super::errors::Problems;
use super::keys::MD5;
use super::raw::{self, Node, Value};
use super::variables;
use drophammer_model::suite::{Mask, Secret};
use std::collections::BTreeSet;
use std::ops::Range;

/// The key with a secret value, wherever it occurs: a map with it may be the value of a variable or of an anchor.
const SECRET: &str = MD5;

/// A scalar.
struct Scalar<'n> {
    /// Its key; empty in a list.
    key: &'n str,
    text: &'n str,
    span: &'n Range<usize>,
}

/// The texts with [`Secret::HIDDEN`] in place of keys, also where a variable or an anchor holds a key, or where a key is a
/// part of another text. The texts are parts of one suite; `others` are further keys, of elsewhere.
pub(super) fn without_secrets(texts: &[&str], others: &[String]) -> Vec<String> {
    let places = Found::of(texts, others).places;
    texts.iter().zip(places).map(|(text, places)| replaced(text, &places, |_| Secret::HIDDEN.to_owned())).collect()
}

/// Texts for messages about a suite: keys are stars, as many as they have bytes, so that places stay where they are. The
/// second list has the keys. Of a text that is no YAML, what follows the word `md5` is hidden.
pub(super) fn with_stars(texts: &[&str], others: &[String]) -> (Vec<String>, Vec<String>) {
    let found = Found::of(texts, others);
    let stars =
        |hidden: &str| hidden.chars().map(|c| if c == '\n' { "\n".into() } else { "*".repeat(c.len_utf8()) }).collect();
    let texts = texts.iter().zip(&found.places).map(|(text, places)| replaced(text, places, stars));
    (texts.collect(), found.secrets.into_iter().collect())
}

/// The keys of a suite.
struct Found {
    /// Where they are in each text, in order, without overlaps.
    places: Vec<Vec<Range<usize>>>,
    /// The keys, and the variables that they are made of.
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
            scalars.iter().flatten().filter(|scalar| scalar.key == SECRET).map(|scalar| scalar.text).collect();
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
            // In the command of a hook, or in a comment. A shorter text would also be hidden within ordinary words.
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

/// Of a text that is no YAML: what follows the word `md5`, to the end of its line.
fn after_the_word(text: &str) -> Vec<Range<usize>> {
    let value = |(at, word): (usize, &str)| {
        let (start, rest) = (at + word.len(), &text[at + word.len()..]);
        let end = rest.find(['\n', '\r']).unwrap_or(rest.len());
        let skipped = rest[..end].len() - rest[..end].trim_start_matches(['"', '\'', ' ', '\t', ':']).len();
        start + skipped..start + end
    };
    // The name of a file or a variable with a key (`md5_file`) is no secret.
    let keys = text.match_indices(SECRET).filter(|(at, word)| !text[at + word.len()..].starts_with('_'));
    keys.map(value).collect()
}

/// The places in order, without overlaps.
fn joined(mut places: Vec<Range<usize>>) -> Vec<Range<usize>> {
    places.sort_unstable_by_key(|place| (place.start, place.end));
    let mut joined: Vec<Range<usize>> = Vec::new();
    for place in places {
        match joined.last_mut() {
            // An alias has the place of its anchor.
            Some(last) if place.start < last.end => last.end = last.end.max(place.end),
            _ => joined.push(place),
        }
    }
    joined
}

/// `text` with what `by` makes of these places.
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
