//! Every call to the same pmcd, by libpcp and by the library.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::thread;

use pcp_client::{Context, HostSpec, Settings};
use pcp_pdu::result::Changes;
use pmapi::OptionWord as _;
use testkit::Pmcd;

use crate::context::answers::answer;
use crate::context::stage::{Oracle, pmcd};

struct Both {
    oracle: Oracle,
    context: Context,
    compared: usize,
}

impl Both {
    fn new(pmcd: &Pmcd) -> Both {
        let context = Context::connect(&pmcd.host()).unwrap();
        Both { oracle: Oracle::new(&pmcd.host()), context, compared: 0 }
    }

    /// Asserts that the answers are equal, and returns libpcp's.
    fn same(&mut self, request: &str) -> String {
        let theirs = without_own(request, self.oracle.answer(request));
        let ours = answer(&mut self.context, request);
        assert_eq!(ours.trim(), theirs.trim(), "{request}");
        self.compared += 1;
        theirs
    }

    fn all(&mut self, requests: &[&str]) {
        for request in requests {
            self.same(&request.replace(' ', "\t"));
        }
    }

    /// Returns the names and PMIDs of all metrics.
    fn metrics(&mut self) -> Vec<(String, u32)> {
        let names = self.context.traverse("").unwrap();
        let refs: Vec<&str> = names.iter().map(String::as_str).collect();
        let pmids = self.context.lookup_names(&refs).unwrap();
        names.into_iter().zip(pmids).filter_map(|(name, pmid)| Some((name, pmid?.word()))).collect()
    }
}

/// Removes the two metrics that libpcp adds to those of pmcd.
fn without_own(request: &str, answer: String) -> String {
    let added = |name: &str| answer.contains(name);
    match request {
        "traverse" if added(" event.flags event.missed ") => {
            let (names, count) = answer.rsplit_once(' ').unwrap();
            let names = names.strip_suffix(" event.flags event.missed").unwrap();
            format!("{names} {}", count.parse::<usize>().unwrap() - 2)
        }
        "children" if added(" event/1") => {
            let (count, names) = answer.split_once(' ').unwrap();
            format!("{} {}", count.parse::<usize>().unwrap() - 1, names.strip_suffix(" event/1").unwrap())
        }
        _ => answer,
    }
}

#[test]
#[ignore = "needs PCP"]
fn names() {
    let pmcd = pmcd();
    let mut both = Both::new(&pmcd);
    both.all(&[
        "traverse",
        "traverse sample",
        "traverse sample.long",
        "traverse sample.long.one",
        "traverse no.such",
        "traverse sample.lon",
        "traverse sample.",
        "traverse gone",
        "children",
        "children sample",
        "children sample.long",
        "children sample.long.one",
        "children sample.dynamic",
        "children sample.secret",
        "children no.such",
        "names sample.long.one",
        "names sample.long",
        "names no.such",
        "names sample.long.one no.such sample.long sample.bin",
        "names no.such no.more",
        "names sample.long sample.long",
        "names gone.one",
        "names sample.secret.foo.one",
        "names sample.secret.foo.none",
        "names sample.secret.foo.none sample.bin",
    ]);
    let metrics = both.metrics();
    assert!(metrics.len() > 150, "{}", metrics.len());
    let every: Vec<&str> = metrics.iter().map(|(name, _)| name.as_str()).collect();
    both.same(&format!("names\t{}", every.join("\t")));
    for (name, pmid) in &metrics {
        both.same(&format!("nameid\t{pmid:#x}"));
        both.same(&format!("nameall\t{pmid:#x}"));
        both.same(&format!("children\t{name}"));
    }
    both.all(&[
        "nameid 0x074fffff",
        "nameall 0x074fffff",
        "nameid 0x7fc00100",
        "nameall 0x7fc00100",
        "nameid 0x5fc00001",
    ]);
    assert!(both.compared > 500, "{}", both.compared);
}

#[test]
#[ignore = "needs PCP"]
fn many_names_are_several_requests() {
    let pmcd = pmcd();
    let mut both = Both::new(&pmcd);
    let names: Vec<String> = (0..5000)
        .map(|n| if n % 7 == 0 { "sample.bin".to_owned() } else { format!("sample.no.such.metric.at.all.{n}") })
        .collect();
    let request = format!("names\t{}", names.join("\t"));
    let (theirs, ours) = (both.oracle.answer(&request), answer(&mut both.context, &request));
    // libpcp returns the number of its last request only.
    assert_eq!(ours.split_once(' ').unwrap().1, theirs.split_once(' ').unwrap().1);
    assert!(ours.starts_with("715 "));
}

#[test]
#[ignore = "needs PCP"]
fn descriptors() {
    let pmcd = pmcd();
    let mut both = Both::new(&pmcd);
    let metrics = both.metrics();
    for (name, pmid) in &metrics {
        // libpcp returns invalid descriptors.
        if name != "sample.noinst" && !name.starts_with("sample.bad") {
            both.same(&format!("desc\t{pmid:#x}"));
        }
    }
    // Lists of several metrics, one and none, known and unknown.
    both.all(&[
        "descs 0x07400000 0x07400001 0x07400002",
        "descs 0x07400000 0x074fffff 0x07400002",
        "descs 0x074fffff 0x07400002",
        "descs 0x07400002 0x074fffff",
        "descs 0x074fffff 0x074ffffe",
        "descs 0x5fc00001 0x13400001",
        "descs 0x5fc00001 0x13400001 0x00800000",
        "descs 0x074fffff",
        "descs 0x5fc00001",
        "descs 0x13400001",
        "descs 0x07400002",
        "desc 0x074fffff",
        "desc 0x5fc00001",
        "desc 0x13400001",
    ]);
    let every: Vec<String> = metrics
        .iter()
        .filter(|(name, _)| name != "sample.noinst" && !name.starts_with("sample.bad"))
        .map(|(_, pmid)| format!("{pmid:#x}"))
        .collect();
    both.same(&format!("descs\t{}", every.join("\t")));
}

#[test]
#[ignore = "needs PCP"]
fn instances() {
    let pmcd = pmcd();
    let mut both = Both::new(&pmcd);
    let mut indoms: Vec<u32> = Vec::new();
    for (_, pmid) in both.metrics() {
        let desc = pmapi::PmId::from_word(pmid).map(|pmid| both.context.lookup_desc(pmid));
        indoms.extend(desc.and_then(Result::ok).and_then(|desc| desc.indom).map(|indom| indom.word()));
    }
    indoms.sort_unstable();
    indoms.dedup();
    assert!(indoms.len() > 5, "{indoms:x?}");
    for indom in indoms {
        let answer = both.same(&format!("indom\t{indom:#x}"));
        for instance in answer.split(' ').skip(1).filter_map(|word| word.split_once('=')).take(20) {
            both.same(&format!("namein\t{indom:#x}\t0x{}", instance.0));
            if !instance.1.contains('\\') && !instance.1.is_empty() {
                both.same(&format!("lookupin\t{indom:#x}\t{}", instance.1));
            }
        }
        both.same(&format!("namein\t{indom:#x}\t0x7ffffff0"));
        both.same(&format!("lookupin\t{indom:#x}\tno such instance"));
    }
    both.all(&["indom 0x077fffff", "indom 0x5fc00001", "indom 0x13400001"]);
    both.all(&["lookupin 0x5fc00001 x", "namein 0x5fc00001 1", "lookupin 0x077fffff x", "namein 0x077fffff 1"]);
}

#[test]
#[ignore = "needs PCP"]
fn values() {
    let pmcd = pmcd();
    let mut both = Both::new(&pmcd);
    let mut stable = 0;
    for (name, pmid) in both.metrics() {
        if name.contains(".event.") {
            // Each fetch returns other records.
            continue;
        }
        let request = format!("fetch\t{pmid:#x}");
        let fine = format!("highres\t{pmid:#x}");
        // Values that change by themselves or with each fetch cannot be compared.
        let theirs: Vec<String> = (0..2).map(|_| both.oracle.answer(&request)).collect();
        let ours = answer(&mut both.context, &request);
        let after = both.oracle.answer(&fine);
        if theirs[0] == theirs[1] && theirs[1] == after {
            assert_eq!(ours, after, "{request}");
            stable += 1;
        }
    }
    assert!(stable > 130, "{stable}");
    both.all(&[
        "fetch 0x07400000 0x07400001",
        "fetch 0x074fffff",
        "fetch 0x074fffff 0x07400000 0x074ffffe",
        "fetch 0x13400001",
        "fetch 0x5fc00001",
        "fetch 0x07400000 0x07400000",
    ]);
    let descs = both.context.lookup_descs(&[]);
    assert_eq!(descs, Err(pmapi::Error::TOOSMALL));
    assert_eq!(both.context.fetch(&[]).unwrap_err(), pmapi::Error::TOOSMALL);
    assert_eq!(both.context.lookup_names(&[]), Err(pmapi::Error::TOOSMALL));
}

#[test]
#[ignore = "needs PCP"]
fn profiles() {
    let pmcd = pmcd();
    let mut both = Both::new(&pmcd);
    let bin = both.context.lookup_name("sample.bin").unwrap();
    let colour = both.context.lookup_name("sample.colour").unwrap();
    let bins = both.context.lookup_desc(bin).unwrap().indom.word();
    let colours = both.context.lookup_desc(colour).unwrap().indom.word();
    let fetch = format!("fetch\t{:#x}\t{:#x}", bin.word(), Some(colour).word());
    let steps = [
        format!("add\t{bins:#x}\t100\t300"),
        format!("add\t{bins:#x}\t400\t300"),
        format!("del\t{bins:#x}\t300\t900"),
        format!("add\t{bins:#x}"),
        format!("del\t{bins:#x}\t100\t200"),
        format!("add\t{bins:#x}\t200"),
        format!("del\t{bins:#x}"),
        format!("add\t{bins:#x}\t500"),
        format!("del\t{colours:#x}\t1"),
        format!("add\t{colours:#x}\t1"),
        "del\t0xffffffff".to_owned(),
        format!("add\t{colours:#x}\t2"),
        "add\t0xffffffff".to_owned(),
    ];
    // Only the instances are compared, since colours change with each fetch.
    let shape = |answer: String| {
        let values = answer.split(&[' ', ',']).map(|word| word.split('=').next().unwrap_or_default().to_owned());
        values.collect::<Vec<_>>()
    };
    for step in steps {
        both.same(&step);
        let theirs = shape(both.oracle.answer(&fetch));
        assert_eq!(shape(answer(&mut both.context, &fetch)), theirs, "{step}");
    }
}

#[test]
#[ignore = "needs PCP"]
fn stores() {
    let pmcd = pmcd();
    let mut both = Both::new(&pmcd);
    let requests = [
        ("sample.write_me", "0xffffffff", "0", "7"),
        ("sample.write_me", "0xffffffff", "6", "text"),
        ("sample.long.write_me", "0xffffffff", "0", "-5"),
        ("sample.ulong.write_me", "0xffffffff", "1", "4000000000"),
        ("sample.longlong.write_me", "0xffffffff", "2", "-5000000000"),
        ("sample.ulonglong.write_me", "0xffffffff", "3", "5000000000"),
        ("sample.float.write_me", "0xffffffff", "4", "1.5"),
        ("sample.double.write_me", "0xffffffff", "5", "-2.25"),
        ("sample.string.write_me", "0xffffffff", "6", "words"),
        ("sample.long.one", "0xffffffff", "0", "1"),
        ("pmcd.numagents", "0xffffffff", "1", "1"),
        ("simple.numfetch", "0xffffffff", "1", "42"),
        ("simple.numfetch", "0xffffffff", "6", "x"),
        ("simple.color", "0", "1", "1"),
        ("simple.color", "0", "1", "1000"),
        ("gone.one", "0xffffffff", "1", "1"),
    ];
    for (name, inst, ty, value) in requests {
        let pmid = both.context.lookup_name(name).unwrap().word();
        both.same(&format!("store\t{pmid:#x}\t{inst}\t{ty}\t{value}"));
        if name.ends_with("write_me") {
            both.same(&format!("fetch\t{pmid:#x}"));
        }
    }
    both.all(&["store 0x074fffff 0xffffffff 0 1", "store 0x5fc00001 0xffffffff 0 1"]);
    // Only the library stores; both fetch.
    let pmid = both.context.lookup_name("sample.string.write_me").unwrap();
    both.context.store(pmid, &[(None, pmapi::Atom::String(b"ours"))]).unwrap();
    assert!(both.same(&format!("fetch\t{:#x}", pmid.word())).contains("ours"));
    assert_eq!(both.context.store(pmid, &[]), Err(pmapi::Error::VALUE));
    assert_eq!(both.context.store_all(&[]), Err(pmapi::Error::TOOSMALL));
}

#[test]
#[ignore = "needs PCP"]
fn texts_and_labels() {
    let pmcd = pmcd();
    let mut both = Both::new(&pmcd);
    let mut indoms = Vec::new();
    for (name, pmid) in both.metrics() {
        both.same(&format!("text\t{pmid:#x}\to"));
        both.same(&format!("text\t{pmid:#x}\th"));
        both.same(&format!("itemlabels\t{pmid:#x}"));
        both.same(&format!("clusterlabels\t{pmid:#x}"));
        if name != "sample.noinst" && !name.starts_with("sample.bad") {
            both.same(&format!("labels\t{pmid:#x}"));
        }
        let desc = pmapi::PmId::from_word(pmid).map(|pmid| both.context.lookup_desc(pmid));
        indoms.extend(desc.and_then(Result::ok).and_then(|desc| desc.indom).map(|indom| indom.word()));
    }
    indoms.sort_unstable();
    indoms.dedup();
    for indom in indoms {
        both.same(&format!("indomtext\t{indom:#x}\to"));
        both.same(&format!("indomtext\t{indom:#x}\th"));
        both.same(&format!("indomlabels\t{indom:#x}"));
        both.same(&format!("instanceslabels\t{indom:#x}"));
    }
    both.all(&["text 0x074fffff h", "text 0x5fc00001 o", "text 0x13400001 h", "indomtext 0x5fc00001 h"]);
    both.all(&["contextlabels", "domainlabels 29", "domainlabels 2", "domainlabels 300", "domainlabels 77"]);
    both.all(&["itemlabels 0x074fffff", "itemlabels 0x5fc00001", "indomlabels 0x5fc00001", "labels 0x5fc00001"]);
    both.all(&["instanceslabels 0x5fc00001", "instanceslabels 0x077fffff", "clusterlabels 0x074ffc00"]);
    let labelled = both.context.lookup_name("sample.long.one").unwrap();
    let merged = both.context.merged_labels(labelled).unwrap();
    assert_eq!(merged.value("agent"), Some("\"sample\""));
    assert!(merged.value("hostname").is_some(), "{merged}");
}

#[test]
#[ignore = "needs PCP"]
fn ways_to_connect() {
    let pmcd = pmcd();
    let port = pmcd.port();
    let socket = pmcd.host();
    let path = socket.strip_prefix("unix://").unwrap();
    let request = "names\tsample.bin";
    let expected = answer(&mut Context::connect(&socket).unwrap(), request);
    for host in [
        socket.clone(),
        format!("local:{path}"),
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        format!("localhost:1,{port}"),
        format!("pcp://127.0.0.1:{port}"),
        format!("[127.0.0.1]:{port}"),
        format!("[127.0.0.1]:1,{port}?x=y"),
    ] {
        let mut context = Context::connect(&host).unwrap_or_else(|e| panic!("{host}: {e}"));
        assert_eq!(answer(&mut context, request), expected, "{host}");
        assert_eq!(Oracle::new(&host).context, 0, "{host}");
    }
    for host in ["127.0.0.1:1", "[::1]:1", "nosuch.host.zz", "host:x", "", "?x", "[abc", "h:", "unix://x:"] {
        let error = Context::connect(host).unwrap_err();
        assert_eq!(pmapi::Error::from(error).code(), Oracle::new(host).context, "{host}");
    }
    // pmcd listens on IPv4 only; this relay listens on IPv6.
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let host = format!("[::1]:{}", listener.local_addr().unwrap().port());
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let pmcd = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (from, to) = (client.try_clone().unwrap(), pmcd.try_clone().unwrap());
            thread::spawn(move || io::copy(&mut &from, &mut &to));
            let _ = io::copy(&mut &pmcd, &mut &client);
        }
    });
    assert_eq!(answer(&mut Context::connect(&host).unwrap(), request), expected);
    // A specification without ports uses those of the settings.
    let mut settings = Settings::default();
    settings.ports = vec![1, port];
    let spec: HostSpec = "127.0.0.1".parse().unwrap();
    assert_eq!(answer(&mut Context::new(spec, settings).unwrap(), request), expected);
    let mut settings = Settings::default();
    settings.socket = path.into();
    assert_eq!(answer(&mut Context::new("local:".parse().unwrap(), settings.clone()).unwrap(), request), expected);
    // pmcd checks the container only when a request needs it.
    let mut context = Context::new("unix:?container=none".parse().unwrap(), settings).unwrap();
    assert_eq!(answer(&mut context, request), expected);
}

#[test]
#[ignore = "needs PCP"]
fn through_pmproxy() {
    let pmcd = pmcd();
    let proxy_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let in_dir = |name: &str| pmcd.dir().join(name);
    let mut pmproxy = testkit::Pcp::required()
        .command("pmproxy")
        .args(["-A", "-d", "-f", "-i", "127.0.0.1", "-U", "root", "-p", &proxy_port.to_string()])
        .args(["-l".into(), in_dir("pmproxy.log"), "-s".into(), in_dir("pmproxy.socket")])
        .args(["-x".into(), in_dir("pmproxy.fatal")])
        .envs([("PCP_RUN_DIR", in_dir("run")), ("PCP_TMP_DIR", in_dir("tmp"))])
        .spawn()
        .unwrap();
    let host = format!("127.0.0.1:1,{}@127.0.0.1:{proxy_port}", pmcd.port());
    // Retries until pmproxy listens.
    let context = (0..500).find_map(|_| {
        thread::sleep(std::time::Duration::from_millis(10));
        Context::connect(&host).ok()
    });
    let answers = context.map(|mut context| answer(&mut context, "traverse\tsample"));
    let theirs = Oracle::new(&host).answer("traverse\tsample");
    pmproxy.kill().unwrap();
    pmproxy.wait().unwrap();
    assert_eq!(answers.as_deref().map(str::trim), Some(theirs.trim()));
}

#[test]
#[ignore = "needs PCP"]
fn state_changes() {
    let mut pmcd = pmcd();
    let mut context = Context::connect(&pmcd.host()).unwrap();
    let pmid = context.lookup_name("sample.long.one").unwrap();
    assert_eq!(context.fetch(&[pmid]).unwrap().changes(), Changes::default());
    let simple = testkit::Pcp::required().c_agent("simple");
    pmcd.set_agents(vec![simple.agent()]);
    pmcd.sighup();
    let sample = context.fetch(&[pmid]).unwrap();
    assert!(sample.changes().contains(Changes::AGENT_DROPPED), "{sample:?}");
    assert_eq!(sample.set(0).unwrap().error, Some(pmapi::Error::NOAGENT));
    assert_eq!(context.fetch(&[pmid]).unwrap().changes(), Changes::default());
}
