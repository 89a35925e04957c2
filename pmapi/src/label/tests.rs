use super::*;

fn index(set: &LabelSet) -> Vec<(u16, u8, u8, u16, u16)> {
    set.index().map(|l| (l.name, l.name_len, l.flags.bits(), l.value, l.value_len)).collect()
}

fn parsed(json: &str) -> LabelSet {
    LabelSet::parse(json).unwrap()
}

#[test]
fn text_keeps_its_order_and_the_index_is_sorted() {
    let set = parsed(" { \"b\" : 1 , \"a\" : [1, 2, {\"x\": 3}] , \"z\":\"q\\\"} ,\" } ");
    assert_eq!(set.json(), r#"{"b":1,"a":[1,2,{"x":3}],"z":"q\"} ,"}"#);
    assert_eq!(index(&set), [(8, 1, 0, 11, 13), (2, 1, 0, 5, 1), (26, 1, 0, 29, 8)]);
    assert_eq!(set.value("a"), Some(r#"[1,2,{"x":3}]"#));
}

#[test]
fn merging_sorts_and_prefers_the_new() {
    let mut set = parsed(r#"{"b":1,"a":"x"}"#);
    set.add_notes(r#"{"aa":3,"a":2}"#).unwrap();
    assert_eq!(set.json(), r#"{"a":2,"aa":3,"b":1}"#);
    assert_eq!(index(&set), [(2, 1, 128, 5, 1), (8, 2, 128, 12, 1), (15, 1, 0, 18, 1)]);
    set.add("{}").unwrap();
    assert_eq!(set.len(), 3);
}

#[test]
fn nested_objects_are_compound() {
    let mut set = parsed(r#"{"a":{"b":{"c":1},"d":"x"},"e":{}}"#);
    assert_eq!(set.labels().map(|l| l.name).collect::<Vec<_>>(), ["a.b.c", "a.d", "e"]);
    assert_eq!(index(&set), [(12, 1, 64, 15, 1), (19, 1, 64, 22, 3), (28, 1, 64, 31, 2)]);
    set.insert("f", 1.5).unwrap();
    assert_eq!(set.json(), r#"{"a.b.c":1,"a.d":"x","e":{},"f":1.5}"#);
    assert_eq!(index(&set)[0], (2, 5, 64, 9, 1));
}

#[test]
fn serialized_values() {
    let mut set = LabelSet::new();
    set.insert("text", "a\"b").unwrap();
    set.insert("none", None::<u8>).unwrap();
    set.insert("map", serde_json::json!({"x": [1, true]})).unwrap();
    assert_eq!(set.json(), r#"{"map.x":[1,true],"none":null,"text":"a\"b"}"#);
}

#[test]
fn what_is_refused() {
    let refused = |json: &str| Error::from(LabelSet::parse(json).unwrap_err());
    for json in [
        r#"{"a-b":1}"#,
        r#"{"":1}"#,
        r#"{"a.b":1}"#,
        r#"{"a b":{"x":1},"k8s.io/name":[1]}"#,
        r#"{"é":1}"#,
        r#"{"a\u0041":1}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"a":{"b":1},"a":{"b":2}}"#,
        r#"{"a":1"#,
        "[1]",
        "12",
        "null",
        r#"{"a":1} x"#,
        r#"{"a":1,}"#,
        r#"{a:1}"#,
        r#"{"a":01}"#,
        " ",
        "{\"a\":\"\t\"}",
    ] {
        assert_eq!(refused(json), Error::from_errno(22), "{json}");
    }
    assert_eq!(refused(&format!("{{\"{}\":1}}", "n".repeat(255))), Error::from_errno(7));
    assert_eq!(refused(&format!("{{\"a\":\"{}\"}}", "x".repeat(65535))), Error::from_errno(7));
    assert!(LabelSet::parse(&"[".repeat(60000)).is_err());
    assert!(LabelSet::parse(&r#"{"a":"#.repeat(10000)).is_err());
}

/// Texts, and the sets that `__pmParseLabelSet` of libpcp 7.2.1 makes of them.
#[test]
fn labels_with_invalid_names_are_left_out() {
    for (text, count, right) in [
        (r#"{"_block_size_resolved":"1","model":"m"}"#, 2, r#"{"_block_size_resolved":"1","model":"m"}"#),
        (r#"{"__name__":"up","job":"x"}"#, 2, r#"{"__name__":"up","job":"x"}"#),
        (r#"{"_":1,"9":2,"___":3}"#, 3, r#"{"_":1,"9":2,"___":3}"#),
        (r#"{"a-b":1,"c":2}"#, 1, r#"{"c":2}"#),
        (r#"{ "c" : 2 , "a-b" : 1 }"#, 1, r#"{"c":2}"#),
        (r#"{"c":2,"a-b":{"x":1,"y-z":[{"a":"}"}]},"d":3}"#, 2, r#"{"c":2,"d":3}"#),
        (r#"{"a b":[1,{"x":2},"]"],"k8s.io/name":"x","c":"d","a-b":1,"a-b":2}"#, 1, r#"{"c":"d"}"#),
        (r#"{"":1,"é":2,"a\u0062":3,"\"":4,"c":5}"#, 1, r#"{"c":5}"#),
        (r#"{"a":{"b":{"c":1}}}"#, 1, r#"{"a":{"b":{"c":1}}}"#),
        (r#"{"a":{"b-c":1,"d":2}}"#, 1, r#"{"a":{"d":2}}"#),
        (r#"{"a":{"d":2,"b-c":1}}"#, 1, r#"{"a":{"d":2}}"#),
        (r#"{"a":{"b-c":1}}"#, 1, r#"{"a":{}}"#),
        (r#"{"a":[1,2,{"x":1}]}"#, 1, r#"{"a":[1,2,{"x":1}]}"#),
        (r#"{"a":[{"x-y":1,"z":[{"":2}]}],"c":2}"#, 2, r#"{"a":[{"z":[{}]}],"c":2}"#),
        ("{}", 0, ""),
    ] {
        let set = parsed(text);
        assert_eq!((set.len(), set.json()), (count, right), "{text}");
        // The index points into the text that is left.
        assert!(
            set.index()
                .all(|label| serde_json::from_str::<serde_json::Value>(&set.json()[label.value_range()]).is_ok())
        );
        // An author is told.
        let strict = LabelSet::parse_strict(text, LabelFlags::empty());
        assert_eq!(strict.is_ok(), right.len() == text.len() || text == "{}", "{text}: {strict:?}");
        assert_eq!(LabelSet::from_serialize(text).is_ok(), strict.is_ok(), "{text}");
    }
    let long = format!("{{\"a\":1,\"{}\":1,\"b\":{{\"{}\":2}}}}", "n".repeat(255), "n".repeat(253));
    assert_eq!(parsed(&long).json(), r#"{"a":1,"b":{}}"#);
    assert_eq!(parsed(r#"{"a":{"b":1,"c-d":2},"e":3}"#).labels().map(|l| l.name).collect::<Vec<_>>(), ["a.b", "e"]);
    let dots = LabelSet::parse_flagged(r#"{"a.b":1,"c-d":2}"#, LabelFlags::COMPOUND).unwrap();
    assert_eq!(dots.json(), r#"{"a.b":1}"#);
}

#[test]
fn names_of_authors() {
    let mut set = LabelSet::single("_a", 1).unwrap();
    set.insert("1a", 2).unwrap();
    assert_eq!(set.json(), r#"{"1a":2,"_a":1}"#);
    for name in ["a-b", "", "a.b", "é", "a b", "a\"b"] {
        let error = set.insert(name, 1).unwrap_err();
        assert!(error.to_string().contains("must consist of letters, digits and underscores"), "{error}");
        assert!(LabelSet::single(name, 1).is_err() && set.add(serde_json::json!({"x": 1, name: 2})).is_err(), "{name}");
        assert!(LabelSet::single("a", serde_json::json!({name: 1})).is_err());
    }
    assert_eq!(set.len(), 2);
}

#[test]
fn values_and_texts() {
    #[derive(serde::Serialize)]
    struct Disk {
        size: u64,
        at: (u8, u8),
    }
    let mut set = LabelSet::from_serialize(Disk { size: 7, at: (1, 2) }).unwrap();
    assert_eq!(set.json(), r#"{"size":7,"at":[1,2]}"#);
    set.add(r#"{"a\u0062": "text"}"#).unwrap_err();
    set.add(r#" {"ab": "text"} "#).unwrap();
    set.add_notes(serde_json::json!({"note": {"of": null}})).unwrap();
    let flags: Vec<_> = set.labels().map(|l| (l.name, l.value, l.flags.bits())).collect();
    let expected = [("ab", "\"text\"", 0), ("at", "[1,2]", 0), ("note.of", "null", 192), ("size", "7", 0)];
    assert_eq!(flags, expected);
    assert_eq!(LabelSet::from_serialize("").unwrap(), LabelSet::new());
    assert!(matches!(LabelSet::from_serialize(7), Err(LabelError::NotAnObject)));
    assert!(matches!(LabelSet::from_serialize(["a"]), Err(LabelError::NotAnObject)));
}

#[test]
fn limits() {
    let object = |n: usize| format!("{{{}}}", (0..n).map(|i| format!("\"l{i}\":{i}")).collect::<Vec<_>>().join(","));
    assert_eq!(parsed(&object(254)).len(), 254);
    assert!(matches!(LabelSet::parse(&object(255)), Err(LabelError::TooMany)));
    let mut set = parsed(&object(254));
    let before = set.clone();
    assert!(matches!(set.insert("more", 1), Err(LabelError::TooMany)));
    let long = "x".repeat(MAX_JSON - 8);
    assert_eq!(parsed(&format!("{{\"a\":\"{long}\"}}")).json().len(), MAX_JSON);
    assert!(matches!(set.insert("l0", long), Err(LabelError::TooLong)));
    assert!(set == before);
}

#[test]
fn sets_from_outside() {
    let set = parsed(r#"{"b":1,"a":"é"}"#);
    let copy = LabelSet::from_raw(set.json().to_owned(), set.index()).unwrap();
    assert!(copy == set);
    let outside = RawLabel { value_len: 9, ..set.index().next().unwrap() };
    assert!(LabelSet::from_raw(set.json().to_owned(), [outside]).is_err());
    let half_a_character = RawLabel { value_len: 2, ..set.index().next().unwrap() };
    assert!(LabelSet::from_raw(set.json().to_owned(), [half_a_character]).is_err());
}

#[test]
fn flags() {
    let mut set = parsed(r#"{"a":1}"#);
    set.flag(LabelLevel::Instances.into());
    assert_eq!(index(&set)[0].2, 32);
    let flags = LabelFlags::from(LabelLevel::Item) | LabelFlags::OPTIONAL;
    assert_eq!((flags.level(), LabelLevel::from_code(0xd0)), (Some(LabelLevel::Item), Some(LabelLevel::Item)));
    assert_eq!(format!("{flags:?}"), "LabelFlags(ITEM | OPTIONAL)");
    assert_eq!(LabelLevel::from_code(3), None);
}

#[test]
fn levels_of_a_metric() {
    use crate::{Desc, Domain, InDom, Item, PmId, Semantics, Serial, Type, Units};
    let domain = Domain::new(3).unwrap();
    let pmid = PmId::new(domain, Item::new(4, 5));
    let mut desc = Desc { pmid, ty: Type::U32, indom: None, semantics: Semantics::Instant, units: Units::NONE };
    let cluster = PmId::new(domain, Item::new(4, 0)).word();
    let levels =
        |desc: &Desc| LabelLevel::of_metric(desc).map(|(level, ident)| (level.code(), ident)).collect::<Vec<_>>();
    assert_eq!(levels(&desc), [(1, u32::MAX), (2, 3), (8, cluster), (16, pmid.word())]);
    let indom = InDom::new(domain, Serial::new(7));
    desc.indom = Some(indom);
    assert_eq!(levels(&desc)[2], (4, indom.word()));
    let sets = [r#"{"a":1,"b":2}"#, "{}", r#"{"b":3,"c":4}"#].map(parsed);
    assert_eq!(LabelSet::merge_all(&sets).unwrap().json(), r#"{"a":1,"b":3,"c":4}"#);
    assert!(LabelSet::merge_all([]).unwrap().is_empty());
}

/// PCP's tools print labels as they are, and other users may choose their values.
#[test]
fn values_steer_no_terminal() {
    let text = "\x1b[2J\u{9b}\u{202e}é\u{e0041}";
    let expected = r#"{"a":"\u001b[2J\u009b\u202eé\udb40\udc41"}"#;
    let mut set = LabelSet::single("a", text).unwrap();
    assert_eq!(set.json(), expected);
    set.insert("a", text).unwrap();
    assert_eq!(set.json(), expected);
    set = LabelSet::new();
    set.add(serde_json::json!({ "a": text })).unwrap();
    assert_eq!(set.json(), expected);
    set.add(format!("{{\"a\":\"{}\"}}", &text[4..])).unwrap();
    assert_eq!(set.json(), r#"{"a":"\u009b\u202eé\udb40\udc41"}"#);
}
