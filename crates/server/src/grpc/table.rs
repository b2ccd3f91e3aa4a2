//! The messages of the API as descriptors, built from the tables in `table/`.
//!
//! A table has one entry per message, `Name: field, field, ...`, and `#` begins a comment. A field is `name=number type`:
//!
//! | type | meaning |
//! |---|---|
//! | `string`, `bool`, `u32`, `u64`, `i32`, `float`, `double` | a number or text |
//! | `Name` | a message |
//! | `{one two}` | an enumeration; its values count from 1, and 0 is `unspecified` |
//! | `[type]` | a list |
//! | `pattern(type ...)` | how a header field changes from frame to frame: `choice`, `value`, `values`, `increment`, `decrement` and `metric_tags`. `random` adds the field of this name. `auto` adds one of the same type before `increment`, and `auto:type` adds one behind `metric_tags` |
//! | `checksum` | `choice`, `generated` and `custom` |
//! | `unsupported` | the field exists, but nothing here uses it: it is refused by name |
//!
//! The numbers are from version 1.62 of the model.

use prost_reflect::{DescriptorPool, MessageDescriptor};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    OneofDescriptorProto,
};
use std::collections::HashMap;
use std::iter::Peekable;
use std::sync::LazyLock;

const TABLES: [&str; 10] = [
    include_str!("table/config.txt"),
    include_str!("table/devices.txt"),
    include_str!("table/bgp.txt"),
    include_str!("table/rsvp.txt"),
    include_str!("table/ospf.txt"),
    include_str!("table/flows.txt"),
    include_str!("table/headers.txt"),
    include_str!("table/control.txt"),
    include_str!("table/metrics.txt"),
    include_str!("table/states.txt"),
];
const PACKAGE: &str = "otg";

static MODEL: LazyLock<Model> = LazyLock::new(|| Model::new(&TABLES));

/// The descriptor of a message in the tables.
///
/// # Panics
/// If there is no message of this name.
pub(super) fn message(name: &str) -> MessageDescriptor {
    MODEL.pool.get_message_by_name(&format!("{PACKAGE}.{name}")).unwrap_or_else(|| panic!("no message {name}"))
}

/// The name of a field that exists, but that nothing here uses.
pub(super) fn unsupported(message: &MessageDescriptor, number: u32) -> Option<&'static str> {
    MODEL.unsupported.get(message.name())?.iter().find(|(of, _)| *of == number).map(|(_, name)| *name)
}

/// All messages, and the fields that are refused.
struct Model {
    pool: DescriptorPool,
    unsupported: HashMap<&'static str, Vec<(u32, &'static str)>>,
}

impl Model {
    fn new(tables: &[&'static str]) -> Model {
        let mut built = Builder::default();
        tables.iter().for_each(|table| built.table(table));
        let file = FileDescriptorProto {
            name: Some("otg.proto".into()),
            package: Some(PACKAGE.into()),
            syntax: Some("proto3".into()),
            message_type: built.messages,
            ..FileDescriptorProto::default()
        };
        let mut pool = DescriptorPool::new();
        pool.add_file_descriptor_proto(file).expect("the tables name messages that exist");
        Model { pool, unsupported: built.unsupported }
    }
}

/// The type of a field's values.
#[derive(Clone)]
enum Kind {
    Scalar(Type),
    /// A message of this name.
    Message(String),
    /// An enumeration of the message `.0` that is made for the field.
    Enum(String),
}

fn camel(name: &str) -> String {
    name.split('_').map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}

/// Adds a field. As in the model, single values have presence.
fn add(message: &mut DescriptorProto, name: &str, number: i32, kind: Kind, list: bool) {
    let (kind, type_name) = match kind {
        Kind::Scalar(kind) => (kind, None),
        Kind::Message(of) => (Type::Message, Some(format!(".{PACKAGE}.{of}"))),
        Kind::Enum(of) => (Type::Enum, Some(format!(".{PACKAGE}.{of}.{}.Enum", camel(name)))),
    };
    let presence = !list && kind != Type::Message;
    let oneof_index = presence.then(|| {
        message.oneof_decl.push(OneofDescriptorProto { name: Some(format!("_{name}")), options: None });
        message.oneof_decl.len() as i32 - 1
    });
    message.field.push(FieldDescriptorProto {
        name: Some(name.into()),
        number: Some(number),
        label: Some(if list { Label::Repeated } else { Label::Optional }.into()),
        r#type: Some(kind.into()),
        type_name,
        oneof_index,
        proto3_optional: presence.then_some(true),
        ..FieldDescriptorProto::default()
    });
}

/// Adds a field of an enumeration, and the enumeration.
fn add_enum(message: &mut DescriptorProto, name: &str, number: i32, values: &[(&str, i32)], list: bool) {
    let value = |&(name, number): &(&str, i32)| EnumValueDescriptorProto {
        name: Some(name.into()),
        number: Some(number),
        options: None,
    };
    message.nested_type.push(DescriptorProto {
        name: Some(camel(name)),
        enum_type: vec![EnumDescriptorProto {
            name: Some("Enum".into()),
            value: [("unspecified", 0)].iter().chain(values).map(value).collect(),
            ..EnumDescriptorProto::default()
        }],
        ..DescriptorProto::default()
    });
    let of = message.name().to_string();
    add(message, name, number, Kind::Enum(of), list);
}

fn new_message(name: String) -> DescriptorProto {
    DescriptorProto { name: Some(name), ..DescriptorProto::default() }
}

fn scalar(name: &str) -> Option<Type> {
    Some(match name {
        "string" => Type::String,
        "bool" => Type::Bool,
        "u32" => Type::Uint32,
        "u64" => Type::Uint64,
        "i32" => Type::Int32,
        "float" => Type::Float,
        "double" => Type::Double,
        _ => return None,
    })
}

fn named(name: &str) -> Kind {
    scalar(name).map_or_else(|| Kind::Message(name.into()), Kind::Scalar)
}

/// Words and single punctuation characters of a table, without its comments.
fn tokens(table: &'static str) -> impl Iterator<Item = &'static str> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    table.lines().map(|line| line.split('#').next().unwrap_or("")).flat_map(move |mut rest| {
        std::iter::from_fn(move || {
            rest = rest.trim_start();
            let end = match rest.find(|c| !word(c)) {
                _ if rest.is_empty() => return None,
                Some(0) => 1,
                Some(end) => end,
                None => rest.len(),
            };
            let (token, behind) = rest.split_at(end);
            rest = behind;
            Some(token)
        })
    })
}

/// Messages so far, and the fields without a type.
#[derive(Default)]
struct Builder {
    messages: Vec<DescriptorProto>,
    unsupported: HashMap<&'static str, Vec<(u32, &'static str)>>,
}

impl Builder {
    fn table(&mut self, table: &'static str) {
        let mut tokens = tokens(table).peekable();
        let mut next = tokens.next();
        while let Some(name) = next {
            expect(&mut tokens, ":");
            let mut message = new_message(name.into());
            next = tokens.next();
            // The word after the fields of a message is the name of the next message.
            while let Some(field) = next.filter(|_| tokens.peek() == Some(&"=")) {
                expect(&mut tokens, "=");
                let number = tokens.next().and_then(|number| number.parse().ok());
                let number = number.unwrap_or_else(|| panic!("{name}.{field} has no number"));
                self.field(&mut message, name, field, number, &mut tokens);
                tokens.next_if_eq(&",");
                next = tokens.next();
            }
            self.messages.push(message);
        }
    }

    fn field(
        &mut self,
        message: &mut DescriptorProto,
        of: &'static str,
        name: &'static str,
        number: i32,
        tokens: &mut Peekable<impl Iterator<Item = &'static str>>,
    ) {
        let list = tokens.next_if_eq(&"[").is_some();
        match tokens.next() {
            Some("unsupported") => self.unsupported.entry(of).or_default().push((number as u32, name)),
            Some("{") => {
                let values: Vec<_> = tokens.by_ref().take_while(|&token| token != "}").zip(1..).collect();
                add_enum(message, name, number, &values, list);
            }
            Some("checksum") => {
                let pattern = format!("Pattern{of}{}", camel(name));
                self.checksum(pattern.clone());
                add(message, name, number, Kind::Message(pattern), list);
            }
            Some("pattern") => {
                let pattern = format!("Pattern{of}{}", camel(name));
                expect(tokens, "(");
                let options: Vec<_> = tokens.by_ref().take_while(|&token| token != ")").collect();
                self.pattern(&pattern, &options);
                add(message, name, number, Kind::Message(pattern), list);
            }
            Some(kind) => add(message, name, number, named(kind), list),
            None => panic!("{of}.{name} has no type"),
        }
        if list {
            expect(tokens, "]");
        }
    }

    /// A checksum: generated well or badly, or this number.
    fn checksum(&mut self, name: String) {
        let mut message = new_message(name);
        add_enum(&mut message, "choice", 1, &[("generated", 1), ("custom", 2)], false);
        add_enum(&mut message, "generated", 2, &[("good", 1), ("bad", 2)], false);
        add(&mut message, "custom", 3, Kind::Scalar(Type::Uint32), false);
        self.messages.push(message);
    }

    /// Values of a header field, with the messages for its counters, tags and ranges.
    fn pattern(&mut self, name: &str, options: &[&str]) {
        let (kind, options) = options.split_first().expect("a pattern has a type");
        let kind = named(kind);
        // Counts and positions of 64-bit fields are as wide as their values.
        let count = match kind {
            Kind::Scalar(Type::Uint64) => kind.clone(),
            _ => Kind::Scalar(Type::Uint32),
        };
        let random = options.contains(&"random");
        let auto = options.iter().position(|&option| option == "auto").map(|at| match options.get(at + 1..at + 3) {
            Some(&[":", other]) => Some(named(other)),
            _ => None,
        });

        let mut choices = vec![("value", 2), ("values", 3), ("increment", 4), ("decrement", 5)];
        choices.extend(auto.is_some().then_some(("auto", 1)));
        choices.extend(random.then_some(("random", 6)));
        let mut message = new_message(name.into());
        add_enum(&mut message, "choice", 1, &choices, false);
        add(&mut message, "value", 2, kind.clone(), false);
        add(&mut message, "values", 3, kind.clone(), true);
        let mut number = 5;
        if let Some(None) = auto {
            add(&mut message, "auto", 4, kind.clone(), false);
            number = 6;
        }
        let mut behind = |field: &str, kind: Kind, list: bool| {
            add(&mut message, field, number, kind, list);
            number += 1;
        };
        behind("increment", Kind::Message(format!("{name}Counter")), false);
        behind("decrement", Kind::Message(format!("{name}Counter")), false);
        behind("metric_tags", Kind::Message(format!("{name}MetricTag")), true);
        if let Some(Some(auto)) = auto {
            behind("auto", auto, false);
        }
        if random {
            behind("random", Kind::Message(format!("{name}Random")), false);
        }
        self.messages.push(message);

        let text = Kind::Scalar(Type::String);
        self.parts(name, "Counter", &[("start", &kind), ("step", &kind), ("count", &count)]);
        self.parts(name, "MetricTag", &[("name", &text), ("offset", &count), ("length", &count)]);
        if random {
            self.parts(name, "Random", &[("min", &kind), ("max", &kind), ("seed", &count), ("count", &count)]);
        }
    }

    fn parts(&mut self, pattern: &str, suffix: &str, fields: &[(&str, &Kind)]) {
        let mut message = new_message(format!("{pattern}{suffix}"));
        for (number, &(name, kind)) in (1..).zip(fields) {
            add(&mut message, name, number, kind.clone(), false);
        }
        self.messages.push(message);
    }
}

fn expect(tokens: &mut impl Iterator<Item = &'static str>, sign: &str) {
    let found = tokens.next();
    assert_eq!(found, Some(sign), "sign in a table");
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_reflect::Kind as Is;

    #[test]
    fn the_tables_become_messages() {
        assert_eq!(TABLES.map(|table| table.lines().filter(|line| line.contains('\t')).count()), [0; 10]);
        let flow = message("Flow");
        assert!(flow.get_field_by_name("packet").unwrap().is_list());
        let rate = message("FlowRate").get_field(1).unwrap();
        let Is::Enum(choice) = rate.kind() else { panic!("{rate:?}") };
        assert_eq!(choice.get_value_by_name("percentage").unwrap().number(), 6);
        assert_eq!(choice.default_value().name(), "unspecified");
        assert!(rate.supports_presence());
        assert_eq!(message("FlowRxTxRatioRxCount").fields().len(), 0);
    }

    #[test]
    fn patterns_have_the_numbers_of_their_shape() {
        let numbers = |name: &str| {
            let mut all: Vec<_> =
                message(name).fields().map(|field| (field.number(), field.name().to_string())).collect();
            all.sort();
            all.into_iter().map(|(number, name)| format!("{name}={number}")).collect::<Vec<_>>().join(" ")
        };
        let plain = "choice=1 value=2 values=3 increment=5 decrement=6 metric_tags=7";
        assert_eq!(numbers("PatternFlowVlanId"), plain);
        assert_eq!(numbers("PatternFlowTcpSrcPort"), format!("{plain} random=8"));
        assert_eq!(numbers("PatternFlowIpv4Src"), format!("{plain} auto=8 random=9"));
        assert_eq!(numbers("PatternFlowGreProtocol"), format!("{plain} auto=8"));
        assert_eq!(
            numbers("PatternFlowEthernetDst"),
            "choice=1 value=2 values=3 auto=4 increment=6 decrement=7 metric_tags=8"
        );
        assert_eq!(numbers("PatternFlowUdpChecksum"), "choice=1 generated=2 custom=3");
    }

    #[test]
    fn fields_without_support_have_a_name() {
        let header = message("FlowHeader");
        assert_eq!(unsupported(&header, 23), Some("macsec"));
        assert_eq!(unsupported(&header, 6), None);
        assert_eq!(unsupported(&header, 99), None);
        assert!(header.get_field(23).is_none());
    }
}
