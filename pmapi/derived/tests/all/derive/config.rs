//! Configuration files: the messages of libpcp, and the definitions loaded.

use pcp_derived::{Control, Controls, DefinitionId, Definitions, Evaluator, Scope, Setter, UnknownNames};
use pcp_pdu::metadata::TextKind;
use pmapi::{Error, PmId};

use crate::derive::answers::Answers;
use crate::derive::live::Stage;

const CONFIG: &str = r#"# a comment \
 that goes on
good.one = sample.long.one + \
    sample.long.ten

  good.two   =   sample.bin   
good.one(oneline) = the sum of two
good.one(helptext) = "a text
with \"quotes\" and \\ in \
three lines"
good.two(helptext) = 'short' and more
good.two ( oneline ) = "in quotes"
no equals sign
    
= 1
bad-name = 1
2bad = 1
no.expression =
no.expression =   
paren( = 1
paren) = 1
paren() = 1
good.one(oneline) = again
good.one(other) = x
not.there(oneline) = x
good.two(oneline) =
good.two(oneline) = "
good.one = 1
syntax = sample.long.one +
syntax =	sample.long.one sample.long.ten
syntax = 5e3
syntax =  "text
syntax = foo \
  ^ bar
long.one = sample.long.one + sample.long.one + sample.long.one + sample.long.one + sample.long.one + sample.long.one +
good.three = count(sample.bin)
good.three(oneline) = 'one line
' trailing
good.four = 4
good.four(helptext) = "never ends
"#;

fn load(text: &str) -> (Definitions, Controls, pcp_derived::Loaded) {
    let mut definitions = Definitions::new(Scope::Global);
    let mut controls = Controls::default();
    let loaded = definitions.load_text("FILE", text, &mut controls);
    (definitions, controls, loaded)
}

#[test]
#[ignore = "needs PCP"]
fn messages_are_those_of_libpcp() {
    let stage = Stage::new();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config");
    // libpcp 6.0.3 continues only lines in quotes, and then miscounts lines.
    let config = CONFIG.replace("+ \\\n", "+ ").replace("foo \\\n", "foo ").replace("comment \\\n", "comment ");
    std::fs::write(&file, &config).unwrap();
    let output = stage.tool("pminfo", &file, &["-tT", "good"]);
    let place = regex::Regex::new(r"(?m)^\[[^\]]*:\d+\]").unwrap();
    let ours: String = load(&config).2.messages.iter().map(|message| format!("{message}\n")).collect();
    assert_eq!(place.replace_all(&ours, ""), place.replace_all(&output.errors, ""));

    let (definitions, ..) = load(&config);
    for definition in &definitions {
        let oneline = definition.text(TextKind::OneLine).unwrap_or("One-line or help text is not available");
        let shown = format!("{} [{oneline}]", definition.name());
        let help = definition.text(TextKind::Help).unwrap_or_default();
        assert!(output.text.contains(help), "{help} in {}", output.text);
        if definition.text(TextKind::OneLine).is_some() {
            assert!(output.text.contains(&shown), "{shown} in {}", output.text);
        }
    }
}

#[test]
fn definitions_and_texts() {
    let (definitions, _, loaded) = load(CONFIG);
    let names: Vec<&str> = definitions.iter().map(|definition| definition.name()).collect();
    assert_eq!(names, ["good.one", "good.two", "good.three", "good.four"]);
    assert_eq!(loaded.count, 4);
    let pmids: Vec<String> = definitions.iter().map(|definition| definition.pmid().to_string()).collect();
    assert_eq!(pmids, ["511.0.3", "511.0.4", "511.0.5", "511.0.6"]);
    let one = definitions.get("good.one").unwrap();
    assert_eq!(one.text(TextKind::OneLine), Some("the sum of two"));
    assert_eq!(one.text(TextKind::Help), Some("a text\nwith \"quotes\" and \\ in three lines"));
    let three = definitions.get("good.three").unwrap();
    assert_eq!(three.text(TextKind::Help), None);
    let line = |message: &pcp_derived::Message| (message.line, message.text.clone());
    assert_eq!(line(&loaded.messages[1]), (13, "pmLoadDerivedConfig: missing ``='' after derived metric name".into()));
    assert_eq!(loaded.messages.last().map(|message| message.line), Some(40));
}

/// The messages of pmRegisterDerivedMetric(3) and pmAddDerivedMetric(3).
#[test]
fn reports() {
    let (mut all, mut one) = (Definitions::new(Scope::Global), Definitions::new(Scope::Context));
    all.register("a", "1").unwrap();
    one.register("a", "1").unwrap();
    for (name, expr, report) in [
        ("b", "x + ", "x + \n   ^\nArithmetic expression expected to follow PLUS\n"),
        ("c", "+ 1", "+ 1\n  ^\nUnexpected initial '+'\n"),
        ("d", "5e3", "5e3\n ^\n"),
        ("a b", "1)", "1)\n ^\nUnexpected ')'\n"),
    ] {
        let error = all.register(name, expr).unwrap_err().report(Scope::Global, name, expr);
        assert_eq!(error, format!("Error: pmRegisterDerivedMetric(\"{name}\", ...)\n{report}"));
        let error = one.register(name, expr).unwrap_err().report(Scope::Context, name, expr);
        assert_eq!(error, format!("Syntax Error: pmAddDerivedMetric(\"{name}\", ...)\n{report}"));
    }
    let error = all.register("a", "2").unwrap_err().report(Scope::Global, "a", "2");
    assert_eq!(error, "Error: pmRegisterDerivedMetric(\"a\", ...)\n2\n^\nDuplicate global derived metric name\n");
    let error = one.register("a", "2").unwrap_err().report(Scope::Context, "a", "2");
    let expected = "returns -12409\nDuplicate per-context derived metric name\n";
    assert_eq!(error, format!("Error: pmAddDerivedMetric(\"a\", ...): {expected}"));

    one.register("x", "no.such + 1").unwrap();
    let answers = Answers::default();
    let evaluator = Evaluator::bind([one.get("x").unwrap()], &mut &answers, UnknownNames::Refused);
    let error = evaluator.desc(DefinitionId::new(0)).unwrap_err().unwrap().report("x", "no.such + 1");
    assert_eq!(error, "Semantic Error: pmAddDerivedMetric(\"x\", ...)\nno.such + 1\n^\nUnknown operand metric\n");
}

#[test]
fn the_last_line_needs_no_newline() {
    let (definitions, _, loaded) = load("a = 1\nb = 2");
    assert_eq!((definitions.len(), loaded.messages.len()), (2, 0));
}

#[test]
fn controls() {
    let text = "#control GLOBAL_LIMIT=2,novalue=1\n#CONTROL context_limit=7\n#control D=1\na=1\nb=1\nc=1\n\
                #control X\n#control GLOBAL=\n#control DEBUG_EVAL=1x\n#control NONE=1\n#control GLOBAL=0\n";
    let (definitions, controls, loaded) = load(text);
    assert_eq!((definitions.len(), definitions.limit()), (2, Some(2)));
    assert!(controls.unknown_names() == UnknownNames::NoValue);
    assert_eq!((controls.get(Control::ContextLimit), controls.get(Control::DebugSyntax)), (7, 1));
    let messages: Vec<String> = loaded.messages.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "[FILE:6] Error: pmRegisterDerived(c, ...) syntax error\n1\n^\nToo many global derived metrics",
            "[FILE:7] Error: missing '=' in derived metric control (X)",
            "[FILE:8] Warning: missing value in derived metric control (GLOBAL=)",
            "[FILE:9] Warning: bad value (1x) for derived metric control (DEBUG_EVAL)",
            "[FILE:10] Warning: unknown derived metric control (NONE)",
            "[FILE:11] Warning: failed to set derived metric control GLOBAL=0: Bad value for function argument",
        ]
    );

    let mut controls = Controls::default();
    assert!(controls.set_from_text(Setter::Environment, "OPTION_NOVALUE=1").is_empty());
    assert_eq!(controls.set(Setter::Program, Control::OptionNovalue, 0), Err(Error::AGAIN));
    assert_eq!(controls.set(Setter::Program, Control::OptionNovalue, 1), Ok(()));
}

#[test]
fn directories_are_loaded_with_all_below_them() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("b");
    std::fs::create_dir(&below).unwrap();
    std::fs::write(dir.path().join("c"), "third = 3\n").unwrap();
    std::fs::write(below.join("x"), "second = 2\n").unwrap();
    std::fs::write(dir.path().join("a"), "first = 1\nbad\n").unwrap();
    let mut definitions = Definitions::new(Scope::Context);
    let paths = format!("{}:{}", dir.path().display(), dir.path().join("a").display());
    let loaded = definitions.load(&paths, &mut Controls::default()).unwrap();
    assert_eq!((loaded.count, loaded.messages.len()), (3, 3));
    let names: Vec<&str> = definitions.iter().map(|definition| definition.name()).collect();
    assert_eq!(names, ["first", "second", "third"]);
    assert!(definitions.load("/no/such/file", &mut Controls::default()).is_err());
    let pmid = definitions.get("second").unwrap().pmid();
    assert_eq!(pmid, PmId::from_word(1 << 31 | 511 << 22 | 2047 << 10 | 1022).unwrap());
}

#[test]
fn a_removed_definition_leaves_the_others() {
    let (mut definitions, ..) = load("a = 1\nb = 2\nc = 3\n");
    assert_eq!(definitions.unregister("b").unwrap().name(), "b");
    assert_eq!(definitions.unregister("b").unwrap_err(), Error::NAME);
    assert_eq!(definitions.get("c").unwrap().name(), "c");
    definitions.register("b", "4").unwrap();
    assert_eq!(definitions.get("b").unwrap().pmid().to_string(), "511.0.6");
    let answers = Answers::default();
    let evaluator = Evaluator::bind(&definitions, &mut &answers, UnknownNames::Refused);
    assert_eq!((evaluator.len(), evaluator.find("b")), (3, Some(DefinitionId::new(2))));
}

#[test]
fn links_in_a_circle_and_what_is_no_file() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("one.conf"), "a.one = 1\n").unwrap();
    std::fs::create_dir(dir.path().join("below")).unwrap();
    std::fs::write(dir.path().join("below/two.conf"), "a.two = 2\n").unwrap();
    nix::unistd::mkfifo(&dir.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for name in ["a", "b", "c", "below/a", "below/b"] {
        symlink(dir.path(), dir.path().join(name)).unwrap();
    }
    let mut definitions = Definitions::new(Scope::Global);
    let loaded = definitions.load(dir.path().to_str().unwrap(), &mut Controls::default()).unwrap();
    assert_eq!((loaded.count, loaded.messages.len()), (2, 0));
    // A name that is given is not left out.
    let mut load = |path: &str| definitions.load(path, &mut Controls::default());
    assert!(load(dir.path().join("fifo").to_str().unwrap()).unwrap_err().to_string().contains("not a regular file"));
    assert!(load("/dev/zero").is_err() && load("/dev/null").unwrap().count == 0);
}

#[test]
fn a_configuration_has_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let deep: std::path::PathBuf = std::iter::once(dir.path()).chain(std::iter::repeat_n("d".as_ref(), 200)).collect();
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("conf"), "a.one = 1\n").unwrap();
    let load = |paths: &str| Definitions::new(Scope::Global).load(paths, &mut Controls::default());
    assert!(load(dir.path().to_str().unwrap()).is_err());
    // Ten thousand files and directories are read, and no more. Paths that do not exist count as well.
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let read = |count: usize| {
        let (mut good, mut bad) = (0, 0);
        pcp_derived::read_files(&vec![file.to_str().unwrap(); count].join(":"), &mut |_, read| match read {
            Ok(_) => good += 1,
            Err(_) => bad += 1,
        });
        (good, bad)
    };
    assert_eq!([read(9_999), read(10_000), read(10_002)], [(9_999, 0), (10_000, 0), (10_000, 1)]);
    let sparse = dir.path().join("sparse");
    std::fs::File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
    assert!(load(sparse.to_str().unwrap()).is_err());
}
