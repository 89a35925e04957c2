//! Arbitrary answers of an agent.

use std::io::{Cursor, Read, Write};
use std::os::unix::net::UnixListener;
use std::thread;

use pcp_pdu::PduType;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::Shown;
use crate::console::Console;
use crate::session::Session;
use crate::source::{Input, Source};
use crate::state::Options;

const REQUESTS: &str = "\
debug pdu labels pmns
desc 1.2.3
fetch 1.2.3 1.2.4
getdesc on
fetch 1.2.3 1.2.4
getiname on
fetch 1.2.3
instance 1.1
instance 1.1 5
instance 1.1 \"x\"
text 1.2.3
text indom 1.1
label domain
label instances 1.1
store 1.2.3 \"1\"
name 1.2.3
pmid a
children a
traverse a
attr 5 \"x\"
status
";

/// Returns words that are sometimes a valid PDU body.
fn body() -> impl Strategy<Value = Vec<u32>> {
    let likely = select(vec![0, 1, 2, 3, 4, 6, 9, 32, 0x0040_0803, 0x0040_0001, 0xffff_ffff, 0x6162_6300, 0x0600_0008]);
    vec(prop_oneof![4 => likely, 1 => any::<u32>()], 0..24)
}

/// Returns the type of the answer to a request, mostly the right one.
fn answer(request: i32, wrong: u8) -> Option<i32> {
    [
        (PduType::DESC_REQ, PduType::DESC),
        (PduType::FETCH, PduType::RESULT),
        (PduType::INSTANCE_REQ, PduType::INSTANCE),
        (PduType::TEXT_REQ, PduType::TEXT),
        (PduType::LABEL_REQ, PduType::LABEL),
        (PduType::PMNS_NAMES, PduType::PMNS_IDS),
        (PduType::PMNS_IDS, PduType::PMNS_NAMES),
        (PduType::PMNS_CHILD, PduType::PMNS_NAMES),
        (PduType::PMNS_TRAVERSE, PduType::PMNS_NAMES),
        (PduType::RESULT, PduType::ERROR),
    ]
    .into_iter()
    .find(|(from, _)| from.code() == request)
    .map(|(_, to)| if wrong < 8 { 0x7000 + i32::from(wrong) } else { to.code() })
}

fn pdu(code: i32, body: &[u32]) -> Vec<u8> {
    let len = 12 + 4 * body.len() as u32;
    [len, code as u32, 0].iter().chain(body).flat_map(|word| word.to_be_bytes()).collect()
}

/// Runs an agent that gives these answers and then ends.
fn agent(listener: &UnixListener, answers: Vec<(Vec<u32>, u8)>) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.write_all(&pdu(PduType::CREDS.code(), &[1, 0x0102_0000]))?;
    let mut answers = answers.into_iter();
    loop {
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        let words: Vec<_> = head.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)).collect();
        let mut rest = vec![0; words[0] as usize - 12];
        stream.read_exact(&mut rest)?;
        let Some((body, wrong)) = answers.next() else { return Ok(()) };
        if let Some(code) = answer(words[1] as i32, wrong) {
            stream.write_all(&pdu(code, &body))?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    // Slow: many random answers to each request.
    fn answers(answers in vec((body(), any::<u8>()), 0..60)) {
        let dir = tempfile::tempdir().unwrap();
        let (names, socket) = (dir.path().join("root"), dir.path().join("socket"));
        std::fs::write(&names, "root { a 1:2:3 }\n").unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        let agent = thread::spawn(move || agent(&listener, answers));
        let shown = Shown::default();
        let console = Console::new(shown.clone(), shown.clone());
        let input = format!("open socket unix {}\n{REQUESTS}", socket.display());
        let source = Source::new(console.clone(), Input::stream(Cursor::new(input)));
        let options = Options { names: Some(names), creds_timeout: 5, keep_objects: false };
        Session::new(source, console, options).unwrap().run().unwrap();
        // The agent may or may not notice that its client has disconnected.
        let _ = agent.join().unwrap();
        let text = String::from_utf8_lossy(&shown.0.borrow()).into_owned();
        prop_assert!(text.contains("Dump Instance Profile"), "{text}");
    }
}
