//! Properties of texts, conversions and labels on any input.

#![allow(clippy::unwrap_used)]

use pcp_pdu::print::Print;
use pcp_pdu::result::RawValue;
use pmapi::{
    Atom, Config, Error, ExtraUnit, InDom, Item, LabelFlags, LabelSet, ParseUnitsError, PmId, SpaceScale, TimeScale,
    Type, Units, interval, number::Number, spec::MetricSpec,
};
use proptest::prelude::*;

/// Returns units that can be parsed from their text: they have no scale without its dimension, and no exponent after
/// tens of events, which would look like a scale.
fn regular_units() -> impl Strategy<Value = Units> {
    let dim = || -8..8_i8;
    let extra = prop::option::of((prop::sample::select(&ExtraUnit::ALL[..]), any::<bool>()));
    (dim(), dim(), dim(), 0..16_u8, 0..16_u8, -8..8_i8, extra).prop_map(|(space, time, count, s, t, c, extra)| {
        let s = if space != 0 { s } else { 0 };
        let t = if time != 0 { t } else { 0 };
        let c = if count != 0 && (c != 1 || count.abs() == 1) { c } else { 0 };
        let units = Units::from_dims(space, time, count, s, t, c).unwrap();
        match extra {
            None => units,
            Some((unit, true)) => units.times(Units::extra(unit)),
            Some((unit, false)) => units.per(Units::extra(unit)),
        }
    })
}

/// Text of pieces that the parsers know.
fn unit_text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "byte",
        "Kbyte",
        "MiB",
        "sec",
        "hours",
        "count",
        "count x 10",
        "count x 10^-3",
        "x 10^2",
        "^",
        "^2",
        "^-1",
        "^15",
        "/",
        " ",
        "  ",
        "time-9",
        "space-12",
        "temperature (C)",
        "power (kW)",
        "1e3",
        "-2.5",
        ".",
        "0x1p4",
        "inf",
        "é",
        "\t",
    ]);
    prop_oneof![prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat()), any::<String>()]
}

fn number() -> impl Strategy<Value = Atom<'static>> {
    prop_oneof![
        any::<i32>().prop_map(Atom::I32),
        any::<u32>().prop_map(Atom::U32),
        any::<i64>().prop_map(Atom::I64),
        any::<u64>().prop_map(Atom::U64),
        any::<f32>().prop_map(Atom::Float),
        any::<f64>().prop_map(Atom::Double),
    ]
}

fn ty() -> impl Strategy<Value = Type> {
    (-1..=10).prop_map(|code| Type::from_code(code).unwrap())
}

fn label_name() -> impl Strategy<Value = String> {
    "[A-Za-z][A-Za-z0-9_]{0,12}"
}

fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::btree_map(label_name(), inner, 0..4)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

fn labels() -> impl Strategy<Value = LabelSet> {
    prop::collection::btree_map(label_name(), json_value(), 0..6).prop_map(|map| {
        let text = serde_json::to_string_pretty(&map).unwrap();
        LabelSet::parse(&text).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn text_of_units_parses_back(units in regular_units()) {
        prop_assert_eq!(Units::parse(&units.to_string()), Ok((units, 1.0)));
        prop_assert_eq!(units.to_string().to_uppercase().parse(), Ok(units));
    }

    #[test]
    fn any_word_has_a_text_and_any_text_an_answer(word: u32, text in unit_text()) {
        let units = Units::from_word(word);
        prop_assert_eq!(units.word(), word);
        let _ = Units::parse(&units.to_string());
        if let Ok((units, factor)) = Units::parse(&text) {
            prop_assert_eq!(text.parse::<Units>(), if factor == 1.0 { Ok(units) } else { Err(ParseUnitsError::Factor) });
        }
    }

    #[test]
    fn units_combine(a in regular_units()) {
        prop_assert_eq!(a.per(Units::NONE), a);
        prop_assert_eq!(a.times(Units::NONE), a);
        prop_assert_eq!(a.per(a), Units::NONE);
        prop_assert_eq!(a.pow(1), a);
    }

    #[test]
    fn conversion_of_scales_never_panics(value in number(), from: u32, to: u32, same_dims: bool) {
        let to = if same_dims { from & 0xfff0_00f8 | to & 0x000f_ff07 } else { to };
        if let Ok(converted) = Units::from_word(from).convert(Units::from_word(to), value) {
            prop_assert_eq!(converted.ty(), value.ty());
        }
    }

    #[test]
    fn conversion_to_the_same_units_changes_nothing(
        value in number(),
        space in 0..7_u8,
        time in prop::sample::select(&TimeScale::ALL[..]),
    ) {
        let space = Units::space(SpaceScale::from_code(space).unwrap());
        for units in [space, Units::time(time), space.per(Units::time(time)), Units::NONE, Units::count(5)] {
            let converted = units.convert(units, value).unwrap();
            prop_assert_eq!(format!("{converted:?}"), format!("{value:?}"));
        }
    }

    #[test]
    fn bytes_and_kibibytes(kibibytes in 0..u64::MAX >> 10) {
        let bytes = Units::KBYTES.convert(Units::BYTES, Atom::U64(kibibytes));
        prop_assert_eq!(bytes, Ok(Atom::U64(kibibytes << 10)));
        let seconds = Units::SECONDS.convert(Units::MINUTES, Atom::Double(kibibytes as f64));
        prop_assert_eq!(seconds, Ok(Atom::Double(kibibytes as f64 * (1.0 / 60.0))));
    }

    #[test]
    fn conversion_of_types(value in number(), to in ty()) {
        match value.convert(to) {
            Ok(converted) => {
                prop_assert_eq!(converted.as_atom().ty(), to);
                if to == Type::Double || to == value.ty() {
                    let back = converted.as_atom().convert(Type::Double);
                    prop_assert_eq!(format!("{back:?}"), format!("{:?}", value.convert(Type::Double)));
                }
            }
            Err(e) => prop_assert!([Error::CONV, Error::TRUNC, Error::SIGN].contains(&e)),
        }
    }

    #[test]
    fn values_are_shown(payload: Vec<u8>, code: u8, word: u32, shown in prop::option::of(ty()), width in 0..40_usize) {
        let _ = RawValue::InSitu(word).print(shown, width).to_string();
        let text = RawValue::Block(code, &payload).print(shown, width).to_bytes();
        prop_assert!(text.len() >= payload.len().min(2));
        if let Some(ty) = shown {
            let _ = RawValue::Block(code, &payload).extract(ty, ty);
        }
        for atom in [Atom::String(&payload), Atom::Aggregate(&payload), Atom::Event(&payload)] {
            prop_assert!(atom.to_string().len() < 200);
            prop_assert!(Print::new(atom, width).to_string().len() >= width.min(2));
        }
    }

    #[test]
    fn numbers_have_seven_characters(value: f64) {
        prop_assert_eq!(Number(value).to_string().len(), 7);
    }

    #[test]
    fn intervals(seconds in 0..999_999_u32, nanoseconds in 0..1_000_000_000_u32, text: String) {
        let time = std::time::Duration::new(seconds.into(), nanoseconds);
        let parsed = interval::parse(&format!("{seconds}.{nanoseconds:09}s")).unwrap();
        prop_assert!(parsed.abs_diff(time).as_nanos() <= 1);
        let _ = interval::parse(&text).map_err(|e| e.to_string());
    }

    #[test]
    fn metric_specifications(
        metric in "[a-z]{1,8}(\\.[a-z]{1,8}){0,3}",
        instances in prop::collection::vec("[^\0]{0,10}", 0..4),
        text in "[ab:/\\[\\]\", \\\\@é\t-]{0,12}",
        any: String,
    ) {
        let quoted: Vec<_> =
            instances.iter().map(|i| format!("\"{}\"", i.replace('\\', "\\\\").replace('"', "\\\""))).collect();
        let spec: MetricSpec = format!("{metric}[{}]", quoted.join(",")).parse().unwrap();
        prop_assert_eq!((spec.metric, spec.instances), (metric, instances));
        for text in [text, any] {
            if let Err(e) = text.parse::<MetricSpec>() {
                prop_assert!(e.at() <= text.len());
                prop_assert!(e.to_string().ends_with(e.reason()));
            }
        }
    }

    #[test]
    fn identifiers(word in 0..u32::MAX >> 1, text in "[0-9.*]{0,12}") {
        let (pmid, indom) = (PmId::from_word(word).unwrap(), InDom::from_word(word).unwrap());
        prop_assert_eq!(pmid.to_string().parse(), Ok(pmid));
        prop_assert_eq!(indom.to_string().parse(), Ok(indom));
        prop_assert_eq!(pmid.item().to_string().parse(), Ok(pmid.item()));
        if let Ok(pmid) = text.parse::<PmId>() {
            prop_assert_eq!(pmid.to_string().parse(), Ok(pmid));
        }
        let _ = (text.parse::<InDom>(), text.parse::<Item>());
    }

    #[test]
    fn label_text_is_the_same_json(map in prop::collection::btree_map(label_name(), json_value(), 0..6)) {
        let set = LabelSet::parse(&serde_json::to_string_pretty(&map).unwrap()).unwrap();
        let text = if map.is_empty() { "{}" } else { set.json() };
        let json: serde_json::Map<_, _> = map.into_iter().collect();
        prop_assert_eq!(serde_json::from_str::<serde_json::Value>(text).unwrap(), serde_json::Value::from(json));
        prop_assert_eq!(text, &serde_json::to_string(&serde_json::from_str::<serde_json::Value>(text).unwrap()).unwrap());
    }

    #[test]
    fn label_index_is_sorted_and_points_at_values(set in labels()) {
        let names: Vec<_> = set.labels().map(|l| l.name).collect();
        prop_assert!(names.is_sorted());
        for (label, raw) in set.labels().zip(set.index()) {
            serde_json::from_str::<serde_json::Value>(label.value).unwrap();
            prop_assert!(label.name.ends_with(&set.json()[raw.name_range()]));
            prop_assert_eq!(&set.json()[raw.name_range().end..raw.value_range().start], "\":");
        }
        let copy = LabelSet::from_raw(set.json().to_owned(), set.index()).unwrap();
        prop_assert!(copy.index().eq(set.index()));
    }

    #[test]
    fn merged_labels(a in labels(), b in labels()) {
        let mut merged = a.clone();
        merged.merge(&b).unwrap();
        for label in b.labels() {
            prop_assert_eq!(merged.value(label.name), Some(label.value));
        }
        for label in a.labels().filter(|l| b.value(l.name).is_none()) {
            prop_assert_eq!(merged.value(label.name), Some(label.value));
        }
        let flat = LabelSet::parse_flagged(merged.json(), LabelFlags::COMPOUND).unwrap();
        prop_assert!(flat.labels().map(|l| l.value).eq(merged.labels().map(|l| l.value)) || a.is_empty());
        let once = merged.clone();
        merged.merge(&b).unwrap();
        prop_assert!(merged.labels().eq(once.labels()));
    }

    #[test]
    fn any_text_of_labels_and_configuration(text: String, noise in "[{}\\[\\]\",:a1\\\\ .-]{0,20}", bytes: Vec<u8>) {
        for text in [text, noise] {
            if let Ok(set) = LabelSet::parse(&text) {
                prop_assert!(set.json().len() <= text.len());
            }
        }
        let _ = Config::new(&bytes, []).pmdas_dir();
    }
}
