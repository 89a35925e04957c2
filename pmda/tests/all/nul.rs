//! A text with a NUL byte is an error: clients would end it there.

use std::io::Write;
use std::sync::Mutex;

use pcp_collector::{Collector, Local};
use pmapi::{Config, Domain, InDom, PmId};
use pmda::host::Engine;
use pmda::prelude::*;
use pmda::{EventFlags, EventQueue, Instances, Stamp, Subject, TextKind};

const INDOM: Serial = Serial::new(1);

struct Cut {
    queue: EventQueue,
    outcomes: Vec<Result>,
}

/// Instances of which the second has a name with a NUL byte.
struct Names;

impl Instances for Names {
    fn each<'a>(&'a self, f: &mut dyn FnMut(Inst, &'a str)) {
        ["one", "t\0wo", "three"].into_iter().enumerate().for_each(|(at, name)| f(Inst::new(at as u32), name));
    }
}

impl Agent for Cut {
    const NAME: &'static str = "cut";
    const DOMAIN: u16 = 400;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        setup.metric("cut.text", Item::new(0, 0), Type::String);
        setup.metric("cut.texts", Item::new(0, 1), Type::String).indom(INDOM);
        setup.metric("cut.events", Item::new(0, 2), Type::Event);
        setup.metric("cut.whole", Item::new(0, 3), Type::String).help("Whole", "");
        setup.indom(INDOM);
        Ok(Cut { queue: setup.event_queue(4096).keeping(), outcomes: Vec::new() })
    }

    fn instances(&self, _: Serial) -> Option<&dyn Instances> {
        Some(&Names)
    }

    fn text(&self, of: Subject, _: TextKind) -> Result<Option<&[u8]>> {
        Ok(matches!(of, Subject::Metric(pmid) if pmid.item() == Item::new(0, 0)).then_some(b"he\0lp"))
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        match item.item() {
            0 => out.put("ends with\0"),
            1 => {
                self.outcomes = [(0, "a"), (1, "b\0c")].map(|(inst, text)| out.put_inst(Inst::new(inst), text)).into();
                Ok(())
            }
            2 => {
                let push =
                    |text: &str| self.queue.push(Stamp::now(), EventFlags::POINT, [(Item::new(0, 0), text.into())]);
                self.outcomes = vec![push("\0"), push("whole")];
                out.put_events(&self.queue)
            }
            _ => out.put(""),
        }
    }
}

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Writer to the log above.
struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_text_with_a_nul_byte_is_an_error() {
    tracing_subscriber::fmt().with_writer(|| Log).with_ansi(false).init();
    let local = Local::<Cut>::start(Engine::builder().config(Config::new(b"", []))).unwrap();
    let mut agent = Collector::new(local);
    let domain = Domain::new(400).unwrap();
    let pmid = |item| PmId::new(domain, Item::new(0, item));
    assert_eq!(agent.value(pmid(0)).unwrap_err().code(), Error::CONV);
    let sample = agent.fetch(&[pmid(0), pmid(1), pmid(2), pmid(3)]).unwrap();
    let counts: Vec<_> = sample.sets().map(|set| set.values().count()).collect();
    assert_eq!(counts, [0, 1, 1, 1]);
    assert_eq!(agent.agent_mut().outcomes, [Err(Error::CONV), Ok(())]);
    let indom = InDom::new(domain, INDOM);
    let names: Vec<_> = agent.instances(indom).unwrap().into_iter().map(|(inst, _)| inst.word()).collect();
    assert_eq!(names, [0, 2]);
    assert_eq!(agent.text(Subject::Metric(pmid(0)), TextKind::OneLine).unwrap_err().code(), Error::TEXT);
    assert!(agent.text(Subject::Metric(pmid(3)), TextKind::OneLine).is_ok());
    let log = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
    for line in [
        "cut.text (400.0.0): a text with a NUL byte, at which clients would end it: Impossible value",
        "event dropped: parameter 400.0.0 is a text with a NUL byte",
        r#"instance domain 400.1: the name "t\0wo" of instance 1 has a NUL byte"#,
        "cut.text (400.0.0): the help has a NUL byte",
    ] {
        assert!(log.contains(line), "{line}\n{log}");
    }
}
