//! Every form of every command.

use pcp_collector::Address;

use super::parse;
use crate::command::{Change, Command, Form, Labels, Subject, Which};
use crate::token::Word;

/// Parses a line with one command.
fn command(line: &str) -> Command {
    let (mut commands, shown, _) = parse(format!("{line}\n").as_bytes());
    assert_eq!(commands.pop(), Some(Some(Command::Nothing)), "{line}: {shown}");
    let command = commands.into_iter().find(|command| *command != Some(Command::Nothing));
    command.unwrap_or_else(|| panic!("{line}: no command")).unwrap_or_else(|| panic!("{line}: {shown}"))
}

#[test]
fn opening() {
    let pipe = |program: &str, arguments: &[&str]| Command::OpenPipe {
        program: program.into(),
        arguments: arguments.iter().map(|word| word.as_bytes().to_owned()).collect(),
    };
    assert_eq!(command("open pipe /a/pmda"), pipe("/a/pmda", &[]));
    assert_eq!(command("open pipe pmda -d 29  -l 'a b'\"c\" ''"), pipe("./pmda", &["-d", "29", "-l", "a bc"]));
    assert_eq!(command("open pipe c:/pmda x"), pipe("c:/pmda", &["x"]));
    assert_eq!(command("open pipe /a 'x\ny'"), pipe("/a", &["x\ny"]));
    let dso = |path: &str, domain| Command::OpenDso { path: path.into(), init: "init".into(), domain };
    assert_eq!(command("open dso /a/b.so init 30"), dso("/a/b.so", 30));
    assert_eq!(command("open dso b.so init"), dso("./b.so", 0));
    assert_eq!(command("open socket /a"), Command::OpenSocket(Address::Unix("/a".into()), b"/a".to_vec()));
    assert_eq!(command("open socket unix a"), Command::OpenSocket(Address::Unix("./a".into()), b"./a".to_vec()));
    assert_eq!(command("open socket inet 4321"), Command::OpenSocket(Address::Inet(4321), b"inet port 4321".to_vec()));
    assert_eq!(command("open socket ipv6 4321"), Command::OpenSocket(Address::Ipv6(4321), b"ipv6 port 4321".to_vec()));
    assert_eq!(command("close"), Command::Close);
}

#[test]
fn metrics() {
    let pmid = |text: &str| Some(text.parse().unwrap());
    assert_eq!(command("desc a.b"), Command::Desc(pmid("1.2.3")));
    assert_eq!(command("desc 1.2.3"), Command::Desc(pmid("1.2.3")));
    assert_eq!(command("desc 2.3"), Command::Desc(pmid("0.2.3")));
    assert_eq!(command("desc 4196355"), Command::Desc(pmid("1.2.3")));
    assert_eq!(command("desc 0x10 # comment"), Command::Desc(pmid("0.0.16")));
    assert_eq!(command("desc 513.4098.1027"), Command::Desc(pmid("1.2.3")));
    assert_eq!(command("desc 4294967295"), Command::Desc(None));
    assert_eq!(command("fetch a.b"), Command::Fetch(vec![pmid("1.2.3")]));
    assert_eq!(command("fetch a.b a.c, 1.2.5"), Command::Fetch(["1.2.3", "1.2.4", "1.2.5"].map(pmid).to_vec()));
    assert_eq!(command("store a.b \"it's 1\""), Command::Store(pmid("1.2.3"), b"it's 1".to_vec()));
    assert_eq!(command("store a.b '\"x\"'"), Command::Store(pmid("1.2.3"), b"\"x\"".to_vec()));
    assert_eq!(command("text a.b"), Command::Text(Subject::Metric(pmid("1.2.3"))));
    assert_eq!(command("name 1.2.3"), Command::Names(pmid("1.2.3")));
    assert_eq!(command("pmid x.y"), Command::PmId("x.y".into()));
    assert_eq!(command("children x"), Command::Children("x".into()));
    assert_eq!(command("traverse x"), Command::Traverse("x".into()));
    assert_eq!(command("label item a.c"), Command::Label(Labels::Item(pmid("1.2.4"))));
    assert_eq!(command("label cluster 1.2"), Command::Label(Labels::Cluster(pmid("1.2.0"))));
    assert_eq!(command("label cluster 7"), Command::Label(Labels::Cluster(pmid("0.0.7"))));
}

#[test]
fn instances() {
    let indom = |text: &str| Some(text.parse().unwrap());
    assert_eq!(command("instance 29.2"), Command::Instance(indom("29.2"), Which::All));
    assert_eq!(command("instance 29.2 300"), Command::Instance(indom("29.2"), Which::Number(300)));
    assert_eq!(command("instance 29.2 bin-100"), Command::Instance(indom("29.2"), Which::Name("bin-100".into())));
    assert_eq!(command("instance -1 \"a b\""), Command::Instance(None, Which::Name("a b".into())));
    assert_eq!(command("instance 29"), Command::Instance(indom("0.29"), Which::All));
    assert_eq!(command("text indom 29.2"), Command::Text(Subject::InDom(indom("29.2"))));
    assert_eq!(command("profile 29.2 all"), Command::Profile(indom("29.2"), Change::All));
    assert_eq!(command("profile 29.2 none"), Command::Profile(indom("29.2"), Change::None));
    assert_eq!(command("profile 29.2 add 5"), Command::Profile(indom("29.2"), Change::Add(5)));
    assert_eq!(command("profile 29.2 delete 5"), Command::Profile(indom("29.2"), Change::Delete(5)));
    assert_eq!(command("label context"), Command::Label(Labels::Context));
    assert_eq!(command("label domain"), Command::Label(Labels::Domain));
    assert_eq!(command("label indom 29.2"), Command::Label(Labels::InDom(indom("29.2"))));
    assert_eq!(command("label instances 29.2"), Command::Label(Labels::Instances(indom("29.2"))));
}

#[test]
fn others() {
    assert_eq!(command("attr 5"), Command::Attribute(5, None));
    assert_eq!(command("attribute \"uid\" '0'"), Command::Attribute(11, Some(b"0".to_vec())));
    assert_eq!(command("namespace a/b"), Command::NameSpace("./a/b".into()));
    assert_eq!(command("namespace ../b"), Command::NameSpace("../b".into()));
    assert_eq!(command("watch /a.log"), Command::Watch("/a.log".into()));
    assert_eq!((command("timer on"), command("timer off")), (Command::Timer(true), Command::Timer(false)));
    assert_eq!((command("getdesc on"), command("getiname off")), (Command::GetDesc(true), Command::GetIname(false)));
    assert_eq!(command("wait 3"), Command::Wait(3));
    assert_eq!(command("\tstatus "), Command::Status);
    for quit in ["q", "quit", "exit"] {
        assert_eq!(command(quit), Command::Quit);
    }
    for line in ["", " ", "# comment"] {
        assert_eq!(parse(format!("{line}\n").as_bytes()).0, [Some(Command::Nothing), Some(Command::Nothing)]);
    }
}

#[test]
fn debug_options_count_one_by_one() {
    let (commands, _, options) =
        parse(b"debug pdu -fetch,profile context\tindom attribute 12\ndebug all\ndebug none\n");
    assert_eq!(commands, vec![Some(Command::Nothing); 4]);
    assert_eq!(options, ["pdu", "-fetch", "profile", "context", "indom", "attr", "12", "all", "-all"]);
    let (commands, _, options) = parse(b"debug x bad y\n");
    assert_eq!((commands.len(), options), (2, vec!["x".to_owned(), "bad".to_owned()]));
}

#[test]
fn help() {
    assert_eq!(command("help"), Command::Help(None, Form::Full));
    assert_eq!(command("?"), Command::Help(None, Form::Full));
    let with_usage = [
        ("attr", Word::Attr),
        ("children", Word::Children),
        ("debug", Word::Debug),
        ("desc", Word::Desc),
        ("fetch", Word::Fetch),
        ("getdesc", Word::GetDesc),
        ("getiname", Word::GetIname),
        ("instance", Word::Instance),
        ("label", Word::Label),
        ("name", Word::Name),
        ("open", Word::Open),
        ("pmid", Word::PmId),
        ("profile", Word::Profile),
        ("store", Word::Store),
        ("text", Word::Text),
        ("timer", Word::Timer),
        ("traverse", Word::Traverse),
        ("wait", Word::Wait),
        ("watch", Word::Watch),
    ];
    for (line, topic) in with_usage {
        assert_eq!(command(line), Command::Help(Some(topic), Form::Usage));
        assert_eq!(command(&format!("help {line}")), Command::Help(Some(topic), Form::Full));
    }
    for (line, topic) in
        [("close", Word::Close), ("quit", Word::Quit), ("status", Word::Status), ("namespace", Word::NameSpace)]
    {
        assert_eq!(command(&format!("help {line}")), Command::Help(Some(topic), Form::Full));
    }
}
