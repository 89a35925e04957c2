//! Any bytes as compiled help: the first two say how long the index is, the rest are the texts.
#![no_main]

use help::Compiled;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((len, rest)) = bytes.split_first_chunk() else {
        return;
    };
    let (dir, pag) = rest.split_at(rest.len().min(u16::from_le_bytes(*len).into()));
    // Half of the inputs begin with a good header.
    let mut index = Vec::new();
    if len[0] & 1 == 0 {
        index.extend([0x5063_5068_u32, 0x3132_0000, dir.len() as u32 / 12].into_iter().flat_map(u32::to_ne_bytes));
    }
    index.extend_from_slice(dir);
    if let Ok(help) = Compiled::from_bytes(index, pag.to_vec()) {
        for target in help.targets() {
            assert!(help.oneline(target).is_some() && help.text(target).is_some());
        }
    }
});
