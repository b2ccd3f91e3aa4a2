//! Reads a part of a suite into a type that derives `Deserialize`, so that its structure is defined only once. An error
//! refers to the innermost node that causes it.

use super::errors::Problems;
use super::raw::{Entry, Node, Value};
use drophammer_model::quantity::parse_count;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use std::fmt;
use std::ops::Range;

/// Reads `node`. If that fails, adds an error with the remedy `help`, unless the message contains a remedy.
pub(crate) fn read<T: DeserializeOwned>(node: &Node, help: &str, problems: &mut Problems) -> Option<T> {
    match T::deserialize(At(node)) {
        Ok(value) => Some(value),
        Err(error) => {
            let span = error.span.unwrap_or_else(|| node.span.clone());
            match error.message.split_once("; ") {
                Some((message, remedy)) => problems.add(&span, message, remedy),
                None => problems.add(&span, error.message, help),
            }
            None
        }
    }
}

/// An error and its position.
#[derive(Debug)]
struct Wrong {
    message: String,
    span: Option<Range<usize>>,
}

impl Wrong {
    /// Sets the position to `span` if there is none yet.
    fn at(self, span: &Range<usize>) -> Wrong {
        Wrong { span: Some(self.span.unwrap_or_else(|| span.clone())), ..self }
    }
}

impl std::error::Error for Wrong {}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl serde::de::Error for Wrong {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Wrong { message: message.to_string(), span: None }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let known: Vec<_> = expected.iter().map(|key| format!("`{key}`")).collect();
        Wrong::custom(format!("there is no key `{field}` here; known are {}", known.join(", ")))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let known: Vec<_> = expected.iter().map(|key| format!("`{key}`")).collect();
        Wrong::custom(format!("`{variant}` is not known here; known are {}", known.join(", ")))
    }

    fn missing_field(field: &'static str) -> Self {
        Wrong::custom(format!("`{field}` is missing; add it"))
    }
}

/// The node to read.
#[derive(Clone, Copy)]
struct At<'n>(&'n Node);

impl<'n> At<'n> {
    /// Visits a plain scalar as the type that its text suggests.
    fn scalar<'de, V: Visitor<'de>>(self, text: &str, visitor: V) -> Result<V::Value, Wrong> {
        let unsigned =
            text.strip_prefix("0x").map_or_else(|| parse_count(text).ok(), |hex| u64::from_str_radix(hex, 16).ok());
        let found = match (text, unsigned, text.parse::<i64>(), text.parse::<f64>()) {
            ("true", ..) => visitor.visit_bool(true),
            ("false", ..) => visitor.visit_bool(false),
            (_, Some(n), ..) => visitor.visit_u64(n),
            (_, _, Ok(n), _) => visitor.visit_i64(n),
            (.., Ok(x)) if x.is_finite() => visitor.visit_f64(x),
            _ => visitor.visit_str(text),
        };
        found.map_err(|wrong: Wrong| wrong.at(&self.0.span))
    }
}

impl<'de> Deserializer<'de> for At<'_> {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let span = &self.0.span;
        match &self.0.value {
            Value::Null => visitor.visit_unit(),
            Value::Scalar { text, plain: true } => return self.scalar(text, visitor),
            Value::Scalar { text, plain: false } => visitor.visit_str(text),
            Value::List(items) => visitor.visit_seq(Items(items.iter())),
            Value::Map(entries) => visitor.visit_map(Entries { rest: entries.iter(), value: None }),
        }
        .map_err(|wrong| wrong.at(span))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.0.value {
            Value::Scalar { text, .. } => visitor.visit_str(text).map_err(|wrong: Wrong| wrong.at(&self.0.span)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.0.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    /// A map whose keys are all optional may have no value: `udp:`.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match &self.0.value {
            Value::Null => visitor
                .visit_map(Entries { rest: [].iter(), value: None })
                .map_err(|wrong: Wrong| wrong.at(&self.0.span)),
            Value::Map(_) => self.deserialize_any(visitor),
            _ => {
                Err(Wrong::custom(format!("a map of keys and values is expected, not {}", self.0.what()))
                    .at(&self.0.span))
            }
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let (name, span, value) = match &self.0.value {
            Value::Scalar { text, .. } => (text, &self.0.span, None),
            Value::Map(entries) => match entries.as_slice() {
                [only] => (&only.key, &only.key_span, Some(&only.value)),
                _ => {
                    let wrong = Wrong::custom(format!("this has {} keys; write exactly one", entries.len()));
                    return Err(wrong.at(&self.0.span));
                }
            },
            _ => return Err(Wrong::custom(format!("a name is expected, not {}", self.0.what())).at(&self.0.span)),
        };
        visitor.visit_enum(Variant { name, span, value }).map_err(|wrong| wrong.at(&self.0.span))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char bytes byte_buf unit unit_struct seq tuple tuple_struct map identifier
        ignored_any
    }
}

struct Items<'n>(std::slice::Iter<'n, Node>);

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Wrong;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Wrong> {
        let Some(node) = self.0.next() else { return Ok(None) };
        seed.deserialize(At(node)).map(Some).map_err(|wrong: Wrong| wrong.at(&node.span))
    }
}

struct Entries<'n> {
    rest: std::slice::Iter<'n, Entry>,
    value: Option<&'n Node>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Wrong;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Wrong> {
        let Some(entry) = self.rest.next() else { return Ok(None) };
        self.value = Some(&entry.value);
        let key = seed.deserialize(entry.key.as_str().into_deserializer());
        key.map(Some).map_err(|wrong: Wrong| wrong.at(&entry.key_span))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Wrong> {
        match self.value.take() {
            Some(node) => seed.deserialize(At(node)).map_err(|wrong: Wrong| wrong.at(&node.span)),
            None => Err(Wrong::custom("a value without a key")),
        }
    }
}

struct Variant<'n> {
    name: &'n str,
    span: &'n Range<usize>,
    value: Option<&'n Node>,
}

impl<'de, 'n> EnumAccess<'de> for Variant<'n> {
    type Error = Wrong;
    type Variant = Contents<'n>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Contents<'n>), Wrong> {
        let name = seed.deserialize(self.name.into_deserializer()).map_err(|wrong: Wrong| wrong.at(self.span))?;
        Ok((name, Contents { span: self.span, value: self.value }))
    }
}

/// The value after the name of a variant.
struct Contents<'n> {
    span: &'n Range<usize>,
    value: Option<&'n Node>,
}

impl Contents<'_> {
    /// A name without a value is treated like a key without a value.
    fn node(&self) -> Node {
        self.value.cloned().unwrap_or(Node { span: self.span.clone(), value: Value::Null })
    }
}

impl<'de> VariantAccess<'de> for Contents<'_> {
    type Error = Wrong;

    fn unit_variant(self) -> Result<(), Wrong> {
        match self.value.map(|node| &node.value) {
            None | Some(Value::Null) => Ok(()),
            Some(_) => Err(Wrong::custom("nothing is expected here; write the name alone").at(self.span)),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Wrong> {
        seed.deserialize(At(&self.node()))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Wrong> {
        At(&self.node()).deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Wrong> {
        At(&self.node()).deserialize_struct("", fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::Sources;
    use crate::raw;
    use drophammer_model::traffic::{Arriving, Header};

    fn header(yaml: &str) -> Result<Vec<Header>, (String, String)> {
        let mut problems = Problems::default();
        let node = raw::parse(yaml, &mut problems).unwrap();
        read(&node, "write a list of headers", &mut problems).ok_or_else(|| {
            let errors = problems.finish::<()>(None, Sources::of("file", yaml)).unwrap_err();
            let first = &errors.errors[0];
            (yaml[first.span.clone()].to_owned(), format!("{} / {}", first.message, first.help))
        })
    }

    #[test]
    fn headers_are_read_as_they_are_from_json() {
        let yaml = "- vlan: {vid: {start: 100, count: 5}, pcp: 3}\n- ipv6: {dscp: 46, source: '2001:db8::1'}\n- udp:\n- raw: {bytes: '0102'}\n";
        let json = r#"[{"vlan":{"vid":{"start":100,"count":5},"pcp":3}},{"ipv6":{"dscp":46,"source":"2001:db8::1"}},{"udp":{}},{"raw":{"bytes":"0102"}}]"#;
        assert_eq!(header(yaml).unwrap(), serde_json::from_str::<Vec<Header>>(json).unwrap());
        assert_eq!(header("[tcp, {ethernet: {ethertype: 0x88b5}}]").unwrap().len(), 2);
    }

    #[test]
    fn mistakes_point_at_what_they_are_about() {
        assert_eq!(
            header("- vlan: {vid: 1k}\n- ipv4: {dscp: ef}\n").unwrap(),
            header("- vlan: {vid: 1000}\n- ipv4: {dscp: 46}\n").unwrap()
        );
        for (yaml, at, part) in [
            ("- ipv4: {dscp: af44}", "af44", "af44 is not a DSCP / write 0 to 63, or `ef`"),
            ("- vlan: {vid: 5000}", "5000", "does not fit a field of 12 bits"),
            ("- vlan: {vidd: 5}", "vidd", "no key `vidd` here / known are"),
            ("- vlann: {vid: 5}", "vlann", "`vlann` is not known here / known are `ethernet`"),
            ("- ipv4: {source: 10.0.0.256}", "10.0.0.256", "address"),
            ("- {udp: {}, tcp: {}}", "{udp: {}, tcp: {}}", "this has 2 keys / write exactly one"),
            ("- 7", "7", "`7` is not known here"),
            ("- vlan: [1]", "[1]", "a map of keys and values is expected, not a list"),
            ("- ipv4: {dscp: {values: []}}", "{values: []}", "at least one"),
        ] {
            let (found, message) = header(yaml).unwrap_err();
            assert_eq!((found.as_str(), message.contains(part)), (at, true), "{yaml}: {message}");
        }
    }

    #[test]
    fn what_may_be_left_out_is_absent() {
        let mut problems = Problems::default();
        let node = raw::parse("vlans: [{vid: 7}]\ndscp: 46\nttl: ~\n", &mut problems).unwrap();
        let read: Arriving = read(&node, "", &mut problems).unwrap();
        assert_eq!((read.vlans.len(), read.dscp.map(|d| d.get()), read.ttl), (1, Some(46), None));
    }
}
