//! Feature `serde`: identifiers, units, types and semantics as the text that PCP's tools print, numbers as numbers, and
//! labels as an object.

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Error as _, Serialize, Serializer};

use crate::{Atom, Domain, InDom, Inst, Item, LabelSet, PmId, Semantics, Serial, Type, Units};

macro_rules! text {
    ($($ty:ty)*) => {$(
        /// Serializes the text of `Display`.
        impl Serialize for $ty {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        /// Accepts the text that `FromStr` accepts.
        impl<'de> Deserialize<'de> for $ty {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$ty, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}
text!(PmId InDom Item Units Type Semantics);

macro_rules! number {
    ($($ty:ty as $int:ty: $to:expr, $from:expr;)*) => {$(
        /// Serializes the number.
        impl Serialize for $ty {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let to: fn($ty) -> $int = $to;
                to(*self).serialize(serializer)
            }
        }

        /// Accepts a number in the range of the type.
        impl<'de> Deserialize<'de> for $ty {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$ty, D::Error> {
                let number = <$int>::deserialize(deserializer)?;
                let from: fn($int) -> Option<$ty> = $from;
                from(number).ok_or_else(|| D::Error::custom(format_args!("{number} is not in the range of {}", stringify!($ty))))
            }
        }
    )*};
}
number! {
    Domain as u16: Domain::get, |n| if n == Domain::DYNAMIC.get() { Some(Domain::DYNAMIC) } else { Domain::new(n) };
    Serial as u32: Serial::get, Serial::try_new;
    // As PCP's tools print it.
    Inst as i32: |inst| inst.word() as i32, |n| Inst::from_word(n as u32);
}

/// Serializes numbers as numbers, [`Atom::String`] as text if it is UTF-8, and all else as bytes.
impl Serialize for Atom<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Atom::I32(v) => serializer.serialize_i32(v),
            Atom::U32(v) => serializer.serialize_u32(v),
            Atom::I64(v) => serializer.serialize_i64(v),
            Atom::U64(v) => serializer.serialize_u64(v),
            Atom::Float(v) => serializer.serialize_f32(v),
            Atom::Double(v) => serializer.serialize_f64(v),
            Atom::String(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => serializer.serialize_str(text),
                Err(_) => serializer.serialize_bytes(bytes),
            },
            Atom::Aggregate(bytes) | Atom::Event(bytes) | Atom::HighResEvent(bytes) => {
                serializer.serialize_bytes(bytes)
            }
        }
    }
}

/// Serializes the object of the set's JSON text.
impl Serialize for LabelSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json = if self.is_empty() { "{}" } else { self.json() };
        serde_json::from_str::<serde_json::Value>(json).map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// Accepts an object, as [`LabelSet::parse`] does.
impl<'de> Deserialize<'de> for LabelSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LabelSet, D::Error> {
        let object = serde_json::Value::deserialize(deserializer)?;
        LabelSet::parse(&object.to_string()).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Desc;

    #[test]
    fn a_descriptor_is_what_pminfo_prints() {
        let desc = Desc {
            pmid: "60.0.24".parse().unwrap(),
            ty: Type::I64,
            indom: Some("60.1".parse().unwrap()),
            semantics: Semantics::Counter,
            units: Units::KBYTES.per(Units::SECONDS),
        };
        let expected = json!({"pmid": "60.0.24", "type": "64", "indom": "60.1", "semantics": "counter",
            "units": "Kbyte / sec"});
        assert_eq!(serde_json::to_value(desc).unwrap(), expected);
        assert_eq!(serde_json::from_value::<Desc>(expected).unwrap(), desc);
        let singular = Desc { indom: None, units: Units::NONE, ..desc };
        let value = serde_json::to_value(singular).unwrap();
        assert_eq!((&value["indom"], &value["units"]), (&json!(null), &json!("")));
        assert_eq!(serde_json::from_value::<Desc>(value).unwrap(), singular);
    }

    #[test]
    fn numbers_have_their_range() {
        assert_eq!(serde_json::to_value(Inst::new(u32::MAX - 1)).unwrap(), json!(-2));
        assert_eq!(serde_json::from_str::<Inst>("-2").unwrap(), Inst::new(u32::MAX - 1));
        assert!(serde_json::from_str::<Inst>("-1").is_err());
        assert_eq!(serde_json::from_str::<Domain>("511").unwrap(), Domain::DYNAMIC);
        let refusal = serde_json::from_str::<Serial>("4194304").unwrap_err();
        assert_eq!(refusal.to_string(), "4194304 is not in the range of Serial");
        assert!(
            serde_json::from_str::<Item>("\"4096.0\"").is_err() && serde_json::from_str::<Type>("\"u63\"").is_err()
        );
    }

    #[test]
    fn values_and_labels() {
        let values = [Atom::I32(-1), Atom::U64(u64::MAX), Atom::Float(0.1), Atom::String("é".as_bytes())];
        assert_eq!(serde_json::to_string(&values).unwrap(), r#"[-1,18446744073709551615,0.1,"é"]"#);
        assert_eq!(serde_json::to_value([Atom::String(b"\xff"), Atom::Event(&[1])]).unwrap(), json!([[255], [1]]));

        let object = json!({"a": {"b": 1}, "c": "d"});
        let set: LabelSet = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(set.labels().map(|label| label.name).collect::<Vec<_>>(), ["a.b", "c"]);
        assert_eq!(serde_json::to_value(set).unwrap(), object);
        assert_eq!(serde_json::to_value(LabelSet::new()).unwrap(), json!({}));
        assert!(serde_json::from_str::<LabelSet>("[1]").is_err());
    }
}
