//! The JSON Schema (draft 2020-12) of suite files, for editors, created from the registry. It is less strict than
//! [`crate::read::read`], which also checks that the parts of a suite agree.

use super::addresses::{DEFAULT_DESTINATIONS, MAX_DESTINATIONS, MAX_PORTS};
use super::port_list::{
    DEFAULT_MTU, FIRST_LABEL, MAX_ID, MAX_MTU, MAX_VLANS, MEDIA, MIN_MTU_IPV4, MOST_ENTRIES, MOST_OUT, TPIDS,
};
use super::read::{KEYS, MAX_TITLE};
use super::{about, digest, include, published, test_list};
use drophammer_model::classes::{MOST_CLASSES, MOST_WEIGHT};
use drophammer_model::label_edge::{CoreProtocol, MOST_CUSTOMERS};
use drophammer_model::param::ChoiceWord;
use drophammer_model::registry::{FigureShape, KindSpec, ParamKind, ParamSpec, Registry, TestSpec};
use drophammer_model::size::{MAX_FRAME, MIN_FRAME};
use drophammer_model::suite::{DEFAULT_INPUT_QUEUE, DEFAULT_SEED, MAX_INPUT_QUEUE, MAX_ROUNDS};
use serde_json::{Map, Value, json};

/// The schema of suites that can use the tests and kinds of `registry`.
pub fn schema(registry: &Registry) -> Value {
    let properties: Map<String, Value> = KEYS.iter().map(|key| ((*key).to_owned(), section(key, registry))).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Drophammer suite",
        "description": "Routers, ports and tests of a run.",
        "type": "object",
        // An included file may have the required keys.
        "anyOf": [{ "required": ["include"] }, { "required": ["suite", "duts", "ports", "tests"] }],
        "additionalProperties": false,
        "properties": properties,
    })
}

fn section(key: &str, registry: &Registry) -> Value {
    match key {
        "suite" => json!({
            "description": "Name of the suite: letters, digits, dashes.",
            "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9-]{0,63}$",
        }),
        "title" => json!({ "description": "One line for the report.", "type": "string", "maxLength": MAX_TITLE }),
        "include" => {
            let file = json!({ "type": "string", "minLength": 1 });
            json!({
                "description": "Files with more keys, in the folder of the suite or below it. Keys of this file win.",
                "oneOf": [file, { "type": "array", "minItems": 1, "maxItems": include::MOST, "items": file }],
            })
        }
        "about" => {
            let named = format!("^.{{1,{}}}$", about::LONGEST_KEY);
            let fact = json!({ "type": ["string", "number", "boolean"], "maxLength": about::LONGEST_VALUE });
            let facts = json!({
                "description": "Facts about the DUT of this name.",
                "type": "object", "additionalProperties": false, "patternProperties": { named: fact },
            });
            json!({
                "description": "Facts for the head of the report, such as the person and the place; a map under the name of a DUT has facts about it, such as its serial number.",
                "type": "object", "additionalProperties": false, "patternProperties": { "^.{1,64}$": { "oneOf": [fact, facts] } },
            })
        }
        "published" => published::schema(),
        "digest" => digest::schema(),
        "baseline" => json!({
            "description": "Folder of an earlier run, relative to the folder of the suite. Bounds such as `>= 95 % of baseline` are shares of its figures.",
            "type": "string", "minLength": 1, "examples": ["results/last-release"],
        }),
        "profile" => json!({
            "description": "Durations and repetitions: `quick` takes seconds per trial and does not conform; `conformant` \
                            takes the values of the RFCs.",
            "enum": ["quick", "conformant"], "default": "quick",
        }),
        "rounds" => json!({
            "description": "How often each DUT is brought up and runs all tests. Ranks and intervals come from the rounds. Default: 1 for one DUT; 6 for several, or 10 with the profile `conformant`.",
            "type": "integer", "minimum": 1, "maximum": MAX_ROUNDS,
        }),
        "input_queue" => json!({
            "description": "Frames that wait in front of a router in a namespace while the ring of its link (256 frames) is full. \
                            0 for the ring alone. Needs Linux 6.16.",
            "type": "integer", "minimum": 0, "maximum": MAX_INPUT_QUEUE,
            "default": DEFAULT_INPUT_QUEUE,
        }),
        "variables" => json!({
            "description": "Values by name: `${name}` stands for the value anywhere in the suite. `--var name=value` overrides it.",
            "type": "object", "patternProperties": { "^[A-Za-z0-9_-]{1,64}$": {} }, "additionalProperties": false,
        }),
        "seed" => json!({
            "description": "Seed of every pseudo-random choice.",
            "type": "integer", "minimum": 0, "default": DEFAULT_SEED,
        }),
        "duts" => json!({
            "description": "Routers under test.",
            "type": "array", "minItems": 1, "items": { "oneOf": registry.kinds.iter().map(|k| dut(k)).collect::<Vec<_>>() },
        }),
        "ports" => json!({
            "description": "Ports of the tester, in pairs. Port i of the tester faces port i of the DUT.",
            "type": "array", "minItems": 1, "maxItems": MAX_PORTS, "items": port(),
        }),
        "bgp" => bgp(),
        "flows" => json!({
            "description": "Flows that the suite defines, for the test `fixed_rate`.",
            "type": "array", "minItems": 1, "items": flow(),
        }),
        "defaults" => defaults(registry),
        "tests" => json!({
            "description": "Tests, in the order in which they run.",
            "type": "array", "minItems": 1, "items": { "oneOf": tests(registry) },
        }),
        _ => json!({
            "description": "Permit public addresses (RFC 6815). Only in an isolated laboratory.",
            "type": "boolean", "default": false,
        }),
    }
}

fn name() -> Value {
    json!({
        "description": "Name in the report, in files and in columns.",
        "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
    })
}

fn dut(kind: &KindSpec) -> Value {
    let mut properties = Map::new();
    properties.insert("name".into(), name());
    properties.insert("kind".into(), json!({ "const": kind.name, "description": kind.summary }));
    if kind.capabilities.systems {
        properties.insert(super::dut_list::TOPOLOGY.into(), super::dut_topology::schema());
    }
    properties.extend(params(kind.params));
    let required = kind.params.iter().filter(|p| p.required).map(|p| p.key);
    let required: Vec<_> = ["name", "kind"].into_iter().chain(required).collect();
    json!({
        "title": kind.name, "description": kind.summary,
        "type": "object", "required": required, "additionalProperties": false, "properties": properties,
    })
}

fn port() -> Value {
    json!({
        "type": "object",
        "required": ["name", "speed"],
        "additionalProperties": false,
        "properties": {
            "name": name(),
            "speed": speed("Line speed, on which theoretical rates and loads in per cent are based (RFC 2544 Appendix B).", "10 Gbit/s"),
            "medium": {
                "description": "Framing of the line: Ethernet, or PPP over SONET with an FCS of 32 or 16 bits (RFC 2615).",
                "enum": MEDIA, "default": "ethernet",
            },
            "mtu": {
                "description": "MTU: bytes of an IP packet; at least 1280 with IPv6.",
                "type": "integer", "minimum": MIN_MTU_IPV4, "maximum": MAX_MTU, "default": DEFAULT_MTU,
            },
            "ipv4": family("IPv4", "198.18.1.1/24", "198.18.1.2", "198.18.64.0/18"),
            "ipv6": family("IPv6", "2001:2:0:1::1/64", "2001:2:0:1::2", "2001:2:0:4000::/50"),
            "vlans": {
                "description": "VLAN sub-interfaces of the DUT's port; the first 16 have default addresses.",
                "type": "array", "maxItems": MAX_VLANS, "items": vlan(),
            },
            "labels": {
                "description": "Static label entries of the DUT for packets that leave by this port.",
                "type": "array", "minItems": 1, "maxItems": MOST_ENTRIES, "items": label_entry(),
            },
            "core": {
                "description": "Protocols with an emulated P router behind the port, and a PE router behind that one.",
                "type": "array", "minItems": 1, "items": { "enum": CoreProtocol::WORDS },
            },
            "customers": {
                "description": "VRFs of the DUT's port, each on a VLAN from 101 on, with an emulated CE router.",
                "oneOf": [
                    { "type": "integer", "minimum": 1, "maximum": MOST_CUSTOMERS },
                    {
                        "type": "object", "required": ["count"], "additionalProperties": false,
                        "properties": {
                            "count": { "description": "Number of VRFs.", "type": "integer", "minimum": 1, "maximum": MOST_CUSTOMERS },
                            "bfd": {
                                "description": "Each CE router has a BFD session with the DUT (RFC 5881).",
                                "type": "boolean", "default": false,
                            },
                            "ipv6": { "description": "The VRFs have IPv6 too, if the port has it.", "type": "boolean", "default": true },
                        },
                    },
                ],
            },
            "sites_of": {
                "description": "Name of another customer port: the CE routers of this port are further sites of its VRFs.",
                "type": "string",
            },
        },
    })
}

/// Classes of service.
fn classes() -> Value {
    json!({
        "type": "array", "minItems": 2, "maxItems": MOST_CLASSES,
        "items": {
            "type": "object", "required": ["name", "weight"], "additionalProperties": false,
            "properties": {
                "name": { "type": "string", "pattern": "^[A-Za-z0-9-]{1,32}$" },
                "precedence": { "description": "IP precedence of its packets.", "type": "integer", "minimum": 0, "maximum": 7 },
                "dscp": {
                    "description": "Codepoint of its packets, a number or a name, instead of a precedence.",
                    "type": ["integer", "string"], "minimum": 0, "maximum": 63, "examples": ["ef", "af41", 46],
                },
                "weight": {
                    "description": "Its share of an overloaded output port, relative to the other classes.",
                    "type": "integer", "minimum": 1, "maximum": MOST_WEIGHT,
                },
            },
        },
    })
}

fn label_entry() -> Value {
    let label = json!({ "type": "integer", "minimum": FIRST_LABEL, "maximum": 0xf_ffff });
    let mut incoming = label.clone();
    incoming["description"] = json!("Outermost label of packets that arrive at the DUT.");
    json!({
        "type": "object",
        "anyOf": [{ "required": ["label"] }, { "required": ["to", "out"] }],
        "additionalProperties": false,
        "properties": {
            "label": incoming,
            "to": {
                "description": "Instead of `label`: a network; packets to it leave with the labels of `out`.",
                "type": "string", "examples": ["10.99.0.0/24"],
            },
            "out": {
                "description": "Labels that replace it, the outermost first; default: none, the label is removed.",
                "type": "array", "maxItems": MOST_OUT, "items": label,
            },
        },
    })
}

fn vlan() -> Value {
    let id = json!({ "type": "integer", "minimum": 1, "maximum": MAX_ID });
    let tpids: Vec<_> = TPIDS.iter().map(|(text, _)| *text).collect();
    json!({
        "type": "object",
        "required": ["id"],
        "additionalProperties": false,
        "properties": {
            "id": {
                "description": "VLAN identifier, or two: outer tag, inner tag.",
                "oneOf": [id, { "type": "array", "minItems": 1, "maxItems": 2, "items": id }],
            },
            "tpid": {
                "description": "EtherType of the tag, or of the outer one of two; default: 0x8100 for one tag, 0x88a8 for two.",
                "enum": tpids,
            },
            "ipv4": family("IPv4", "198.18.16.1/27", "198.18.16.2", "198.18.32.0/26"),
            "ipv6": family("IPv6", "2001:2:0:100::1/64", "2001:2:0:100::2", "2001:2:0:200::/64"),
        },
    })
}

fn family(family: &str, dut: &str, host: &str, behind: &str) -> Value {
    let text = |description: &str, example: &str| json!({ "description": description, "type": "string", "examples": [example] });
    json!({
        "description": format!("{family} addresses; `off` for none; default: addresses of the block for benchmarks."),
        "oneOf": [
            { "const": "off" },
            { "type": "null" },
            {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "dut": text("Address of the DUT on this port, with the length of the prefix.", dut),
                    "host": text("Address of the tester's emulated router, the next hop to the network behind the port.", host),
                    "behind": text("Prefix behind the emulated router, to which the DUT gets a route.", behind),
                    "destinations": {
                        "description": "Number of test addresses within `behind` (RFC 2544 section 12: 256 networks).",
                        "type": ["integer", "string"], "minimum": 1, "maximum": MAX_DESTINATIONS, "default": DEFAULT_DESTINATIONS,
                    },
                },
            },
        ],
    })
}

fn flow() -> Value {
    let text = |description: &str, example: &str| json!({ "description": description, "type": "string", "examples": [example] });
    let addresses = |end: &str| {
        json!({
            "description": format!("{end} of the outermost IP header: an address, or `start`, `step` and `count`; default: the test \
                                    addresses of the port."),
            "oneOf": [
                { "type": "string" },
                {
                    "type": "object", "required": ["start", "count"], "additionalProperties": false,
                    "properties": {
                        "start": { "type": "string" },
                        "step": { "type": "integer", "minimum": 0, "default": 1 },
                        "count": count(1, Some(1_000_000)),
                    },
                },
            ],
        })
    };
    json!({
        "type": "object",
        "required": ["name", "from", "to", "size", "rate"],
        "additionalProperties": false,
        "properties": {
            "name": name(),
            "from": text("Port that sends, or its VLAN sub-interface.", "p1.100"),
            "to": text("Port at which frames must arrive, or its VLAN sub-interface.", "p2"),
            "family": { "description": "IP version, if no header states it.", "enum": ["ipv4", "ipv6"], "default": "ipv4" },
            "headers": {
                "description": "Headers, the outermost first: ethernet, vlan, mpls, ipv4, ipv6, gre, udp, tcp, icmp_echo, raw. \
                                Default: Ethernet, IP and UDP.",
                "type": "array", "items": { "type": ["object", "string"] },
            },
            "source": addresses("Source"),
            "destination": addresses("Destination"),
            "size": { "description": "Frame size with FCS, `ip40`, or a mix.", "type": ["integer", "string"], "examples": [128, "imix"] },
            "rate": {
                "description": "Frames per second, bits per second (layer 2), or a share of the line.",
                "type": ["string", "number"], "examples": ["10 kfps", "10k", 10_000, "100 Mbit/s", "5 %"],
            },
            "start": text("First departure after the start of the trial.", "1 s"),
            "duration": text("How long the flow sends; default: the whole trial.", "5 s"),
            "frames": { "description": "Number of frames that the flow sends.", "type": ["integer", "string"], "minimum": 1 },
            "arrives": {
                "description": "How frames must arrive: vlans, labels, tunnel, dscp, ecn, ttl.", "type": "object",
            },
            "observe": { "type": "array", "items": { "enum": ["destinations"] } },
        },
    })
}

fn bgp() -> Value {
    json!({
        "description": "BGP between the DUT and emulated routers on every port (RFC 4271), with a separate AS for each port.",
        "type": ["object", "null"], "additionalProperties": false, "properties": params(&super::bgp::PARAMS),
    })
}

fn tests(registry: &Registry) -> Vec<Value> {
    let names: Vec<_> = registry.tests.iter().map(|t| t.name).collect();
    let with = |test: &&TestSpec| {
        let properties = json!({ test.name: parameters(test) });
        json!({ "type": "object", "required": [test.name], "additionalProperties": false, "properties": properties })
    };
    let bare = json!({ "description": "A test with its default parameters.", "enum": names });
    std::iter::once(bare).chain(registry.tests.iter().map(with)).collect()
}

fn parameters(test: &TestSpec) -> Value {
    let mut properties = params(test.params);
    properties.insert(
        test_list::ID.into(),
        json!({
            "description": "Distinguishes this test from other tests of the same name, for `--test` and `--set`.",
            "type": ["string", "number", "boolean"], "pattern": format!("^[a-z0-9_-]{{1,{}}}$", test_list::LONGEST_ID),
        }),
    );
    properties.insert(
        test_list::DUTS.into(),
        json!({
            "description": "Names of the only DUTs that the test runs on; default: all.",
            "type": "array", "minItems": 1, "items": { "type": "string" },
        }),
    );
    let mut figures = Map::new();
    for figure in test.figures {
        figures.insert(figure_pattern(figure), criterion(figure.help));
    }
    for table in test.tables {
        let columns: Vec<&str> = table.numbers().collect();
        if columns.is_empty() {
            continue;
        }
        let of_table = criterion(&format!("Cells of the table {}.", table.key));
        figures.insert(format!("^ *{} *(\\[.+\\])? *\\. *({}) *$", table.key, columns.join("|")), of_table);
    }
    properties.insert(
        "expect".into(),
        json!({
            "description": "Criteria for pass or fail: a bound for each figure, or for cells of a table.",
            "type": ["object", "null"], "additionalProperties": false, "patternProperties": figures,
        }),
    );
    json!({
        "title": test.title, "description": format!("{} ({})", test.summary, test.source),
        "type": ["object", "null"], "additionalProperties": false, "properties": properties,
    })
}

/// A bound, or one for each of several DUTs.
fn criterion(about: &str) -> Value {
    let bound = json!({
        "description": about, "type": "string",
        "pattern": format!("^ *[<>]= *{NUMBER}( *[A-Za-zµ%]+| *% *of baseline)? *$"),
        "examples": [">= 100 kfps", "<= 500 us", ">= 95 % of baseline"],
    });
    let by_dut =
        json!({ "description": "Bounds by DUT.", "type": "object", "minProperties": 1, "additionalProperties": bound });
    json!({ "description": about, "anyOf": [bound, by_dut] })
}

/// `throughput_{size}_pps` as the regular expression `^throughput_.+_pps$`.
fn figure_pattern(figure: &FigureShape) -> String {
    let mut pattern = String::from("^");
    let mut rest = figure.key;
    while let Some((literal, tail)) = rest.split_once('{') {
        pattern += &format!("{}.+", literal.replace('.', "\\."));
        rest = tail.split_once('}').map_or("", |(_, tail)| tail);
    }
    format!("{pattern}{}$", rest.replace('.', "\\."))
}

fn params(params: &[ParamSpec]) -> Map<String, Value> {
    params.iter().map(|param| (param.key.to_owned(), param_schema(param))).collect()
}

/// The keys that at least one test accepts. If tests read a key differently, each of the forms is valid.
fn defaults(registry: &Registry) -> Value {
    let mut forms: Map<String, Value> = Map::new();
    for param in registry.tests.iter().flat_map(|t| t.params) {
        let schema = param_schema(param);
        let known = forms.entry(param.key).or_insert_with(|| json!({ "anyOf": [] }));
        if let Value::Array(forms) = &mut known["anyOf"]
            && !forms.contains(&schema)
        {
            forms.push(schema);
        }
    }
    json!({
        "description": "Parameters for every test that has them.",
        "type": ["object", "null"], "additionalProperties": false, "properties": forms,
    })
}

fn param_schema(param: &ParamSpec) -> Value {
    let mut schema = kind_schema(param.kind);
    if param.most < u64::MAX {
        let numbers = if param.kind == ParamKind::Counts { &mut schema["items"] } else { &mut schema };
        numbers["maximum"] = json!(param.most);
    }
    let mut description = param.help.to_owned();
    if let (Some(quick), Some(conformant)) = (param.quick, param.conformant) {
        description += &match quick == conformant {
            true => format!("; default: {quick}"),
            false => format!("; default: {quick} (quick), {conformant} (conformant)"),
        };
    }
    schema["description"] = json!(description);
    schema
}

fn kind_schema(kind: ParamKind) -> Value {
    let list = |items: Value| json!({ "type": "array", "minItems": 1, "uniqueItems": true, "items": items });
    let size = || {
        json!({
            "oneOf": [
                { "type": "integer", "minimum": MIN_FRAME, "maximum": MAX_FRAME },
                { "type": "string", "pattern": "^([0-9]+|ip[0-9]+|imix|imix-2001|imix:.+)$" },
            ],
        })
    };
    match kind {
        ParamKind::Sizes => list(size()),
        ParamKind::Size => size(),
        ParamKind::Percents => list(percent(json!({ "exclusiveMinimum": 0, "maximum": 100 }))),
        ParamKind::Percent => percent(json!({ "minimum": 0, "maximum": 100 })),
        ParamKind::Duration => json!({
            "type": "string", "examples": ["60 s"],
            "pattern": format!("^ *{NUMBER} *(s|secs?|seconds?|ms(ec)?|us(ec)?|µs|ns(ec)?|m|mins?|minutes?|h|hr|hours?) *$"),
        }),
        ParamKind::Count => count(1, None),
        ParamKind::Counts => list(count(1, None)),
        ParamKind::CountOr(word) => json!({ "oneOf": [
            { "type": "integer", "minimum": 1, "maximum": u16::MAX }, { "enum": [word] }, { "pattern": "^[1-9][0-9]{0,4}$" },
        ] }),
        ParamKind::Rate => json!({
            "type": ["string", "number"], "exclusiveMinimum": 0, "examples": ["100 kfps", "100k", 100_000],
            "pattern": format!("^ *{NUMBER} *([kK]|[kKmMgG]?([fFpP][pP][sS]|frames/s|packets/s))? *$"),
        }),
        ParamKind::Speed => speed("Speed of a line.", "100 Mbit/s"),
        ParamKind::Classes => classes(),
        ParamKind::CoreLinks => json!({ "oneOf": [
            { "type": "integer", "minimum": 0 }, list(json!({ "type": "string", "pattern": "^[1-9][0-9]?-[1-9][0-9]?$" })),
        ] }),
        ParamKind::Flag => json!({ "type": "boolean" }),
        ParamKind::Families => list(json!({ "enum": ["ipv4", "ipv6"] })),
        ParamKind::Choice(words) => json!({ "enum": words }),
        ParamKind::Choices(words) => list(json!({ "enum": words })),
        ParamKind::Text => json!({ "type": ["string", "number", "boolean"] }),
        ParamKind::Command | ParamKind::File => json!({ "type": "string", "minLength": 1 }),
        ParamKind::Ports | ParamKind::Flows => list(name()),
        ParamKind::Interfaces => list(json!({ "type": "string", "pattern": "^([A-Za-z0-9-]{1,63}/)?[^\\s/:]{1,15}$" })),
        ParamKind::DutInterfaces => list(json!({ "type": ["string", "number"] })),
    }
}

/// A decimal number, with digits grouped by commas or underscores.
const NUMBER: &str = "[0-9]+([,_][0-9]{3})*(\\.[0-9]+)?";

/// The schema of a line speed.
pub(super) fn speed(description: &str, example: &str) -> Value {
    json!({
        "description": description,
        "type": "string",
        "pattern": format!("^ *{NUMBER} *([kKmMgGtT] *((bits?/s|bps|b/s|bit|b|BPS))?|bits?/s|bps|b/s|bit) *$"),
        "examples": [example],
    })
}

/// A whole number, also written as `1k` or `1,000`. The limits apply only to plain digits.
fn count(least: u64, most: Option<u64>) -> Value {
    let mut number =
        json!({ "type": ["integer", "string"], "minimum": least, "pattern": format!("^{NUMBER} *[kKmMgGtT]?$") });
    if let Some(most) = most {
        number["maximum"] = json!(most);
    }
    number
}

/// A percentage with or without its sign.
fn percent(mut limits: Value) -> Value {
    limits["type"] = json!(["number", "string"]);
    limits["pattern"] = json!(format!("^ *{NUMBER} *%? *$"));
    limits
}
