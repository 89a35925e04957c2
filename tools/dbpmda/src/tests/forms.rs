//! Every form of every command.

use pcp_collector::Address;

use super::parse;
use crate::grammar::Arg;
use crate::token::Word;

type Command = (Word, Vec<Arg>);

/// Parses a line with one command.
fn command(line: &str) -> Command {
    let (mut commands, shown, _) = parse(format!("{line}\n").as_bytes());
    assert_eq!(commands.pop(), Some(Some(None)), "{line}: {shown}");
    let command = commands.into_iter().find(|command| *command != Some(None));
    let command = command.unwrap_or_else(|| panic!("{line}: no command"));
    command.flatten().unwrap_or_else(|| panic!("{line}: {shown}"))
}

fn text(text: &str) -> Arg {
    Arg::Text(text.into())
}

fn metric(text: &str) -> Arg {
    Arg::Metric(Some(text.parse().unwrap()))
}

fn indom(text: &str) -> Arg {
    Arg::InDom(Some(text.parse().unwrap()))
}

#[test]
fn opening() {
    let pipe = |words: &[&str]| {
        let words = words.iter().map(|word| text(word));
        (Word::Open, [Arg::Word(Word::Pipe)].into_iter().chain(words).collect::<Vec<_>>())
    };
    assert_eq!(command("open pipe /a/pmda"), pipe(&["/a/pmda"]));
    assert_eq!(command("open pipe pmda -d 29  -l 'a b'\"c\" ''"), pipe(&["./pmda", "-d", "29", "-l", "a bc"]));
    assert_eq!(command("open pipe c:/pmda x"), pipe(&["c:/pmda", "x"]));
    assert_eq!(command("open pipe /a 'x\ny'"), pipe(&["/a", "x\ny"]));
    let dso = [Arg::Word(Word::Dso), text("/a/b.so"), text("init"), Arg::Number(30)];
    assert_eq!(command("open dso /a/b.so init 30"), (Word::Open, dso.to_vec()));
    assert_eq!(command("open dso b.so init"), (Word::Open, vec![Arg::Word(Word::Dso), text("./b.so"), text("init")]));
    for (line, address, name) in [
        ("/a", Address::Unix("/a".into()), "/a"),
        ("unix a", Address::Unix("./a".into()), "./a"),
        ("inet 4321", Address::Inet(4321), "inet port 4321"),
        ("ipv6 4321", Address::Ipv6(4321), "ipv6 port 4321"),
    ] {
        let socket = vec![Arg::Word(Word::Socket), Arg::Socket(address, name.into())];
        assert_eq!(command(&format!("open socket {line}")), (Word::Open, socket));
    }
    assert_eq!(command("close"), (Word::Close, vec![]));
}

#[test]
fn metrics() {
    for (line, pmid) in [
        ("a.b", "1.2.3"),
        ("1.2.3", "1.2.3"),
        ("2.3", "0.2.3"),
        ("4196355", "1.2.3"),
        ("0x10 # comment", "0.0.16"),
        ("513.4098.1027", "1.2.3"),
    ] {
        assert_eq!(command(&format!("desc {line}")), (Word::Desc, vec![metric(pmid)]));
    }
    assert_eq!(command("desc 4294967295"), (Word::Desc, vec![Arg::Metric(None)]));
    assert_eq!(command("fetch a.b"), (Word::Fetch, vec![metric("1.2.3")]));
    assert_eq!(command("fetch a.b a.c, 1.2.5"), (Word::Fetch, ["1.2.3", "1.2.4", "1.2.5"].map(metric).to_vec()));
    assert_eq!(command("store a.b \"it's 1\""), (Word::Store, vec![metric("1.2.3"), text("it's 1")]));
    assert_eq!(command("store a.b '\"x\"'"), (Word::Store, vec![metric("1.2.3"), text("\"x\"")]));
    assert_eq!(command("text a.b"), (Word::Text, vec![metric("1.2.3")]));
    assert_eq!(command("name 1.2.3"), (Word::Name, vec![metric("1.2.3")]));
    assert_eq!(command("pmid x.y"), (Word::PmId, vec![text("x.y")]));
    assert_eq!(command("children x"), (Word::Children, vec![text("x")]));
    assert_eq!(command("traverse x"), (Word::Traverse, vec![text("x")]));
    assert_eq!(command("label item a.c"), (Word::Label, vec![Arg::Word(Word::Item), metric("1.2.4")]));
    assert_eq!(command("label cluster 1.2"), (Word::Label, vec![Arg::Word(Word::Cluster), metric("1.2.0")]));
    assert_eq!(command("label cluster 7"), (Word::Label, vec![Arg::Word(Word::Cluster), metric("0.0.7")]));
}

#[test]
fn instances() {
    assert_eq!(command("instance 29.2"), (Word::Instance, vec![indom("29.2")]));
    assert_eq!(command("instance 29.2 300"), (Word::Instance, vec![indom("29.2"), Arg::Number(300)]));
    assert_eq!(command("instance 29.2 bin-100"), (Word::Instance, vec![indom("29.2"), text("bin-100")]));
    assert_eq!(command("instance -1 \"a b\""), (Word::Instance, vec![Arg::InDom(None), text("a b")]));
    assert_eq!(command("instance 29"), (Word::Instance, vec![indom("0.29")]));
    assert_eq!(command("text indom 29.2"), (Word::Text, vec![Arg::Word(Word::InDom), indom("29.2")]));
    for (line, change, inst) in [
        ("all", Word::All, None),
        ("none", Word::None, None),
        ("add 5", Word::Add, Some(5)),
        ("delete 5", Word::Delete, Some(5)),
    ] {
        let expected = [indom("29.2"), Arg::Word(change)].into_iter().chain(inst.map(Arg::Number)).collect();
        assert_eq!(command(&format!("profile 29.2 {line}")), (Word::Profile, expected));
    }
    assert_eq!(command("label context"), (Word::Label, vec![Arg::Word(Word::Context)]));
    assert_eq!(command("label domain"), (Word::Label, vec![Arg::Word(Word::Domain)]));
    assert_eq!(command("label indom 29.2"), (Word::Label, vec![Arg::Word(Word::InDom), indom("29.2")]));
    assert_eq!(command("label instances 29.2"), (Word::Label, vec![Arg::Word(Word::Instances), indom("29.2")]));
}

#[test]
fn others() {
    assert_eq!(command("attr 5"), (Word::Attr, vec![Arg::Number(5)]));
    assert_eq!(command("attribute \"uid\" '0'"), (Word::Attr, vec![Arg::Number(11), text("0")]));
    assert_eq!(command("namespace a/b"), (Word::NameSpace, vec![text("./a/b")]));
    assert_eq!(command("namespace ../b"), (Word::NameSpace, vec![text("../b")]));
    assert_eq!(command("watch /a.log"), (Word::Watch, vec![text("/a.log")]));
    for (line, word) in [("timer", Word::Timer), ("getdesc", Word::GetDesc), ("getiname", Word::GetIname)] {
        assert_eq!(command(&format!("{line} on")), (word, vec![Arg::Word(Word::On)]));
        assert_eq!(command(&format!("{line} off")), (word, vec![Arg::Word(Word::Off)]));
    }
    assert_eq!(command("wait 3"), (Word::Wait, vec![Arg::Number(3)]));
    assert_eq!(command("\tstatus "), (Word::Status, vec![]));
    for quit in ["q", "quit", "exit"] {
        assert_eq!(command(quit), (Word::Quit, vec![]));
    }
    for line in ["", " ", "# comment"] {
        assert_eq!(parse(format!("{line}\n").as_bytes()).0, [Some(None), Some(None)]);
    }
}

#[test]
fn debug_options_count_one_by_one() {
    let (commands, _, options) = parse(b"debug pdu -fetch,profile context\tindom attribute 12\n");
    assert_eq!(commands.len(), 2);
    assert_eq!(options, ["pdu", "-fetch", "profile", "context", "indom", "attr", "12"]);
    let (commands, _, options) = parse(b"debug x bad y\n");
    assert_eq!((commands.len(), options), (2, vec!["x".to_owned(), "bad".to_owned()]));
    // `all` and `none` are valid only at the end of the line.
    assert_eq!(command("debug all"), (Word::Debug, vec![Arg::Word(Word::All)]));
    assert_eq!(command("debug none"), (Word::Debug, vec![Arg::Word(Word::None)]));
    let (commands, _, options) = parse(b"debug all,pdu\n");
    assert_eq!((commands[0].is_none(), options), (true, vec![]));
}

#[test]
fn help() {
    assert_eq!(command("help"), (Word::Help, vec![]));
    assert_eq!(command("?"), (Word::Help, vec![]));
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
        // Without its arguments, a command shows its usage.
        assert_eq!(command(line), (topic, vec![]));
        assert_eq!(command(&format!("help {line}")), (Word::Help, vec![Arg::Word(topic)]));
    }
    for (line, topic) in
        [("close", Word::Close), ("quit", Word::Quit), ("status", Word::Status), ("namespace", Word::NameSpace)]
    {
        assert_eq!(command(&format!("help {line}")), (Word::Help, vec![Arg::Word(topic)]));
    }
}
