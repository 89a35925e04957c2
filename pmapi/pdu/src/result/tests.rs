use proptest::prelude::*;

use super::*;

/// Value sets. Each has the lengths of its values' blocks, or values in situ, or an error.
fn sets() -> impl Strategy<Value = Vec<(u32, Vec<usize>)>> {
    prop::collection::vec((0..5_u32, prop::collection::vec(0..20_usize, 0..5)), 0..6)
}

/// Returns the bytes of value sets after `start` other bytes.
fn encoded(start: usize, sets: &[(u32, Vec<usize>)]) -> Vec<u8> {
    let len: usize = sets.iter().map(|(_, values)| if values.is_empty() { 8 } else { 12 + 8 * values.len() }).sum();
    let (mut lists, mut blocks) = (vec![0; start], Vec::<u8>::new());
    for (format, values) in sets {
        let mut words = vec![7, values.len() as u32];
        if values.is_empty() {
            words[1] = 0_u32.wrapping_sub(*format);
        } else {
            words.push(format % 3);
        }
        for value in values {
            words.extend([1, ((start + len + blocks.len()) / 4) as u32]);
            if format % 3 != 0 {
                blocks.extend((6 << 24 | (value + BLOCK_HEAD) as u32).to_be_bytes());
                blocks.resize(blocks.len() + value.next_multiple_of(4), 1);
            }
        }
        lists.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    }
    [lists, blocks].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The check in one pass finds the same errors as the field-by-field decoder.
    #[test]
    fn one_pass(
        start in (0..4_usize).prop_map(|words| 4 * words),
        sets in sets(),
        extra in 0..3_usize,
        change in prop::option::of((any::<prop::sample::Index>(), prop_oneof![0..64_u32, any::<u32>()])),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = encoded(start, &sets);
        let whole = bytes.len();
        bytes.resize(whole + 4 * extra, 0);
        let is_same = change.is_none() && cut.is_none();
        if let Some((at, word)) = change.filter(|_| bytes.len() > start) {
            let at = start + at.index((bytes.len() - start) / 4) * 4;
            bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        if let Some(cut) = cut {
            bytes.truncate(start + cut.index(bytes.len() - start + 1));
        }
        let values = ValueSets::unchecked(&bytes, start, sets.len());
        let mut r = Reader::at(PduType::RESULT, &bytes, start);
        let slow = values.check(&mut r).map(|()| r.pos());
        prop_assert_eq!(values.end(), slow.ok());
        prop_assert!(!is_same || slow == Ok(whole));
    }
}

#[test]
fn blocks() {
    let string = |code| RawValue::Block(code, b"ab\0cd\0").extract(Type::String, Type::String);
    assert_eq!(string(6), Ok(Converted::Atom(Atom::String(b"ab"))));
    assert_eq!(string(0), string(6));
    assert_eq!(string(7), Err(Error::CONV));
    let float = RawValue::Block(4, &[0x40, 0x20, 0, 0]);
    assert_eq!(float.extract(Type::Float, Type::I32), Ok(Converted::Atom(Atom::I32(2))));
    assert_eq!(float.extract(Type::I32, Type::I32), Err(Error::CONV));
    assert_eq!(RawValue::Block(5, &[0; 7]).extract(Type::Double, Type::Double), Err(Error::CONV));
    let old = RawValue::InSitu(0x4020_0000).extract(Type::Float, Type::Double);
    assert_eq!(old, Ok(Converted::Atom(Atom::Double(2.5))));
    let opaque = RawValue::Block(8, b"x").extract(Type::AggregateStatic, Type::AggregateStatic);
    assert_eq!(opaque, Err(Error::CONV));
}
