//! Opens any bytes as compiled help. The first two bytes are the length of the index. The texts follow the index.
#![no_main]
#![allow(dead_code)] // Only one of the properties is used.

use libfuzzer_sys::fuzz_target;

#[path = "../properties/help.rs"]
mod property;

fuzz_target!(|bytes: &[u8]| {
    let Some((len, rest)) = bytes.split_first_chunk() else {
        return;
    };
    let (dir, pag) = rest.split_at(rest.len().min(u16::from_le_bytes(*len).into()));
    // Half of the inputs get a valid header.
    let mut index = Vec::new();
    if len[0] & 1 == 0 {
        index.extend([0x5063_5068_u32, 0x3132_0000, dir.len() as u32 / 12].into_iter().flat_map(u32::to_ne_bytes));
    }
    index.extend_from_slice(dir);
    property::opens(index, pag.to_vec()).unwrap();
});
