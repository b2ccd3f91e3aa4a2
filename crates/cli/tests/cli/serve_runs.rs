//! Runs of suites that clients of `drophammer serve` start, with clients that speak HTTP by hand in a network namespace.

use crate::common::{MACHINE, NETWORK, Ran, kind_of, records, refused, run, shell, suite};
use crate::own_interfaces;
use serde_json::Value;

const DUT: &str = "  - {name: known, kind: reference, capacity: 100 kfps}\n";
const SHORT: &str = "  - forwarding_rate: {repeats: 2}\n";
/// Takes far longer than the test that stops it.
const LONG: &str = "  - forwarding_rate: {repeats: 200, trial_duration: 5 s}\n";

/// A server with `answer METHOD PATH [HEADERS [BODY]]`, which prints status and body on one line, and `get PATH [HEADERS]`, which
/// prints the body until the server ends it. HTTP/1.0, so that bodies have no chunks.
const SERVER: &str = r#"
set -eu
ip link set lo up
BASE=/x-drophammer/run
YAML='Content-Type: application/yaml\r\n' JSON='Content-Type: application/json\r\n'
serve() {
    # The background process makes a new one, perhaps later than the first look at it.
    rm -f served
    $D serve --http --listen 127.0.0.1:0 --grpc 127.0.0.1:0 --runs results "$@" > served 2> said & SERVER=$!
    trap 'kill -9 $SERVER 2> /dev/null || :' EXIT
    until grep -qs :// served; do kill -0 $SERVER; sleep 0.02; done
    PORT=$(grep -o '127.0.0.1:[0-9]*' served | head -1 | cut -d: -f2)
}
ask() {
    exec 3<>/dev/tcp/127.0.0.1/$PORT
    printf "%s %s HTTP/1.0\r\nHost: %s\r\nContent-Length: %s\r\n${3-}\r\n%s" "$1" "$2" "${HOST-127.0.0.1:$PORT}" "${LENGTH-$(printf %s "${4-}" | wc -c)}" "${4-}" >&3
    cat <&3
    exec 3<&-
}
answer() {
    ask "$@" > got
    printf '%s ' $(head -1 got | cut -d' ' -f2)
    sed '1,/^\r$/d' got | tr -d '\n'
    echo
}
get() { ask GET "$@" | sed '1,/^\r$/d'; }
start() { answer POST $BASE "$@" | tee started; ID=$(grep -o '"id":"[^"]*"' started | cut -d'"' -f4); }
finish() { kill -INT $SERVER; wait $SERVER || echo $? > exit; }
"#;

/// Runs a script beside a short and a long suite; returns what `answer` has printed: status and body.
fn script(body: &str) -> (Ran, Vec<(u16, Value)>) {
    let folder = tempfile::tempdir().unwrap();
    for (name, tests) in [("long", LONG), ("short", SHORT)] {
        std::fs::rename(suite(folder.path(), DUT, tests), folder.path().join(name)).unwrap();
    }
    let ran = Ran::script_in(NETWORK, folder, &format!("{SERVER}{body}"));
    assert_eq!((ran.read("exit"), ran.read("said")), (String::new(), String::new()));
    let answers = ran.printed.lines().filter_map(|line| {
        let (status, body) = line.split_once(' ')?;
        Some((status.parse().ok()?, serde_json::from_str(body).unwrap_or(Value::Null)))
    });
    let answers = answers.collect();
    (ran, answers)
}

/// The reasons of a refusal on one line, as people read them.
fn told(answer: &Value) -> String {
    let errors = answer["errors"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let text = |error: &Value| {
        let part = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        let place = match &error["line"] {
            Value::Null => String::new(),
            line => format!("{}:{line}:{}: ", part("file"), error["column"]),
        };
        format!("{place}{}; {}", error["message"].as_str().unwrap_or_else(|| panic!("{answer}")), part("remedy"))
    };
    errors.iter().map(text).collect::<Vec<_>>().join(" ")
}

/// The events of a stream: (id, event, data).
fn events(stream: &str) -> Vec<(u64, String, Value)> {
    let field = |event: &str, name: &str| {
        let line = event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("{name}: {event}")).to_owned()
    };
    let events = stream.split("\n\n").filter(|event| event.contains("data: "));
    let event = |event: &str| {
        let data = serde_json::from_str(&field(event, "data")).unwrap();
        (field(event, "id").parse().unwrap(), field(event, "event"), data)
    };
    events.map(event).collect()
}

#[test]
fn a_suite_runs_and_tells_its_events_figures_and_report() {
    let body = r#"
serve
start "$YAML" "$(cat short)"
get $BASE/$ID/events > all
get $BASE/$ID/events 'Last-Event-ID: 2\r\n' > rest
LAST=$(grep -c '^id: ' all)
answer GET $BASE/$ID/events "Last-Event-ID: $LAST\r\n"
answer GET $BASE/$ID/events "Last-Event-ID: $((LAST + 1))\r\n"
answer GET $BASE/$ID
get $BASE/$ID/report.html > report.html
get $BASE/$ID/run.jsonl > record
ask GET $BASE/$ID/report.html | sed '/^\r$/q' > headers
answer DELETE $BASE/$ID
suite=$(sed 's/"/\\"/g; s/$/\\n/' short | tr -d '\n')
start "$JSON" "{\"suite\": \"$suite\", \"dut\": \"known\", \"set\": [\"forwarding_rate.expect={forwarding_rate_64_pps: '>= 200 kfps'}\"]}"
get $BASE/$ID/events | tail -4
answer GET $BASE/$ID
answer GET $BASE
finish
ls results
"#;
    let (ran, answers) = script(body);
    let [started, last, beyond, ended, stopped, second, missed, list] = &answers[..] else { panic!("{answers:#?}") };
    let id = started.1["id"].as_str().unwrap();
    let place = format!("/x-drophammer/run/{id}");
    assert_eq!(
        *started,
        (
            202,
            serde_json::json!({"id": id, "events": format!("{place}/events"), "report": format!("{place}/report.html")})
        )
    );

    let folder = ran.folder.path().join("results").join(id);
    let (records, all) = (records(&folder), events(&ran.read("all")));
    let kinds: Vec<&str> = records.iter().map(kind_of).collect();
    assert_eq!((kinds[0], kinds[kinds.len() - 1]), ("started", "ended"));
    assert_eq!(all.len(), records.len() + 1);
    for (at, (id, event, data)) in all[..records.len()].iter().enumerate() {
        assert_eq!((*id, event.as_str(), data), (at as u64 + 1, kinds[at], &records[at]));
    }
    let good = serde_json::json!({"code": 0, "meaning": "done; all criteria are met"});
    assert_eq!(all[records.len()], (records.len() as u64 + 1, "exit".into(), good.clone()));
    assert_eq!(events(&ran.read("rest")), all[2..]);
    assert_eq!((last.0, beyond.0), (204, 400), "{beyond:?}");
    assert!(told(&beyond.1).contains("there is no event"), "{beyond:?}");

    assert_eq!((&ended.1["state"], &ended.1["exit"]), (&"ended".into(), &good));
    let report: Value = serde_json::from_slice(&std::fs::read(folder.join("report.json")).unwrap()).unwrap();
    assert_eq!((&ended.1["figures"], &ended.1["problems"]), (&report["ranking"]["figures"], &report["problems"]));
    assert_eq!(ended.1["figures"][0]["key"], "forwarding_rate_64_pps", "{ended:?}");
    assert_eq!(ran.read("report.html"), std::fs::read_to_string(folder.join("report.html")).unwrap());
    assert_eq!(ran.read("record"), std::fs::read_to_string(folder.join("run.jsonl")).unwrap());
    let headers = ran.read("headers").to_ascii_lowercase();
    assert!(headers.contains("content-type: text/html") && headers.contains("policy: sandbox"), "{headers}");
    assert_eq!((stopped.0, &stopped.1["state"]), (202, &"ended".into()), "nothing to stop");

    assert_eq!(second.0, 202, "{second:?}");
    let exit = serde_json::json!({"code": 7, "meaning": "a criterion was missed"});
    assert_eq!((missed.0, &missed.1["exit"]), (200, &exit));
    let runs = list.1["runs"].as_array().unwrap();
    assert_eq!(runs.iter().map(|run| &run["exit"]["code"]).collect::<Vec<_>>(), [0, 7], "{list:?}");
    assert!(ran.printed.contains("event: exit\ndata: {\"code\":7"), "{}", ran.printed);
    let command =
        &self::records(&ran.folder.path().join("results").join(second.1["id"].as_str().unwrap()))[0]["command"];
    assert!(command.to_string().contains("--dut=known") && !command.to_string().contains("--served"), "{command}");
}

#[test]
fn runs_are_one_at_a_time_and_end_as_by_ctrl_c_on_request_and_with_the_server() {
    let body = r#"
serve
start "$YAML" "$(cat long)"
first=$ID
answer POST $BASE "$YAML" "$(cat short)"
answer GET $BASE/$first
# A client that goes away does not end the run.
exec 4<>/dev/tcp/127.0.0.1/$PORT
printf 'GET %s/%s/events HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' $BASE $first >&4
until read -r line <&4 && [[ $line == event:* ]]; do :; done
exec 4<&-
answer GET $BASE/$first
get $BASE/$first/events > all & follower=$!
until grep -q started all; do sleep 0.02; done
answer DELETE $BASE/$first
wait $follower
answer GET $BASE/$first
start "$YAML" "$(cat long)"
second=$ID
finish
tail -1 results/$second/process.jsonl
# A server that is killed leaves no run behind.
serve
start "$YAML" "$(cat long)"
kill -9 $SERVER
until grep -q exit results/$ID/process.jsonl; do sleep 0.02; done
tail -1 results/$ID/process.jsonl
echo $first $second $ID > ids
"#;
    let (ran, answers) = script(body);
    let [first, busy, running, goes_on, stopped, ended, second, third] = &answers[..] else { panic!("{answers:#?}") };
    assert_eq!([first.0, busy.0, second.0, third.0], [202, 409, 202, 202], "{answers:#?}");
    let text = told(&busy.1);
    assert!(text.contains("has not ended") && text.contains(first.1["id"].as_str().unwrap()), "{text}");
    for run in [running, goes_on] {
        assert_eq!((run.0, &run.1["state"], &run.1["exit"]), (200, &"running".into(), &Value::Null));
    }
    assert_eq!(stopped.0, 202);
    let exit = serde_json::json!({"code": 130, "meaning": "the run was stopped"});
    assert_eq!(ended.1["exit"], exit);
    assert_eq!(events(&ran.read("all")).last().unwrap().2, exit);
    assert_eq!(ran.printed.matches("{\"exit\":130}").count(), 2, "{}", ran.printed);
    for id in ran.read("ids").split_whitespace() {
        let folder = ran.folder.path().join("results").join(id);
        let last = records(&folder).pop().unwrap();
        assert_eq!((kind_of(&last), &last["interrupted"]), ("ended", &Value::Bool(true)), "{id}");
        assert!(folder.join("report.html").exists(), "what was measured is kept");
    }
}

#[test]
fn what_is_hostile_is_refused_and_leaves_nothing() {
    let body = r#"
mkdir -p results
serve
answer POST $BASE "$YAML" 'suite: [nonsense'
answer POST $BASE "$YAML" ''
answer POST $BASE "$JSON" '{"suite": "x", "out": "/tmp"}'
answer POST $BASE "$JSON" "{\"suite\": \"$(sed 's/"/\\"/g; s/$/\\n/' short | tr -d '\n')\", \"dut\": \"--live=8080\"}"
answer POST $BASE 'Content-Type: text/plain\r\n' "$(cat short)"
LENGTH=9000000 answer POST $BASE "$YAML" ''
# These are refused before their bodies arrive.
answer POST $BASE "${YAML}Origin: http://example.org\r\n"
HOST=example.org answer POST $BASE "$YAML"
answer POST $BASE "$YAML" "$(sed 's/kind: reference.*/kind: frr, config: \/etc\/passwd}/' short)"
answer POST $BASE "$YAML" "$(sed 's/kind: reference.*/kind: external, interfaces: [a, b], setup: touch pwned}/' short)"
answer POST $BASE "$YAML" "include: short
$(cat short)"
answer POST $BASE "$YAML" "$(cat short)
bgp: {md5_env: PATH}"
answer GET $BASE/none
answer GET $BASE/none/events
answer DELETE $BASE/..
answer GET $BASE/none/report.html
ls results > left
start "$YAML" "$(cat short)"
get $BASE/$ID/events > /dev/null
for path in ../../short %2e%2e/%2e%2e/short ..%2f..%2fshort %2fetc%2fpasswd duts none .; do answer GET $BASE/$ID/$path; done
answer GET $BASE/$ID/events 'Last-Event-ID: x\r\n'
ln -s /etc/passwd results/$ID/link
answer GET $BASE/$ID/link
finish
# Files in the folder of --suites are allowed, also by the name of a link to the folder.
mkdir own && echo 'defaults: {repeats: 1}' > own/more.yaml && ln -s own suites && ln -s ../short own/link.yaml
serve --suites suites
start "$YAML" "include: more.yaml
$(grep -v defaults short)"
get $BASE/$ID/events > /dev/null
answer GET $BASE/$ID
answer POST $BASE "$YAML" "include: link.yaml
$(cat short)"
answer POST $BASE "$YAML" "include: ../short
$(cat short)"
finish
"#;
    let (ran, answers) = script(body);
    let expected = [
        (400, "suite.yaml:1:"),
        (400, "empty"),
        (400, "unknown field `out`"),
        (400, "this suite has no such DUT"),
        (415, "application/yaml"),
        (413, "more than 8 MiB"),
        (403, "a page of another site"),
        (403, "not called `example.org`"),
        (400, "without --suites"),
        (400, "it is a command"),
        (400, "without --suites"),
        (400, "`PATH` is a variable of the server"),
        (404, "no run with this id"),
        (404, "no run with this id"),
        (404, "no"),
        (404, "no run with this id"),
    ];
    for (answer, (code, text)) in answers.iter().zip(expected) {
        assert!(answer.0 == code && told(&answer.1).contains(text), "{code} {text}: {answer:?}");
    }
    assert_eq!(ran.read("left"), "", "no folder of a refused run is left");
    let rest = &answers[expected.len()..];
    let codes: Vec<u16> = rest.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [&[202][..], &[404; 7], &[400, 404, 202, 200, 400, 400]].concat(), "{rest:#?}");
    assert_eq!(rest[11].1["exit"]["code"], 0, "{rest:#?}");
    assert!(told(&rest[12].1).contains("points outside the folder"), "{rest:#?}");
    assert!(!ran.folder.path().join("pwned").exists());
}

#[test]
fn a_refused_suite_says_what_is_wrong_where_and_what_helps() {
    let body = r#"
mkdir own && echo 'profil: quick' > own/more.yaml
serve --suites own
answer POST $BASE "$YAML" "include: more.yaml
$(sed 's/forwarding_rate/forwarding_rat/; /defaults/d' short)"
finish
"#;
    let (_, answers) = script(body);
    let [(400, refused)] = &answers[..] else { panic!("{answers:#?}") };
    let errors = refused["errors"].as_array().unwrap();
    let places: Vec<_> = errors.iter().map(|error| (&error["file"], &error["line"], &error["column"])).collect();
    // The first line is the include, and one is left out.
    let suite = (&"suite.yaml".into(), &10.into(), &5.into());
    assert_eq!(places[0], suite, "{refused:#}");
    assert!(errors[0]["message"].as_str().unwrap().contains("`forwarding_rat`"), "{refused:#}");
    assert!(errors[0]["remedy"].as_str().unwrap().contains("did you mean `forwarding_rate`?"), "{refused:#}");
    assert!(errors.iter().all(|error| error.as_object().unwrap().len() == 5), "{refused:#}");
    let included = places.iter().any(|(file, line, _)| *file == "more.yaml" && **line == 1);
    assert!(included, "{refused:#}");
}

#[test]
fn a_trusted_suite_names_what_it_likes_and_only_on_loopback() {
    let listen = ["serve", "--listen", "0.0.0.0:0", "--trust-suites"];
    refused(&run(&listen), 2, "listen on loopback");
    refused(&run(&["serve", "--suites", "nowhere"]), 2, "--suites: cannot read folder `nowhere`");
    let body = r#"
echo 'defaults: {repeats: 1}' > more.yaml
serve --trust-suites
start "$YAML" "include: more.yaml
$(grep -v defaults short)"
get $BASE/$ID/events > /dev/null
answer GET $BASE/$ID
finish
"#;
    let (_, answers) = script(body);
    assert_eq!((answers[0].0, &answers[1].1["exit"]["code"]), (202, &0.into()), "{answers:#?}");
}

/// A configuration with these two interfaces.
const CONFIG: &str = r#"{"ports": [{"name": "a", "location": "eth1"}, {"name": "b", "location": "eth2"}]}"#;

#[test]
fn ports_belong_to_a_client_or_to_a_run() {
    if !nix::unistd::geteuid().is_root() {
        return eprintln!("skipped: only root can use interfaces of this machine");
    }
    let folder = tempfile::tempdir().unwrap();
    own_interfaces::suite(folder.path(), true);
    std::fs::write(folder.path().join("config"), CONFIG).unwrap();
    let body = format!(
        r#"{}{SERVER}
serve --trust-suites
answer POST /config "" "$(cat config)"
answer POST $BASE "$YAML" "$(cat suite.yaml)"
answer POST /config "" '{{}}'
start "$YAML" "$(cat suite.yaml)"
answer POST /config "" "$(cat config)"
answer DELETE $BASE/$ID
get $BASE/$ID/events > /dev/null
answer POST /config "" "$(cat config)"
finish
"#,
        own_interfaces::ROUTER
    );
    let output = shell(MACHINE, folder.path(), &body).output().unwrap();
    let printed = crate::common::good(&output);
    let answers: Vec<&str> = printed.lines().collect();
    let [set, refused, cleared, started, taken, stopped, again] = &answers[..] else { panic!("{printed}") };
    for (answer, code) in [(set, "200 "), (cleared, "200 "), (started, "202 "), (stopped, "202 "), (again, "200 ")] {
        assert!(answer.starts_with(code), "{printed}");
    }
    assert!(refused.starts_with("409 ") && refused.contains("`eth1` belongs to serve on 127.0.0.1:"), "{refused}");
    assert!(taken.starts_with("409 ") && taken.contains("`eth1` belongs to a run of own, process "), "{taken}");
}
