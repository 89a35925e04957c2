//! Agent sample: values of every type, events, dynamic names, labels, an agent that is not ready.

use crate::sessions::{Sessions, shows};

#[test]
#[ignore = "needs PCP"]
fn values() {
    let metrics = [
        "sample.long.one sample.long.million sample.ulong.million",
        "sample.longlong.million sample.ulonglong.million sample.longlong.bin",
        "sample.float.one sample.float.million sample.float.bin",
        "sample.double.one sample.double.million sample.double.bin",
        "sample.string.null sample.string.hullo sample.string.bin",
        "sample.aggregate.null sample.aggregate.hullo",
        "sample.bin sample.part_bin sample.bogus_bin sample.scramble.bin",
        "sample.colour sample.noinst sample.darkness sample.bad.unknown sample.bad.nosupport sample.bad.novalues",
        "sample.dupnames.two.bin sample.ulong.bin_ctr sample.many.count",
        "29.0.6 0.6 29.0.1022 1.2.3",
    ];
    let mut script = String::new();
    for switches in ["", "getdesc on", "getiname on", "getdesc off", "getiname off"] {
        script += &format!("{switches}\n");
        for metrics in metrics {
            script += &format!("fetch {metrics}\n");
            for metric in metrics.split(' ') {
                script += &format!("fetch {metric}\ndesc {metric}\n");
            }
        }
    }
    let shown = Sessions::c_agent("sample").same(&script);
    shows(
        &shown,
        &[
            "value \"hullo world!\"",
            "value 1 1.4012985e-45 0x1",
            "(sample.dupnames.five.bin, sample.dupnames.four.bin, ",
            "(sample.dupnames.five.bin or sample.dupnames.four.bin or ",
            "inst [900 or \"bin-900\"] value 900",
            "Data Type: aggregate  InDom: PM_INDOM_NULL 0xffffffff",
            "Data Type: Not Supported",
            "No values returned!",
        ],
    );
}

#[test]
#[ignore = "needs PCP"]
fn events() {
    let fetches = "fetch sample.event.records\nfetch sample.event.highres_records\n".repeat(6);
    let script = format!(
        "store sample.event.reset \"0\"\n{fetches}getdesc on\n{fetches}getiname on\n{fetches}desc sample.event.records"
    );
    let shown = Sessions::c_agent("sample").same(&script);
    shows(&shown, &["[0 event records]", "[1 event record timestamp CLOCK]", "(7 missed) timestamps CLOCK...CLOCK]"]);
}

#[test]
#[ignore = "needs PCP"]
fn dynamic_names() {
    let shown = Sessions::c_agent("sample").same(
        r#"
children sample.secret
children sample.secret.foo
children sample.secret.bar
children sample
children sample.nosuch
traverse sample.secret
traverse sample.secret.foo.bar
traverse sample.long
pmid sample.secret.foo.bar.four
pmid sample.secret.nosuch
pmid sample.bin
name 29.0.1006
name 29.0.6
name 1.2.3
name 511.29.0
desc sample.secret.foo.one
desc sample.secret.nosuch
desc sample.secret
desc 511.29.0
fetch sample.secret.foo.one sample.secret.foo.bar.max.redirect
fetch sample.secret.foo.one sample.secret.nosuch sample.bin
store sample.secret.foo.one "1"
text sample.secret.foo.one
label item sample.secret.bar
getiname on
fetch sample.secret.bar
store sample.ghosts.visible "3"
instance 29.11
fetch sample.ghosts.origin
store sample.ghosts.visible "-1"
fetch sample.ghosts.origin
close
desc sample.secret.foo.one
fetch sample.secret.foo.one
"#,
    );
    shows(
        &shown,
        &["   non-leaf foo", "   sample.secret.foo.bar.grunt.five", "29.0.1001 (<noname>)", "value \"Africa\""],
    );
}

#[test]
#[ignore = "needs PCP"]
fn texts_and_labels() {
    let shown = Sessions::c_agent("sample").same(
        r#"
text sample.bin
text sample.bad.unknown
text sample.long.one
text 29.0.1022
text indom 29.1
text indom 29.2
text indom 29.50
label context
label domain
label indom 29.1
label indom 29.2
label indom 29.50
label cluster 29.0
label cluster 29.7
label item sample.rapid
label item sample.colour
label item 29.0.1022
label instances 29.1
label instances 29.2
profile 29.2 none
profile 29.2 add 300
label instances 29.2
label instances 29.50
"#,
    );
    shows(&shown, &["[Several constant instances]", "    unitsystem=\"SI\"", "[  8] Labels inst: 900\n    bin=900"]);
}

#[test]
#[ignore = "needs PCP"]
fn not_ready() {
    let shown = Sessions::c_agent("sample").same(
        "getdesc on\nstore sample.not_ready \"2\"\nfetch sample.bin\ninstance 29.1\ndesc sample.bin\nwait 4\n\
         desc sample.bin\ninstance 29.1\ntext sample.bin\nfetch sample.long.one\nstatus",
    );
    shows(&shown, &["Error PDU: PMDA is not yet ready to respond to requests"]);
    // Both programs treat an unsolicited PDU as the next answer.
    shows(&shown, &["Error PDU: PMDA is now responsive to requests"]);
}

#[test]
#[ignore = "needs PCP"]
fn clients() {
    // The agent counts the PDUs from each client.
    let shown = Sessions::c_agent("sample").same(
        "getdesc on\nfetch sample.percontext.pdu sample.percontext.control.active\nfetch sample.percontext.pdu\n\
         attr 11 \"0\"\nattr \"username\" \"somebody else\"\nattr 13\nattr 0 \"x\"\nattr \"nosuch\"\n\
         fetch sample.percontext.pdu\nclose\nopen pipe AGENT\nfetch sample.percontext.pdu",
    );
    shows(&shown, &["Attribute: username=somebody else\nSuccess"]);
    shows(&shown, &["Attribute: local=''\nSuccess"]);
}

/// Lists without names show nothing.
#[test]
#[ignore = "needs PCP"]
fn traces_of_no_names() {
    let shown =
        Sessions::c_agent("sample").same("debug pmns\nchildren sample\ntraverse nothing\nchildren sample.secret\n");
    shows(&shown, &["pdu=PMNS_TRAVERSE", "namelist dump: numnames = "]);
}
